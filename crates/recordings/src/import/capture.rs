//! Captures of a running kernel, as JSON (`docs/captures.md`): registers and stacks at a stop, and
//! the states of the kernel's own unwinder there.
//!
//! The kernel's image is a separate file given by the caller. Numbers are unsigned, decimal or
//! hexadecimal; memory is base64-encoded zlib data.

mod implied;
mod json;
mod parts;
mod states;
mod steps;
#[cfg(test)]
mod tests;

use super::error::ImportError;
use super::item::{ImportOptions, Imported, Output, Sink};
use crate::files::ImageFinder;
use crate::kernel::{self, KernelImage};
use crate::model::{Event, Item, KernelSample, RecordedChain, Region, RegionRole, Sample};
use crate::printable::PrintableName as _;
pub use json::Problem;
use json::{Object, UNPACKED_MAX};
use parts::{
    graph, inactive_regs, kaslr, own_regs, put_word, region, registers, request, stacks, user_space,
};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use steps::Steps;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind,
};
use unwind_sim_unwind::kernel::{
    Code, Generated, Rethook, StackInfo, StackType, State, THREAD_SIZE, Task, UnwinderKind, Version,
};
use unwind_sim_unwind::orc::{Encoding, Index, OrcReg};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// Process ID of the address space that kernel samples belong to.
const PID: u32 = 0;

/// The members that hold what was captured, in the order in which they are numbered.
const STOPS: [&str; 3] = ["points", "samples", "steps"];
/// What else only a capture has.
const OTHER_KEYS: [&str; 5] = ["kernel", "code", "modules", "generated", "mappings"];

/// Is this the start of a JSON object?
pub(super) fn is_capture(bytes: &[u8]) -> bool {
    bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
}

pub(super) fn import(
    bytes: &[u8],
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let root = Object::root(bytes)?;
    // A profile as JSON, such as speedscope's, is an object, too.
    if !STOPS.iter().chain(&OTHER_KEYS).any(|key| root.has(key)) {
        return Err(ImportError::Capture(Problem::not_a_capture()));
    }

    let mut finder = ImageFinder::new(options.files.clone());
    let mut capture = Capture {
        release: release(&root.string("kernel")?.unwrap_or_default()),
        output: Output::new(&mut finder, sink),
        number: 0,
        image: None,
        bias: 0,
        encoding: None,
        stacks: Vec::new(),
        space: AddressSpace::new(),
        code: None,
        kind: None,
        steps: Steps::unseen(),
    };

    // The sink may stop the import at any item.
    if capture.code(&root, options)?.is_break() {
        return Ok(capture.output.finish());
    }

    // A fixed order, so that the numbers of samples do not depend on that of the members.
    for kind in STOPS {
        for entry in root.objects(kind)? {
            let entry = entry?;
            let sample = match kind {
                "samples" => capture.perf_sample(&entry)?,
                "steps" => capture.step(&entry)?,
                _ => capture.point(&entry)?,
            };
            let Some(mut sample) = sample else { continue };
            if let Some(kernel) = &mut sample.kernel {
                kernel.user = user_space(&entry, &mut sample.regions)?;
            }

            let chain = entry.numbers("callchain")?;
            if !chain.is_empty() {
                sample.recorded.push(RecordedChain {
                    source: "perf".into(),
                    ips: chain,
                    request: request(&entry)?,
                });
            }

            // Last, because it needs all of the sample's memory.
            let flow = capture.imply(&mut sample);
            if flow.is_break() || capture.output.item(Item::Sample(sample)).is_break() {
                return Ok(capture.output.finish());
            }
        }
    }

    Ok(capture.output.finish())
}

/// The release in the file name of a kernel: what follows `vmlinuz-`.
fn release(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    let plain = name
        .split_once('-')
        .filter(|(kind, _)| kind.starts_with("vmlinu"));
    plain.map_or(name, |(_, release)| release).to_owned()
}

/// Do both name the same kernel? The shorter name may omit what follows a dot, hyphen or plus.
fn same_release(a: &str, b: &str) -> bool {
    let begins = |long: &str, short: &str| {
        long.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
    };
    begins(a, b) || begins(b, a)
}

