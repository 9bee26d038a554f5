//! `perf bpf`: runs a handler on recorded samples, as if it had been attached when they were taken.
//!
//! A handler only has what was recorded: using a register that was not sampled is a fault, and
//! stacks are those of the recorded callchain, without the user part if that was deferred. Changes
//! that a handler would have made to the recording itself are not simulated.

mod against;
mod json;
mod names;
mod print;
mod sample;

pub use against::MapsText;
use names::Names;
use sample::{Recorded, Tasks, context};
use std::ops::ControlFlow;
use std::path::PathBuf;
use unwind_sim_perf_data::{Order, Record, Summary};
use unwind_sim_perf_data::{PerfError, PerfFile};
use unwind_sim_perf_model::bpf::{
    Attachment, Context, EventTraits, Fault, Guard, Handlers, Limits, LoadError, Object,
    ObjectError, ProgramDef, Verdict,
};
use unwind_sim_perf_script::symbols::Places;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_unwind::image::Owner;

/// Maximum size of an object file, bytes.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// Number of processors for which maps have values and outputs.
const CPUS: u32 = 256;
/// Maximum bytes of all maps.
const MAP_BYTES: u64 = 1 << 30;

/// Why samples cannot be handled.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// A file cannot be read.
    #[error("{}: {source}", path.printable())]
    Open {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The object is malformed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A program cannot be run.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The recording is malformed.
    #[error(transparent)]
    Perf(#[from] PerfError),
    /// No program handles perf events, or none has the requested name.
    #[error("the object has no program{} for perf events", name.as_ref().map_or_else(String::new, |name| format!(" {name}")))]
    NoProgram {
        /// The requested name.
        name: Option<String>,
    },
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program's name; `None` for the first one for perf events.
    pub program: Option<String>,
    /// Whether stack helpers return the sample's own chain with its markers, as if the event had
    /// been opened with `PERF_SAMPLE_CALLCHAIN`; otherwise its frames stand for a walk.
    pub sample_callchain: bool,
    /// Files with symbols for the addresses of stacks; `None` to show only addresses.
    pub symbols: Option<Places>,
}

/// What a program is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    /// An event's overflow.
    Event,
    /// A tracepoint, whose record it is called with.
    Tracepoint,
    /// A kprobe, whose registers it is called with.
    Probe,
}

impl Hook {
    /// That of a program, if a sample can have what it is called with.
    fn of(program: &ProgramDef) -> Option<Hook> {
        match program.section.split('/').next()? {
            "perf_event" => Some(Hook::Event),
            "tracepoint" | "tp" => Some(Hook::Tracepoint),
            "kprobe" | "kretprobe" => Some(Hook::Probe),
            _ => None,
        }
    }
}

/// One output of the program, through a ring buffer or a perf event array.
#[derive(Clone, Debug)]
struct Output {
    time: u64,
    cpu: u32,
    map: String,
    data: Vec<u8>,
    /// It came through a ring buffer, and is not padded.
    is_ring: bool,
}

/// The result of handling all samples.
pub struct Handled {
    handlers: Handlers,
    program: usize,
    outputs: Vec<Output>,
    printed: Vec<String>,
    samples: u64,
    kept: u64,
    dropped: u64,
    faults: u64,
    first_fault: Option<Fault>,
    names: Option<Names>,
    /// How far the recording could be read.
    pub summary: Summary,
}

impl Handled {
    /// Number of samples in which the program did something that the kernel would have refused.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// The name of an address in a process; without a process, if all that have it agree.
    fn name(&self, address: u64, pid: Option<u32>) -> Option<&str> {
        self.names.as_ref()?.name(address, pid)
    }

