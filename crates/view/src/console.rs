//! The stacks in the log of a kernel's console: what was found in it, and what is true of it.

use std::collections::BTreeMap;
use std::fmt;
use unwind_sim_judge::kernel::{EntryTruth, PrintedTrace, is_confirmed, logged_entries};
use unwind_sim_recordings::console::log::LoggedTrace;
use unwind_sim_recordings::counted::counted;
use unwind_sim_unwind::printable::Printable;

/// Maximum number of lines of each list.
const LISTED_MAX: usize = 20;

/// A stack of a log, and the recorded one that it is the text of.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'a> {
    /// The text.
    pub logged: &'a LoggedTrace,
    /// What was recorded when it was printed, if that is known.
    pub printed: Option<&'a PrintedTrace>,
}

/// All stacks of a log.
#[derive(Debug)]
pub struct LogReport<'a> {
    /// The stacks, in order.
    pub traces: Vec<Matched<'a>>,
    /// Whether there is a recording of the run.
    pub has_recording: bool,
}

/// Entries by what is true of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EntryCounts {
    /// Callers.
    pub callers: u64,
    /// Of entries that are none.
    pub others: u64,
    /// Of those of which it is not known.
    pub unknown: u64,
}

impl LogReport<'_> {
    fn printed(&self) -> impl Iterator<Item = &PrintedTrace> {
        self.traces.iter().filter_map(|trace| trace.printed)
    }

    /// The entries that are confirmed, or not.
    pub fn entries(&self, confirmed: bool) -> EntryCounts {
        let sum = |truth| self.printed().map(|t| t.count(confirmed, truth)).sum();
        EntryCounts {
            callers: sum(EntryTruth::Caller),
            others: sum(EntryTruth::NoCaller),
            unknown: sum(EntryTruth::Unknown),
        }
    }

    /// How many stacks are of this knowledge: `Some(true)` is a complete true chain, `None` none.
    pub fn known(&self, known: Option<bool>) -> u64 {
        self.printed().filter(|trace| trace.known == known).count() as u64
    }

    /// How many stacks the model prints line by line as the kernel did.
    pub fn modelled(&self) -> u64 {
        self.printed().filter(|trace| trace.model.is_none()).count() as u64
    }

    /// How many stacks of the log are in the recording.
    pub fn found(&self) -> u64 {
        self.printed().count() as u64
    }

    /// Whether the truth of any stack is known.
    pub fn is_judged(&self) -> bool {
        self.printed().any(|trace| trace.known.is_some())
    }

    /// Whether nothing is wrong, as far as it is known, and the model is the kernel.
    pub fn is_right(&self) -> bool {
        self.printed()
            .all(|trace| trace.is_right() && trace.model.is_none())
    }
}

impl fmt::Display for LogReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let logged = self.traces.iter().map(|trace| logged_entries(trace.logged));
        let (confirmed, questioned) = logged.fold((0, 0), |sum, n| (sum.0 + n.0, sum.1 + n.1));
        writeln!(
            f,
            "{}: {} confirmed by the kernel's unwinder, {questioned} behind a question mark",
            counted(self.traces.len() as u64, "stack"),
            counted_entries(confirmed),
        )?;
        if !self.has_recording {
            return Ok(());
        }

        writeln!(
            f,
            "{} of them in the recording; truth complete in {}, known to a depth in {}, unknown in {}",
            self.found(),
            self.known(Some(true)),
            self.known(Some(false)),
            self.known(None)
        )?;
        writeln!(
            f,
            "the model of what prints them: the same line by line in {} of {}",
            self.modelled(),
            self.found()
        )?;
        writeln!(
            f,
            "\n{:<28}{:>9}{:>12}{:>9}",
            "", "callers", "no callers", "unknown"
        )?;
        for (name, is_confirmed) in [("confirmed", true), ("behind a question mark", false)] {
            let counts = self.entries(is_confirmed);
            writeln!(
                f,
                "{name:<28}{:>9}{:>12}{:>9}",
                counts.callers, counts.others, counts.unknown
            )?;
        }
        let missing: usize = self.printed().map(|trace| trace.missing.len()).sum();
        writeln!(f, "{:<28}{missing:>9}", "not printed")?;
        self.lists(f)
    }
}

impl LogReport<'_> {
    fn lists(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By place, with the line and the sample of the first.
        let mut groups: BTreeMap<(u8, &str), (u64, usize, u64)> = BTreeMap::new();
        let unknown = "?";
        for trace in &self.traces {
            let Some(printed) = trace.printed else {
                continue;
            };
            let first = (0, trace.logged.line, printed.sample);
            for number in printed.wrong() {
                let kind = u8::from(is_confirmed(&printed.lines[number]) == Some(false));
                let place = printed.places[number].as_deref().unwrap_or(unknown);
                groups.entry((kind, place)).or_insert(first).0 += 1;
            }
            for place in &printed.missing {
                groups.entry((2, place)).or_insert(first).0 += 1;
            }
            if let Some((number, _)) = printed.model {
                let place = printed
                    .places
                    .get(number)
                    .and_then(|place| place.as_deref());
                groups
                    .entry((3, place.unwrap_or(unknown)))
                    .or_insert(first)
                    .0 += 1;
            }
        }

        const HEADS: [&str; 4] = [
            "confirmed, but no callers",
            "callers behind a question mark",
            "callers that were not printed",
            "where the model differs first",
        ];
        for (kind, head) in (0..).zip(HEADS) {
            let of_kind = groups.iter().filter(|((own, _), _)| *own == kind);
            let mut of_kind: Vec<_> = of_kind.collect();
            if of_kind.is_empty() {
                continue;
            }
            of_kind.sort_by_key(|(_, (count, ..))| std::cmp::Reverse(*count));
            writeln!(f, "\n{head}:")?;
            for ((_, place), (count, line, sample)) in of_kind.iter().take(LISTED_MAX) {
                let place = Printable::new(place);
                writeln!(
                    f,
                    "{count:>8}  {place}, first in line {line}, sample {sample}"
                )?;
            }
            if let Some(more) = of_kind
                .len()
                .checked_sub(LISTED_MAX)
                .filter(|&more| more > 0)
            {
                writeln!(f, "          and {more} more places")?;
            }
        }

        let unfound = self.traces.iter().filter(|trace| trace.printed.is_none());
        let unfound: Vec<String> = unfound.map(|trace| trace.logged.line.to_string()).collect();
        if !unfound.is_empty() {
            let lines = unfound.iter().take(LISTED_MAX).cloned();
            writeln!(
                f,
                "\n{} not in the recording: printed before it began, cut, or of another run; in line {}",
                counted(unfound.len() as u64, "stack"),
                lines.collect::<Vec<_>>().join(", ")
            )?;
        }
        Ok(())
    }
}

fn counted_entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}

#[cfg(test)]
mod tests;