/// The kernel's unwinder: as stated in the capture, else by the image's tables, else by the members
/// of the states; `None` to determine it for each state.
fn unwinder(root: &Object<'_>, has_orc: bool) -> Result<Option<UnwinderKind>, Problem> {
    match root.string("unwinder")? {
        Some(name) => match UnwinderKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
        {
            Some(kind) => Ok(Some(kind)),
            None => Err(root.problem("unwinder", "must be orc, fp or guess")),
        },
        None if has_orc => Ok(Some(UnwinderKind::Orc)),
        None => states::without_orc(root),
    }
}

struct Capture<'o, 's> {
    release: String,
    output: Output<'o, 's>,
    number: u64,
    /// The kernel's image, and its KASLR offset.
    image: Option<Arc<Image>>,
    bias: u64,
    encoding: Option<Encoding>,
    /// The stacks of the previous step.
    stacks: Vec<(StackInfo, Region<'static>)>,
    /// The mappings so far.
    space: AddressSpace,
    code: Option<Code>,
    /// The kernel's unwinder, if known.
    kind: Option<UnwinderKind>,
    steps: Steps,
}

impl Capture<'_, '_> {
    /// Maps the kernel, its modules and generated code.
    fn code(
        &mut self,
        root: &Object<'_>,
        options: &ImportOptions,
    ) -> Result<ControlFlow<()>, ImportError> {
        let files = &options.kernel_files;
        let (file, image) = match (&options.kernel, &files.system_map) {
            (Some(file), _) => (file, kernel::open(file, files)?),
            (None, Some(map)) => (map, kernel::open_system_map(map)?),
            (None, None) => return Err(Problem::kernel(&self.release).into()),
        };

        // With `--force` even the image of another build is used.
        if !options.force {
            self.is_image(root, &image)?;
        }
        // The image has its full release; the capture may only have the name of a file.
        if let Some(version) = &image.version {
            self.release.clone_from(version);
        }

        let has_orc = image.image.section(SectionKind::OrcUnwind).is_some();
        self.kind = unwinder(root, has_orc)?;

        // What the user says comes before what the capture says, and that before a search.
        let bias = match (options.kaslr, root.number("kaslr_offset")?) {
            (Some(bias), _) | (None, Some(bias)) => bias,
            (None, None) => kaslr(root, &image)?,
        };

        (self.image, self.bias) = (Some(image.image.clone()), bias);
        // Only now: the addresses of the steps' code depend on the offset.
        self.steps = Steps::new(root, self.image.clone(), bias)?;
        self.encoding = image.encoding;
        let name = file.path().to_text();
        if self
            .map(name, image.range.clone(), bias, image.image)
            .is_break()
        {
            return Ok(ControlFlow::Break(()));
        }

        let mut room = UNPACKED_MAX;
        for module in root.objects("modules")? {
            if self.module(&module?, &mut room)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }

        for code in root.objects("generated")? {
            let code = code?;
            let range = code.needed("start")?..code.needed("end")?;
            let name = code.string("name")?.unwrap_or_default();
            // The name says what kind of code it is, which decides how it is unwound.
            if Generated::from_name(&name).is_none() {
                return Err(code
                    .problem("name", "not a known name of generated code")
                    .into());
            }
            let event = Event::Map {
                pid: PID,
                range,
                bias: 0,
                image: None,
                name,
            };
            if self.event(event).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }

        // The space has all of the kernel's code now.
        self.code = Some(Code::new(&self.space, self.version(), self.encoding));

        for mapping in root.objects("mappings")? {
            let mapping = mapping?;
            let start = mapping.needed("start")?;
            let offset = mapping.number("offset")?.unwrap_or(0);
            let pid = mapping.needed("pid")?;
            let pid = u32::try_from(pid).map_err(|_| mapping.problem("pid", "not a process ID"))?;
            let event = Event::Map {
                pid,
                range: start..mapping.needed("end")?,
                // Without an image, SVMAs are file offsets.
                bias: start.wrapping_sub(offset),
                image: None,
                name: mapping.string("name")?.unwrap_or_default(),
            };
            if self.output.item(Item::Event(event)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }

        Ok(ControlFlow::Continue(()))
    }

    /// Checks that this is the image of the captured kernel.
    fn is_image(&self, root: &Object<'_>, image: &KernelImage) -> Result<(), Problem> {
        // What remains of a file name such as `vmlinuz-mine` is not a release.
        let is_release = self.release.starts_with(|c: char| c.is_ascii_digit());
        if let Some(version) = image.version.as_deref().filter(|_| is_release)
            && !same_release(&self.release, version)
        {
            return Err(Problem::other_image(
                "kernel",
                "release",
                &self.release,
                version,
            ));
        }

        let Some(told) = root.string("build_id")? else {
            return Ok(());
        };
        let own: String = image
            .image
            .build_id()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();

        // An image without a build ID cannot be refused for it.
        if own.is_empty() || told.eq_ignore_ascii_case(&own) {
            Ok(())
        } else {
            Err(Problem::other_image("build_id", "build id", &told, &own))
        }
    }

    fn version(&self) -> Version {
        Version::from_name(&self.release).unwrap_or(Version::DEFAULT)
    }

    fn event(&mut self, event: Event) -> ControlFlow<()> {
        if let Event::Map { range, name, .. } = &event {
            let (range, name) = (range.clone(), name.clone());
            self.space.map(Mapping {
                range,
                bias: 0,
                image: None,
                name,
            });
        }
        self.output.item(Item::Event(event))
    }

    /// The first state in unknown code, and the state after it.
    fn unknown<'t>(&self, states: &'t [State]) -> Option<(&'t State, &'t State)> {
        let unknown = implied::unknown_code(states, self.code.as_ref()?);
        let ip = *unknown.first()?;
        let is_there = |s: &State| matches!(s, State::Orc(s) if s.ip == ip);
        let at = states.iter().position(is_there)?;
        Some((states.get(at)?, states.get(at + 1)?))
    }

