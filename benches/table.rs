//! A whole table, in ns per row: bare gimli evaluates every row of an `.eh_frame`, and ours
//! compiles the same rows into its own form.
//!
//! `cargo bench --bench table`; `-- none` skips criterion's statistics, `--test` only counts.
mod common;
mod ours;

use std::path::Path;
use std::time::Duration;

use common::gimli_peer;
use common::image::Elf;
use common::report;
use common::timing::{Clock, Measured, cpu_time, duel};
use criterion::Criterion;

/// Goal: the time of a derived table relative to the one it is derived from, at most.
const DERIVED_GOAL: f64 = 1.2;
const ROUNDS: usize = 9;
const GIMLI: &str = "gimli bare";
/// (name, file, Debian package that holds it, goal: our time relative to gimli's, at most)
const FILES: [(&str, &str, &str, f64); 2] = [
    ("libc", "/lib/x86_64-linux-gnu/libc.so.6", "libc6", 0.6),
    (
        "libLLVM",
        "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
        "libllvm14",
        0.9,
    ),
];

fn main() {
    let test = std::env::args().any(|a| a == "--test");
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();

    for (name, path, package, goal) in FILES {
        let Some(elf) = Elf::open(Path::new(path)) else {
            println!("skipped: {name}: no {path} (package {package})");
            continue;
        };

        // Counted first: both sides' times are divided by gimli's number of rows.
        let (fdes, rows) = gimli_peer::count_rows(&elf);
        println!("{name:<14} {fdes} FDEs, {rows} rows");

        let mut rivals = vec![Measured::new(GIMLI, || gimli_peer::count_rows(&elf).1)];
        rivals.extend(ours::compilers(&elf, rows));

        let mut group = criterion.benchmark_group(format!("table {name}"));
        for rival in &mut rivals {
            group.bench_function(rival.name.as_str(), |b| {
                b.iter_custom(|calls| {
                    cpu_time(|| {
                        // The sum keeps the compiler from leaving out the work.
                        std::hint::black_box((0..calls).map(|_| (rival.run)()).sum::<u64>());
                    })
                });
            });
        }
        group.finish();

        // A test only shows that everything runs.
        if test {
            continue;
        }

        let figures = duel(Clock::ThreadCpu, ROUNDS, &mut rivals);
        report::print(name, "row", &figures, figures.first());
        report::head();

        // The first is gimli's, the next our DWARF rows, the rest is derived from those.
        let [gimli, ours @ ..] = &figures[..] else {
            continue;
        };
        for figure in ours {
            let work = format!("compile {name}: {}", figure.name);
            report::row(&work, "row", figure, gimli, Some(goal));
        }

        // SFrame and ORC rows are made from compiled DWARF rows, so they are compared with these.
        if let [dwarf, derived @ ..] = ours {
            for figure in derived {
                let work = format!("derive {name}: {}", figure.name);
                report::row(&work, "row", figure, dwarf, Some(DERIVED_GOAL));
            }
        }
    }

    criterion.final_summary();
    report::finish();
}
