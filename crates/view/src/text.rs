//! Chains, verdicts and comparisons as text for the terminal.

mod matrix;

use crate::kernel::{state_line, wrong_user_regs_text};
use crate::listing::{self, ListingLength};
use std::fmt::Write as _;
use unwind_sim_judge::check::Class;
use unwind_sim_judge::compare::{Comparison, Group, GroupKey};
use unwind_sim_judge::engine::Outcome;
use unwind_sim_judge::whole::{Fault, Whole};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::model::RecordedChain;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::End;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::printable::printable;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::row::RowSource;
use unwind_sim_unwind::truth::Truth;
use unwind_sim_unwind::verdict::Verdict;

/// `7 frames, US203 slot below rsp, outside the copy: ...`.
pub fn end_line(frames: usize, end: &End) -> String {
    let code = end.reason.code();
    let mut out = format!(
        "{frames} frame{}, {code} {}",
        plural(frames as u64),
        code.description()
    );
    if !matches!(
        end.reason,
        Reason::RootReached | Reason::NotAtRoot | Reason::NoBranchRecords
    ) {
        let _ = write!(out, ": {}", end.reason);
    }
    if let Some(fallback) = end.fallback {
        let _ = write!(out, "; fallback: {} {fallback}", fallback.code());
    }
    out
}

/// What is known of the end of a chain without truth: what it ends at, what is wrong with it, or why
/// that is not known.
pub(crate) fn whole_text(whole: &Whole, end: &End) -> String {
    match whole {
        Whole::Yes(root) => root.to_string(),
        Whole::No(found) => match found.what {
            Fault::Ended(_) => end.reason.to_string(),
            what => format!("{what} (frame {})", found.frame),
        },
        Whole::Unknown(doubt) => {
            format!("of frame {}, {}", doubt.frame, doubt.why.description())
        }
    }
}

/// The end of a chain that was judged.
fn judged_end_line(outcome: &Outcome) -> String {
    let (frames, end) = (outcome.chain.frames.len(), &outcome.chain.end);
    let Some(whole) = &outcome.whole else {
        return end_line(frames, end);
    };
    let code = outcome.ended();
    let mut out = format!(
        "{}, {code} {}: {}",
        counted(frames, "frame"),
        code.description(),
        whole_text(whole, end)
    );
    if let Some(fallback) = end.fallback {
        let _ = write!(out, "; fallback: {} {fallback}", fallback.code());
    }
    out
}

/// A note on an end, added after its reason.
fn end_note(outcome: &Outcome) -> String {
    let is_root = outcome.chain.end.reason == Reason::RootReached;
    match outcome.unjudged {
        Some(why) => format!("; not judged: {why}"),
        None if outcome.ground.end_not_claimed => "; end not claimed".to_owned(),
        None if is_root && outcome.ended() == Code::NotAtRoot => {
            let code = Code::NotAtRoot;
            format!("; in fact: {code} {}", code.description())
        }
        None => String::new(),
    }
}

/// The ending of a plural: `s` unless `n` is 1.
pub const fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Where a row is: `eh_frame row .eh_frame+0x18 (unit +0x10), addresses 0x1000..0x1004`.
pub fn row_place(source: &RowSource) -> String {
    match source.table.section() {
        None => source.table.as_str().to_owned(),
        Some(section) => format!(
            "{} row {}+{:#x} (unit +{:#x}), addresses {:#x}..{:#x}",
            source.table.as_str(),
            section.as_str(),
            source.row_offset,
            source.unit_offset,
            source.start,
            source.end
        ),
    }
}