    /// Number of samples handled.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// The bytes of an input, at most `max`.
fn bytes(file: &InputFile, max: u64) -> Result<Owner, BpfError> {
    file.bytes_within(max).map_err(|source| BpfError::Open {
        path: file.path().into(),
        source,
    })
}

/// Runs a program of an object on each sample of a recording, in order of time.
///
/// # Errors
/// If a file cannot be read, or the program cannot be run.
pub fn handle(
    object: &InputFile,
    recording: &InputFile,
    options: &Options,
) -> Result<Handled, BpfError> {
    let object = bytes(object, OBJECT_BYTES_MAX)?;
    let object = Object::parse((*object).as_ref())?;

    // An object may hold programs for other hooks, which have another context. Those for which a sample has it
    // are run if they are asked for.
    let is_wanted = |program: &ProgramDef| match &options.program {
        None => program.is_perf_event(),
        Some(wanted) => *wanted == program.name && Hook::of(program).is_some(),
    };
    let none = || BpfError::NoProgram {
        name: options.program.clone(),
    };
    let program = object.programs.iter().position(is_wanted);
    let program = program.ok_or_else(none)?;
    let hook = Hook::of(&object.programs[program]).ok_or_else(none)?;

    let limits = Limits {
        cpus: CPUS,
        map_bytes: MAP_BYTES,
    };
    let mut handlers = Handlers::load(&object, limits)?;
    // `bpf_perf_event_output` writes to the event that user space put in the map for this CPU. Here
    // nobody did, so each CPU gets one.
    handlers.maps.open_outputs(CPUS);
    let mut attachment = Attachment::new(EventTraits::default());
    // An event without precise samples and without a program accepts any program for events.
    let _ = attachment.set(&handlers, program);

    let owner = bytes(recording, u64::MAX)?;
    let file = PerfFile::parse((*owner).as_ref())?;
    let mut handled = Handled {
        handlers,
        program,
        outputs: Vec::new(),
        printed: Vec::new(),
        samples: 0,
        kept: 0,
        dropped: 0,
        faults: 0,
        first_fault: None,
        names: options
            .symbols
            .clone()
            .map(|places| Names::new(&file, places)),
        summary: Summary::default(),
    };

    // Records before a sample say what its thread is called, so names and samples are read in one
    // pass in order of time.
    let mut tasks = Tasks::default();
    let mut guard = Guard::default();
    // Taken out, because the closure below changes `handled`, too.
    let mut names = handled.names.take();
    handled.summary = file.for_each(Order::Time, |event| {
        // Mappings change, and so do the names of addresses: they are looked up when the sample is
        // read, not when it is printed.
        if let Some(names) = &mut names {
            names.event(&event);
        }
        match event.record {
            Record::Comm(comm) => tasks.name(&comm),
            Record::Fork(task) => tasks.fork(&task),
            Record::Sample(sample) => {
                // Only handlers of events have the sample's own callchain.
                let has_own_chain = options.sample_callchain && hook == Hook::Event;
                let mut env = Recorded::new(&sample, &tasks, has_own_chain, handled.samples);
                let data = context(&sample);
                handled.samples += 1;
                let handlers = &mut handled.handlers;
                let verdict = match hook {
                    Hook::Event => attachment.overflow(handlers, &mut guard, &mut env, &data),
                    Hook::Tracepoint => {
                        let raw = sample.raw_data().ok().flatten().unwrap_or_default();
                        guard.run(handlers, program, &mut env, Context::Bytes(raw))
                    }
                    Hook::Probe => {
                        guard.run(handlers, program, &mut env, Context::PerfEvent(&data))
                    }
                };
                match verdict {
                    Verdict::Keep(_) => handled.kept += 1,
                    // A handler that returns 0 suppresses the sample.
                    Verdict::Drop | Verdict::Recursion => handled.dropped += 1,
                    Verdict::Fault(fault) => {
                        handled.faults += 1;
                        handled.first_fault.get_or_insert(fault);
                    }
                }

                // perf event arrays first, then ring buffers, whatever the order in which the
                // program wrote: the two have no common order.
                handled.outputs.append(&mut env.outputs);
                // Rings have no times: what is in them now was written by this sample's program.
                let rings = handled.handlers.maps.consume_rings();
                let (time, cpu) = (sample.time().unwrap_or(0), sample.cpu().unwrap_or(0));
                handled
                    .outputs
                    .extend(rings.into_iter().map(|(map, data)| Output {
                        time,
                        cpu,
                        map,
                        data,
                        is_ring: true,
                    }));
                handled.printed.append(&mut env.printed);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });

    handled.names = names;
    Ok(handled)
}
