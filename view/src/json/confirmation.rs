//! The lines of `replay --confirm`.

use super::Line;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::confirm::{Counts, Judgement, Resumed, Tally, call_name};
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::chain::Frame;

/// What happened when a sample's thread was resumed.
#[derive(Serialize, JsonSchema)]
pub struct ResumedLine {
    schema: &'static str,
    /// The sample's number, from 0.
    sample: u64,
    tid: u32,
    /// Why it could not be resumed; the fields below are then empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_resumed: Option<String>,
    instructions: u64,
    /// Returns out of what was running.
    returns: usize,
    /// The next instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    rip: Option<String>,
    /// Why it stopped.
    end: String,
    /// The system calls whose results were assumed, and how often.
    assumed: BTreeMap<String, u64>,
    /// Those that would have waited, and were interrupted.
    interrupted: u64,
}

/// What is known of the frames of a chain.
#[derive(Serialize, JsonSchema)]
pub struct ConfirmedLine {
    schema: &'static str,
    sample: u64,
    unwinder: String,
    /// The start variant.
    start: &'static str,
    #[serde(flatten)]
    counts: CountsLine,
    /// One for each frame that execution passed by.
    contradictions: Vec<PassedLine>,
}

/// Frames by what is known of them.
#[derive(Serialize, JsonSchema)]
pub struct CountsLine {
    /// All but the first.
    callers: u64,
    confirmed: u64,
    /// Those of them that were after the result of a system call had been assumed.
    confirmed_assumed: u64,
    contradicted: u64,
    unjudged: u64,
}

/// A frame that execution passed by.
#[derive(Serialize, JsonSchema)]
pub struct PassedLine {
    /// Its number in the chain.
    frame: usize,
    /// Where its return address should be.
    slot: String,
    /// Where the one was by which execution returned.
    returned_by: String,
    /// Where to.
    returned_to: String,
}

/// The last line of `replay --confirm`.
#[derive(Serialize, JsonSchema)]
pub struct ConfirmationLine {
    schema: &'static str,
    confirmed: u64,
    contradicted: u64,
    /// Those of unwinders that are not expected to err.
    unexpected: u64,
    /// The command that gives the same again.
    command: String,
}

impl Line {
    /// How a resumed thread went on, or why it could not be resumed.
    pub fn resumed(view: &View<'_>, resumed: Result<&Resumed, String>) -> Line {
        let mut line = ResumedLine {
            schema: SCHEMA,
            sample: view.number,
            tid: view.sample.tid,
            not_resumed: None,
            instructions: 0,
            returns: 0,
            rip: None,
            end: String::new(),
            assumed: BTreeMap::new(),
            interrupted: 0,
        };
        match resumed {
            Err(why) => line.not_resumed = Some(why),
            Ok(resumed) => {
                line.instructions = resumed.instructions;
                line.returns = resumed.returns.len();
                line.rip = Some(hex(resumed.rip));
                line.end = resumed.end.to_string();
                let named = |(&number, &count): (&u64, &u64)| (call_name(number), count);
                line.assumed = resumed.assumed.iter().map(named).collect();
                line.interrupted = resumed.interrupted;
            }
        }
        Line::Resumed(Box::new(line))
    }

    /// What is known of the frames of a chain.
    pub fn confirmed(
        view: &View<'_>,
        unwinder: &str,
        start: &'static str,
        frames: &[Frame],
        judged: &[Judgement],
    ) -> Line {
        let Counts {
            callers,
            confirmed,
            confirmed_assumed,
            contradicted,
            unjudged,
        } = Counts::of(judged);
        let passed = |(number, (frame, judgement)): (usize, (&Frame, &Judgement))| {
            let Judgement::Contradicted(reached) = judgement else {
                return None;
            };
            Some(PassedLine {
                frame: number,
                slot: hex(frame.sp.wrapping_sub(8)),
                returned_by: hex(reached.slot),
                returned_to: hex(reached.to),
            })
        };
        Line::Confirmed(Box::new(ConfirmedLine {
            schema: SCHEMA,
            sample: view.number,
            unwinder: unwinder.to_owned(),
            start,
            counts: CountsLine {
                callers,
                confirmed,
                confirmed_assumed,
                contradicted,
                unjudged,
            },
            contradictions: frames
                .iter()
                .zip(judged)
                .enumerate()
                .filter_map(passed)
                .collect(),
        }))
    }

    /// The sums.
    pub fn confirmation(tally: &Tally, command: &str) -> Line {
        Line::Confirmation(ConfirmationLine {
            schema: SCHEMA,
            confirmed: tally.confirmed,
            contradicted: tally.contradicted,
            unexpected: tally.unexpected,
            command: command.to_owned(),
        })
    }
}
