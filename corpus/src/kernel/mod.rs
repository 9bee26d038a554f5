//! stub
use std::path::{Path,PathBuf};
use std::sync::Arc;
use std::ops::Range;
use unwind_sim_unwind::image::*;
#[derive(Clone,Debug,Default)]
pub struct OpenOptions { pub system_map: Option<PathBuf> }
#[derive(Clone,Debug,PartialEq,Eq)]
pub struct KernelError(String);
impl std::fmt::Display for KernelError { fn fmt(&self,f:&mut std::fmt::Formatter<'_>)->std::fmt::Result { f.write_str(&self.0) } }
pub struct KernelImage { pub image: Arc<Image>, pub version: Option<String>, pub range: Range<u64> }
impl KernelImage { pub fn kaslr(&self, _: &[u64]) -> Option<u64> { None } }
pub fn open(path:&Path, _o:&OpenOptions)->Result<KernelImage,KernelError>{
 use object::{Object,ObjectSection};
 let bytes=std::fs::read(path).map_err(|e|KernelError(e.to_string()))?;
 let f=object::File::parse(bytes.as_slice()).map_err(|e|KernelError(e.to_string()))?;
 let mut parts=ImageParts{name:"vmlinux".into(),..Default::default()};
 for (n,k) in [(".orc_unwind",SectionKind::OrcUnwind),(".orc_unwind_ip",SectionKind::OrcUnwindIp),(".orc_header",SectionKind::OrcHeader)]{
  if let Some(s)=f.section_by_name(n){ parts.sections.push(Section{kind:k,address:s.address(),data:Bytes::from_vec(s.data().unwrap().to_vec())}); }
 }
 for s in f.sections(){ if s.kind()==object::SectionKind::Text { parts.text.push(s.address()..s.address()+s.size()); } }
 let map=std::fs::read_to_string(path.with_extension("map").to_str().unwrap().replace("vmlinux-6.map","vmlinux-6.1.map")).unwrap();
 for l in map.lines(){ let mut w=l.split(' '); let a=u64::from_str_radix(w.next().unwrap(),16).unwrap(); let t=w.next().unwrap(); let n=w.next().unwrap(); if "tTwW".contains(t)||n.starts_with('_'){ parts.symbols.push(Symbol{address:a,size:0,name:n.into()}); } }
 let get=|n:&str|parts.symbols.iter().find(|s|s.name==n).unwrap().address;
 let range=get("_text")..get("_end");
 Ok(KernelImage{range,image:Arc::new(Image::new(parts)),version:Some("6.1.0-50-cloud-amd64".into())})
}
