//! Dumps of a whole machine: QEMU's `dump-guest-memory`, and ELF files such as `/proc/vmcore`. Each
//! task of the kernel becomes a sample of process 0 (`docs/vmcore.md`).
//!
//! The file is memory-mapped, never copied, and everything built from it is bounded. Damaged parts
//! are reported and skipped, as long as the kernel and its list of tasks are found.

mod dump;
mod error;
mod layout;
mod modules;
mod pages;
mod place;
mod stacks;
mod symbols;
mod tasks;
#[cfg(test)]
mod tests;

pub use dump::is_vmcore;
pub(super) use dump::unsupported;
pub use error::{Fault, Problem};

use super::error::ImportError;
use super::item::{ImportOptions, Imported, Output, Sink};
use crate::files::ImageFinder;
use crate::kernel::{self, KernelImage, PageTables, user_memory};
use crate::model::{Event, Item, KernelSample, Region, RegionRole, Sample};
use crate::printable::PrintableName as _;
use dump::{Cpu, Dump};
use layout::Layout;
pub use modules::LoadedCode;
pub use pages::KernelMemory;
use place::DumpedKernel;
use stacks::PerCpu;
use std::collections::{BTreeMap, HashSet};
use std::ops::{ControlFlow, Range};
use symbols::Symbols;
use tasks::TaskInfo;
use unwind_sim_unwind::image::Owner;
use unwind_sim_unwind::kernel::{
    StackInfo, StackType, THREAD_SIZE, Task, UserSpace, Version, is_user_cs,
};
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// Process ID that kernel stacks belong to.
const PID: u32 = 0;
/// Size of `struct inactive_task_frame`, and offsets of rbp and the return address in it, bytes.
const INACTIVE_LEN: u64 = 56;
const INACTIVE_BP: u64 = 40;
const INACTIVE_RET: u64 = 48;
/// Maximum number of problems kept.
const PROBLEMS_MAX: usize = 1000;

/// Imports a dump. `options.kernel` is the image of its kernel.
pub(super) fn import(
    owner: Owner,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let bytes: &[u8] = (*owner).as_ref();
    let mut finder = ImageFinder::new(options.files.clone());
    let mut output = Output::new(&mut finder, sink);
    let dump = Dump::open(bytes, &mut output.imported.problems)?;
    let release = dump.info("OSRELEASE");
    let file = options.kernel.as_ref();
    let file = file.ok_or_else(|| Problem::NoKernel {
        release: release.map(str::to_owned),
    })?;
    let image = kernel::open(file, &options.kernel_files)?;
    let name = file.path().to_text();
    import_dump(&dump, &image, name, options, output)
}

/// The properties of a dump that can be read without the kernel's image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VmcoreFacts {
    /// The release of the kernel (`OSRELEASE` in `VMCOREINFO`).
    pub release: Option<String>,
    /// KASLR offset (`KERNELOFFSET`), bytes.
    pub kaslr: Option<u64>,
    /// Ranges of physical memory.
    pub memory: Vec<Range<u64>>,
    /// The registers of each processor.
    pub cpus: Vec<Regs>,
    /// Does it have the system registers of the processors, as QEMU's dumps do?
    pub has_system_registers: bool,
    /// Problems with headers and notes.
    pub problems: Vec<ImportError>,
}

/// Reads the headers and notes of a dump.
///
/// # Errors
/// If it is not an x86-64 ELF core, or its program headers cannot be read.
pub fn vmcore_facts(bytes: &[u8]) -> Result<VmcoreFacts, ImportError> {
    let mut problems = Vec::new();
    let dump = Dump::open(bytes, &mut problems)?;
    let piece = |(start, bytes): (u64, &[u8])| start..start + bytes.len() as u64;
    Ok(VmcoreFacts {
        release: dump.info("OSRELEASE").map(str::to_owned),
        kaslr: dump.info_hex("KERNELOFFSET"),
        memory: dump.pieces().map(piece).collect(),
        cpus: dump.cpus.iter().map(|cpu| cpu.regs).collect(),
        has_system_registers: dump.cpus.iter().any(|cpu| cpu.system.is_some()),
        problems,
    })
}

/// The modules of a running kernel with their ORC tables and symbols, and its generated code: BPF
/// programs and ftrace trampolines. `bias` is the KASLR offset. Unreadable parts are skipped and
/// reported as problems.
pub fn loaded_code(
    image: &KernelImage,
    bias: u64,
    memory: &dyn KernelMemory,
) -> (Vec<LoadedCode>, Vec<Problem>) {
    read_code(image, bias, memory, |reader, problems| {
        let mut code = reader.modules(problems);
        code.extend(reader.generated(problems));
        code
    })
}

/// [`loaded_code`] without the modules.
pub fn generated_code(
    image: &KernelImage,
    bias: u64,
    memory: &dyn KernelMemory,
) -> (Vec<LoadedCode>, Vec<Problem>) {
    read_code(image, bias, memory, |reader, problems| {
        reader.generated(problems)
    })
}

