//! Going on and back: what gdb asks for is kept, and done once `gdbstub` waits for the stop.

use super::packets;
use super::target::{GdbTarget, gdb_tid, linux_tid};
use crate::debuggee::{Motion, Stop};
use crate::error::Error;
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::multithread::{
    MultiThreadRangeStepping, MultiThreadRangeSteppingOps, MultiThreadResume,
    MultiThreadSchedulerLocking, MultiThreadSchedulerLockingOps, MultiThreadSingleStep,
    MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::reverse_exec::{
    ReplayLogPosition, ReverseCont, ReverseContOps, ReverseStep, ReverseStepOps,
};
use gdbstub::target::ext::breakpoints::WatchKind;
use unwind_sim_judge::states::{Access, Direction};

impl GdbTarget<'_> {
    /// Makes the way that was asked for. Returns why it ended, and packets for gdb's console.
    pub(super) fn go(&mut self) -> Result<(MultiThreadStopReason<u64>, Vec<u8>), Error> {
        let motion = self.motion.take();
        let motion = motion.unwrap_or(Motion::Run(Direction::Forward));
        let stops = self.stops();
        let stop = self.debuggee.travel(&motion, &stops)?;

        let tid = gdb_tid(self.debuggee.tid());
        let mut said = Vec::new();
        let signal = |signal| MultiThreadStopReason::SignalWithThread { tid, signal };
        let reason = match stop {
            Stop::Step => signal(Signal::SIGTRAP),
            // As if the terminal had sent it to the program: gdb shows it as the answer to Ctrl-C.
            Stop::Interrupted => signal(Signal::SIGINT),
            // By `swbreak`, gdb knows that the pc is at the breakpoint, and does not correct it.
            Stop::Breakpoint => MultiThreadStopReason::SwBreak(tid),
            Stop::Watch {
                tid,
                access,
                address,
            } => MultiThreadStopReason::Watch {
                tid: gdb_tid(tid),
                kind: match access {
                    Access::Write => WatchKind::Write,
                    Access::Read => WatchKind::Read,
                    Access::Any => WatchKind::ReadWrite,
                },
                addr: address,
            },
            // The remote protocol has no such reason to stop, so gdb's console says it.
            Stop::Appointed(why) => {
                said = packets::console(&format!("{why}\n"));
                signal(Signal::SIGTRAP)
            }

            // For gdb, `replaylog` is where the history ends: the program has not exited.
            Stop::Start => MultiThreadStopReason::ReplayLog {
                tid: Some(tid),
                pos: ReplayLogPosition::Begin,
            },
            Stop::End(how) => {
                if let Some(how) = how {
                    said = packets::console(&format!("the run ends here: {how}\n"));
                }
                MultiThreadStopReason::ReplayLog {
                    tid: Some(tid),
                    pos: ReplayLogPosition::End,
                }
            }
        };
        Ok((reason, said))
    }
}

impl MultiThreadResume for GdbTarget<'_> {
    fn resume(&mut self) -> Result<(), Error> {
        let direction = Direction::Forward;
        self.motion = Some(match self.step.take() {
            Some((tid, except)) => Motion::Step {
                tid,
                direction,
                except,
            },
            None => Motion::Run(direction),
        });
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), Error> {
        self.step = None;
        Ok(())
    }

    // The run is what it was: no signal can be added, and no thread held.
    fn set_resume_action_continue(&mut self, _: Tid, _: Option<Signal>) -> Result<(), Error> {
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_range_step(&mut self) -> Option<MultiThreadRangeSteppingOps<'_, Self>> {
        Some(self)
    }

    fn support_reverse_step(&mut self) -> Option<ReverseStepOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_reverse_cont(&mut self) -> Option<ReverseContOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for GdbTarget<'_> {
    fn set_resume_action_step(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), Error> {
        self.step = Some((linux_tid(tid), 0..0));
        Ok(())
    }
}

impl MultiThreadRangeStepping for GdbTarget<'_> {
    fn set_resume_action_range_step(
        &mut self,
        tid: Tid,
        start: u64,
        end: u64,
    ) -> Result<(), Error> {
        self.step = Some((linux_tid(tid), start..end));
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for GdbTarget<'_> {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl ReverseStep<Tid> for GdbTarget<'_> {
    fn reverse_step(&mut self, tid: Tid) -> Result<(), Error> {
        self.motion = Some(Motion::Step {
            tid: linux_tid(tid),
            direction: Direction::Backward,
            except: 0..0,
        });
        Ok(())
    }
}

impl ReverseCont<Tid> for GdbTarget<'_> {
    fn reverse_cont(&mut self) -> Result<(), Error> {
        self.motion = Some(Motion::Run(Direction::Backward));
        Ok(())
    }
}
