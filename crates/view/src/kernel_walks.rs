//! The report on a kernel's own unwinders as text: how many of their walks were right, what the kernel
//! says of their reliability, and where its own unwinder leaves the truth.

use crate::text::plural;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unwind_sim_judge::verify::{KernelWalked, NmiResults, WalkFinding};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::verdict::Verdict;

/// How many causes are shown, unless all are requested.
const CAUSES_MAX: usize = 20;
/// How many frames are shown behind the first one that differs.
const BEHIND: usize = 3;

/// The report on NMIs.
pub fn nmis(nmis: &NmiResults, space: &AddressSpace, all: bool) -> String {
    let mut out = format!(
        "\n{} at {} of the kernel; {} returned, after {} in all; truth unknown at {}, self-check failures {}\n",
        counted(nmis.sent, "NMI"),
        counted(nmis.places, "instruction"),
        nmis.returned,
        counted(nmis.instructions, "instruction"),
        nmis.unknown,
        nmis.failures
    );
    if let Some((pc, why)) = &nmis.lost {
        let at = Location::of(space, CodeAddress::Instruction(*pc));
        let _ = writeln!(out, "the first that did not return was sent at {at}: {why}");
    }
    walks(
        &mut out,
        "walks in handlers of NMIs",
        &nmis.walks,
        space,
        all,
    );
    out
}

/// The report; empty without walks.
pub fn text(walked: &[KernelWalked], space: &AddressSpace, all: bool) -> String {
    let mut out = String::new();
    let title = "walks from the registers that an interrupt saves";
    walks(&mut out, title, walked, space, all);
    out
}

fn walks(out: &mut String, title: &str, walks: &[KernelWalked], space: &AddressSpace, all: bool) {
    if walks.is_empty() {
        return;
    }
    let width = walks.iter().map(|w| w.name.chars().count()).max();
    let width = width.unwrap_or(0).max(8);
    let _ = writeln!(
        out,
        "\n{title}\n{:width$}  {:>9}  {:>9}  {:>14}  {:>14}  {:>13}  {:>13}  other verdicts",
        "", "walks", "right", "reliable right", "reliable wrong", "refused right", "refused wrong"
    );
    for walked in walks {
        row(out, walked, width);
    }
    for walked in walks {
        causes(out, walked, space, all);
    }
}

fn row(out: &mut String, walked: &KernelWalked, width: usize) {
    let tally = &walked.tally;
    let others = Verdict::WORDS.iter().zip(tally.verdicts).skip(1);
    let others: Vec<String> = others
        .filter(|(_, count)| *count > 0)
        .map(|((_, word), count)| format!("{word} {count}"))
        .collect();
    let reliability = tally.reliability.map_or([const { String::new() }; 4], |r| {
        [
            r.reliable_right,
            r.reliable_wrong,
            r.refused_right,
            r.refused_wrong,
        ]
        .map(|count| count.to_string())
    });
    let [a, b, c, d] = reliability;
    let _ = writeln!(
        out,
        "{:width$}  {:>9}  {:>9}  {a:>14}  {b:>14}  {c:>13}  {d:>13}  {}",
        walked.name,
        tally.walks(),
        share(tally.with('.'), tally.judged()),
        others.join(", ")
    );
}

/// The share of `part` in `all`, rounded down, so that 100 % means all.
fn share(part: u64, all: u64) -> String {
    if all == 0 {
        return "-".to_owned();
    }
    let share = u128::from(part) * 1_000_000 / u128::from(all);
    format!("{}.{:04} %", share / 10_000, share % 10_000)
}

/// What one unwinder gets wrong, by function; what the kernel calls reliable first.
fn causes(out: &mut String, walked: &KernelWalked, space: &AddressSpace, all: bool) {
    if walked.findings.is_empty() {
        return;
    }
    let mut causes: BTreeMap<_, Vec<&WalkFinding>> = BTreeMap::new();
    for finding in &walked.findings {
        let function = finding.place(space).function;
        let key = (
            !finding.is_reliable,
            finding.verdict.letter(),
            finding.code.as_str(),
            function,
        );
        causes.entry(key).or_default().push(finding);
    }
    let count = |findings: &[&WalkFinding]| findings.iter().map(|f| f.count).sum::<u64>();
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(key, findings)| (key.0, std::cmp::Reverse(count(findings))));

    let walks: u64 = causes.iter().map(|(_, findings)| count(findings)).sum();
    let _ = writeln!(
        out,
        "\n{}: {}, from {}",
        walked.name,
        counted(walks + walked.not_kept, "wrong walk"),
        counted(causes.len(), "cause")
    );
    let shown = if all { causes.len() } else { CAUSES_MAX };
    for (_, findings) in causes.iter().take(shown) {
        cause(out, findings, count(findings), space);
    }
    if causes.len() > shown {
        let _ = writeln!(out, "  and {} more causes (--all)", causes.len() - shown);
    }
    if walked.not_kept > 0 {
        let _ = writeln!(out, "  and {} not kept", counted(walked.not_kept, "walk"));
    }
}

fn cause(out: &mut String, findings: &[&WalkFinding], count: u64, space: &AddressSpace) {
    let Some(first) = findings.iter().min_by_key(|f| f.first) else {
        return;
    };
    let word = match first.is_reliable {
        true => "called reliable",
        false => "refused",
    };
    let more = match findings.len() {
        0 | 1 => String::new(),
        n => format!(" and at {}", counted(n - 1, "more address")),
    };
    let _ = writeln!(
        out,
        "  {} {}, {word}: {} at {}{more}, {count} time{}",
        first.verdict.as_str(),
        first.code.as_str(),
        first.code.description(),
        first.place(space),
        plural(count)
    );
    let at = first.verdict.at().map_or(0, |at| at as usize);
    let _ = writeln!(out, "      instruction {}:", first.first);
    let _ = writeln!(out, "      found {}", around(&first.found, at, space));
    let _ = writeln!(out, "      true  {}", around(&first.truth, at, space));
}

/// The frames around the first one that differs.
fn around(frames: &[CodeAddress], at: usize, space: &AddressSpace) -> String {
    let from = at.saturating_sub(1);
    let shown = frames.iter().skip(from).take(1 + BEHIND);
    let mut names: Vec<String> = shown
        .map(|pc| Location::of(space, *pc).to_string())
        .collect();
    if from > 0 {
        names.insert(0, format!("{from} more"));
    }
    match frames.len().saturating_sub(from + 1 + BEHIND) {
        0 => names.push("end".to_owned()),
        more => names.push(format!("{more} more")),
    }
    names.join(" < ")
}
