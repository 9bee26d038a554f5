//! What the kernel reports during a recording: programs, mappings, threads, processes, signals.

use super::places::{ProcessPlaces, Progress};
use super::{Session, StartupPhase};
use crate::state::program_entry;
use std::io::Write;
use std::ops::Range;
use unwind_sim_emulator::linux::{MappedFile, ProcessObserver, SystemCall, Task};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{AddressSpace, Core, Permissions, State};
use unwind_sim_recordings::model;
use unwind_sim_unwind::insn::Insn;

/// Maximum length of a thread's name, bytes (Linux `TASK_COMM_LEN` - 1).
const NAME_MAX: usize = 15;

/// The name that Linux gives the thread that starts the program at `path`.
pub(crate) fn comm(path: &str) -> String {
    let name = unwind_sim_recordings::names::file_name(path);
    let end = (0..=NAME_MAX.min(name.len())).rfind(|&i| name.is_char_boundary(i));
    name[..end.unwrap_or(0)].to_owned()
}

impl<W: Write> ProcessObserver for Session<'_, '_, W> {
    fn started(&mut self, core: &Core, stack_end: u64) {
        self.generated.process_ended(self.pid());
        self.shadow.started(core, stack_end);
        self.places = ProcessPlaces::new(self.names.len());
        self.progress = Progress {
            begins: true,
            ..Progress::default()
        };
        self.places.unnamed = true;
        self.places.entry = match program_entry(core) {
            Some(entry) if entry == core.state.rip => StartupPhase::Inside,
            Some(entry) => StartupPhase::At(entry),
            None => StartupPhase::Left,
        };
        let pid = self.pid();
        self.event(&model::Event::Exec { pid });
    }

    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        let path = file.map(|f| String::from_utf8_lossy(f.path).into_owned());
        if let (true, Some(path)) = (self.places.unnamed, &path) {
            self.places.unnamed = false;
            self.event(&model::Event::Comm {
                pid: self.pid(),
                tid: self.shadow.task().thread,
                name: comm(path),
            });
        }
        if !self.observed {
            return;
        }
        self.generated.own.unmapped(&range);
        if let Some(file) = file {
            self.generated.own.file_mapped(file.path);
        }
        self.remap(range, permissions, file);
    }

    fn protected(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        if self.observed {
            self.remap(range.clone(), permissions, file);
            self.lay_again(range);
        }
    }

    fn unmapped(&mut self, range: Range<u64>) {
        self.generated.own.unmapped(&range);
        self.forget(range);
    }

    fn forked(&mut self, child: Task, _: bool, state: &State) {
        self.shadow.forked(child, state);
        self.generated.forked(child.process);
        self.parked.forked(child, &self.places);
        self.rings.forked(self.shadow.task(), child);
        self.event(&model::Event::Fork {
            pid: child.process,
            tid: child.thread,
            parent_pid: self.pid(),
        });
    }

    fn process_ended(&mut self, process: u32) {
        self.shadow.process_ended(process);
        self.generated.process_ended(process);
        let first = Task {
            process,
            thread: process,
        };
        self.parked.ended(first);
        self.rings.ended(first);
        self.event(&model::Event::Exit {
            pid: process,
            tid: process,
        });
    }

    fn thread_started(&mut self, task: Task, state: &State, _: &AddressSpace) {
        self.shadow.thread_started(task, state);
        self.parked.thread_started(task);
        self.rings.forked(self.shadow.task(), task);
        self.event(&model::Event::Fork {
            pid: task.process,
            tid: task.thread,
            parent_pid: task.process,
        });
    }

    fn switched(&mut self, task: Task, core: &Core) {
        let last = self.shadow.task();
        self.generated.switched(last.process, task.process);
        self.shadow.switched(task, core);
        self.rings.switched(task);
        self.parked
            .switch((last, task), &mut self.places, &mut self.progress);
    }

    fn disturbed(&mut self, task: Task, state: &State) {
        self.shadow.disturbed(task, state);
    }

    fn observes(&mut self, observed: bool) {
        self.observed = observed;
    }

    fn thread_ended(&mut self, task: Task) {
        self.shadow.thread_ended(task);
        self.parked.ended(task);
        self.rings.ended(task);
        self.event(&model::Event::Exit {
            pid: task.process,
            tid: task.thread,
        });
    }

    fn signal(&mut self, _: u8, interrupted: &Preserved, handler: &Preserved, restorer: u64) {
        self.shadow.signal(interrupted, handler, restorer);
        self.progress.begins = true;
    }

    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.shadow.system_call(call, core);
        let changed = self.generated.own.called(call, &core.memory);
        self.lay(&changed);
        // After a call that does not return there is no state to sample.
        if call.returns && !self.is_over() {
            self.stepped(core, Insn::Syscall, core.state.rip);
        }
    }
}
