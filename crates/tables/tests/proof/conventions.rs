//! What is judged by which convention, what the user chooses instead, and whether the claims of each
//! convention are tested: defects are put into them.

use crate::proof::build::{Scratch, open};
use crate::proof::fixtures::link;
use unwind_sim_tables::check::{Checked, Options, check};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claims::{Claims, UserChoice};
use unwind_sim_tables::proof::verdict::Verdict;
use unwind_sim_tables::selftest::{self, Kind, Score};
use unwind_sim_unwind::convention::{Convention, Evidence};
use unwind_sim_unwind::regs::{Reg, RegMask};

fn fixture(scratch: &Scratch, name: &str) -> File {
    let path = link(scratch, name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
    open(&path).1
}

fn checked(file: &File, choice: UserChoice, name: &str) -> Checked {
    let options = Options {
        choice,
        ..Options::default()
    };
    let report = check(file, &options);
    let mut functions = report.functions.into_iter();
    let is_it = |f: &Checked| file.names_at(f.range.start).any(|n| n == name);
    functions
        .find(is_it)
        .unwrap_or_else(|| panic!("{name} is not there"))
}

#[test]
fn a_report_says_how_many_functions_were_judged_by_which_convention() {
    let scratch = Scratch::new("counted");
    let counted = |name| {
        let report = check(&fixture(&scratch, name), &Options::default());
        report.totals().conventions
    };

    let unsaid = (Convention::SystemV, Evidence::Nothing);
    assert_eq!(
        counted("ocaml"),
        [(unsaid, 4), ((Convention::Ocaml, Evidence::Symbols), 9)]
    );
    assert_eq!(
        counted("go"),
        [(unsaid, 3), ((Convention::Go, Evidence::GoFunctions), 6)]
    );
    assert_eq!(
        counted("units"),
        [
            (unsaid, 2),
            ((Convention::SystemV, Evidence::Producer), 1),
            ((Convention::SystemV, Evidence::Function), 1),
            ((Convention::Ghc, Evidence::Producer), 1),
            ((Convention::Zig, Evidence::Producer), 3),
            ((Convention::PreserveNone, Evidence::Function), 2),
        ]
    );
}

#[test]
fn what_the_user_chooses_overrules_the_file() {
    let scratch = Scratch::new("chosen");
    let file = fixture(&scratch, "ocaml");

    let by = |choice, name| checked(&file, choice, name).verdict.verdict();
    let convention = |convention| UserChoice {
        convention: Some(convention),
        claims: None,
    };
    let claims = |return_address, registers: &[Reg]| UserChoice {
        convention: None,
        claims: Some(Claims::chosen(return_address, RegMask::of(registers))),
    };

    let (ocaml, c) = ("good_ocaml_keeps_nothing", "bad_c_before_ocaml");
    assert_eq!(by(UserChoice::default(), ocaml), Verdict::Proven);
    assert_eq!(
        by(convention(Convention::SystemV), ocaml),
        Verdict::Contradicted
    );
    assert_eq!(by(convention(Convention::Ocaml), c), Verdict::Proven);
    assert_eq!(by(convention(Convention::Ghc), c), Verdict::Unproven);
    assert_eq!(by(claims(true, &[]), c), Verdict::Proven);
    assert_eq!(by(claims(true, &[Reg::Rbp]), c), Verdict::Proven);
    assert_eq!(
        by(claims(true, &Reg::CALLEE_SAVED), ocaml),
        Verdict::Contradicted
    );
    // A wrong CFA is one whatever else is claimed.
    assert_eq!(
        by(claims(false, &[]), "bad_ocaml_cfa"),
        Verdict::Contradicted
    );

    let given = checked(&file, convention(Convention::Go), c);
    assert_eq!(
        (given.convention, given.evidence),
        (Convention::Go, Evidence::Given)
    );
}

#[test]
fn the_return_address_is_judged_only_if_it_is_claimed() {
    let scratch = Scratch::new("address");
    let file = fixture(&scratch, "rows");
    let report = check(&file, &Options::default());

    let only_address = |f: &&Checked| {
        let all = &f.verdict.contradictions;
        !all.is_empty() && all.iter().all(|c| c.code().as_str() == "US502")
    };

    let wrong: Vec<u64> = report
        .functions
        .iter()
        .filter(only_address)
        .map(|f| f.range.start)
        .collect();
    assert!(!wrong.is_empty());

    let options = Options {
        choice: UserChoice {
            convention: None,
            claims: Some(Claims::chosen(false, RegMask::NONE)),
        },
        ..Options::default()
    };
    let report = check(&file, &options);

    for start in wrong {
        let checked = report
            .functions
            .iter()
            .find(|f| f.range.start == start)
            .expect("there");
        assert_eq!(checked.verdict.contradictions, [], "{start:#x}");
    }
}

fn score(name: &str) -> Score {
    let scratch = Scratch::new(name);
    let options = selftest::Options {
        seed: 3,
        defects: 400,
        choice: UserChoice::default(),
    };
    selftest::run(&fixture(&scratch, name), &options).expect("a table with proven functions")
}

#[test]
fn defects_in_what_a_convention_claims_are_found() {
    for (name, kinds) in [
        (
            "ocaml",
            &[
                Kind::CfaOffset,
                Kind::CfaRegister,
                Kind::RowLate,
                Kind::WrongSlot,
            ][..],
        ),
        (
            "go",
            &[
                Kind::CfaOffset,
                Kind::CfaRegister,
                Kind::MissingRow,
                Kind::SwappedFde,
            ],
        ),
        (
            "units",
            &[Kind::CfaOffset, Kind::WrongSlot, Kind::DroppedSave],
        ),
    ] {
        let score = score(name);
        assert_eq!(
            (&score.misses[..], &score.conflicts[..]),
            (&[][..], &[][..]),
            "{name}"
        );
        for kind in kinds {
            let tally = score
                .kinds
                .iter()
                .find(|k| k.0 == *kind)
                .expect("all kinds")
                .1;
            assert!(tally.caught > 0, "{name}: {}: {tally:?}", kind.as_str());
        }
    }
}
