//! What a run found, for people: contradictions grouped by cause, each with its code in view.

use super::checker::{Results, Tally};
use super::findings::{Check, Finding};
use super::groups::{Group, groups};
use super::stores::{Slot, SlotStore};
use crate::names::Location;
use crate::text::{plural, row_place};
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
use std::fmt::Write as _;
use unwind_sim_unwind::image::AddressSpace;

/// Groups shown for each unwinder, unless all are wanted.
const GROUPS_MAX: usize = 20;
/// Instructions shown before and behind the one concerned.
const AROUND: usize = 2;
/// Bytes that are decoded from a function's begin to find out where its instructions are.
const LISTING_MAX: u64 = 1 << 16;

/// What a report is made of.
pub struct Subject<'a> {
    /// The unwinders' names.
    pub names: &'a [String],
    /// What was found.
    pub results: &'a Results,
    /// The images at the end of the run.
    pub space: &'a AddressSpace,
    /// The command that shows what this unwinder gets wrong at this address.
    pub again: &'a dyn Fn(&str, u64) -> String,
    /// Show every group.
    pub all: bool,
}

/// The text.
pub fn text(subject: &Subject<'_>) -> String {
    let results = subject.results;
    let truth = &results.truth;
    let mut out = format!(
        "{} instructions at {} addresses; truth unknown at {}, self-check failures {}\n\n",
        results.instructions,
        results.addresses,
        truth.unknown,
        truth.failures()
    );
    table(&mut out, subject.names, &results.tallies);
    stores(&mut out, subject);
    let all = groups(&results.findings, subject.space);
    for (which, name) in subject.names.iter().enumerate() {
        let mine: Vec<&Group> = all.iter().filter(|g| g.unwinder == which).collect();
        if mine.is_empty() {
            continue;
        }
        let addresses: usize = mine.iter().map(|g| g.findings.len()).sum();
        let _ = writeln!(
            out,
            "\n{name}: {addresses} contradictions from {} cause{}",
            mine.len(),
            plural(mine.len() as u64)
        );
        let shown = if subject.all { mine.len() } else { GROUPS_MAX };
        for group in mine.iter().take(shown) {
            group_text(&mut out, subject, group);
        }
        if mine.len() > shown {
            let _ = writeln!(out, "  and {} more causes (--all)", mine.len() - shown);
        }
    }
    for disagreement in &results.disagreements {
        let _ = writeln!(
            out,
            "\nour own bug: {} at {} (instruction {}) disagrees with the check of single frames, \
             {}",
            disagreement.what,
            Location::at(subject.space, disagreement.address),
            disagreement.number,
            subject.names[disagreement.unwinder]
        );
    }
    out
}

fn table(out: &mut String, names: &[String], tallies: &[Tally]) {
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let width = width.max(8);
    let _ = writeln!(
        out,
        "{:width$}  {:>12}  {:>9}  {:>8}  {:>10}  {:>11}  {:>9}  {:>8}  {:>11}",
        "", "checked", "right", "rows", "calls", "wrong @ra-1", "wrong @ra", "walks", "walks wrong"
    );
    for (name, t) in names.iter().zip(tallies) {
        let _ = writeln!(
            out,
            "{name:width$}  {:>12}  {:>9}  {:>8}  {:>10}  {:>11}  {:>9}  {:>8}  {:>11}",
            t.checked,
            share(t),
            t.rows,
            t.calls,
            t.calls_wrong,
            t.calls_wrong_at_return,
            t.walks,
            t.walks_wrong
        );
    }
}

/// Stores into slots that a frame is to go back by.
fn stores(out: &mut String, subject: &Subject<'_>) {
    let stores = &subject.results.stores;
    if stores.all.is_empty() {
        return;
    }
    let n = stores.count();
    let _ = writeln!(
        out,
        "\n{n} store{} changed a live slot, {} stored there what was there already",
        plural(n),
        stores.same()
    );
    let mut sorted: Vec<&SlotStore> = stores.all.iter().collect();
    sorted.sort_by_key(|store| std::cmp::Reverse((store.count, store.same)));
    let shown = if subject.all {
        sorted.len()
    } else {
        GROUPS_MAX
    };
    for store in sorted.iter().take(shown) {
        store_text(out, subject.space, store);
    }
    let more = sorted.len().saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more instructions (--all)");
    }
}

