//! The way out of the kernel: the exit loop, the task work that unwinds the user stack, the end
//! of a task (`kernel/entry/common.c`, `kernel/unwind/deferred.c`, Linux 7.2).
//!
//! The task work is preemptible frame by frame. Not here: samples (`overflow`).

use super::deferred::{Cache, PENDING, PERF, Reset, USED};
use super::log::{Context, Fact};
use super::mutant::Mutant;
use super::record::Body;
use super::setup::{Form, Kind, ON_STACK_ENTRIES, RfcBuffer, UNWIND_MAX_ENTRIES};
use super::stack::{Leaf, user_frame};
use super::world::{Loop, Place, Work, World};

/// Frames unwound one by one before a step does more at once.
const SINGLE_FRAMES: usize = 8;
/// Frames of a step after those.
const FRAMES_PER_STEP: usize = 64;

/// A task work that runs (`process_unwind_deferred`, or `perf_pending_task_unwind` of 2023).
pub(super) struct Unwinding {
    work: Work,
    stage: UnwindStage,
    bits: u64,
    /// The buffer: its own, or (a mutant) the one of the CPU on which it began.
    shared: Option<usize>,
    entries: Vec<u64>,
    next: usize,
}

#[derive(Clone, Copy)]
enum UnwindStage {
    Begin,
    Allocate,
    Frames,
    Store,
    /// The record is to be written for the events from this one on.
    Output(u16),
}

impl World {
    /// The next step of a task in the kernel.
    pub(super) fn step_task(&mut self, cpu: usize, task: usize) {
        if let Some(mut job) = self.tasks[task].job.take() {
            if !self.overflow_step(cpu, &mut job) {
                self.tasks[task].job = Some(job);
            }
            return;
        }
        if let Some(mut unwinding) = self.tasks[task].unwind.take() {
            if !self.unwind_step(cpu, task, &mut unwinding) {
                self.tasks[task].unwind = Some(unwinding);
            }
            return;
        }
        if let Some((event, handler)) = self.tasks[task].installing.take() {
            self.slots.set_context(event, handler);
            self.say(cpu, Fact::Installed { event, handler });
            return;
        }
        if !self.tasks[task].closing.is_empty() {
            let dying = std::mem::take(&mut self.tasks[task].closing);
            return self.close_end(cpu, dying);
        }
        match self.tasks[task].place {
            Place::User | Place::Body => {}
            Place::Loop(at) => self.exit_loop(cpu, task, at),
            Place::Reset(at) => self.reset(cpu, task, at),
            Place::Exiting => self.end(cpu, task),
        }
    }

    /// Queued works run, the last one first; whether there was one.
    fn run_work(&mut self, task: usize) -> bool {
        let Some(work) = self.tasks[task].works.pop() else {
            return false;
        };
        self.tasks[task].unwind = Some(Unwinding {
            work,
            stage: UnwindStage::Begin,
            bits: 0,
            shared: None,
            entries: Vec::new(),
            next: 0,
        });
        true
    }

    fn exit_loop(&mut self, cpu: usize, task: usize, at: Loop) {
        let has_work = !self.tasks[task].works.is_empty();
        let next = match at {
            Loop::Check => {
                let t = &self.tasks[task];
                if has_work || t.signal.is_some() || t.uprobe.is_some() {
                    Place::Loop(Loop::Schedule)
                } else {
                    Place::Reset(Reset::Mask)
                }
            }
            Loop::Schedule => Place::Loop(Loop::Uprobe),
            Loop::Uprobe => match self.uprobe(cpu, task) {
                true => return,
                false => Place::Loop(Loop::Signal),
            },
            Loop::Signal => {
                // get_signal() runs task works before it looks for a signal.
                if self.tasks[task].signal.is_some() && self.run_work(task) {
                    return;
                }
                if let Some(stack) = self.tasks[task].signal.take() {
                    self.tasks[task].stack = stack;
                    self.tasks[task].leaf = Leaf::Body;
                    self.say(cpu, Fact::Signal { stack });
                }
                Place::Loop(Loop::Resume)
            }
            Loop::Resume => {
                if self.run_work(task) {
                    return;
                }
                Place::Loop(Loop::Check)
            }
        };
        self.tasks[task].place = next;
    }