fn read_code(
    image: &KernelImage,
    bias: u64,
    memory: &dyn KernelMemory,
    read: impl FnOnce(&modules::Reader<'_>, &mut Vec<Problem>) -> Vec<LoadedCode>,
) -> (Vec<LoadedCode>, Vec<Problem>) {
    let told = BTreeMap::new();
    let reader = modules::Reader {
        memory,
        layout: &Layout::new(image.btf.as_ref(), &told),
        symbols: &Symbols::new(&image.symbols),
        bias,
    };
    let mut problems = Vec::new();
    let code = read(&reader, &mut problems);
    (code, problems)
}

/// Imports the dump of a machine that ran the kernel `image`.
///
/// # Errors
/// If the kernel, its page tables or its tasks are not found. Other damage is reported as problems.
pub fn import_vmcore(
    owner: Owner,
    image: &KernelImage,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let mut finder = ImageFinder::new(options.files.clone());
    let mut output = Output::new(&mut finder, sink);
    let dump = Dump::open((*owner).as_ref(), &mut output.imported.problems)?;
    import_dump(&dump, image, "vmlinux".to_owned(), options, output)
}

fn import_dump(
    dump: &Dump<'_>,
    image: &KernelImage,
    name: String,
    options: &ImportOptions,
    mut output: Output<'_, '_>,
) -> Result<Imported, ImportError> {
    let symbols = Symbols::new(&image.symbols);
    let layout = Layout::new(image.btf.as_ref(), &options.offsets);
    let release = image.version.clone().unwrap_or_default();
    let place = place::find(dump, &symbols, image.version.as_deref(), options.kaslr);
    let place = place.map_err(|problem| match output.imported.problems.first() {
        // What is missing may have been in the part that was cut off.
        Some(cut) if problem == Problem::NoPageTable => cut.clone(),
        _ => problem.into(),
    });
    let DumpedKernel { memory, bias } = place?;

    let version = Version::from_name(&release);
    let reader = tasks::Reader::new(&memory, &layout, version.unwrap_or(Version::DEFAULT))?;

    let mut problems = Vec::new();
    let code = modules::Reader {
        memory: &memory,
        layout: &layout,
        symbols: &symbols,
        bias,
    };
    let kernel = LoadedCode {
        name,
        range: image.range.start.wrapping_add(bias)..image.range.end.wrapping_add(bias),
        image: Some(image.image.clone()),
    };

    let mut flow = map(&mut output, kernel, bias);
    let modules = code.modules(&mut problems);
    for code in modules.into_iter().chain(code.generated(&mut problems)) {
        if flow.is_continue() {
            flow = map(&mut output, code, 0);
        }
    }

    let init_task = symbols.needed("init_task")?.wrapping_add(bias);
    let mut addresses = tasks::all(&memory, &layout, init_task, &mut problems)?;

    let cpus = dump.cpus.iter().enumerate();
    let cpus = cpus.filter_map(|(number, cpu)| {
        let per_cpu = PerCpu::new(&memory, &symbols, &layout, (bias, version), number, cpu)?;
        Some((cpu, per_cpu))
    });
    // Each task is compared with all of them.
    let cpus: Vec<_> = cpus.collect();

    // Idle tasks are not in the list that starts at `init_task` (`kernel/fork.c`, `fork_idle`).
    let mut seen: HashSet<u64> = addresses.iter().copied().collect();
    let others = cpus.iter().flat_map(|(_, p)| [p.idle(), p.current()]);
    addresses.extend(others.flatten().filter(|task| seen.insert(*task)));

    for address in addresses {
        if flow.is_break() {
            break;
        }
        let task = match reader.read(address) {
            Ok(task) => task,
            Err(fault) => {
                // One unreadable task does not end the import.
                problems.push(fault.into());
                continue;
            }
        };

        // The registers of a running task are in the notes of its processor.
        let running = cpus.iter().find(|(_, p)| p.current() == Some(address));
        let sample = Taken {
            memory: &memory,
            release: &release,
            version,
            encoding: image.encoding,
            // All tasks are of one moment, so the time is only a number.
            time: output.imported.samples,
        };
        let mut sample = match running {
            Some((cpu, per_cpu)) => sample.running(&task, cpu, per_cpu),
            None => sample.inactive(&task),
        };

        add_user(&memory, &task, &mut sample);
        let event = Event::Comm {
            pid: PID,
            tid: task.pid,
            name: task.comm,
        };

        // First, so that the sample's thread has its name.
        flow = output.item(Item::Event(event));
        if flow.is_continue() {
            flow = output.item(Item::Sample(sample));
        }
    }

    // A damaged dump may have any number of them.
    let left = PROBLEMS_MAX.saturating_sub(output.imported.problems.len());
    let problems = problems.into_iter().take(left).map(ImportError::Vmcore);
    output.imported.problems.extend(problems);
    Ok(output.finish())
}

fn map(output: &mut Output<'_, '_>, code: LoadedCode, bias: u64) -> ControlFlow<()> {
    let image = match code.image {
        Some(image) => {
            let (index, flow) = output.index(image);
            flow?;
            Some(index)
        }
        None => None,
    };
    output.item(Item::Event(Event::Map {
        pid: PID,
        range: code.range,
        bias,
        image,
        name: code.name,
    }))
}

/// Adds the task's user space and the memory that its callchain reads.
fn add_user(memory: &pages::Virtual<'_, '_>, info: &TaskInfo, sample: &mut Sample<'static>) {
    let Some(pgd) = info.pgd else {
        return;
    };
    let Some(kernel) = &mut sample.kernel else {
        return;
    };

    let user = kernel.user.insert(UserSpace {
        pid: info.pid,
        ..UserSpace::default()
    });
    // A kernel thread has no user space.
    if pgd == 0 {
        return;
    }

    // The entry from user space saves its registers at the top of the stack (`task_pt_regs`).
    let at = info.stack.saturating_add(THREAD_SIZE - PT_REGS_LEN);
    let saved = memory.bytes(at, PT_REGS_LEN as usize);
    // A task running in user space has not saved its registers there.
    let of_user = |regs: &Regs| regs.get(Reg::Cs).is_some_and(is_user_cs);
    let live = sample.regs.live().copied().filter(of_user);
    user.regs = live.or(saved.ok().map(|bytes| regs_from(&bytes)));

    // `mm->pgd` is a virtual address, and the page tables need a physical one.
    let Ok(root) = memory.translate(pgd) else {
        return;
    };

    let levels = memory.tables.levels;
    let tables = PageTables { root, levels };
    let own = pages::Virtual::new(memory.dump, tables);
    let regions = user_memory(user, &mut |at, len| own.bytes(at, len).ok());
    sample.regions.extend(regions);
}

/// The parts common to the samples of a dump.
struct Taken<'a, 'd, 'm> {
    memory: &'a pages::Virtual<'d, 'm>,
    release: &'a str,
    version: Option<Version>,
    encoding: Option<Encoding>,
    time: u64,
}

