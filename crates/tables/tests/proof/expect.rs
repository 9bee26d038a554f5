//! What the symbols of a fixture say about its functions, by the author's hand.
//!
//! | symbol | meaning |
//! |---|---|
//! | `good_NAME` | a function whose rows are all right |
//! | `bad_NAME` | a function with a wrong row |
//! | `open_NAME` | a function about which the code alone does not decide |
//! | `NAME.at.SUBJECT` | the first instruction at which the row is wrong: `cfa`, `ra`, `sp`, `rbx`; `row` where there is none |
//! | `NAME.open.DOUBT` | the first instruction at which it cannot be told, and why |
//! | `NAME.assume.ASSUMPTION` | the proof must rest on this |
//! | `gap.HOLE.WORD` | where code has no row, or two |
//!
//! A number after SUBJECT tells labels with the same subject apart. The words are those of
//! [`Doubt::as_str`], [`Assumption::as_str`] and [`Hole::as_str`], with `_` for `-`.

use object::{Object as _, ObjectSymbol as _};
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_tables::check::{Checked, Hole, Report};
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::verdict::{Assumption, Doubt, Verdict};

/// A place and a word: offset from the function's start, bytes.
type Places = BTreeSet<(u64, String)>;

/// What is right for a function, or what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    pub(crate) verdict: Verdict,
    /// Contradictions and their subjects.
    pub(crate) wrong: Places,
    /// Doubts.
    pub(crate) open: Places,
    /// What the proof must rest on, at least.
    pub(crate) assumptions: BTreeSet<String>,
}

/// All expectations of a file.
#[derive(Default)]
pub(crate) struct Expectations {
    /// By address (svma).
    pub(crate) functions: BTreeMap<u64, (String, Expected)>,
    /// Addresses (svma) and kinds of gaps.
    pub(crate) gaps: Places,
}

/// The expectations in the symbols of the ELF file `bytes`.
pub(crate) fn read(bytes: &[u8]) -> Expectations {
    let elf = object::File::parse(bytes).expect("an ELF file");
    let symbols: Vec<(&str, u64)> = elf
        .symbols()
        .filter_map(|s| Some((s.name().ok()?, s.address())))
        .collect();
    of(&symbols)
}

/// The expectations in the names and addresses (svma) of `symbols`.
pub(crate) fn of(symbols: &[(&str, u64)]) -> Expectations {
    let mut out = Expectations::default();
    for &(name, address) in symbols {
        if let Some(gap) = name.strip_prefix("gap.") {
            let hole = gap.split('.').next().unwrap_or(gap);
            out.gaps.insert((address, hole.replace('_', "-")));
        }
        let verdict = match name.split_once('_') {
            _ if name.contains('.') => continue,
            Some(("good", _)) => Verdict::Proven,
            Some(("bad", _)) => Verdict::Contradicted,
            Some(("open", _)) => Verdict::Unproven,
            _ => continue,
        };
        let function = function(name, address, verdict, symbols);
        out.functions
            .entry(address)
            .or_insert((name.to_owned(), function));
    }
    out
}

fn function(name: &str, address: u64, verdict: Verdict, symbols: &[(&str, u64)]) -> Expected {
    let mut expected = Expected {
        verdict,
        wrong: Places::new(),
        open: Places::new(),
        assumptions: BTreeSet::new(),
    };

    for (symbol, at) in symbols {
        let label = symbol.strip_prefix(name).and_then(|s| s.strip_prefix('.'));
        let mut words = label.into_iter().flat_map(|label| label.split('.'));
        let (Some(kind), Some(word)) = (words.next(), words.next()) else {
            continue;
        };
        let place = (at - address, word.replace('_', "-"));
        match kind {
            "at" => drop(expected.wrong.insert(place)),
            "open" => drop(expected.open.insert(place)),
            "assume" => drop(expected.assumptions.insert(place.1)),
            _ => panic!("{symbol}: unknown kind of label"),
        }
    }

    let labelled = match verdict {
        Verdict::Proven => expected.wrong.is_empty() && expected.open.is_empty(),
        Verdict::Contradicted => !expected.wrong.is_empty() && expected.open.is_empty(),
        Verdict::Unproven => expected.wrong.is_empty() && !expected.open.is_empty(),
    };
    assert!(labelled, "{name}: the labels do not fit its name");
    expected
}

/// What was found in a function, in the same words. Of a function with contradictions, the doubts
/// are left out, and of assumptions all that `expected` does not ask for.
pub(crate) fn found(checked: &Checked, expected: &Expected) -> Expected {
    let verdict = checked.verdict.verdict();
    let start = checked.range.start;
    let contradictions = checked.verdict.contradictions.iter();
    let doubts = checked.verdict.doubts.iter();
    let open = |&(doubt, at): &(Doubt, u64)| (at - start, doubt.as_str().to_owned());
    let assumptions = checked.verdict.assumptions.iter().map(Assumption::as_str);
    Expected {
        verdict,
        wrong: contradictions
            .map(|c| (c.pc - start, subject(c.subject)))
            .collect(),
        open: match verdict {
            Verdict::Contradicted => Places::new(),
            _ => doubts.map(open).collect(),
        },
        assumptions: assumptions
            .map(str::to_owned)
            .filter(|a| expected.assumptions.contains(a))
            .collect(),
    }
}

/// The gaps of a report.
pub(crate) fn gaps(report: &Report) -> Places {
    let gaps = report.gaps.iter();
    gaps.map(|gap| (gap.range.start, Hole::as_str(gap.hole).to_owned()))
        .collect()
}

pub(crate) fn subject(subject: Subject) -> String {
    match subject {
        Subject::Cfa => "cfa".to_owned(),
        Subject::ReturnAddress => "ra".to_owned(),
        Subject::Sp => "sp".to_owned(),
        Subject::Register(reg) => reg.to_string(),
        Subject::Row => "row".to_owned(),
    }
}
