//! The lines of `replay --confirm`.

use super::Line;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::confirm::{Counts, Judgement, Resumed, Tally, call_name};
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::chain::Frame;

/// What happened when a sample's thread was resumed.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ResumedLine {
    schema: &'static str,
    /// The sample's number, from 0.
    sample: u64,
    tid: u32,
    /// Why it could not be resumed; the fields below are then empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_resumed: Option<String>,
    instructions: u64,
    /// The number of returns out of recorded frames.
    returns: usize,
    /// The address of the next instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    rip: Option<String>,
    /// Why it stopped.
    end: String,
    /// The system calls whose results were assumed, and how often.
    assumed: BTreeMap<String, u64>,
    /// The number of system calls that would have blocked and were interrupted.
    interrupted: u64,
}

/// Which frames of a chain were confirmed.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConfirmedLine {
    schema: &'static str,
    sample: u64,
    unwinder: String,
    /// The start variant.
    start: &'static str,
    #[serde(flatten)]
    counts: CountsLine,
    /// One for each frame that execution bypassed.
    contradictions: Vec<PassedLine>,
}

/// The numbers of frames with each result.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CountsLine {
    /// All frames except the first.
    callers: u64,
    confirmed: u64,
    /// The number of confirmed frames that were reached after the result of a system call was
    /// assumed.
    confirmed_assumed: u64,
    contradicted: u64,
    unjudged: u64,
}

/// A frame that execution bypassed.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct PassedLine {
    /// Its number in the chain.
    frame: usize,
    /// Where its return address should be.
    slot: String,
    /// Where the return address was by which execution returned.
    returned_by: String,
    /// The address that execution returned to.
    returned_to: String,
}

/// The last line of `replay --confirm`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConfirmationLine {
    schema: &'static str,
    confirmed: u64,
    contradicted: u64,
    /// The contradicted frames of unwinders that are not expected to err.
    unexpected: u64,
    /// The command that reproduces this output.
    command: String,
}

impl Line {
    /// What happened when a thread was resumed, or why it could not be.
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

        // The fields of a thread that was not resumed stay as if nothing had happened.
        match resumed {
            Err(why) => line.not_resumed = Some(why),
            Ok(resumed) => {
                line.instructions = resumed.instructions;
                line.returns = resumed.returns.len();
                line.rip = Some(hex(resumed.rip));
                line.end = resumed.end.to_string();

                // Numbers of system calls are names in the line, as numbers mean nothing to its
                // readers.
                let named = |(&number, &count): (&u64, &u64)| (call_name(number), count);
                line.assumed = resumed.assumed.iter().map(named).collect();
                line.interrupted = resumed.interrupted;
            }
        }

        Line::Resumed(Box::new(line))
    }

    /// Which frames of a chain were confirmed.
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
                // A call pushes the return address right below the caller's rsp (Intel SDM volume
                // 2, CALL).
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

    /// The last line, with the totals.
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
