//! The observer of a reversible run: shadow stacks, mappings with registered tables of generated
//! code, and what is looked for.

use super::Look;
use crate::emulator::{comm, finder_options};
use crate::jit::Jit;
use crate::mapping::{give_image, mapping_of};
use crate::shadow::Shadow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_emulator::linux::{MappedFile, ProcessObserver, SystemCall, Task};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{Access, AddressSpace, Core, Observer, Permissions, State};
use unwind_sim_recordings::files::ImageFinder;
use unwind_sim_recordings::model::{self, ImageIndex};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{Image, Mapping};

/// What is known of a run besides the machine's state.
#[derive(Clone, Default)]
pub(super) struct RunState {
    pub(super) shadow: Shadow,
    pub(super) world: World,
    /// Generated code of the running process, and of the others.
    jit: Jit,
    others: HashMap<u32, Jit>,
    /// A program was started whose name is not known yet.
    is_unnamed: bool,
}

/// A search: what is looked for, and where it was found, in instructions executed.
pub(super) struct Search {
    pub(super) look: Box<dyn Look>,
    pub(super) first: Option<u64>,
    pub(super) last: Option<u64>,
}

/// Keeps what is known.
pub(super) struct Watcher {
    pub(super) known: RunState,
    /// Images of files, found once.
    images: Vec<Arc<Image>>,
    finder: ImageFinder,
    /// The number of instructions executed.
    pub(super) executed: u64,
    pub(super) search: Option<Search>,
}

impl Watcher {
    /// Before a program is started whose root directory is `root`.
    pub(super) fn new(root: &Path) -> Watcher {
        Watcher {
            known: RunState::default(),
            images: Vec::new(),
            finder: ImageFinder::new(finder_options(root)),
            executed: 0,
            search: None,
        }
    }

    /// The next instruction is at `rip`.
    #[cold]
    fn look(&mut self, core: &Core, rip: u64) {
        let RunState { shadow, world, .. } = &self.known;
        if let Some(search) = &mut self.search
            && search.look.is_there(core, rip, shadow.task(), world)
        {
            search.first.get_or_insert(self.executed);
            search.last = Some(self.executed);
        }
    }

    fn event(&mut self, event: &model::Event) {
        self.known.world.apply(event, &self.images);
    }

    fn pid(&self) -> u32 {
        self.known.shadow.task().process
    }

    fn index_of(&mut self, image: &Arc<Image>) -> ImageIndex {
        let known = self.images.iter().position(|i| Arc::ptr_eq(i, image));
        let index = known.unwrap_or_else(|| {
            self.images.push(image.clone());
            self.images.len() - 1
        });
        ImageIndex(index as u32)
    }

    /// Memory was mapped, or its permissions changed.
    fn remap(&mut self, range: Range<u64>, permissions: Permissions, file: Option<MappedFile<'_>>) {
        if !permissions.allow(Access::Execute) {
            return self.forget(range);
        }
        let pid = self.pid();
        let mapping = mapping_of(&mut self.finder, pid, range, file);
        self.known.jit.mapped(&mapping);
        self.map(mapping);
    }

    fn map(&mut self, mut mapping: Mapping) {
        give_image(&self.known.jit, &mut mapping);
        let event = model::Event::Map {
            pid: self.pid(),
            range: mapping.range,
            bias: mapping.bias,
            image: mapping.image.as_ref().map(|image| self.index_of(image)),
            name: mapping.name,
        };
        self.event(&event);
    }

    fn forget(&mut self, range: Range<u64>) {
        let pid = self.pid();
        let space = self.known.world.space(pid);
        let touches = |m: &Mapping| m.range.start < range.end && range.start < m.range.end;
        if space.mappings().iter().any(touches) {
            self.event(&model::Event::Unmap { pid, range });
        }
    }