/// One chain with its verdict. A wrong frame is marked `w`, with the true one beside it; extra
/// frames are marked `+`, and absent true frames `-`.
pub fn chain_text(name: &str, view: &View<'_>, outcome: &Outcome, shown: ListingLength) -> String {
    let mut out = format!(
        "{}: {} {}  {}{}\n",
        printable(name),
        outcome.verdict.as_str(),
        outcome.verdict,
        judged_end_line(outcome),
        end_note(outcome)
    );
    out.push_str(&listing::listing(view, outcome, shown));

    // Without a diagnosis the chain is right, or it is not known why it is wrong.
    if let Some(d) = &outcome.diagnosis {
        let place = Location::of(view.space, d.pc);
        let _ = write!(out, "  {} {} in {place}", d.code, d.code.description());
        if let Some(text) = wrong_user_regs_text(view, outcome) {
            let _ = write!(out, ": {text}");
        }

        // The contradiction is between the row to blame and the truth.
        if let Some(c) = &d.contradiction {
            let _ = write!(out, ": {c}");
            if let Some(row) = &c.row {
                let _ = write!(
                    out,
                    "\n      {}\n      {}",
                    row_place(&row.source),
                    row.rule
                );
            }
        }

        out.push('\n');
    }
    out
}

/// The heading of a sample.
pub fn sample_line(view: &View<'_>) -> String {
    let sample = view.sample;
    let truth = match &sample.truth {
        Truth::Unknown => "truth unknown".to_owned(),
        Truth::Known(frames) => format!("truth known to depth {}", frames.len()),
        Truth::Complete(frames) => format!("truth {}", counted(frames.len(), "frame")),
    };
    let fake = if sample.regs.is_fake() {
        ", fake registers"
    } else {
        ""
    };
    let crash = sample.crash();
    let crash = crash.map_or(String::new(), |crash| format!(", crashed: {crash}"));
    format!(
        "sample {} pid {} tid {} time {} ({truth}{fake}){crash}",
        view.number, sample.pid, sample.tid, sample.time
    )
}

/// An event of a walk, in one line.
pub fn event_line(event: &Event, space: &AddressSpace) -> String {
    let at = |pc: &CodeAddress| Location::of(space, *pc).to_string();

    // The mark is the stack pointer up to which the kernel leaves frames out (`first_frame`).
    match event {
        Event::Started {
            regs,
            first_frame: Some(mark),
        } => format!(
            "started at {} with sp {:#x}; frames up to {mark:#x} are skipped",
            Location::at(space, regs.rip()),
            regs.rsp()
        ),
        Event::Started {
            regs,
            first_frame: None,
        } => {
            format!(
                "started at {} with sp {:#x}",
                Location::at(space, regs.rip()),
                regs.rsp()
            )
        }
        Event::Skipped {
            pc,
            sp,
            first_frame,
        } => {
            format!(
                "skipped {}: sp {sp:#x} is not above the mark {first_frame:#x}",
                at(pc)
            )
        }
        Event::Fallback { pc, cause } => {
            format!("fallback at {}: {} {cause}", at(pc), cause.code())
        }
        Event::RegisterLost { pc, reg, cause } => {
            format!(
                "{reg} is lost in the caller of {}: {} {cause}",
                at(pc),
                cause.code()
            )
        }
        Event::StackChanged { from, to } => format!("the stack changed: sp {from:#x} to {to:#x}"),
        Event::State(state) => state_line(state, space),
        _ => "an unknown event".to_owned(),
    }
}

/// A chain that another tool recorded. It is not judged. In a chain of perf the kernel part comes
/// first, marked `k`: no unwinder here walks it.
pub fn recorded_text(
    space: &AddressSpace,
    recorded: &RecordedChain,
    shown: ListingLength,
) -> String {
    // What a kernel recorded has only kernel frames; chains of perf have markers between the parts.
    let (kernel, frames) = match recorded.source.as_str() {
        unwind_sim_judge::kernel::RECORDED => (Vec::new(), recorded.ips.clone()),
        _ => {
            let kernel = unwind_sim_judge::run::kernel_part(&recorded.ips);
            (kernel, unwind_sim_judge::run::user_part(&recorded.ips))
        }
    };

    let n = frames.len() as u64;
    let mut out = format!(
        "{} (recorded): {n} frame{}",
        printable(&recorded.source),
        plural(n)
    );

    if !kernel.is_empty() {
        let _ = write!(out, " and {} of the kernel", kernel.len());
    }
    out.push('\n');

    listing::write_pieces(&mut out, &kernel, shown, |i| {
        format!("  k {i:>3} {:>16x}  [kernel]", kernel[i])
    });

    listing::write_pieces(&mut out, &frames, shown, |i| {
        let pc = frames[i];

        // The first address is where the thread was, all others are behind calls.
        let address = if i == 0 {
            CodeAddress::Instruction(pc)
        } else {
            CodeAddress::Return(pc)
        };
        let place = Location::of(space, address);
        listing::frame_line(' ', i, pc, &place, "")
    });
    out
}

