//! What is seen of a kernel at a state: its code, its tasks, and the sample.

use super::computer::Computer;
use super::patched::Patched;
use crate::kernel::stopped::StoppedCore;
use crate::kernel::world::{Kernel, KernelLayout};
use crate::kernel::{KernelMachine as _, PID, loaded};
use crate::kernel_stacks::{INACTIVE_WORDS, MODULES};
use crate::reversible::RunThread;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_recordings::model::{Event, ImageIndex, Region, RegionRole, Sample};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// The virtual address at which a kernel is linked for physical address 0 (Linux `__START_KERNEL_map`).
const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Linux `__USER_CS` (`arch/x86/include/asm/segment.h`).
const USER_CS: u64 = 0x33;
const PAGE: u64 = 4096;
/// The bytes of a stack that are shown where the kernel does not say where its stacks are.
const STACK_BYTES: u64 = 4 * PAGE;

/// A kernel, and what is mapped at the state that was gone to last.
pub(super) struct Seen {
    image: KernelImage,
    layout: Option<Arc<KernelLayout>>,
    bias: u64,
    name: String,
    patched: Patched,
    /// With the kernel's image alone, as it was patched when a state was gone to last.
    own: World,
    pub(super) world: World,
}

impl Seen {
    pub(super) fn new(
        image: KernelImage,
        path: &Path,
        layout: Option<Arc<KernelLayout>>,
        bias: u64,
    ) -> Seen {
        let mut seen = Seen {
            layout,
            bias,
            name: path.display().to_string(),
            patched: Patched::new(image.image.clone(), bias),
            world: World::new(),
            own: World::new(),
            image,
        };
        seen.map_own();
        seen.world = seen.own.clone();
        seen
    }

    /// Maps the kernel's image, as it is patched now.
    fn map_own(&mut self) {
        let range = self.image.range.start + self.bias..self.image.range.end + self.bias;
        let image = self.patched.image();
        self.own = World::new();
        map(
            &mut self.own,
            range,
            self.bias,
            Some(image),
            self.name.clone(),
        );
    }

    /// What a search has to know.
    pub(super) fn place(&self) -> (&World, Option<&Arc<KernelLayout>>) {
        (&self.world, self.layout.as_ref())
    }

    /// A state was gone to: maps what there is besides the kernel's image of the code that runs there, or
    /// is on the stack.
    pub(super) fn arrive(&mut self, at: &Computer) {
        let core = &at.system.machine.core;
        let rip = core.state.rip;
        let truth = at.known().shadow.truth(core, rip);
        let frames = truth.frames().iter().map(|frame| frame.pc);
        let code: Vec<u64> = frames.chain([rip]).collect();
        if at.system.privilege() == 0 && self.patched.read(core, code.iter().copied()) {
            self.map_own();
        }
        self.world = self.own.clone();

        // Before the kernel has page tables of its own, it is at its physical addresses.
        let image = &self.image.image;
        let physical = |address: u64| address.saturating_sub(START_KERNEL_MAP);
        let low = physical(self.image.range.start)..physical(self.image.range.end);
        if low.contains(&rip) {
            let name = image.name().to_owned();
            let bias = START_KERNEL_MAP.wrapping_neg();
            map(&mut self.world, low, bias, Some(image), name);
        } else if at.system.privilege() == 3 {
            self.map_user(core, rip);
        }

        // Modules and generated code come and go, and it takes a while to find all.
        let space = self.world.space(PID);
        let mut code = code.into_iter();
        if code.any(|pc| MODULES.contains(&pc) && space.find(pc).is_none()) {
            let mut machine = StoppedCore { core, rip };
            let (found, _) = loaded::find(&mut machine, &self.image, self.bias);
            for code in found {
                let image = code.image.as_ref();
                map(&mut self.world, code.range, 0, image, code.name);
            }
        }
    }

    /// Maps the code of a program around an instruction, as far as it is in memory.
    fn map_user(&mut self, core: &Core, rip: u64) {
        let first = rip & !(PAGE - 1);
        let page = |at: u64| {
            let mut bytes = vec![0; PAGE as usize];
            core.memory.peek(at, &mut bytes).ok().map(|()| bytes)
        };
        let pages = [first, first.saturating_add(PAGE)].map(page);
        let bytes: Vec<u8> = pages.into_iter().map_while(|page| page).flatten().collect();
        let range = first..first + bytes.len() as u64;
        let code = Image::new(ImageParts {
            name: "user".to_owned(),
            text: vec![range.clone()],
            sections: vec![Section {
                kind: SectionKind::Text,
                address: first,
                data: Bytes::from_vec(bytes),
            }],
            ..ImageParts::default()
        });
        if !range.is_empty() {
            map(
                &mut self.world,
                range,
                0,
                Some(&Arc::new(code)),
                "user".to_owned(),
            );
        }
    }