    /// `uprobe_notify_resume`: the events at the probe, then its instruction. Whether there is
    /// more to do.
    fn uprobe(&mut self, cpu: usize, task: usize) -> bool {
        let Some(from) = self.tasks[task].uprobe else {
            return false;
        };
        for event in from..self.events.len() as u16 {
            let is_probe = self.events[usize::from(event)].kind == Kind::Uprobe;
            if is_probe && self.counts(event, cpu) {
                self.tasks[task].uprobe = Some(event + 1);
                let job = self.overflow(cpu, event, Context::Task, true);
                self.tasks[task].job = Some(job);
                return true;
            }
        }
        self.tasks[task].uprobe = None;
        self.tasks[task].leaf = Leaf::AfterPush;
        self.say(cpu, Fact::UprobeStep);
        true
    }

    fn reset(&mut self, cpu: usize, task: usize, at: Reset) {
        let keep_cookie = self.mutant(Mutant::CookieReused);
        let keep_cache = self.mutant(Mutant::StaleCache);
        let next = at.step(&mut self.tasks[task].info, keep_cookie, keep_cache);
        if (at, next) == (Reset::Mask, Reset::Cookie) {
            self.say(cpu, Fact::Reset);
        }
        self.tasks[task].place = Place::Reset(next);
        if next == Reset::Done {
            self.tasks[task].place = Place::User;
            self.say(cpu, Fact::Return);
        }
    }

    /// `do_exit` from where PF_EXITING is set: unwinds that are pending run while there is an mm.
    fn end(&mut self, cpu: usize, task: usize) {
        let works = std::mem::take(&mut self.tasks[task].works);
        for work in works {
            if let Work::Event(event) = work {
                self.release(event, task);
            } else {
                self.tasks[task].works = vec![work];
                self.run_work(task);
                return;
            }
        }
        self.write_side(cpu, 0, Body::Exit);
        self.say(cpu, Fact::Exit);
        self.tasks[task].dead = true;
        self.tasks[task].on = None;
        self.cpus[cpu].current = None;
        self.branches_exit(cpu, task);
    }

    /// The event's task work is free again.
    fn release(&mut self, event: u16, task: usize) {
        let cpus = self.cpus.len();
        let from = usize::from(event) * cpus;
        for counter in &mut self.counters[from..from + cpus] {
            if counter.owner == Some(task) {
                counter.owner = None;
            }
        }
    }

    /// How many frames the unwind may store.
    fn unwind_max(&self, work: Work) -> usize {
        match (work, self.setup.rfc_buffer) {
            (Work::Deferred, _) => UNWIND_MAX_ENTRIES,
            (Work::Event(_), RfcBuffer::OnStack) => ON_STACK_ENTRIES,
            (Work::Event(event), RfcBuffer::Allocated) => {
                usize::from(self.events[usize::from(event)].max_stack)
            }
        }
    }

    /// The next step of a task work; whether it was the last.
    fn unwind_step(&mut self, cpu: usize, task: usize, at: &mut Unwinding) -> bool {
        at.stage = match at.stage {
            UnwindStage::Begin => {
                self.say(cpu, Fact::Unwind);
                at.bits = self.tasks[task].info.mask;
                self.tasks[task].info.mask &= !PENDING;
                UnwindStage::Allocate
            }
            UnwindStage::Allocate => match self.allocate(cpu, task, at) {
                Some(stage) => stage,
                None => return true,
            },
            UnwindStage::Frames => {
                self.frames(task, at);
                return false;
            }
            UnwindStage::Store => {
                if let Some(cpu) = at.shared {
                    at.entries
                        .clone_from(&self.cpus[cpu].buffers[Context::Task as usize]);
                }
                if at.work == Work::Deferred {
                    let info = &mut self.tasks[task].info;
                    if let Some(cache) = info.cache.as_mut() {
                        cache.entries.clone_from(&at.entries);
                    }
                    info.mask |= USED;
                }
                UnwindStage::Output(0)
            }
            UnwindStage::Output(event) => match self.output_frames(cpu, task, at, event) {
                Some(next) => UnwindStage::Output(next),
                None => return true,
            },
        };
        false
    }

