//! The lines of a deadlock.

use super::{EndLine, Line, PlaceLine, end_line};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_judge::verify::deadlock::{
    DeadlockedThread, OwnerKnown, Placed, WaitTarget, WaitsFor, WalkedChain,
};

/// A thread that waits for what cannot happen.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DeadlockLine {
    schema: &'static str,
    pid: u32,
    tid: u32,
    /// The thread's name.
    name: String,
    /// The file name of its program.
    program: String,
    /// The system call; empty for a process that was stopped elsewhere.
    call: &'static str,
    /// `futex`, `thread`, `child`, `vfork`, `signal`, `file`, `lock`, `semaphores`, `queue`,
    /// `stopped` or `other`.
    waits_for: &'static str,
    /// The same in words.
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    futex: Option<FutexLine>,
    /// The thread, child, process group, set of semaphores or queue that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<WaitFileLine>,
    /// The true chain, innermost first, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<Vec<PlaceLine>>,
    /// Whether the true chain includes the root.
    truth_complete: bool,
    /// The chain by each unwinder.
    chains: Vec<WalkedChainLine>,
}

/// A futex that a thread waits for.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FutexLine {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The thread that holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<u32>,
    /// How the owner is known: `word` (the futex holds its number) or `glibc` (`__owner` of what
    /// looks like a `pthread_mutex_t`).
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_known: Option<&'static str>,
}

/// A file that a thread waits for.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct WaitFileLine {
    descriptor: u64,
    what: String,
    /// The processes that have the other end of a pipe, or hold the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<Vec<u32>>,
}

/// What an unwinder makes of a stack.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct WalkedChainLine {
    unwinder: String,
    /// How it differs from the truth, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    end: EndLine,
    frames: Vec<PlaceLine>,
}

fn place(frame: &Placed) -> PlaceLine {
    PlaceLine {
        pc: hex(frame.pc),
        function: frame.location.function.clone(),
        offset: hex(frame.location.offset),
        image: frame.location.image.clone(),
    }
}

fn chain(chain: &WalkedChain) -> WalkedChainLine {
    WalkedChainLine {
        unwinder: chain.unwinder.clone(),
        verdict: chain.verdict.map(|verdict| verdict.as_str()),
        end: end_line(&chain.end),
        frames: chain.frames.iter().map(place).collect(),
    }
}

/// A line for each thread.
pub fn deadlock(threads: &[DeadlockedThread]) -> Vec<Line> {
    let line = |thread: &DeadlockedThread| {
        let waiting = &thread.waiting;
        let futex = match &waiting.what {
            WaitsFor::Futex {
                address,
                value,
                owner,
            } => Some(FutexLine {
                address: hex(*address),
                value: value.map(|value| hex(value.into())),
                owner: owner.map(|owner| owner.thread),
                // The owner stands in the futex word, for robust locks and those with priority
                // inheritance, or in glibc's `pthread_mutex_t` around it.
                owner_known: owner.map(|owner| match owner.known {
                    OwnerKnown::Word => "word",
                    OwnerKnown::Glibc => "glibc",
                }),
            }),
            _ => None,
        };

        // A thread waits for one lock, or for any of several files.
        let files = match &waiting.what {
            WaitsFor::Files(files) => &files[..],
            WaitsFor::Lock(file) => std::slice::from_ref(file),
            _ => &[],
        };

        let truth = thread.truth.as_ref();
        Line::Deadlock(Box::new(DeadlockLine {
            schema: SCHEMA,
            pid: waiting.task.process,
            tid: waiting.task.thread,
            name: waiting.name.clone(),
            program: waiting.program.clone(),
            call: waiting.call,
            waits_for: waiting.what.as_str(),
            text: waiting.what.to_string(),
            futex,
            // What the number means depends on `waits_for`, a field of its own.
            number: match waiting.what {
                WaitsFor::Thread(number)
                | WaitsFor::Tracer(number)
                | WaitsFor::Borrower(number)
                | WaitsFor::Semaphores(number)
                | WaitsFor::Queue(number)
                | WaitsFor::Child(WaitTarget::Number(number) | WaitTarget::Group(number)) => {
                    Some(number)
                }
                _ => None,
            },
            files: files
                .iter()
                .map(|file| WaitFileLine {
                    descriptor: file.descriptor,
                    what: file.what.clone(),
                    others: file.others.clone(),
                })
                .collect(),
            truth: truth.map(|truth| truth.frames.iter().map(place).collect()),
            truth_complete: truth.is_some_and(|truth| truth.is_complete),
            chains: thread.chains.iter().map(chain).collect(),
        }))
    };

    threads.iter().map(line).collect()
}
