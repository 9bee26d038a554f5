//! The report of `verify` as text: contradictions grouped by cause, each with a listing of its
//! code.

use crate::text::{plural, row_place};
use std::fmt::Write as _;
use unwind_sim_judge::check::Class;
use unwind_sim_judge::verify::Places;
use unwind_sim_judge::verify::groups::{Group, groups, unfound_row};
use unwind_sim_judge::verify::listing::listing;
use unwind_sim_judge::verify::{Bounds, Coverage, Executed, Results, Tally};
use unwind_sim_judge::verify::{Slot, SlotStore};
use unwind_sim_recordings::counted::counted;
use unwind_sim_unwind::printable::{Printable, printable};

/// How many groups are shown for each unwinder, unless all are requested.
const GROUPS_MAX: usize = 20;
/// How many images of a group are named.
const IMAGES_MAX: usize = 8;

/// The input of a report.
pub struct Subject<'a> {
    /// The unwinders' names.
    pub names: &'a [String],
    /// The results of the run.
    pub results: &'a Results,
    /// How much of a kernel was executed; empty of a program.
    pub coverage: &'a [Coverage],
    /// Gives the command that shows what an unwinder gets wrong at an address.
    pub again: &'a dyn Fn(&str, u64) -> String,
    /// Whether to show every group.
    pub all: bool,
}

/// The report as text.
pub fn text(subject: &Subject<'_>) -> String {
    let results = subject.results;
    let truth = &results.truth;
    let mut out = format!(
        "{} at {}; truth unknown at {}, self-check failures {}\n\n",
        counted(results.instructions, "instruction"),
        counted(results.addresses, "address"),
        truth.unknown,
        truth.failures()
    );

    // First numbers for each unwinder, then findings: the numbers fit on one screen.
    table(&mut out, subject.names, &results.tallies);
    bounds(&mut out, subject.names, &results.tallies);
    covered(&mut out, subject.coverage);
    generated(&mut out, subject);
    stores(&mut out, subject);

    let all = groups(results);

    // Wrong rows come before what a derived table cannot say, and before rows of frames that are
    // jumped to.
    let sections = (0..subject.names.len())
        .flat_map(|which| [Class::Wrong, Class::Loss, Class::Target].map(|class| (which, class)));
    for (which, class) in sections {
        let mine = all
            .iter()
            .filter(|g| (g.unwinder, g.class) == (which, class));
        let mine: Vec<&Group> = mine.collect();

        if mine.is_empty() {
            continue;
        }

        heading(&mut out, &subject.names[which], class, &mine);
        let shown = if subject.all { mine.len() } else { GROUPS_MAX };
        for group in mine.iter().take(shown) {
            group_text(&mut out, subject, group);
        }
        if mine.len() > shown {
            let _ = writeln!(out, "  and {} more causes (--all)", mine.len() - shown);
        }
    }

    // Two of our own algorithms contradict each other, so one of them has a defect.
    for disagreement in &results.disagreements {
        let _ = writeln!(
            out,
            "\nbug in unwind-sim: {} at {} (instruction {}) disagrees with the check of single \
             frames, {}",
            disagreement.what,
            results
                .places
                .location(disagreement.place, disagreement.address),
            disagreement.number,
            subject.names[disagreement.unwinder]
        );
    }

    out
}

