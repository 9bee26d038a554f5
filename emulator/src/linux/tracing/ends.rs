//! The ends of traced threads, which their tracer waits for, and of tracers.
//!
//! Source: Linux 6.12 `kernel/exit.c`, `kernel/ptrace.c` (`exit_ptrace`, `__ptrace_detach`).

use super::{EndedThread, TraceEvent, option};
use crate::linux::end::{ChildStatus, WaitOptions, WaitTarget};
use crate::linux::kernel::Kernel;
use crate::linux::outcome::{Notice, SignalOrigin};
use crate::linux::process::Process;
use crate::linux::signals::{Info, SIGCHLD, SIGKILL};
use crate::linux::task::Task;
use crate::linux::threads::Thread;
use crate::linux::usage::Usage;

impl Process {
    /// The thread that traces its first thread, also if that has ended.
    pub(in crate::linux) fn tracer(&self) -> Option<Task> {
        let mut threads = self.threads();
        let first = threads.find(|thread| thread.number == self.number && !thread.has_ended);
        let traced = first.and_then(|thread| thread.traced.as_ref());
        traced.map(|traced| traced.tracer).or(self.first_tracer)
    }
}

impl Kernel {
    /// A thread of the running process has ended, with this status for `wait4`: its tracer is told, unless it
    /// is the first one, which ends with the process.
    pub(in crate::linux) fn tell_end_of_thread(&mut self, thread: &Thread, status: u32) {
        let Some(traced) = &thread.traced else {
            return;
        };

        // The first thread stays until the last one ends; its tracer is needed then.
        if thread.number == self.process.number {
            self.process.first_tracer = Some(traced.tracer);
            return;
        }

        let tracer = traced.tracer;
        self.system.ended_threads.push(EndedThread {
            task: Task {
                process: self.process.number,
                thread: thread.number,
            },
            group: self.process.group,
            tracer,
            status,
        });

        self.system.changes += 1;
        self.tell_process(
            tracer.process,
            ChildStatus {
                number: thread.number,
                status,
                usage: Usage::default(),
                is_traced: false,
            },
            SIGCHLD,
        );
    }

    /// A thread is ended by another one. Linux stops it before if its tracer asks for the event of its end.
    pub(in crate::linux) fn note_missed_event(&mut self, thread: &Thread) {
        let traced = thread.traced.as_ref();
        if traced.is_some_and(|traced| traced.wants(TraceEvent::Exit)) {
            let what = "ptrace: the event before the end of a thread that another one ends";
            self.notice(Notice::Part(what));
        }
    }

    /// All threads that a process traces, or one thread of it, by number.
    fn traced_by(&self, process: u32, thread: Option<u32>) -> Vec<Task> {
        let mut all = Vec::new();
        for other in self.all_processes().filter(|other| !other.has_ended) {
            let is_its = |thread_of: &&Thread| {
                let tracer = thread_of.traced.as_ref().map(|traced| traced.tracer);
                tracer.is_some_and(|tracer| {
                    tracer.process == process && thread.is_none_or(|own| own == tracer.thread)
                })
            };
            all.extend(other.threads().filter(is_its).map(|thread| Task {
                process: other.number,
                thread: thread.number,
            }));
        }
        all.sort_unstable();
        all
    }

    /// The running process has ended, or one of its threads: nobody traces those any longer that it traced.
    pub(in crate::linux) fn end_tracing(&mut self, thread: Option<u32>) {
        let own = self.process.number;
        for task in self.traced_by(own, thread) {
            let traced = self
                .tracee(task)
                .and_then(|tracee| tracee.thread.traced.as_ref());
            // PTRACE_O_EXITKILL (ptrace(2)).
            let kills = traced.is_some_and(|traced| traced.options & option::EXITKILL != 0);
            self.detach(task);
            if kills {
                let info = Info {
                    why: SignalOrigin::Sent,
                    ..Info::from_kernel(SIGKILL)
                };
                self.send_to(task.process, None, info);
            }
        }

        let is_its = |tracer: Task| {
            tracer.process == own && thread.is_none_or(|thread| thread == tracer.thread)
        };
        self.process.first_tracer.take_if(|tracer| is_its(*tracer));
        for other in self.processes.values_mut() {
            other.process.first_tracer.take_if(|tracer| is_its(*tracer));
        }

        self.system
            .ended_threads
            .retain(|ended| !is_its(ended.tracer));

        // What only the tracer could wait for is now its parent's.
        let ended = self
            .system
            .ended
            .iter()
            .filter(|ended| ended.tracer.is_some_and(is_its));
        let numbers: Vec<u32> = ended.map(|ended| ended.number).collect();
        for number in numbers {
            self.give_to_parent(number);
        }
    }

