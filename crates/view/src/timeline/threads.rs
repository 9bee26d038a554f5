//! The threads of a program at a state.

use crate::json::PlaceLine;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::states::ThreadState;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::world::World;

/// The number of frames of each thread.
const FRAMES_MAX: usize = 32;

/// A thread.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Thread {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// `runs`, `can run`, `waits in CALL`, or `stopped by signal N`.
    pub doing: String,
    /// Its true chain, innermost first: the first 32 frames that are known.
    pub frames: Vec<PlaceLine>,
}

impl Thread {
    pub(super) fn of(thread: &ThreadState, world: &World) -> Thread {
        let space = world.space(thread.pid);
        let frames = thread.truth.frames().iter().take(FRAMES_MAX);
        let place = |frame: &unwind_sim_unwind::truth::TrueFrame| {
            PlaceLine::new(frame.pc, Location::of(space, frame.address()))
        };
        Thread {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.clone(),
            doing: thread.doing.clone(),
            frames: frames.map(place).collect(),
        }
    }
}