    /// Adds what the kernel's states imply about a sample's task, and maps the generated code that
    /// they pass through.
    fn imply(&mut self, sample: &mut Sample<'_>) -> ControlFlow<()> {
        let Some(mut kernel) = sample.kernel.take() else {
            return ControlFlow::Continue(());
        };
        let memory = sample.memory();
        let version = self.version();

        // Each mapping makes the code of a state known, so this ends.
        while let Some((from, next)) = self.unknown(&kernel.states) {
            let (space, task) = (&self.space, &kernel.task);
            let found = implied::trampoline(space, version, task, &memory, [from, next]);
            let Some(Mapping { range, name, .. }) = found else {
                break;
            };
            self.event(Event::Map {
                pid: PID,
                range,
                bias: 0,
                image: None,
                name,
            })?;
            // `Code` does not see mappings that are made after it.
            self.code = Some(Code::new(&self.space, version, self.encoding));
        }

        // What the capture itself says comes first.
        if let (true, Some(code)) = (kernel.task.rethooks.is_empty(), &self.code) {
            kernel.task.rethooks = implied::rethooks(&kernel.states, code, &memory);
        }
        sample.kernel = Some(kernel);
        ControlFlow::Continue(())
    }

    /// Maps an image whose addresses are those of `range`.
    fn map(
        &mut self,
        name: String,
        range: Range<u64>,
        bias: u64,
        image: Arc<Image>,
    ) -> ControlFlow<()> {
        let (index, flow) = self.output.index(image.clone());
        flow?;

        let range = range.start.wrapping_add(bias)..range.end.wrapping_add(bias);
        // Also kept here: later steps of the import look up code in it.
        self.space.map(Mapping {
            range: range.clone(),
            bias,
            image: Some(image),
            name: name.clone(),
        });

        let image = Some(index);
        self.output.item(Item::Event(Event::Map {
            pid: PID,
            range,
            bias,
            image,
            name,
        }))
    }

