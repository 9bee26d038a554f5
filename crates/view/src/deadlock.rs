//! A deadlock as text: the threads that wait, for what, and their chains.

use crate::text::plural;
use std::fmt::Write as _;
use unwind_sim_judge::verify::deadlock::{DeadlockedThread, Placed, TrueChain, WalkedChain};
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::verdict::Verdict;

/// The frames of a chain that are shown.
const FRAMES_MAX: usize = 100;

/// All threads of a deadlock; empty if there is none.
pub fn text(threads: &[DeadlockedThread]) -> String {
    let mut out = String::new();
    if threads.is_empty() {
        return out;
    }
    let count = threads.len() as u64;
    let _ = writeln!(
        out,
        "deadlock: {count} thread{} wait{} for what cannot happen",
        plural(count),
        if count == 1 { "s" } else { "" }
    );
    for thread in threads {
        thread_text(&mut out, thread);
    }
    out
}

fn thread_text(out: &mut String, thread: &DeadlockedThread) {
    // Names are those of the recorded program, so they are escaped before they reach a terminal.
    let waiting = &thread.waiting;
    let (process, number) = (waiting.task.process, waiting.task.thread);
    let _ = write!(
        out,
        "\nprocess {process} ({}), thread {number} ({}): ",
        Printable::new(&waiting.program),
        Printable::new(&waiting.name)
    );

    // A process that was stopped need not be in a system call.
    let _ = match waiting.call {
        "" => writeln!(out, "waits for {}", waiting.what),
        call => writeln!(out, "waits in {call} for {}", waiting.what),
    };

    if let Some(TrueChain {
        frames,
        is_complete,
    }) = &thread.truth
    {
        let known = if *is_complete {
            ""
        } else {
            ", known to a depth"
        };
        let _ = writeln!(out, "  true chain{known}:");
        frames_text(out, frames);
    }

    // Each unwinder's chain is compared with the truth, if that is known.
    for chain in &thread.chains {
        chain_text(out, chain, thread.truth.as_ref());
    }
}

fn chain_text(out: &mut String, chain: &WalkedChain, truth: Option<&TrueChain>) {
    let is_same = truth.is_some_and(|truth| truth.frames == chain.frames);
    let end = &chain.end.reason;
    let ended = format!("ended: {} {end}", end.code().as_str());
    let name = Printable::new(&chain.unwinder);
    let _ = match (&chain.verdict, is_same) {
        (Some(Verdict::Ok), true) => writeln!(out, "  {name}: the same"),
        (Some(verdict), true) => writeln!(out, "  {name}: the same frames ({verdict}), {ended}"),
        (Some(verdict), false) => writeln!(out, "  {name}: {verdict}, {ended}"),
        (None, _) => writeln!(out, "  {name}, {ended}"),
    };
    if !is_same {
        frames_text(out, &chain.frames);
    }
}

fn frames_text(out: &mut String, frames: &[Placed]) {
    for frame in frames.iter().take(FRAMES_MAX) {
        let image = frame.location.image.as_deref().unwrap_or("");
        let _ = match image {
            "" => writeln!(out, "    {:#x}  {}", frame.pc, frame.location),
            image => {
                let (pc, place) = (frame.pc, &frame.location);
                writeln!(out, "    {pc:#x}  {place}  {}", Printable::new(image))
            }
        };
    }
    if frames.len() > FRAMES_MAX {
        let _ = writeln!(out, "    and {} more", frames.len() - FRAMES_MAX);
    }
}
