use std::sync::Arc;
use unwind_sim_tables::{file::File, selftest::{run, Options, Score}};
fn main() {
    let n: usize = std::env::var("N").map_or(300, |t| t.parse().unwrap());
    let mut all = Score::default();
    for path in std::env::args().skip(1) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(file) = File::read(&path, Arc::new(bytes)) else { continue };
        let t = std::time::Instant::now();
        let Some(s) = run(&file, &Options { seed: 1, defects: n }) else { continue };
        println!("{path} {:?} {:?} {:.2}", t.elapsed(), s.total(), s.total().score());
        for m in &s.misses { println!("M {path} {:<15} f {:#x} row {:#x} {} | {}", m.kind.as_str(), m.function, m.row, m.answer, m.change); }
        for m in &s.conflicts { println!("X {path} {:<15} f {:#x} row {:#x} {} | {}", m.kind.as_str(), m.function, m.row, m.answer, m.change); }
        all.add(s);
    }
    for (k, t) in &all.kinds { println!("{:<16} {:?} {:.2}", k.as_str(), t, t.score()); }
    println!("{:?} {:.2} {:?}", all.total(), all.total().score(), all.arguments);
}
