//! Threads and their stacks: the truth is the first thread, each unwinder one beside it, and then the
//! program's other threads with their true chains.

use super::session::{Answer, Session};
use crate::error::Error;
use crate::tell;
use serde_json::{Value, json};
use unwind_sim_view::json::PlaceLine;
use unwind_sim_view::timeline::{Register, State, Step, StepKind, Walk};

/// The number of the thread that shows the truth; those of the unwinders follow.
pub(super) const TRUTH: u64 = 1;
/// The numbers of the program's other threads: this and Linux's number.
const OTHER: u64 = 1000;
/// The number of frames of a thread that are shown. The number of a frame is that of the thread,
/// times this, and the frame's: twice as much still has 31 bits, which is what the protocol wants.
const FRAMES_MAX: u64 = 1 << 12;
/// The number of frames in an answer, if the editor asks for all.
const ANSWERED_MAX: u64 = 1000;

/// A frame of a panel.
pub(super) struct Frame<'s> {
    name: String,
    place: Option<&'s PlaceLine>,
    /// A label: nothing of the program is there.
    is_label: bool,
    pub(super) registers: &'s [Register],
    /// How it was found, as names and values: the scope *Unwinding*.
    pub(super) about: Vec<(&'static str, String)>,
}

/// A thread's number from that of one of its frames, and the frame's index.
pub(super) fn of_frame(id: u64) -> (u64, usize) {
    ((id / FRAMES_MAX), (id % FRAMES_MAX) as usize)
}

impl Session<'_> {
    pub(super) fn threads(&mut self) -> Result<Answer, Error> {
        let walkers = self.debuggee.walkers();
        let own = self.debuggee.tid();
        let state = self.debuggee.state()?;

        let mut all = vec![json!({"id": TRUTH, "name": "truth"})];
        let walks = walkers.iter().zip(&state.walks).zip(TRUTH + 1..);
        all.extend(walks.map(|((name, walk), id)| {
            let code = walk.cause.as_ref().filter(|_| walk.is_wrong());
            let code = code.map_or(String::new(), |cause| format!(", {}", cause.code));
            json!({"id": id, "name": format!("{name}: {}{code}", walk.verdict.word)})
        }));
        let others = state.threads.iter().filter(|thread| thread.tid != own);
        all.extend(others.map(|thread| {
            let name = format!("thread {} {}: {}", thread.tid, thread.name, thread.doing);
            json!({"id": OTHER + u64::from(thread.tid), "name": name})
        }));
        Ok(Ok(json!({ "threads": all })))
    }

    pub(super) fn stack_trace(&mut self, arguments: &Value) -> Result<Answer, Error> {
        let Some(thread) = arguments["threadId"].as_u64() else {
            return Ok(Err("threadId is missing".to_owned()));
        };
        let first = arguments["startFrame"].as_u64().unwrap_or(0);
        let levels = match arguments["levels"].as_u64() {
            // In the protocol, no `levels` and 0 both mean all frames.
            None | Some(0) => ANSWERED_MAX,
            Some(levels) => levels.min(ANSWERED_MAX),
        };

        let walkers = self.debuggee.walkers();

        // A copy, because `lines` needs the debuggee, too.
        let state = self.debuggee.state()?.clone();
        let frames = match frames(&state, &walkers, thread) {
            Ok(frames) => frames,
            Err(why) => return Ok(Err(why)),
        };
        let (lines, bias) = self.debuggee.lines()?;

        let number = |index: u64| thread * FRAMES_MAX + index;

        // A further frame would have the number of one of the next thread's.
        let total = frames.len().min(FRAMES_MAX as usize);
        let shown = (0..).zip(&frames).take(total);
        let shown = shown.skip(usize::try_from(first).unwrap_or(usize::MAX));
        let shown = shown.take(levels as usize).map(|(index, frame)| {
            // In the protocol, line and column are 0 where there is no source.
            let mut one = json!({
                "id": number(index),
                "name": frame.name,
                "line": 0,
                "column": 0,
            });
            if let Some(place) = frame.place {
                one["instructionPointerReference"] = place.pc.as_str().into();
                // The call is before its return address.
                let pc = super::breakpoints::address(&place.pc).unwrap_or(0);
                let pc = pc.wrapping_sub(bias).wrapping_sub(u64::from(index > 0));
                if let Some((file, line)) = lines.at(pc) {
                    one["line"] = line.into();
                    one["source"] = source(file);
                }
            }
            if frame.is_label {
                one["presentationHint"] = "label".into();
            }
            one
        });
        let shown: Vec<Value> = shown.collect();
        Ok(Ok(json!({"stackFrames": shown, "totalFrames": total})))
    }
}

/// A source file. Where its path is relative, the compiler's folder is not known.
fn source(path: &str) -> Value {
    let name = path.rsplit('/').next().unwrap_or(path);
    json!({"name": name, "path": path})
}