fn heading(out: &mut String, name: &str, class: Class, groups: &[&Group<'_>]) {
    let n: u64 = groups.iter().map(|g| g.findings_count()).sum();
    let (what, counts) = match class {
        Class::Wrong => ("contradiction", ""),
        Class::Loss => (
            "place",
            " that a derived table cannot represent (counted with --strict)",
        ),
        Class::Target => (
            "row",
            " for the frame that is jumped to (not counted as wrong)",
        ),
    };
    let causes = groups.len();
    let _ = writeln!(
        out,
        "\n{name}: {n} {what}{}{counts}, from {causes} cause{}",
        plural(n),
        plural(causes as u64)
    );
}

fn table(out: &mut String, names: &[String], tallies: &[Tally]) {
    // The widths are those of the longest name, so that the columns of all tables stand in line.
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let width = width.max(8);
    let _ = writeln!(
        out,
        "{:width$}  {:>12}  {:>9}  {:>8}  {:>8}  {:>10}  {:>11}  {:>9}  {:>8}  {:>11}",
        "",
        "checked",
        "right",
        "lost",
        "rows",
        "calls",
        "wrong @ra-1",
        "wrong @ra",
        "walks",
        "walks wrong"
    );

    for (name, t) in names.iter().zip(tallies) {
        let _ = writeln!(
            out,
            "{name:width$}  {:>12}  {:>9}  {:>8}  {:>8}  {:>10}  {:>11}  {:>9}  {:>8}  {:>11}",
            t.checked,
            share(t),
            t.lost,
            t.rows,
            t.calls,
            t.calls_wrong,
            t.calls_wrong_at_return,
            t.walks,
            t.walks_wrong
        );
    }
}

/// Adds the bounds that were reached. What they hide counts as contradictions.
fn bounds(out: &mut String, names: &[String], tallies: &[Tally]) {
    let reached = names.iter().zip(tallies);
    for (name, tally) in reached.filter(|(_, tally)| tally.bounds.are_reached()) {
        let Bounds {
            not_remembered,
            forgotten,
        } = tally.bounds;
        let mut what = Vec::new();
        if not_remembered > 0 {
            let outcomes = counted(not_remembered, "distinct wrong outcome");
            what.push(format!("{outcomes} not remembered"));
        }
        if forgotten > 0 {
            let jumps = counted(forgotten, "jump");
            what.push(format!("{jumps} behind outcomes that were forgotten"));
        }
        let _ = writeln!(
            out,
            "\n{name}: a bound was reached: {}; rows for the frame that is jumped to (US506) may be \
             among the contradictions",
            what.join(", ")
        );
    }
}

/// Adds the generated code for which there is no table.
/// How much of each section was executed.
fn covered(out: &mut String, sections: &[Coverage]) {
    if sections.is_empty() {
        return;
    }

    let total = Coverage::total(sections);
    let width = sections.iter().map(|s| s.section.len()).max().unwrap_or(0);
    let width = width.max("coverage".len());
    let _ = writeln!(
        out,
        "\n{:width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}",
        "coverage", "functions", "of all", "", "rows", "of all", "", "addresses"
    );
    for section in sections.iter().chain([&total]) {
        let name = match &*section.section {
            "" => "all",
            name => name,
        };
        let _ = write!(out, "{:width$}", printable(name));
        for executed in [section.functions, section.rows] {
            let Executed { executed: met, all } = executed;
            let share = executed.share().map_or_else(String::new, |share| {
                format!("{}.{:02} %", share / 100, share % 100)
            });
            let _ = write!(out, "  {met:>9}  {all:>9}  {share:>9}");
        }
        let _ = writeln!(out, "  {:>9}", section.addresses);
    }
}

fn generated(out: &mut String, subject: &Subject<'_>) {
    let Results {
        generated, tallies, ..
    } = subject.results;

    // Most programs have no just-in-time compiler, and no section about it.
    let instructions: u64 = generated.iter().map(|f| f.instructions).sum();
    if instructions == 0 {
        return;
    }

    // Every unwinder meets the same code, so the numbers are not added.
    let walks = tallies.iter().map(|t| t.walks_unjudged).max().unwrap_or(0);
    let _ = writeln!(
        out,
        "\nJIT, no table: {} in {}, and {} that end there; not judged",
        counted(instructions, "instruction"),
        counted(generated.len(), "function"),
        counted(walks, "walk"),
    );

    // A table that came after the code could have judged it, if its executions had been kept.
    if subject.results.not_kept > 0 {
        let _ = writeln!(
            out,
            "  {} of them not kept: a table that the program wrote later was not used for them",
            counted(subject.results.not_kept, "execution")
        );
    }

    let shown = if subject.all {
        generated.len()
    } else {
        GROUPS_MAX
    };

    for function in generated.iter().take(shown) {
        let _ = writeln!(
            out,
            "  {:>12}  {}",
            function.instructions,
            Printable::new(&function.name)
        );
    }

    let more = generated.len().saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(out, "  and {} (--all)", counted(more, "more function"));
    }
}