    /// The tracer of a process that has ended has waited for it, or has ended: its parent is told.
    pub(in crate::linux) fn give_to_parent(&mut self, number: u32) {
        let Some(index) = self
            .system
            .ended
            .iter()
            .position(|ended| ended.number == number)
        else {
            return;
        };

        let ended = &mut self.system.ended[index];
        let tracer = ended.tracer.take();
        // A parent that traced it knows already.
        if tracer.is_some_and(|tracer| tracer.process == ended.parent) {
            return;
        }

        let news = ChildStatus {
            number,
            status: ended.status,
            usage: ended.usage,
            is_traced: false,
        };

        let (parent, exit_signal) = (ended.parent, ended.exit_signal);
        self.system.changes += 1;

        // A parent that ignores it never waits: it is gone at once.
        if !self.tell_process(parent, news, exit_signal) {
            self.system.ended.remove(index);
            self.files.ended.remove(&number);
        }
    }

    /// The next news of the threads that the running process traces: of one that has ended, or has
    /// stopped. The flag says whether there are any.
    pub(in crate::linux) fn news_of_traced(
        &mut self,
        which: WaitTarget,
        waits: WaitOptions,
    ) -> (Option<ChildStatus>, bool) {
        let own = self.task();
        // `__WNOTHREAD`: only the tracees of the calling thread (wait(2)).
        let is_its = |tracer: Task| {
            tracer.process == own.process && (!waits.only_thread || tracer.thread == own.thread)
        };

        let mut has_any = false;

        // Ends before stops: a thread that has ended does not stop any more.
        for index in 0..self.system.ended_threads.len() {
            let EndedThread {
                task,
                group,
                tracer,
                status,
            } = self.system.ended_threads[index];
            if !is_its(tracer) || !which.is(task.thread, group) {
                continue;
            }

            has_any = true;
            if waits.for_ends {
                // WNOWAIT leaves it for another call.
                if !waits.keeps {
                    self.system.ended_threads.remove(index);
                    self.system.changes += 1;
                }

                let news = ChildStatus {
                    number: task.thread,
                    status,
                    usage: Usage::default(),
                    is_traced: false,
                };
                return (Some(news), true);
            }
        }

        for task in self.traced_by(own.process, waits.only_thread.then_some(own.thread)) {
            let group = self
                .process(task.process)
                .map_or(0, |process| process.group);
            if !which.is(task.thread, group) {
                continue;
            }

            has_any = true;
            let Some(tracee) = self.tracee(task) else {
                continue;
            };

            let stop = tracee
                .thread
                .traced
                .as_mut()
                .and_then(|traced| traced.stop.as_mut());
            // While it listens, a stop is no news (`task_stopped_code`).
            if let Some(stop) = stop
                && stop.is_news
                && !stop.listens
            {
                stop.is_news = waits.keeps;
                // As `WIFSTOPPED` and `WSTOPSIG` read it (wait(2)).
                let status = stop.code << 8 | 0x7f;
                let process = self.process(task.process);
                let news = ChildStatus {
                    number: task.thread,
                    status,
                    usage: process.map_or_else(Usage::default, |process| self.usage(process)),
                    is_traced: true,
                };
                return (Some(news), true);
            }
        }

        (None, has_any)
    }
}
