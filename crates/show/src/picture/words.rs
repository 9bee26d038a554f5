//! The words of a stack: where each lies, its value, and what is known of it.

use super::notes::{Note, Notes, TO_TRAMPOLINE, notes, text};
use super::{DrawnWalk, Hidden};
use std::fmt::Write as _;
use std::ops::Range;
use unwind_sim_judge::engine::Setting;
use unwind_sim_recordings::model::{Region, RegionRole};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::{MemoryView, View};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::regs::Reg;

/// Words without a name that are drawn between two with one; more are counted.
const PLAIN_MAX: u64 = 3;
/// The maximum number of words of a stack that are searched for what looks like code or a place.
const SEARCHED_MAX: usize = 1 << 16;
/// Values below this are drawn as numbers.
const SMALL: u64 = 1 << 16;
/// The maximum number of lines of one stack.
const LINES_MAX: usize = 80;
/// Bytes of a word.
const WORD: u64 = 8;

/// The picture, without the chains.
pub(super) fn drawn(
    view: &View<'_>,
    walks: &[DrawnWalk<'_>],
    setting: &Setting,
    hidden: Hidden,
) -> String {
    let notes = notes(view, walks);
    let mut lines: Vec<[String; 4]> = vec![columns("", "word", "value", "what it is")];
    let regions = by_role(view);

    // The live stack comes first and needs no title; each other region is set apart by a line with
    // its role.
    for (number, region) in regions.iter().enumerate() {
        // A region without a word worth showing gets no title either.
        let mut of_region = region_lines(view, region, number, &notes, setting, hidden);
        if number > 0 && !of_region.is_empty() {
            let what = match region.role {
                RegionRole::Stack | RegionRole::OtherStack => "another stack",
                RegionRole::Data => "data that a rule reads",
                RegionRole::User => "user space",
            };
            lines.push(columns("", "", "", ""));
            let title = format!("{what}, {}", region_name(number));
            lines.push(columns("", &title, "", ""));
        }
        lines.append(&mut of_region);
    }

    // The heading of the last column would announce answers that are hidden.
    if hidden == Hidden::Answers {
        lines[0][3].clear();
    }

    laid_out(&lines)
}

/// The regions, the sampled stack first.
fn by_role<'a>(view: &View<'a>) -> Vec<&'a Region<'a>> {
    let mut regions: Vec<&Region<'_>> = view.sample.regions.iter().collect();
    let rsp = view.live().rsp();
    regions.sort_by_key(|region| (!bounds(region).contains(&rsp), region.role));
    regions
}

/// The addresses of a region.
pub(super) fn bounds(region: &Region<'_>) -> Range<u64> {
    region.address..region.address.saturating_add(region.bytes.len() as u64)
}

/// The name of a region other than the sampled stack. Places in it count from its first recorded
/// byte.
fn region_name(number: usize) -> String {
    format!("s{}", number + 1)
}

fn columns(mark: &str, place: &str, value: &str, what: &str) -> [String; 4] {
    [mark, place, value, what].map(str::to_owned)
}

