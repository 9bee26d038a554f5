//! Explains one walk of one sample step by step: the rules, their rows, the words read, and the
//! truth.

mod code;

use crate::again::{LastStep, again, blamed_frame, distance_from_rsp};
use crate::fold::FoldedItem;
use crate::kernel::{explained, recorded_states, wrong_user_regs_text};
use crate::listing::{self, ListingLength, Row};
use crate::text::{chain_text, event_line, row_place, sample_line};
use std::fmt::Write as _;
use unwind_sim_judge::check::Contradiction;
use unwind_sim_judge::engine::{Engine, Outcome, Setting};
use unwind_sim_judge::kernel::{perf_chain, recorded_options};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{How, Step};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::kernel::{CallchainOptions, GuessState, OrcState, State};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::Variant;

/// A walk and its verdict.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    /// The engine that walked.
    pub engine: &'a Engine,
    /// The start variant.
    pub variant: Variant,
    /// The limits of the walk and the memory it could read.
    pub setting: &'a Setting,
    /// The chain and its verdict.
    pub outcome: &'a Outcome,
}

/// The explanation of a walk, or only of frame number `frame` of its chain.
pub fn explain(
    view: &View<'_>,
    walk: &Walk<'_>,
    frame: Option<usize>,
    shown: ListingLength,
) -> String {
    let Walk {
        engine,
        variant,
        setting,
        outcome,
    } = *walk;

    // For what is looked up again below; the walk itself is done.
    let mut cache = Cache::new();
    let name = format!("{}@{}", engine.name(), variant.as_str());
    let mut out = format!(
        "{}\n{}",
        sample_line(view),
        chain_text(&name, view, outcome, shown)
    );

    // One frame is explained without the events of the whole walk.
    if frame.is_none() && !outcome.chain.events.is_empty() {
        out.push_str("\nwhat happened:\n");

        // The kernel's unwinder skips frames up to the first one that it reports; at the end of a
        // run of skipped states, it is told why the next one is kept.
        let (events, mut skipping) = (&outcome.chain.events, false);
        for (i, event) in events.iter().enumerate() {
            let _ = writeln!(out, "  {}", event_line(event, view.space));
            match (event, events.get(i + 1)) {
                (Event::Skipped { .. }, _) => skipping = true,
                (Event::State(state), next) if !matches!(next, Some(Event::Skipped { .. })) => {
                    let mark = outcome.chain.events.iter().find_map(|e| match e {
                        Event::Started { first_frame, .. } => *first_frame,
                        _ => None,
                    });
                    if let (true, Some(mark)) = (std::mem::take(&mut skipping), mark) {
                        out.push_str(&kept(state, mark));
                    }
                }
                _ => {}
            }
        }
    }

    // What a real kernel's unwinder had at this sample, if it was captured with the stack.
    if let (None, Engine::Kernel(unwinder)) = (frame, engine)
        && let Some(text) = recorded_states(view, unwinder, variant)
    {
        out.push('\n');
        out.push_str(&text);
    }

    // One frame is looked for among all, also where the listing would fold it.
    let rows = listing::rows(view, outcome);
    let blamed = blamed_frame(outcome, &rows);
    for piece in listing::pieces(
        view,
        outcome,
        &rows,
        frame.map_or(shown, |_| ListingLength::All),
    ) {
        match piece {
            FoldedItem::Item(at) => {
                let found = rows[at].found();
                if let Some(i) = found.filter(|i| frame.is_none_or(|wanted| wanted == *i)) {
                    out.push('\n');
                    frame_text(&mut out, view, i, outcome.chain.step(i), rows[at]);
                    if i.checked_sub(1)
                        .is_some_and(|inside| blamed == Some(inside))
                    {
                        blame_text(&mut out, outcome);
                    }
                }
            }
            FoldedItem::Repeated { count, period } => {
                let _ = writeln!(out, "\n{}", listing::repeated_line(count, period));
            }
        }
    }

    // The end belongs to the whole walk, or to a frame number that the chain does not reach.
    if frame.is_none_or(|wanted| wanted >= outcome.chain.frames.len()) {
        out.push('\n');
        if let Some(last) = again(view, engine, setting, outcome, &mut cache).last {
            rejected_text(&mut out, view, outcome, &last);
            if blamed.is_some_and(|blamed| blamed + 1 == outcome.chain.frames.len()) {
                blame_text(&mut out, outcome);
            }
            out.push('\n');
        }
        end_text(&mut out, view, walk, &mut cache);
    }

    let wanted = match frame {
        Some(frame) => outcome.chain.frames.get(frame).map(|frame| frame.pc),
        None => code::place(outcome),
    };
    if let Some(text) = wanted.and_then(|pc| code::text(view, engine, setting, pc)) {
        let _ = write!(out, "\n{text}");
    }

    // perf's callchain has a user part, too, which is not part of this walk.
    if frame.is_none() && view.sample.kernel.is_some() {
        let options = recorded_options(view, CallchainOptions::default());
        let chain = perf_chain(view, engine, variant, setting, options, &mut cache);
        let _ = write!(out, "\n{}", explained(view, &chain));
    }

    out
}