/// Adds the stores into live slots.
fn stores(out: &mut String, subject: &Subject<'_>) {
    // Programs that do not write into saved slots have no such section.
    let stores = &subject.results.stores;
    if stores.all.is_empty() {
        return;
    }
    let n = stores.count();

    let _ = writeln!(
        out,
        "\n{n} store{} changed a live slot, {} stored the value that was already there",
        plural(n),
        stores.same()
    );

    // What happened often comes first.
    let mut sorted: Vec<&SlotStore> = stores.all.iter().collect();
    sorted.sort_by_key(|store| std::cmp::Reverse((store.count, store.same)));
    let shown = if subject.all {
        sorted.len()
    } else {
        GROUPS_MAX
    };

    for store in sorted.iter().take(shown) {
        store_text(out, &subject.results.places, store);
    }

    let more = sorted.len().saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(out, "  and {} (--all)", counted(more, "more instruction"));
    }
}

fn store_text(out: &mut String, places: &Places, store: &SlotStore) {
    let call = store.writer.call.map_or(String::new(), |c| format!("{c} "));
    let _ = write!(
        out,
        "  {call}at {}, {}: ",
        places.location(store.writer.place, store.writer.address),
        match store.slot {
            Slot::ReturnAddress => "a return address".to_owned(),
            slot => format!("the slot of the caller's {}", slot.reg().as_str()),
        },
    );

    // Storing the value that is already there changes nothing, and is counted apart.
    if store.count == 0 {
        let same = store.same;
        let _ = writeln!(out, "stored the same value {same} time{}", plural(same));
        return;
    }

    let mut fate = String::new();

    // The function returned through the new address, or the old one was put back before.
    if store.slot == Slot::ReturnAddress {
        let (taken, restored) = (store.taken, store.restored);
        let _ = write!(fate, ", returned through {taken}, put back {restored}");
    }
    if store.same > 0 {
        let _ = write!(fate, "; stored the same value {} more", store.same);
    }

    let _ = writeln!(
        out,
        "changed {} time{}{fate}",
        store.count,
        plural(store.count)
    );

    // The first time, with the number of its instruction and the values.
    let _ = writeln!(
        out,
        "      instruction {}: {:#x}, of {}: {:#x} became {:#x}",
        store.first,
        store.address,
        places.location(store.owner_place, store.owner),
        store.old,
        store.new
    );
}

/// The share of instructions at which nothing was wrong, rounded down, so that 100 % means all.
fn share(tally: &Tally) -> String {
    if tally.checked == 0 {
        return "-".to_owned();
    }
    let right = u128::from(tally.checked - tally.wrong) * 1_000_000 / u128::from(tally.checked);
    format!("{}.{:04} %", right / 10_000, right % 10_000)
}

fn group_text(out: &mut String, subject: &Subject<'_>, group: &Group) {
    // A group has at least one finding; without one there is nothing to show.
    let Some(first) = group.first() else { return };

    let more = match group.findings_count() {
        0 | 1 => String::new(),
        n => format!(" and at {}", counted(n - 1, "more address")),
    };
    let images = match group.images.len() {
        0 | 1 => String::new(),
        n => format!(" in {}", counted(n, "image")),
    };

    // Place and instruction are those of the first finding; the counts are of all.
    let _ = writeln!(
        out,
        "  {} {} at {}{more}{images}, {} time{}, by {}",
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

    // Then the table is right, and its index is to blame.
    if let Some(offset) = unfound_row(first, &subject.results.places) {
        let _ = writeln!(
            out,
            "      the row is at .eh_frame+{offset:#x}, but a search through the file's index ends \
             elsewhere; `tables check` shows where"
        );
    }
    listing(out, subject.results, first);

    // One cause may be in many images, such as a compiler's in all that it has built.
    if group.images.len() > 1 {
        let named = &group.images[..group.images.len().min(IMAGES_MAX)];
        let more = match group.images.len() - named.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let _ = writeln!(out, "      in {}{more}", printable(&named.join(", ")));
    }

    // The command repeats what was found, at the first address.
    let _ = writeln!(
        out,
        "      {}",
        (subject.again)(&subject.names[group.unwinder], first.address)
    );
}

#[cfg(test)]
mod tests;