fn store_text(out: &mut String, space: &AddressSpace, store: &SlotStore) {
    let place = |address| Location::at(space, address);
    let call = store.writer.call.map_or(String::new(), |c| format!("{c} "));
    let _ = write!(
        out,
        "  {call}at {}, {}: ",
        place(store.writer.address),
        match store.slot {
            Slot::ReturnAddress => "a return address".to_owned(),
            slot => format!("the slot of the caller's {}", slot.reg().as_str()),
        },
    );
    if store.count == 0 {
        let same = store.same;
        let _ = writeln!(out, "{same} time{} what was there", plural(same));
        return;
    }
    let mut fate = String::new();
    if store.slot == Slot::ReturnAddress {
        let (taken, restored) = (store.taken, store.restored);
        let _ = write!(fate, ", returned by {taken}, put back {restored}");
    }
    if store.same > 0 {
        let _ = write!(fate, "; {} more what was there", store.same);
    }
    let _ = writeln!(
        out,
        "changed {} time{}{fate}",
        store.count,
        plural(store.count)
    );
    let _ = writeln!(
        out,
        "      instruction {}: {:#x}, of {}: {:#x} became {:#x}",
        store.first,
        store.address,
        place(store.owner),
        store.old,
        store.new
    );
}

/// The share of instructions at which nothing was wrong, rounded down: 100 % is all of them.
fn share(tally: &Tally) -> String {
    if tally.checked == 0 {
        return "-".to_owned();
    }
    let right = u128::from(tally.checked - tally.wrong) * 1_000_000 / u128::from(tally.checked);
    format!("{}.{:04} %", right / 10_000, right % 10_000)
}

fn group_text(out: &mut String, subject: &Subject<'_>, group: &Group) {
    let Some(first) = group.first() else { return };
    let more = match group.findings.len() {
        1 => String::new(),
        n => format!(" and at {} more addresses", n - 1),
    };
    let _ = writeln!(
        out,
        "  {} {} at {}{more}, {} time{}, by {}",
        group.code.as_str(),
        group.code.description(),
        group.place,
        group.count,
        plural(group.count),
        group.check.as_str()
    );
    let _ = writeln!(
        out,
        "      instruction {}: {}",
        first.first, first.contradiction
    );
    if let Some(row) = &first.contradiction.row {
        let _ = writeln!(out, "      {}", row.rule);
        let _ = writeln!(out, "      {}", row_place(&row.source));
    }
    listing(out, subject.space, first);
    let _ = writeln!(
        out,
        "      {}",
        (subject.again)(&subject.names[group.unwinder], first.address)
    );
}

/// The instructions around an address, the one concerned marked and pointed at.
fn listing(out: &mut String, space: &AddressSpace, finding: &Finding) {
    let lookup = match finding.check {
        Check::Instruction | Check::Walk => finding.address,
        Check::InsideCall | Check::AtReturn => finding.address.wrapping_sub(1),
    };
    let Some(mapping) = space.find(lookup) else {
        return;
    };
    let Some(image) = &mapping.image else { return };
    let svma = mapping.svma(lookup);
    let start = image.symbol(svma).map_or(svma, |s| s.address);
    let start = if svma - start > LISTING_MAX {
        svma
    } else {
        start
    };
    let bytes = image.text_bytes(start, (svma - start) as usize + 16 * (AROUND + 2));
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let insns: Vec<Instruction> = decoder.iter().collect();
    let Some(at) = insns.iter().position(|i| i.next_ip() > svma) else {
        return;
    };
    let mut formatter = GasFormatter::new();
    let from = at.saturating_sub(AROUND);
    for (index, insn) in insns
        .iter()
        .enumerate()
        .skip(from)
        .take(AROUND + 1 + at - from)
    {
        let mut line = String::new();
        formatter.format(insn, &mut line);
        let mark = if index == at { '>' } else { ' ' };
        let address = insn.ip().wrapping_add(mapping.bias);
        let _ = writeln!(out, "      {mark} {address:>12x}  {line}");
        if index == at {
            let _ = writeln!(out, "        {:12}  {}", "", "^".repeat(line.len()));
        }
    }
}