/// The matrix of a comparison, and its groups. `explain` gives the command that explains a column's
/// walk of a sample. Unless `by_truth`, chains that agree with the reference count as right.
pub fn comparison_text(
    comparison: &Comparison,
    columns: &[String],
    explain: &dyn Fn(usize, u64) -> String,
    by_truth: bool,
) -> String {
    let mut out = String::new();
    let columns: Vec<String> = columns.iter().map(|name| printable(name).into()).collect();
    matrix::write(&mut out, comparison, &columns, by_truth);
    for (column, name) in columns.iter().enumerate() {
        let mut class = None;
        for (key, group) in comparison.column_groups(column) {
            if class.replace(key.class) != Some(key.class) {
                let _ = writeln!(out, "\n{name}: {}", class_heading(key.class));
            }
            group_text(&mut out, key, group, &explain(column, group.sample));
        }
    }
    out
}

/// The heading of the groups of this class.
const fn class_heading(class: Class) -> &'static str {
    match class {
        Class::Wrong => "first divergences by cause",
        Class::Loss => "what a derived table cannot represent (counted with --strict)",
        Class::Target => "rows for the frame that is jumped to (not counted as wrong)",
    }
}

fn group_text(out: &mut String, key: &GroupKey, group: &Group, explain: &str) {
    // A group of a verdict has its word, as letters are hard to remember.
    let word = Verdict::WORDS
        .iter()
        .find(|(c, _)| *c == key.letter)
        .map_or("", |(_, w)| *w);
    let place = key
        .place
        .as_deref()
        .map(|p| format!(" in {}", printable(p)))
        .unwrap_or_default();

    let _ = writeln!(
        out,
        "  {:>8} {word:<10} {} {}{place}",
        group.count,
        key.code,
        key.code.description()
    );

    // One example is enough to look at: all of the group have the same cause.
    let _ = write!(
        out,
        "           sample {}, frame {}: {}",
        group.sample, group.frame, group.location
    );

    if let Some(values) = &group.values {
        let _ = write!(out, ": {values}");
    }
    out.push('\n');

    if let Some(row) = &group.row {
        let _ = writeln!(out, "           {}", row_place(row));
    }

    // The command shows the example with its stack.
    let _ = writeln!(out, "           {explain}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// perf's chains have up to 127 addresses, and the kernel's part comes first.
    #[test]
    fn calls_that_repeat_are_folded_in_recorded_chains() {
        const KERNEL: u64 = (-128_i64) as u64;
        const USER: u64 = (-512_i64) as u64;
        let mut ips = vec![KERNEL, 0xffff_ffff_8100_0000, USER, 0x1000];
        ips.extend([0x2000, 0x3000].repeat(50));
        ips.push(0x4000);
        let recorded = RecordedChain {
            request: None,
            source: "perf".to_owned(),
            ips,
        };
        let space = AddressSpace::new();
        let text = recorded_text(&space, &recorded, ListingLength::Folded);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "perf (recorded): 102 frames and 1 of the kernel");
        assert!(lines[1].ends_with("[kernel]"), "{text}");
        let numbers = lines[2..].iter().map(|line| line.split(' ').next());
        let numbers: Vec<_> = numbers.map(Option::unwrap_or_default).collect();
        assert_eq!(numbers, ["0", "1", "2", "...", "99", "100", "101"]);
        assert!(lines[5].contains("96 frames that repeat the 2 frames above"));
        let all = recorded_text(&space, &recorded, ListingLength::All);
        assert_eq!(all.lines().count(), 104);
    }
}