/// The frames of a thread.
pub(super) fn frames<'s>(
    state: &'s State,
    walkers: &[String],
    thread: u64,
) -> Result<Vec<Frame<'s>>, String> {
    if thread == TRUTH {
        return Ok(true_frames(state, walkers));
    }

    // From `OTHER` on, the numbers are Linux's; those below are the truth and the unwinders.
    if let Some(tid) = thread.checked_sub(OTHER) {
        let other = state.threads.iter().find(|t| u64::from(t.tid) == tid);
        let other = other.ok_or_else(|| format!("there is no thread {tid} here"))?;
        let frame = |place: &'s PlaceLine| Frame {
            name: tell::place(place),
            place: Some(place),
            is_label: false,
            registers: &[],
            about: Vec::new(),
        };
        return Ok(other.frames.iter().map(frame).collect());
    }
    // The thread after the truth is the first unwinder's.
    let index = thread.checked_sub(TRUTH + 1);
    let index = index.and_then(|index| usize::try_from(index).ok());
    let walk = index.and_then(|index| state.walks.get(index));
    let walk = walk.ok_or_else(|| format!("there is no thread {thread}"))?;
    Ok(walk.steps.iter().filter_map(|s| walked(s, walk)).collect())
}

/// The true chain; the frames to blame are marked, with the unwinders that they lead astray.
fn true_frames<'s>(state: &'s State, walkers: &[String]) -> Vec<Frame<'s>> {
    let frame = |(index, found): (usize, &'s unwind_sim_view::timeline::TrueFrame)| {
        let pairs = walkers.iter().zip(&state.walks);
        let blamed = pairs.filter_map(|(name, walk)| {
            let cause = walk.cause.as_ref().filter(|_| walk.is_wrong())?;
            (cause.frame == index).then(|| format!("{name} {}", cause.code))
        });
        let blamed: Vec<String> = blamed.collect();
        let mark = if blamed.is_empty() {
            String::new()
        } else {
            format!("  <- to blame: {}", blamed.join(", "))
        };

        // The top frame's registers are the thread's.
        let registers = match index {
            0 => &state.registers,
            _ => &found.saved,
        };
        let mut about = vec![
            ("kind", found.kind.to_owned()),
            ("cfa", found.cfa.to_string()),
        ];
        about.extend(found.slot.map(|slot| ("pc is at", slot.to_string())));
        if !blamed.is_empty() {
            about.push(("to blame for", blamed.join(", ")));
        }
        Frame {
            name: tell::place(&found.place) + &mark,
            place: Some(&found.place),
            is_label: false,
            registers,
            about,
        }
    };
    let mut frames: Vec<Frame<'s>> = state.frames.iter().enumerate().map(frame).collect();

    // Without a label at its end, a part of the chain would look like all of it.
    let label = match state.truth {
        "complete" => return frames,
        "unknown" if frames.is_empty() => "the true chain is not known here",
        _ => "what lies further out is not known",
    };
    // There is always the place itself.
    if frames.is_empty() {
        frames.push(Frame {
            name: tell::place(&state.place),
            place: Some(&state.place),
            is_label: false,
            registers: &state.registers,
            about: Vec::new(),
        });
    }
    frames.push(labelled(label.to_owned()));
    frames
}

fn labelled(name: String) -> Frame<'static> {
    Frame {
        name,
        place: None,
        is_label: true,
        registers: &[],
        about: Vec::new(),
    }
}

/// What a step of a walk is in the panel: a frame, or a label where one is missing and at the end.
fn walked<'s>(step: &'s Step, walk: &'s Walk) -> Option<Frame<'s>> {
    let Some(frame) = &step.frame else {
        // Of the steps without a frame, only these are at a place where one could be expected.
        let is_shown = matches!(step.kind, StepKind::Missing | StepKind::Ended);
        return is_shown.then(|| labelled(step.text.clone()));
    };

    let cause = walk.cause.as_ref().filter(|_| walk.is_wrong());

    // A cause is in a true frame, which need not have the same index in the walk.
    let blamed = cause.filter(|cause| step.truth == Some(cause.frame));
    let judged = match step.judged {
        Some("wrong") => "wrong: ",
        Some("extra") => "no true frame: ",
        _ => "",
    };
    let mark = blamed.map_or(String::new(), |cause| {
        format!("  <- to blame: {}", cause.code)
    });

    let mut about = vec![
        ("found by", frame.found.to_owned()),
        ("sp", frame.sp.clone()),
    ];
    about.extend(frame.slot.clone().map(|slot| ("pc is at", slot)));
    if let Some(row) = &frame.row {
        about.push(("rule", row.rule.clone()));
        about.push(("row", format!("{} in {}", row.offset, row.table)));
    }
    let word = |[address, value]: &[String; 2]| format!("{value} at {address}");
    let words: Vec<String> = frame.words.iter().map(word).collect();

    // A step that takes everything from registers reads no words.
    if !words.is_empty() {
        about.push(("words read", words.join(", ")));
    }
    about.push(("step", step.text.clone()));
    if let Some(cause) = blamed {
        let given = cause.given.as_deref().unwrap_or("nothing");
        let truth = cause.truth.as_deref().unwrap_or("not known");
        let register = cause.register.unwrap_or("the row");
        about.push((
            "to blame",
            format!("{}: {register} gives {given}; true is {truth}", cause.code),
        ));
    }

    Some(Frame {
        name: format!("{judged}{}{mark}", tell::place(&frame.place)),
        place: Some(&frame.place),
        is_label: false,
        registers: &step.carried,
        about,
    })
}