    /// Maps a module from its loaded table, for which there are `room` bytes left.
    fn module(
        &mut self,
        module: &Object<'_>,
        room: &mut usize,
    ) -> Result<ControlFlow<()>, ImportError> {
        let name = module.string("name")?.unwrap_or("module".into());
        let (ips, entries) = (module.memory("ip")?, module.memory("orc")?);
        let ips_at = module.needed("ip_at")?;
        // All tables are kept, and each unpacks to more than it has in the file.
        *room = room
            .checked_sub(ips.len() + entries.len())
            .ok_or_else(|| module.problem("orc", "more than 64 MiB of tables"))?;

        // Its code is where its entries are.
        let ips_of = ips.as_chunks::<4>().0.iter().enumerate().map(|(i, ip)| {
            // An entry of `.orc_unwind_ip` is relative to its own address
            // (`arch/x86/kernel/unwind_orc.c`, `orc_ip`).
            let slot = ips_at.wrapping_add(4 * i as u64);
            slot.wrapping_add(i64::from(i32::from_le_bytes(*ip)) as u64)
        });
        let (first, last) = ips_of.fold((u64::MAX, 0), |(a, b), ip| (a.min(ip), b.max(ip)));

        let text = module.number("text_start")?.unwrap_or(first)
            ..module.number("text_end")?.unwrap_or(last);
        if text.is_empty() {
            return Err(module.problem("ip", "the table covers no code").into());
        }

        let section = |kind, address, bytes| Section {
            kind,
            address,
            data: Bytes::from_vec(bytes),
        };

        let image = Image::new(ImageParts {
            name: name.clone(),
            text: vec![text.clone()],
            sections: vec![
                section(SectionKind::OrcUnwind, 0, entries),
                section(SectionKind::OrcUnwindIp, ips_at, ips),
            ],
            ..ImageParts::default()
        });
        Ok(self.map(name, text, 0, Arc::new(image)))
    }