impl Taken<'_, '_, '_> {
    fn task(&self, info: &TaskInfo, stacks: Vec<StackInfo>) -> Task {
        Task {
            version: self.version,
            encoding: self.encoding,
            stacks,
            graph: info.graph.clone(),
            rethooks: info.rethooks.clone(),
            ..Task::default()
        }
    }

    /// The task's own stack.
    fn own(info: &TaskInfo) -> StackInfo {
        StackInfo {
            kind: StackType::Task,
            begin: info.stack,
            end: info.stack.saturating_add(THREAD_SIZE),
            next_sp: 0,
        }
    }

    /// A task running on a processor, from that processor's registers.
    fn running(&self, info: &TaskInfo, cpu: &Cpu, per_cpu: &PerCpu<'_, '_, '_>) -> Sample<'static> {
        let mut stacks = vec![Self::own(info)];
        stacks.extend(per_cpu.stacks());
        let regions = stacks::chain(self.memory, &stacks, cpu.regs.rsp());
        self.sample(info, cpu.regs, regions, self.task(info, stacks))
    }

    /// A waiting task, from where it was switched out.
    fn inactive(&self, info: &TaskInfo) -> Sample<'static> {
        let stack = Self::own(info);
        let sp = info.thread_sp;
        let mut regs = Regs::UNKNOWN;
        regs.set(Reg::Rsp, sp.wrapping_add(INACTIVE_LEN));
        for (reg, offset) in [(Reg::Rbp, INACTIVE_BP), (Reg::Rip, INACTIVE_RET)] {
            if let Ok(value) = self.memory.u64(sp.wrapping_add(offset)) {
                regs.set(reg, value);
            }
        }
        let task = Task {
            is_current: false,
            on_other_cpu: info.on_cpu,
            thread_sp: sp,
            ..self.task(info, vec![stack])
        };
        let region = stacks::used(self.memory, &stack, sp, RegionRole::Stack);
        self.sample(info, regs, region.into_iter().collect(), task)
    }

    fn sample(
        &self,
        info: &TaskInfo,
        regs: Regs,
        regions: Vec<Region<'static>>,
        task: Task,
    ) -> Sample<'static> {
        Sample {
            pid: PID,
            tid: info.pid,
            time: self.time,
            regs: SampleRegs::hardware(regs),
            regions,
            truth: Truth::Unknown,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release: self.release.to_owned(),
                unwinder: None,
                task,
                states: Vec::new(),
                boundary: None,
                // `add_user` fills it in.
                user: None,
            })),
            process_memory: None,
        }
    }
}
