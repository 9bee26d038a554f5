//! Proves the rows of files, and counts.
use std::sync::Arc;
use unwind_sim_tables::check::{Options, check};
use unwind_sim_tables::file::File;

fn main() {
    let verbose = std::env::var("V").is_ok();
    for path in std::env::args().skip(1) {
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        let Ok(file) = File::read(&path, Arc::new(bytes)) else {
            continue;
        };
        let t = std::time::Instant::now();
        let report = check(
            &file,
            &Options {
                threads: std::env::var("T").map_or(1, |t| t.parse().unwrap()),
                ..Options::default()
            },
        );
        let took = t.elapsed();
        let totals = report.totals();
        if verbose {
            for f in &report.functions {
                let name = file.image().symbol(f.range.start).map_or("?", |s| &s.name);
                for c in &f.verdict.contradictions {
                    println!(
                        "C {path} {:#x} pc {:#x} row {:#x?} {:?} found {:?} sp {:?} right {} path {:x?} {name}",
                        f.range.start,
                        c.pc,
                        c.row.start,
                        c.subject,
                        c.found,
                        c.sp,
                        c.right.map_or("-".into(), |r| r.to_string()),
                        c.path
                    );
                }
                if f.verdict.contradictions.is_empty() {
                    for (d, at) in &f.verdict.doubts {
                        println!(
                            "D {path} {:#x} {} at {:#x} {name}",
                            f.range.start,
                            d.as_str(),
                            at
                        );
                    }
                }
            }
        }
        println!(
            "{path} {took:?} steps {} fdes {} proven {} contradicted {} unproven {} {:?}",
            report.steps,
            totals.all.functions,
            totals.proven.functions,
            totals.contradicted.functions,
            totals.unproven.functions,
            totals.doubts
        );
    }
}
