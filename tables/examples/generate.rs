//! Generates the tables of files from their code and compares them with the ones they have:
//! `generate [--verbose] orc:4.14|eh_frame FILE...`.

use std::collections::BTreeMap;
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::file::File;
use unwind_sim_tables::generate::compare::{Class, compare};
use unwind_sim_tables::generate::{Boundaries, Generated};
use unwind_sim_tables::table::Table;

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let verbose = args.first().is_some_and(|a| a == "--verbose");
    if verbose {
        args.remove(0);
    }
    let Some(target) = args.first().and_then(|name| Target::from_name(name)) else {
        eprintln!("usage: generate [--verbose] FORMAT FILE...");
        return;
    };
    let mut sum: BTreeMap<Class, u64> = BTreeMap::new();
    for path in args.iter().skip(1) {
        let Ok(data) = std::fs::read(path) else {
            eprintln!("cannot read {path}");
            continue;
        };
        let file = match File::read(path, std::sync::Arc::new(data)) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("{error}");
                continue;
            }
        };
        let Some(old) = Table::read(&file, target.kind()) else {
            continue;
        };
        let boundaries = match file.is_relocatable() {
            true => Boundaries::Symbols,
            false => Boundaries::Table,
        };
        let (new, result) = compare(&file, boundaries, &old, target);
        print!("{path}: {} bytes", result.total());
        for (class, count) in &result.addresses {
            print!(", {} {count}", class.as_str());
            *sum.entry(*class).or_default() += count;
        }
        println!();
        if verbose {
            list(&file, &old, &new, &result.listed);
        }
    }
    let total: u64 = sum.values().sum();
    println!("sum: {total} bytes");
    for (class, count) in sum {
        let share = 100.0 * count as f64 / total.max(1) as f64;
        println!("  {}: {count} ({share:.4} %)", class.as_str());
    }
}

fn list(file: &File, old: &Table, new: &Generated, listed: &[(Class, u64, u64)]) {
    for &(class, start, len) in listed {
        let name = new.function_at(start).map_or("", |f| &f.name);
        let place = file.place(start);
        let old = old.row_at(start).map(|r| r.rule.to_string());
        let new = new.rule_at(start).map(ToString::to_string);
        println!("  {} {start:#x} {place:x?} +{len} {name}", class.as_str());
        println!("    file: {}", old.unwrap_or_default());
        println!("    code: {}", new.unwrap_or_default());
    }
}
