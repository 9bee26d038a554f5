//! Judges the chains of recordings with truth again, without it, and prints what was said of them.
//!
//! `cargo run --example forgotten -- RECORDING..`. The exit status is 1 if a chain was called whole that
//! is not the true one.

use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::ExitCode;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::spec;
use unwind_sim_judge::whole::Forgotten;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::cache::Cache;

const UNWINDERS: [&str; 4] = ["dwarf", "fp", "dwarf+fp", "guess"];

fn main() -> Result<ExitCode> {
    println!("| recording | true: whole | broken | unknown | other: whole | broken | unknown |");
    println!("|---|---|---|---|---|---|---|");
    let mut all = Forgotten::default();
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let found = judged(path).with_context(|| path.display().to_string())?;
        print_line(&name, &found);
        add(&mut all, &found);
    }
    print_line("all", &all);
    Ok(match all.wrong[0] {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn add(all: &mut Forgotten, more: &Forgotten) {
    let right = all.right.iter_mut().zip(more.right);
    let wrong = all.wrong.iter_mut().zip(more.wrong);
    right.chain(wrong).for_each(|(sum, count)| *sum += count);
}

/// The sums over all unwinders.
fn judged(path: &Path) -> Result<Forgotten> {
    let input = Input::open(path, &Default::default())?;
    let engines: Result<Vec<_>, _> = UNWINDERS.iter().map(|name| spec::engine(name)).collect();
    let run = Run {
        engines: engines?,
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: GroupBy::default(),
    };
    let mut found = Forgotten::default();
    let mut cache = Cache::new();
    run.for_each(&input, &Filter::default(), &mut |view, _, outcome| {
        found.add(view, outcome, &mut cache);
        Ok(())
    })?;
    Ok(found)
}

/// Of the chains that are the true one, how many are called whole, broken and unknown; then the same of
/// the others.
fn print_line(name: &str, found: &Forgotten) {
    let ([a, b, c], [d, e, f]) = (found.right, found.wrong);
    println!("| {name} | {a} | {b} | {c} | {d} | {e} | {f} |");
}
