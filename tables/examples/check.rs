//! Proves the rows of files, and counts.
use std::collections::BTreeMap;
use std::sync::Arc;
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::program::{Entry, Program};
use unwind_sim_tables::proof::verdict::Verdict;
use unwind_sim_tables::proof::walk::Walker;

fn main() {
    let mut all = BTreeMap::new();
    let verbose = std::env::var("V").is_ok();
    for path in std::env::args().skip(1) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(file) = File::read(&path, Arc::new(bytes)) else { continue };
        let t = std::time::Instant::now();
        let program = Program::new(&file);
        let read = t.elapsed();
        let mut walker = Walker::new(&program);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut steps = 0u64;
        for (i, unit) in program.functions.iter().enumerate() {
            if let Ok(f) = std::env::var("F") && u64::from_str_radix(&f, 16).unwrap() != unit.range.start { continue; }
            if unit.entry == Entry::Part { *counts.entry("part".into()).or_default() += 1; continue; }
            let Some(followed) = walker.follow(i) else { *counts.entry("nocode".into()).or_default() += 1; continue };
            steps += u64::from(followed.steps);
            let Some(mut found) = followed.found.into_iter().next() else { continue };
            if let Some(at) = found.body.unreached(&file) { found.verdict.doubt(unwind_sim_tables::proof::verdict::Doubt::Unreached, at); }
            let v = found.verdict.verdict();
            let name = file.image().symbol(unit.range.start).map_or("?", |s| &s.name);
            match v {
                Verdict::Proven => *counts.entry("proven".into()).or_default() += 1,
                Verdict::Contradicted => {
                    *counts.entry("contradicted".into()).or_default() += 1;
                    if verbose {
                        let c = &found.verdict.contradictions[0];
                        println!("C {path} {name} {:#x}: pc {:#x} row {:#x?} {:?} found {:?} sp {:?} path {:x?}", unit.range.start, c.pc, c.row.start, c.subject, c.found, c.sp, c.path);
                    }
                }
                Verdict::Unproven => {
                    for (d, at) in &found.verdict.doubts {
                        *counts.entry(format!("doubt {}", d.as_str())).or_default() += 1;
                        if verbose { println!("D {path} {name} {:#x}: {} at {:#x}", unit.range.start, d.as_str(), at); }
                    }
                    *counts.entry("unproven".into()).or_default() += 1;
                }
            }
        }
        let took = t.elapsed();
        println!("{path}: {} fdes, read {read:?}, all {took:?}, {steps} steps, {:?}", program.functions.len(), counts);
        for (k, v) in counts { *all.entry(k).or_insert(0) += v; }
    }
    println!("{all:?}");
}
