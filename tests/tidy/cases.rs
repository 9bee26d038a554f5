//! Cases: each has a claim and a source, is where the harness finds it, and can be read. The
//! harness checks whether they hold.

use crate::none;
use crate::repository::{files, paths, top};
use unwind_sim_judge::case::COLUMNS_MAX;
use unwind_sim_judge::cases;

const CASES: &str = "corpus/cases/";
const ERRORS: &str = "corpus/errors/";

#[test]
fn cases_keep_to_the_width() {
    let mut faults = Vec::new();
    for file in files(".s")
        .iter()
        .filter(|file| file.path.starts_with(CASES))
    {
        for (index, line) in file.text.lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX {
                faults.push(format!(
                    "{}:{}: over {COLUMNS_MAX} columns",
                    file.path,
                    index + 1
                ));
            }
        }
    }
    none(&faults);
}

#[test]
fn every_case_has_its_claim_and_its_source() {
    let mut faults = Vec::new();
    for file in files(".s")
        .iter()
        .filter(|file| file.path.starts_with(CASES))
    {
        let path = &file.path;
        let case = match cases::read(&top().join(path)) {
            Ok(case) => case,
            Err(error) => {
                faults.push(error.to_string());
                continue;
            }
        };

        if case.header.claim.is_empty() || case.header.sources.is_empty() {
            faults.push(format!("{path}: no claim, or no source"));
        }

        // The header says which folder a case is in.
        let place = format!("{CASES}{}/{}.s", case.header.group, case.name);
        if *path != place {
            faults.push(format!("{path}: by its header it belongs to {place}"));
        }
        // A case without expectations would be run and never fail.
        if case.expected.is_none() {
            faults.push(format!("{path}: run unwind-sim cases bless {}", case.name));
        }
    }

    none(&faults);
}

#[test]
fn no_case_is_dead() {
    let found = cases::find(&top().join(CASES)).expect("the harness finds the cases");
    let found: Vec<String> = found
        .iter()
        .map(|path| {
            path.strip_prefix(top())
                .expect("below the top")
                .display()
                .to_string()
        })
        .collect();

    // The harness finds every source; any other file must be included by one.
    let all = paths().into_iter().filter(|path| path.starts_with(CASES));
    let (sources, others): (Vec<_>, Vec<_>) = all.partition(|path| path.ends_with(".s"));
    // A source in a folder that the harness does not look into would never be run.
    assert_eq!(found, sources);

    let texts = files("");
    let named = |name: &str| {
        let include = format!(".include \"{name}\"");
        texts
            .iter()
            .any(|file| file.path.starts_with(CASES) && file.text.contains(&include))
    };
    let faults = others.iter().filter(|path| !named(&path[CASES.len()..]));
    none(
        &faults
            .map(|path| format!("{path}: no case includes it"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_malformed_case_has_its_message() {
    let all: Vec<_> = paths()
        .into_iter()
        .filter(|path| path.starts_with(ERRORS))
        .collect();
    let mut faults = Vec::new();
    for path in &all {
        let (stem, extension) = path.rsplit_once('.').expect("a name with an extension");
        let other = if extension == "s" { "txt" } else { "s" };
        if !all.contains(&format!("{stem}.{other}")) {
            faults.push(format!("{path}: there is no {stem}.{other}"));
        }
    }
    none(&faults);
}