/// Why the state after the skipped ones is the first one kept.
fn kept(state: &State, mark: u64) -> String {
    match state {
        State::Orc(OrcState { sp, .. }) | State::Guess(GuessState { sp, .. }) if *sp > mark => {
            format!("  the first one kept: sp {sp:#x} is above the mark {mark:#x}\n")
        }
        _ if state.is_done() => "  none was kept: the walk ended before the mark\n".to_owned(),
        _ => String::new(),
    }
}

/// The address and its distance from the live rsp: `0x7fffffffe508 (rsp+88)`.
fn from_rsp(view: &View<'_>, address: u64) -> String {
    let rsp = view.live().rsp();
    let distance = address.wrapping_sub(rsp) as i64;
    format!("{address:#x} (rsp{distance:+})")
}

fn frame_text(out: &mut String, view: &View<'_>, i: usize, frame: Step<'_>, row: Row) {
    // The first pc is an instruction's, all others are behind a call; they are looked up
    // differently.
    let place = Location::of(view.space, frame.pc);
    let what = if frame.pc.is_instruction() {
        "instruction"
    } else {
        "return address"
    };
    let _ = writeln!(out, "frame {i}: {what} {:#x}, {place}", frame.pc.value());

    // How the frame was found is the first thing to know: only a rule has a row and words.
    match frame.how {
        How::Start => out.push_str("  the walk started here\n"),
        How::SampledIp => out.push_str("  the sampled ip, reported before the walk\n"),
        How::Guess => out.push_str("  a word on the stack that is a code address\n"),
        How::Branch { from, stitched } => {
            let whose = if stitched {
                "an earlier sample's record"
            } else {
                "the record"
            };
            let _ = writeln!(out, "  by {whose} of the call at {from:#x}");

            // A branch record says that a call was made, not that it is still active.
            let wrong = matches!(row, Row::Extra { .. } | Row::Wrong { .. });
            out.push_str(match (wrong, stitched) {
                (false, _) => "",
                (true, false) => {
                    "  the call did not return; it was left in a way that the ring did not see\n"
                }
                (true, true) => "  a call in that sample, which has since returned or been left\n",
            });
        }
        How::External => out.push_str("  its unwinder does not say how it was found\n"),
        How::Rule { row, words } => {
            let source = row.source();

            // The frame called by the first one may have been skipped.
            let inside = i.checked_sub(1);
            let inside = inside.map_or("the frame inside".into(), |i| format!("frame {i}"));
            let _ = writeln!(out, "  by the row of {inside}: {}", row_place(&source));
            let _ = writeln!(out, "  rule: {}", row.rule());
            if let Some(cause) = source.fallback {
                let _ = writeln!(out, "  a fallback, because {} {cause}", cause.code());
            }
            for word in words {
                let _ = writeln!(
                    out,
                    "  read *{} = {:#x}",
                    from_rsp(view, word.address),
                    word.value
                );
            }
            let _ = writeln!(out, "  gave cfa {}", from_rsp(view, frame.sp));
        }
    }

    if let Some(slot) = frame.slot {
        let _ = writeln!(out, "  its pc was read from {}", from_rsp(view, slot));
    }

    // At the end comes the verdict, so that the reader sees the evidence first.
    match row {
        Row::Same { truth: t, .. } => {
            let _ = writeln!(out, "  true: it is frame {t} of the true chain");
        }
        Row::Wrong { truth: t, .. } => {
            let truth = &view.sample.truth;
            let (pc, place) = listing::true_place(view, t);
            let _ = write!(out, "  WRONG: true frame {t} is {pc:#x}, {place}");

            // Where the right pc lies is told only if the walk looked elsewhere.
            if let Some(slot) = truth.slot(t).filter(|slot| Some(*slot) != frame.slot) {
                let _ = write!(out, ", whose pc is at {}", from_rsp(view, slot));
            }
            out.push('\n');
        }
        Row::Extra { .. } => out.push_str("  WRONG: no true frame is here\n"),
        Row::Absent { .. } | Row::Unjudged { .. } => {}
    }
}