fn laid_out(lines: &[[String; 4]]) -> String {
    let wide = |column: usize| {
        let cells = lines.iter().filter(|line| !line[2].is_empty());
        cells
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let (mark, place, value) = (wide(0).max(1), wide(1), wide(2));
    let mut out = String::new();
    for line in lines {
        let [m, p, v, what] = line;
        let text = format!("{m:mark$}  {p:place$}  {v:value$}  {what}");
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}

/// The lines of one region: its words from the lowest to the highest with a note.
fn region_lines(
    view: &View<'_>,
    region: &Region<'_>,
    number: usize,
    notes: &Notes,
    setting: &Setting,
    hidden: Hidden,
) -> Vec<[String; 4]> {
    let live = view.live();

    let bounds = bounds(region);
    let within = notes.range(bounds.clone());
    let mut noted: Vec<u64> = within.map(|(address, _)| *address).collect();
    // Region 0 is the live stack, where rsp is shown even if nothing is known of the word.
    if number == 0 && bounds.contains(&live.rsp()) {
        noted.push(live.rsp());
    }

    // Values are read from all that was recorded, but where an unwinder's view ends is marked: that
    // is the copy it would have had.
    let (all, seen) = (view.sample.memory(), view.memory(setting.view));
    if hidden == Hidden::Answers {
        // Which words are left out must not tell which ones matter.
        let range = noted.iter().min().zip(noted.iter().max());
        let (low, high) = range.map_or((0, 0), |(low, high)| (*low, *high));
        let some = (low..high).step_by(WORD as usize).take(SEARCHED_MAX);
        noted.extend(some.filter(|at| {
            let word = all.read_u64(*at).unwrap_or_default();
            view.space.is_text(word) || on_stack(view, word).is_some()
        }));
    }
    noted.sort_unstable();
    noted.dedup();

    let mut lines = Vec::new();
    let mut was_seen = None;

    // The loop shows noted words, and the words between two of them if they are few.
    for (index, &wanted) in noted.iter().enumerate() {
        if lines.len() >= LINES_MAX {
            let left = noted.len() - index;
            lines.push(columns("", &format!("... {left} more with a name"), "", ""));
            break;
        }
        // From the word after the last noted one, so that all words between are seen, too.
        let from = match index.checked_sub(1) {
            Some(last) => noted[last].saturating_add(WORD).min(wanted),
            None => wanted,
        };

        // Many words without a note would hide those with one, so they become one line.
        let between = (wanted - from) / WORD;
        let start = if between > PLAIN_MAX {
            lines.push(columns("", &format!("... {between} words"), "", ""));
            wanted
        } else {
            from
        };

        // The mark for the copy's edge goes in where readability changes, also within the words
        // between.
        let plain = (start..wanted).step_by(WORD as usize);
        for at in plain.chain([wanted]) {
            let is_seen = seen.read_u64(at).is_ok();
            // The processor's view has no copy.
            if setting.view != MemoryView::Cpu && was_seen.is_some_and(|was| was != is_seen) {
                let what = if is_seen {
                    "--- the copy starts here"
                } else {
                    "--- the copy ends here"
                };
                lines.push(columns("", what, "", ""));
            }
            was_seen = Some(is_seen);
            let mark = match Some(at) {
                at if at == live.get(Reg::Rsp) => "rsp",
                at if at == live.get(Reg::Rbp) => "rbp",
                _ => "",
            };
            let note = notes.get(&at);
            let value = all.read_u64(at).map_or("not recorded".to_owned(), |word| {
                noted_value(view, word, note)
            });
            let what = match hidden {
                Hidden::Nothing => note.map_or(String::new(), text),
                Hidden::Answers => String::new(),
            };
            lines.push(columns(mark, &place(view, at), &value, &what));
        }
    }

    lines
}

/// The value of a word that has a note.
fn noted_value(view: &View<'_>, word: u64, note: Option<&Note>) -> String {
    let is_named = |name: &str| note.is_some_and(|n| n.names.iter().any(|n| n.starts_with(name)));
    if is_named(TO_TRAMPOLINE) {
        "(trampoline)".to_owned()
    } else {
        value(view, word, is_named("return"))
    }
}

/// A place on a recorded stack: relative to rsp on the sampled one if it is known, to the start of
/// the recorded part elsewhere.
pub fn place(view: &View<'_>, address: u64) -> String {
    on_stack(view, address)
        .unwrap_or_else(|| relative("rsp", address.wrapping_sub(view.live().rsp())))
}

/// The place of an address on a recorded stack.
fn on_stack(view: &View<'_>, address: u64) -> Option<String> {
    let regions = by_role(view);
    let number = regions
        .iter()
        .position(|region| bounds(region).contains(&address))?;
    let region = regions[number];
    Some(match (number, view.live().get(Reg::Rsp)) {
        (0, Some(rsp)) => relative("rsp", address.wrapping_sub(rsp)),
        _ => relative(&region_name(number), address - region.address),
    })
}

/// A value: as code, as a place on a recorded stack, or as a number. Of a return address, the
/// function is that of the call.
pub fn value(view: &View<'_>, word: u64, is_return: bool) -> String {
    let pc = if is_return {
        CodeAddress::Return(word)
    } else {
        CodeAddress::Instruction(word)
    };
    if view.space.is_text(pc.symbol_address()) {
        return Location::of(view.space, pc).to_string();
    }
    match word {
        0..SMALL => word.to_string(),
        _ => on_stack(view, word).unwrap_or_else(|| format!("{word:#x}")),
    }
}

/// `rsp`, `rsp+16` or `rsp-8`.
fn relative(base: &str, distance: u64) -> String {
    match distance as i64 {
        0 => base.to_owned(),
        distance => format!("{base}{distance:+}"),
    }
}
