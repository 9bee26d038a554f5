//! Hostile ELF files, whose tables are proven from the code, and made from it.

use std::sync::Arc;
use unwind_sim_tables::check::{self, Options};
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::file::File;
use unwind_sim_tables::generate::{Boundaries, Options as Wanted, generate as rows_of};
use unwind_sim_tables::proof::verdict::{Doubt, Verdict};

/// An ELF file: every function has a verdict, with a reason unless it is proven, and the same report
/// comes from two threads.
pub fn check(data: &[u8]) {
    let Ok(file) = File::read("fuzzed", Arc::new(data.to_vec())) else {
        return;
    };
    let report = check::check(&file, &Options::default());

    for checked in &report.functions {
        let (wrong, doubts) = (&checked.verdict.contradictions, &checked.verdict.doubts);
        // Only where there is no code may what passes for a length be longer than all code, and left out.
        let has_code = doubts.iter().all(|doubt| doubt.0 != Doubt::NoCode);
        assert!(checked.range.start < checked.range.end + u64::from(!has_code));
        match checked.verdict.verdict() {
            Verdict::Proven => assert!(wrong.is_empty() && doubts.is_empty()),
            Verdict::Unproven => assert!(!doubts.is_empty()),
            Verdict::Contradicted => assert!(!wrong.is_empty()),
        }
    }

    // The order of threads must not show in a report.
    let threads = 2;
    let again = check::check(
        &file,
        &Options {
            threads,
            ..Options::default()
        },
    );

    let verdicts = |report: &check::Report| -> Vec<_> {
        report.functions.iter().map(|f| f.verdict.clone()).collect()
    };
    assert_eq!(verdicts(&report), verdicts(&again));
}

/// An ELF file: rows made from its code lie in their functions, in order.
pub fn generate(data: &[u8]) {
    let Ok(file) = File::read("fuzzed", Arc::new(data.to_vec())) else {
        return;
    };
    let all = [Boundaries::Symbols, Boundaries::Table, Boundaries::All];

    // Every way to find functions, with every layout of ORC.
    let options = all.into_iter().flat_map(|boundaries| {
        let orc = Target::ALL
            .into_iter()
            .filter(|t| matches!(t, Target::Orc(_)));
        orc.map(move |target| Wanted::new(boundaries, target))
    });

    for options in options {
        let Ok(generated) = rows_of(&file, options) else {
            continue;
        };
        for function in generated.functions {
            // Rows follow each other without overlapping; gaps are allowed.
            let mut end = function.range.start;
            for (range, _) in &function.rows {
                assert!(range.start >= end && range.start < range.end);
                end = range.end;
            }
            assert!(end <= function.range.end);
        }
    }
}