/// Says at the step that applied it that a row is to blame; the end of the text has the details.
fn blame_text(out: &mut String, outcome: &Outcome) {
    let Some(diagnosis) = &outcome.diagnosis else {
        return;
    };
    let code = diagnosis.code;
    let _ = write!(out, "  TO BLAME: {code} {}", code.description());
    if let Some(contradiction) = &diagnosis.contradiction {
        let _ = write!(out, ": {contradiction}");
    }
    out.push('\n');
}

/// The step that found no frame.
fn rejected_text(out: &mut String, view: &View<'_>, outcome: &Outcome, step: &LastStep) {
    // An address near the stack is given by its distance; another is only a number.
    let near = |address: u64| match distance_from_rsp(view, address) {
        Some(_) => from_rsp(view, address),
        None => format!("{address:#x}"),
    };

    let next = outcome.chain.frames.len();
    let why = if step.is_root {
        ", the last one is the root"
    } else {
        ""
    };
    let _ = writeln!(out, "frame {next}: none{why}");
    let _ = writeln!(
        out,
        "  by the row of frame {}: {}",
        next.saturating_sub(1),
        row_place(&step.row.source)
    );
    let _ = writeln!(out, "  rule: {}", step.row.rule);

    if let Some((reg, value)) = step.base {
        let _ = writeln!(out, "  {reg} was {}", near(value));
    }
    for word in &step.words {
        let _ = writeln!(out, "  read *{} = {:#x}", near(word.address), word.value);
    }
    if let Some(cfa) = step.cfa {
        let _ = writeln!(out, "  gave cfa {}", near(cfa));
    }
    if let Some((address, slot)) = step.refused {
        let at = slot.map_or(String::new(), |slot| format!(", read from {}", near(slot)));
        let _ = writeln!(out, "  its pc would be {address:#x}{at}: refused");
    }
}

fn end_text(out: &mut String, view: &View<'_>, walk: &Walk<'_>, cache: &mut Cache) {
    let Walk {
        engine,
        setting,
        outcome,
        ..
    } = *walk;

    let reason = outcome.chain.end.reason;
    let code = reason.code();
    let _ = writeln!(
        out,
        "the walk ended: {code} {}: {reason}",
        code.description()
    );

    // Without a diagnosis nothing is wrong, or it is not known what.
    let truth = &view.sample.truth;
    let Some(diagnosis) = &outcome.diagnosis else {
        return;
    };

    if let Some(text) = wrong_user_regs_text(view, outcome) {
        let (place, code) = (Location::of(view.space, diagnosis.pc), diagnosis.code);
        let frame = diagnosis.frame;
        let _ = writeln!(
            out,
            "to blame: true frame {frame}, {place}: {code} {}",
            code.description()
        );
        let _ = writeln!(out, "  the walk {text}");
        return;
    }

    // The row to blame belongs to a true frame; its caller is what the row should have led to.
    let Some(next) = truth.frames().get(diagnosis.frame + 1) else {
        return;
    };
    let place = Location::of(view.space, diagnosis.pc);
    let _ = writeln!(
        out,
        "to blame: true frame {}, {place}: {} {}",
        diagnosis.frame,
        diagnosis.code,
        diagnosis.code.description()
    );

    // What follows is about rows, which only unwinders with a finder have.
    let Some(finder) = engine.finder() else {
        return;
    };

    // All claims of the row are compared, not only the first that is wrong.
    for c in engine.contradictions(view, setting, diagnosis.frame, cache) {
        contradiction_text(out, &c);
    }

    let cfa = truth.frames()[diagnosis.frame].cfa;
    let _ = writeln!(out, "  the right answer: cfa {}", from_rsp(view, cfa));
    if let Some(slot) = truth.slot(diagnosis.frame + 1) {
        let _ = writeln!(
            out,
            "  return address {:#x}, at {}",
            next.pc,
            from_rsp(view, slot)
        );
    }

    // The truth knows all callee-saved registers; a format such as SFrame has only some of them.
    for (reg, value) in Reg::CALLEE_SAVED.iter().zip(next.saved.unwrap_or_default()) {
        if next.saved.is_some() && finder.carries().contains(*reg) {
            let _ = writeln!(out, "  {reg} {value:#x}");
        }
    }
}

fn contradiction_text(out: &mut String, c: &Contradiction) {
    let _ = writeln!(out, "  {}: {c}", c.code);
    if let Some(row) = &c.row {
        let _ = writeln!(out, "    {}\n    {}", row_place(&row.source), row.rule);
    }
}
