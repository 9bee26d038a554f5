//! What the kernel does while a program is recorded: programs, mappings, processes, threads,
//! signals, system calls.

use super::{Entry, Session};
use crate::state::program_entry;
use std::io::Write;
use std::ops::Range;
use unwind_sim_emulator::linux::{MappedFile, ProcessObserver, SystemCall, Task};
use unwind_sim_emulator::{AddressSpace, Core, Permissions, State};
use unwind_sim_recordings::model;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::Cpu;

/// Maximum length of a thread's name, bytes (Linux `TASK_COMM_LEN` - 1).
const NAME_MAX: usize = 15;

impl<W: Write> ProcessObserver for Session<'_, '_, W> {
    fn started(&mut self, core: &Core, stack_end: u64) {
        self.generated.process_ended(self.pid());
        self.shadow.started(core, stack_end);
        self.rings.reset();
        self.places.clear();
        self.missing = (0..self.names.len()).collect();
        self.armed.clear();
        self.begins = true;
        self.unnamed = true;
        self.entry = match program_entry(core) {
            Some(entry) if entry == core.state.rip => Entry::Inside,
            Some(entry) => Entry::At(entry),
            None => Entry::Left,
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
        if let (true, Some(path)) = (self.unnamed, &path) {
            self.unnamed = false;
            let name = unwind_sim_recordings::names::file_name(path);
            let end = (0..=NAME_MAX.min(name.len())).rfind(|&i| name.is_char_boundary(i));
            self.event(&model::Event::Comm {
                pid: self.pid(),
                tid: self.shadow.task().thread,
                name: name[..end.unwrap_or(0)].to_owned(),
            });
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
        self.remap(range.clone(), permissions, file);
        self.lay(&[range]);
    }

    fn unmapped(&mut self, range: Range<u64>) {
        self.generated.own.unmapped(&range);
        self.forget(range);
    }

    fn forked(&mut self, child: Task, _: bool, state: &State) {
        self.shadow.forked(child, state);
        self.generated.forked(child.process);
        self.event(&model::Event::Fork {
            pid: child.process,
            tid: child.thread,
            parent_pid: self.pid(),
        });
    }

    fn process_ended(&mut self, process: u32) {
        self.shadow.process_ended(process);
        self.generated.process_ended(process);
        self.event(&model::Event::Exit {
            pid: process,
            tid: process,
        });
    }

    fn thread_started(&mut self, task: Task, state: &State, memory: &AddressSpace) {
        self.shadow.thread_started(task, state, memory);
        self.event(&model::Event::Fork {
            pid: task.process,
            tid: task.thread,
            parent_pid: task.process,
        });
    }

    fn switched(&mut self, task: Task, core: &Core) {
        self.generated.switched(self.pid(), task.process);
        self.shadow.switched(task, core);
        self.rings.reset();
        self.begins = true;
    }

    fn thread_ended(&mut self, task: Task) {
        self.shadow.thread_ended(task);
        self.event(&model::Event::Exit {
            pid: task.process,
            tid: task.thread,
        });
    }

    fn signal(&mut self, _: u8, interrupted: &Cpu, handler: &Cpu, restorer: u64) {
        self.shadow.signal(interrupted, handler, restorer);
        self.begins = true;
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