    /// A stop with registers, or a task that is not running.
    fn point(&mut self, point: &Object<'_>) -> Result<Option<Sample<'static>>, ImportError> {
        let states = states::all(point, "kernel", self.kind)?;
        let mut task = self.task(point)?;
        let mut regions = Vec::new();

        let regs = match point.object("regs")? {
            Some(regs) => SampleRegs::hardware(registers(&regs)?),
            None => {
                // Only a task that is not running has its sp in `thread.sp`.
                task.is_current = false;
                let sp = point.needed("thread_sp")?;
                let begin = point.needed("stack_begin")?;
                let end = point
                    .number("stack_end")?
                    .unwrap_or(begin.wrapping_add(THREAD_SIZE));
                task.thread_sp = sp;
                task.stacks.push(StackInfo {
                    kind: StackType::Task,
                    begin,
                    end,
                    next_sp: 0,
                });
                regions.push(region(
                    point.needed("stack_at")?,
                    point.memory("stack")?,
                    begin..end,
                    0,
                ));
                // rbp and rip are where the task left them (`struct inactive_task_frame`).
                inactive_regs(sp, &regions)
            }
        };

        stacks(point, &mut task, &mut regions)?;
        let tid = point.number("pid")?;
        Ok(Some(self.sample(
            tid,
            regs,
            regions,
            task,
            states,
            Vec::new(),
        )))
    }

    /// A sample as taken by perf, and the start of the unwinder.
    fn perf_sample(&mut self, sample: &Object<'_>) -> Result<Option<Sample<'static>>, ImportError> {
        let sampled = registers(&sample.required_object("perf_regs")?)?;
        let start = sample.required_object("unwind_start")?;
        let states = states::all(sample, "states", self.kind)?;

        let mut task = self.task(&start)?;
        let mut regions = Vec::new();
        stacks(&start, &mut task, &mut regions)?;

        // At the unwinder's entry, before its prologue: rsp is where the return address is.
        let entry = registers(&start.required_object("regs")?)?;
        // The unwinder does not start at the registers that perf makes up.
        let own = (!sampled.is_hardware()).then(|| own_regs(&states, &entry, &mut regions));
        let saved = own.and_then(|own| self.saved_bp(&own, entry.rsp().wrapping_add(8)));
        // Its prologue saves rbp there, after the capture was made.
        if let Some(slot) = saved {
            put_word(&mut regions, slot, entry.get_or_zero(Reg::Rbp));
        }

        let regs = SampleRegs {
            sampled,
            fetch: None,
            own,
        };

        let ips = sample.numbers("result")?;
        let chains = vec![RecordedChain {
            source: "kernel".into(),
            ips,
            request: None,
        }];
        Ok(Some(self.sample(None, regs, regions, task, states, chains)))
    }

    /// The address where the unwinder's own function, with the given CFA, saved rbp before it read
    /// its registers. The memory was captured at the function's entry.
    fn saved_bp(&self, own: &Regs, cfa: u64) -> Option<u64> {
        let image = self.image.as_ref()?;
        let index = Index::new(image, self.encoding).ok()??;
        let (table, layout) = (index.table().ok()?, index.encoding()?.layout);
        let position = table.find(own.rip().wrapping_sub(self.bias).wrapping_sub(1))?;
        let entry = table.table().entry(table.stored(position)?, layout)?.ok()?;
        let is_saved = entry.bp_reg == OrcReg::PrevSp && own.rsp() < cfa;
        is_saved.then(|| cfa.wrapping_add(i64::from(entry.bp_offset) as u64))
    }

    /// One single-stepped instruction. A step in user space has nothing to unwind.
    fn step(&mut self, step: &Object<'_>) -> Result<Option<Sample<'static>>, ImportError> {
        let number = step.number("i")?;
        if step.has("user") {
            self.steps.user(number);
            return Ok(None);
        }

        let sampled = registers(&step.required_object("regs")?)?;
        let mut task = self.task(step)?;
        let mut regions = Vec::new();

        if let Some(at) = step.number("stack_at")? {
            let [begin, end] = step.numbers("stack_bounds")?[..] else {
                return Err(step.problem("stack_bounds", "not two addresses").into());
            };
            // Most steps are on the stack of their task.
            let name = step.string("stack_type")?;
            let kind = StackType::from_name(name.as_deref().unwrap_or("TASK"));
            let kind = kind.ok_or_else(|| step.problem("stack_type", "not a stack type"))?;
            task.stacks.push(StackInfo {
                kind,
                begin,
                end,
                next_sp: 0,
            });
            regions.push(region(at, step.memory("stack")?, begin..end, 0));
        }

        stacks(step, &mut task, &mut regions)?;
        // A stack that is not captured again is unchanged.
        for (stack, region) in &self.stacks {
            if !task.stacks.iter().any(|s| s.kind == stack.kind) {
                task.stacks.push(*stack);
                regions.push(region.clone());
            }
        }

        // Kept for the next step, which has only what has changed.
        let of_stack = |stack: &StackInfo| {
            let region = regions.iter().find(|r| r.bounds == stack.range());
            region.map(|region| (*stack, region.clone()))
        };
        self.stacks = task.stacks.iter().filter_map(of_stack).collect();

        let states = states::brief(step, "kernel", self.kind)?;
        let regs = SampleRegs::hardware(sampled);
        let stacks = task.stacks.clone();
        let mut sample = self.sample(None, regs, regions, task, states, Vec::new());
        // From the steps alone, not from the states of the kernel: no truth comes from an unwinder.
        let (truth, boundary) = self
            .steps
            .kernel(number, &sampled, &stacks, &sample.memory());

        sample.truth = truth;
        if let Some(kernel) = &mut sample.kernel {
            kernel.boundary = boundary;
        }
        Ok(Some(sample))
    }

    fn sample(
        &mut self,
        tid: Option<u64>,
        regs: SampleRegs,
        mut regions: Vec<Region<'static>>,
        task: Task,
        states: Vec<State>,
        recorded: Vec<RecordedChain>,
    ) -> Sample<'static> {
        // A capture has no times, so the order of the samples stands for them.
        let time = self.number;
        self.number += 1;

        // A task that is not running continues where it left the processor.
        let sp = if task.is_current {
            regs.live().map_or(0, Regs::rsp)
        } else {
            task.thread_sp
        };

        // The stack in use comes first, and it alone has the role `Stack`.
        regions.sort_by_key(|r| !r.bounds.contains(&sp));
        for region in regions.iter_mut().skip(1) {
            if region.role == RegionRole::Stack {
                region.role = RegionRole::OtherStack;
            }
        }

        let release = self.release.clone();
        Sample {
            pid: PID,
            tid: tid.and_then(|t| u32::try_from(t).ok()).unwrap_or(0),
            time,
            regs,
            regions,
            truth: Truth::Unknown,
            recorded,
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release,
                unwinder: self.kind,
                task,
                states,
                boundary: None,
                user: None,
            })),
            process_memory: None,
        }
    }

    /// The task without its stacks: its return addresses taken by tracers.
    fn task(&self, from: &Object<'_>) -> Result<Task, Problem> {
        let mut task = Task {
            version: Version::from_name(&self.release),
            encoding: self.encoding,
            ..Task::default()
        };
        if from.has("ret_stack") {
            task.graph = graph(from, self.version())?;
        }
        for rethook in from.objects("rethooks")? {
            let rethook = rethook?;
            task.rethooks.push(Rethook {
                ret_addr: rethook.needed("ret_addr")?,
                frame: rethook.needed("frame")?,
            });
        }
        Ok(task)
    }
}
