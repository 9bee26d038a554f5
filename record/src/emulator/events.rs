//! What the kernel reports during a recording: programs, mappings, threads, processes, signals.

use super::places::{Places, Progress};
use super::{Entry, Session};
use crate::locate;
use crate::state::program_entry;
use std::io::Write;
use std::ops::Range;
use unwind_sim_emulator::linux::{MappedFile, ProcessObserver, SystemCall, Task};
use unwind_sim_emulator::{Access, AddressSpace, Core, Permissions, State};
use unwind_sim_recordings::files::MappingRequest;
use unwind_sim_recordings::model;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::Cpu;

/// Maximum length of a thread's name, bytes (Linux `TASK_COMM_LEN` - 1).
const NAME_MAX: usize = 15;

impl<W: Write> ProcessObserver for Session<'_, '_, W> {
    fn started(&mut self, core: &Core, stack_end: u64) {
        self.shadow.started(core, stack_end);
        self.rings.exec();
        self.places = Places::new(self.names.len());
        self.progress = Progress {
            begins: true,
            ..Progress::default()
        };
        self.places.unnamed = true;
        self.places.entry = match program_entry(core) {
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
        if let (true, Some(path)) = (self.places.unnamed, &path) {
            self.places.unnamed = false;
            let name = unwind_sim_recordings::names::file_name(path);
            let end = (0..=NAME_MAX.min(name.len())).rfind(|&i| name.is_char_boundary(i));
            self.event(&model::Event::Comm {
                pid: self.pid(),
                tid: self.shadow.task().thread,
                name: name[..end.unwrap_or(0)].to_owned(),
            });
        }
        if !self.observed {
            return;
        }
        if !permissions.allow(Access::Execute) {
            return self.unmapped(range);
        }
        let request = MappingRequest {
            pid: self.pid(),
            name: path.as_deref().unwrap_or_default(),
            range: range.clone(),
            file_offset: file.map_or(0, |f| f.offset),
            executable: true,
            build_id: &[],
        };
        let (image, bias) = self.recorder.finder.mapping_for(&request);
        let written = self.recorder.map(&request, (image.clone(), bias));
        self.check(written);
        self.place_missing(|name| locate(image.as_deref(), bias, &range, name));
    }

    fn unmapped(&mut self, range: Range<u64>) {
        let space = self.recorder.world.space(self.pid());
        let touches = |m: &unwind_sim_unwind::image::Mapping| {
            m.range.start < range.end && range.start < m.range.end
        };
        if !space.mappings().iter().any(touches) {
            return;
        }
        self.places.at.retain(|address, _| !range.contains(address));
        let pid = self.pid();
        self.event(&model::Event::Unmap { pid, range });
    }

    fn forked(&mut self, child: Task, _: bool, _: &State) {
        self.shadow.forked(child);
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

    fn thread_started(&mut self, task: Task, state: &State, memory: &AddressSpace) {
        self.shadow.thread_started(task, state, memory);
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
        self.shadow.switched(task, core);
        self.rings.switched(task);
        self.parked
            .switch((last, task), &mut self.places, &mut self.progress);
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

    fn signal(&mut self, _: u8, interrupted: &Cpu, handler: &Cpu, restorer: u64) {
        self.shadow.signal(interrupted, handler, restorer);
        self.progress.begins = true;
    }

    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.shadow.system_call(call, core);
        // After a call that does not return there is no state to sample.
        if call.returns && !self.is_over() {
            self.stepped(core, Insn::Syscall, core.state.rip);
        }
    }
}