    /// The buffer, the first time; what was found before in this stay is used again. `None` ends
    /// the task work.
    fn allocate(&mut self, cpu: usize, task: usize, at: &mut Unwinding) -> Option<UnwindStage> {
        let info = &mut self.tasks[task].info;
        let has_memory = info.cache.is_some() && at.work == Work::Deferred;
        if !has_memory && std::mem::take(&mut self.tasks[task].no_memory) {
            self.say(cpu, Fact::NoMemory);
            return match at.work {
                // "From here on out, the callback must always be called."
                Work::Deferred => Some(UnwindStage::Output(0)),
                Work::Event(event) => {
                    self.release(event, task);
                    None
                }
            };
        }
        if at.work == Work::Deferred {
            let cache = self.tasks[task]
                .info
                .cache
                .get_or_insert_with(Cache::default);
            if !cache.entries.is_empty() {
                at.entries.clone_from(&cache.entries);
                return Some(UnwindStage::Output(0));
            }
        }
        if self.mutant(Mutant::SharedBuffer) {
            self.cpus[cpu].buffers[Context::Task as usize].clear();
            at.shared = Some(cpu);
        }
        Some(UnwindStage::Frames)
    }

    fn frames(&mut self, task: usize, at: &mut Unwinding) {
        let max = self.unwind_max(at.work);
        let steps = if at.next < SINGLE_FRAMES {
            1
        } else {
            FRAMES_PER_STEP
        };
        for _ in 0..steps {
            let t = &self.tasks[task];
            let frame = match at.next < max {
                true => user_frame(&*self.stacks, t.stack, t.leaf, false, at.next),
                false => None,
            };
            let Some(frame) = frame else {
                at.stage = UnwindStage::Store;
                return;
            };
            match at.shared {
                Some(cpu) => self.cpus[cpu].buffers[Context::Task as usize].push(frame),
                None => at.entries.push(frame),
            }
            at.next += 1;
        }
    }

    /// The record for the first event from `event` on that wants one; where to go on, or `None`
    /// at the end.
    fn output_frames(
        &mut self,
        cpu: usize,
        task: usize,
        at: &Unwinding,
        event: u16,
    ) -> Option<u16> {
        let info = &mut self.tasks[task].info;
        let cookie = info.cookie();
        let wants = match at.work {
            Work::Event(own) => {
                self.release(own, task);
                Some(own)
            }
            Work::Deferred => {
                let completed = info.cache.as_ref().map_or(0, |cache| cache.completed);
                let bits = at.bits & !if event == 0 { completed } else { 0 };
                let mut all = event..self.events.len() as u16;
                all.find(|&e| {
                    bits & PERF != 0
                        && self.events[usize::from(e)].defer_output
                        && self.counts(e, cpu)
                })
            }
        };
        let Some(event) = wants else {
            if let Some(cache) = self.tasks[task].info.cache.as_mut() {
                cache.completed |= PERF;
            }
            return None;
        };
        let period = match self.mutant(Mutant::PeriodTwice) {
            true => self.events[usize::from(event)].period,
            false => 0,
        };
        let upstream = self.setup.form == Form::Upstream;
        let body = Body::Deferred {
            cookie: upstream.then_some(cookie),
            period,
            frames: at.entries.clone(),
        };
        let frames = at.entries.len() as u16;
        let cookie = if upstream { cookie } else { 0 };
        let fact = if self.write(cpu, event, body) {
            Fact::Deferred {
                event,
                cookie,
                frames,
            }
        } else {
            Fact::DeferredLost { event, cookie }
        };
        self.say(cpu, fact);
        (at.work == Work::Deferred).then_some(event + 1)
    }
}