    /// The current task.
    pub(super) fn task(&self, core: &Core) -> Task {
        let rip = core.state.rip;
        let pid = self.layout.as_ref().and_then(|layout| {
            let pid = layout.current_pid(&mut StoppedCore { core, rip });
            pid.ok()
        });
        Task {
            process: PID,
            thread: pid.unwrap_or(0),
        }
    }

    /// The registers.
    pub(super) fn registers(&self, at: &Computer) -> Regs {
        let core = &at.system.machine.core;
        let mut regs = StoppedCore {
            core,
            rip: core.state.rip,
        }
        .live();
        if at.system.privilege() == 3 {
            regs.set(Reg::Cs, USER_CS);
        }
        regs
    }

    /// The sample of a state.
    pub(super) fn sample(&self, at: &Computer) -> Sample<'static> {
        let core = &at.system.machine.core;
        let regs = self.registers(at);
        let rip = regs.rip();
        let mut machine = StoppedCore { core, rip };

        let time = at.number();
        let hardware = SampleRegs::hardware(regs);
        let release = self.image.version.as_deref();
        let stopped = self.layout.as_ref().and_then(|layout| {
            let stopped = Kernel::new(layout).stopped(&mut machine, &regs).ok()?;
            Some(stopped.sample(layout, release, hardware, time).1)
        });
        // Early in a boot there is no task yet.
        let mut sample = stopped.unwrap_or_else(|| Sample {
            pid: PID,
            tid: 0,
            time,
            regs: hardware,
            regions: Vec::new(),
            truth: Truth::Unknown,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: None,
            process_memory: None,
        });
        let rsp = regs.rsp();
        if !sample
            .regions
            .iter()
            .any(|region| region.bounds.contains(&rsp))
        {
            sample.regions.extend(stack_at(core, rsp));
        }
        if at.system.privilege() == 0 {
            sample.truth = at.known().shadow.truth(core, rip);
        }
        sample
    }

    /// All tasks: first the current one, then those that the kernel lists.
    pub(super) fn threads(&self, at: &Computer) -> Vec<RunThread> {
        let core = &at.system.machine.core;
        let rip = core.state.rip;
        let shadow = &at.known().shadow;
        let is_user = at.system.privilege() == 3;
        let mut machine = StoppedCore { core, rip };
        let current = self.layout.as_ref().and_then(|layout| {
            let stopped = Kernel::new(layout).stopped(&mut machine, &self.registers(at));
            stopped.ok().and_then(|stopped| stopped.comm)
        });
        let mut all = vec![RunThread {
            task: self.task(core),
            name: current.unwrap_or_default(),
            doing: match is_user {
                true => "runs on processor 0, in user mode".to_owned(),
                false => "runs on processor 0".to_owned(),
            },
            truth: match is_user {
                true => Truth::Unknown,
                false => shadow.truth(core, rip),
            },
            at: core.state.preserved_at(rip),
        }];

        let resting = self
            .layout
            .as_ref()
            .map(|layout| layout.resting(&mut machine));
        for task in resting.and_then(Result::ok).unwrap_or_default() {
            let mut word = |number: usize| {
                let at = task.sp.wrapping_add(8 * number as u64);
                machine.word(at).unwrap_or(0)
            };
            let back = word(INACTIVE_WORDS);
            all.push(RunThread {
                task: Task {
                    process: PID,
                    thread: task.pid,
                },
                name: task.comm,
                doing: "does not run".to_owned(),
                truth: shadow.truth_at_rest(core, task.sp),
                at: Preserved {
                    rip: back,
                    rsp: task.sp.wrapping_add(8 * (INACTIVE_WORDS as u64 + 1)),
                    // rbx, rbp, r12 to r15.
                    saved: [4, 5, 3, 2, 1, 0].map(word),
                },
            });
        }
        all
    }
}

/// The memory from rsp up, as far as it is mapped.
fn stack_at(core: &Core, rsp: u64) -> Option<Region<'static>> {
    let mut bytes = vec![0; STACK_BYTES as usize];
    let len = match core.memory.peek(rsp, &mut bytes) {
        Ok(()) => bytes.len(),
        Err(fault) => usize::try_from(fault.address.wrapping_sub(rsp))
            .ok()?
            .min(bytes.len()),
    };
    bytes.truncate(len);
    (len > 0).then(|| Region {
        role: RegionRole::Stack,
        bounds: rsp..rsp.saturating_add(len as u64),
        next_sp: 0,
        address: rsp,
        bytes: bytes.into(),
    })
}

fn map(world: &mut World, range: Range<u64>, bias: u64, image: Option<&Arc<Image>>, name: String) {
    let images: Vec<Arc<Image>> = image.cloned().into_iter().collect();
    let event = Event::Map {
        pid: PID,
        range,
        bias,
        image: image.map(|_| ImageIndex(0)),
        name,
    };
    world.apply(&event, &images);
}