    /// Maps the registered tables of these parts of the memory, or that there are none any more.
    fn lay(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            let space = self.known.world.space(self.pid());
            for mapping in self.known.jit.layout(space, range) {
                self.map(mapping);
            }
        }
    }

    #[cold]
    fn entered_hook(&mut self, core: &Core, rip: u64) {
        /// rdi, rsi, rdx and rcx.
        const ARGUMENTS: [usize; 4] = [7, 6, 2, 1];
        let args = ARGUMENTS.map(|register| core.state.gpr(register));
        let changed = self.known.jit.entered(rip, args, &core.memory);
        self.lay(&changed);
    }
}

impl Observer for Watcher {
    #[inline]
    fn enter(&mut self, _: &Core, block: Option<BlockId>, operations: usize, _: u64) -> usize {
        self.known.shadow.enter(block, operations);
        0
    }

    #[inline]
    fn before(&mut self, core: &Core, insn: &Executed) {
        if self.known.jit.is_hook(insn.rip) {
            self.entered_hook(core, insn.rip);
        }
        self.known.shadow.before(core, insn);
    }

    #[inline]
    fn after(&mut self, core: &Core, _: &Executed, next: u64) {
        self.known.shadow.after(core, next);
        self.executed += 1;
        if self.search.is_some() {
            self.look(core, next);
        }
    }
}

impl ProcessObserver for Watcher {
    fn started(&mut self, core: &Core, stack_end: u64) {
        self.known.jit = Jit::default();
        self.known.shadow.started(core, stack_end);
        self.known.is_unnamed = true;
        let pid = self.pid();
        self.event(&model::Event::Exec { pid });
    }

    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        if let (true, Some(file)) = (self.known.is_unnamed, file) {
            self.known.is_unnamed = false;
            let (pid, tid) = (self.pid(), self.known.shadow.task().thread);
            let name = comm(&String::from_utf8_lossy(file.path));
            self.event(&model::Event::Comm { pid, tid, name });
        }
        self.known.jit.unmapped(&range);
        if let Some(file) = file {
            self.known.jit.file_mapped(file.path);
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
        if self.known.jit.covers(&range) {
            self.lay(&[range]);
        }
    }

    fn unmapped(&mut self, range: Range<u64>) {
        self.known.jit.unmapped(&range);
        self.forget(range);
    }

    fn forked(&mut self, child: Task, _: bool, state: &State) {
        let parent_pid = self.pid();
        self.known.shadow.forked(child, state);
        let jit = self.known.jit.clone();
        self.known.others.insert(child.process, jit);
        self.event(&model::Event::Fork {
            pid: child.process,
            tid: child.thread,
            parent_pid,
        });
    }

    fn process_ended(&mut self, process: u32) {
        self.known.shadow.process_ended(process);
        self.known.others.remove(&process);
        self.event(&model::Event::Exit {
            pid: process,
            tid: process,
        });
    }

    fn thread_started(&mut self, task: Task, state: &State, _: &AddressSpace) {
        self.known.shadow.thread_started(task, state);
        self.event(&model::Event::Fork {
            pid: task.process,
            tid: task.thread,
            parent_pid: task.process,
        });
    }

    fn switched(&mut self, task: Task, core: &Core) {
        let last = self.pid();
        if let Some(next) = self.known.others.remove(&task.process) {
            let own = std::mem::replace(&mut self.known.jit, next);
            self.known.others.insert(last, own);
        }
        self.known.shadow.switched(task, core);
        if self.search.is_some() {
            self.look(core, core.state.rip);
        }
    }

    fn disturbed(&mut self, task: Task, state: &State) {
        self.known.shadow.disturbed(task, state);
    }

    fn thread_ended(&mut self, task: Task) {
        self.known.shadow.thread_ended(task);
        self.event(&model::Event::Exit {
            pid: task.process,
            tid: task.thread,
        });
    }

    fn signal(&mut self, _: u8, interrupted: &Preserved, handler: &Preserved, restorer: u64) {
        self.known.shadow.signal(interrupted, handler, restorer);
    }

    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.known.shadow.system_call(call, core);
        let changed = self.known.jit.called(call, &core.memory);
        self.lay(&changed);
    }
}
