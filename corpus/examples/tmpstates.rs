use unwind_sim_corpus::import::*; use unwind_sim_corpus::model::*; use unwind_sim_corpus::world::World;
use unwind_sim_unwind::kernel::{*, perf::*};
use unwind_sim_unwind::start::*;
use std::ops::ControlFlow;
fn main(){
 let mut a=std::env::args().skip(1); let k=a.next().unwrap();
 for f in a {
  let mut o=ImportOptions::default(); o.kernel=Some(k.clone().into());
  let mut images=vec![]; let mut world=World::new();
  let (mut n,mut same,mut states_n,mut chain_same,mut chain_n)=(0,0,0,0,0);
  let mut code=None;
  let mut finds=Finds::default();
  let mut shown=0;
  import(std::path::Path::new(&f),&o,&mut |i|{ match i {
   ImportItem::Image{image,..}=>images.push(image),
   ImportItem::Item(Item::Event(e))=>world.apply(&e,&images),
   ImportItem::Item(Item::Sample(s))=>{
     let ks=s.kernel.as_ref().unwrap();
     let code=code.insert(Code::new(world.space(0),Version::from_name(&ks.release).unwrap(),None));
     let mem=s.memory();
     let kern=Kernel{code,task:&ks.task,memory:&mem};
     let variant=if s.regs.is_fake(){Variant::Fake(FakeVariant::V5_2)}else{Variant::Hardware};
     let start=s.regs.start(variant,false,&mem).unwrap();
     let mut ips=vec![];
     let r=callchain(Kind::Orc,kern,&start,127,&mut finds,&mut |v| match v {
       Visit::Ip(ip)=>ips.push(ip),
       Visit::Stored(_,a)=>ips.push(a),
       _=>{}
     });
     n+=1;
     if !ks.states.is_empty() {
       states_n+=ks.states.len();
       let got=states(Kind::Orc,kern,&start,500,&mut finds).unwrap();
       match first_difference(&got,&ks.states) { None=>same+=1, Some(i)=> if shown<3 { shown+=1; println!("sample {} differs at {i}: {} against {} states", s.time,got.len(),ks.states.len()); println!(" ours {:x?}", got.get(i)); for d in [1,0] { println!("   kernel {:x?}", ks.states.get(i.wrapping_sub(d))); } println!("{:?}",r);} }
     }
     for c in &s.recorded { chain_n+=1; if c.ips==ips {chain_same+=1} else if shown<3 { shown+=1; println!("sample {} chain ours {:x?} kernel {:x?} {:x?}", s.time, ips, c.ips, r.map(|r|r.1)); } }
   }} ControlFlow::Continue(()) }).unwrap();
  println!("{f}: {n} samples, {same} with all states equal ({states_n} states), chains {chain_same}/{chain_n}");
 }
}
