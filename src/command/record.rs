//! `record`: runs a program, or attaches to one, and records its stacks.

mod emulator;
mod environment;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod gdb;
mod kernel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace;

use super::args::{KernelArgs, parse_seconds};
use super::boot::BootOptionArgs;
use super::children::ChildrenArgs;
use super::machine::MachineOptions;
use super::output::{self, tell};
use super::status::Status;
use super::words;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_judge::shell::quoted_path;
use unwind_sim_perf_lbr::Depth;
use unwind_sim_record::{At, FetchFrame, Plan, Point, parse_number};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::similar;
use unwind_sim_recordings::trace::Meta;

/// Samples per second, without `--at`.
const FREQ_DEFAULT: u32 = 997;
/// Instructions between samples, without `--at` but with the truth.
const EVERY_DEFAULT: u64 = 1000;

/// Run a program, attach to one, or boot a kernel, and record its stacks to a trace.
///
/// The program runs on this machine's processor under ptrace, or in the emulated machine. Under
/// ptrace, --truth single-steps every instruction and keeps a shadow stack, so that each chain can
/// be judged; without it the truth is unknown. The emulated machine always knows the truth and
/// gives the same trace every time.
///
/// --init or --initrd, or --kernel with neither a program nor a stub, boots that kernel in the emulated
/// machine, and records it where its perf unwinds it: the registers that perf_callchain_kernel is given, what
/// the kernel's own unwinder says, and the true chain. --kaslr then moves the kernel. With --engine gdb both
/// say which kernel is behind the stub.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim record --truth --at every:100 -o trace.bin -- /bin/ls
  unwind-sim record --truth --from main --max-instructions 200000 \\
      --at every:100 -o trace.bin -- git log
  unwind-sim record --engine emulator --at every:1000 -o trace.bin -- /bin/ls
  unwind-sim record --at freq:500 -o trace.bin -p 1234
  unwind-sim record --truth --fake --at malloc -o trace.bin -- /bin/ls
  unwind-sim record --engine gdb localhost:1234 --kernel vmlinuz --truth \\
      --from vfs_read --at every:1 --max-instructions 5000
  unwind-sim record --kernel vmlinuz --init ./init -o trace.bin")]
pub(crate) struct Args {
    /// The trace to write.
    #[arg(short, long, value_name = "FILE", default_value = "trace.bin")]
    output: PathBuf,
    /// How the program is executed: by default under ptrace. A kernel is booted in the emulated machine.
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// When to sample: every:N (instructions), freq:HZ, syscall, call, SYMBOL[+OFF][,..]. If
    /// neither the program nor a library it is linked with has the symbol, a warning is printed
    /// before the run.
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// Keep a shadow stack, which gives the true chain; under ptrace this single-steps.
    #[arg(long)]
    truth: bool,
    /// Start when this symbol is reached.
    #[arg(long, value_name = "SYM")]
    from: Option<String>,
    /// Stop after N instructions.
    #[arg(long, value_name = "N")]
    max_instructions: Option<u64>,
    /// Stop after N samples.
    #[arg(long, value_name = "N")]
    max_samples: Option<u64>,
    /// Sample as a tracepoint does: --at names functions that fetch their caller's registers, and
    /// both register sets are kept.
    #[arg(long)]
    fake: bool,
    /// With --fake: take the unwinder's own registers at this place inside it.
    #[arg(long, value_name = "SYM[+OFF]", requires = "fake")]
    own: Option<String>,
    /// Copy at most this many bytes of each stack.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    stack_bytes: u64,
    /// ptrace: do not follow child processes.
    #[arg(long)]
    no_children: bool,
    /// Give the program this process's whole environment. By default it gets PATH, LANG, TERM and
    /// LD_LIBRARY_PATH, since stacks are recorded with the environment on them.
    #[arg(long, conflicts_with_all = ["env", "clear_env", "pid"])]
    keep_env: bool,
    /// ptrace: leave the address space randomized.
    #[arg(long)]
    randomize: bool,
    /// ptrace: attach to this process.
    #[arg(short, long, value_name = "PID", conflicts_with = "program")]
    pid: Option<i32>,
    /// The exit status: that of the recording or of the program.
    #[arg(long, value_enum, default_value = "recording")]
    status: StatusOf,
    /// emulator, or a kernel that is booted: stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    timeout: Option<f64>,
    /// emulator: record branches in call-stack mode (LBR), in rings of these depths: 8, 16, 32.
    #[arg(long, value_name = "DEPTH[,..]", value_delimiter = ',')]
    lbr: Vec<RingDepth>,
    /// emulator: what becomes of the branch records of a thread that does not run.
    #[arg(long, value_enum, default_value = "task", requires = "lbr")]
    lbr_storage: LbrStorage,
    #[command(flatten, next_help_heading = "Options for a kernel that is booted")]
    boot: BootOptionArgs,
    /// With --kernel: begin when the first process runs. What comes before is executed at full speed, but
    /// the callers of tasks that have begun by then stay unknown.
    #[arg(
        long,
        requires = "kernel",
        help_heading = "Options for a kernel that is booted"
    )]
    from_init: bool,
    /// Write what the kernel writes to its console to this file, too: `compare FILE --recording`
    /// judges the stacks in it.
    #[arg(
        long,
        value_name = "FILE",
        requires = "kernel",
        help_heading = "Options for a kernel that is booted"
    )]
    console_log: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Options for --engine gdb")]
    kernel: KernelArgs,
    /// gdb: hold back interrupts and timers while instructions are stepped. Only QEMU's stub can do
    /// that. Without this, under -icount, timers fire so often that most instructions are theirs.
    #[arg(long)]
    hold_interrupts: bool,
    #[command(flatten, next_help_heading = "Options for --engine emulator")]
    machine: MachineOptions,
    #[command(flatten)]
    children: ChildrenArgs,
    /// gdb: where the stub listens, HOST:PORT or the path of a socket.
    #[arg(value_name = "STUB", conflicts_with_all = ["program", "pid"])]
    stub: Option<String>,
    /// The program and its arguments; in the emulated machine it may be a case (.s).
    #[arg(last = true, value_name = "PROG", required_unless_present_any = ["pid", "stub", "kernel"])]
    program: Vec<OsString>,
}

/// The depth of a ring of branch records.
#[derive(Clone, Copy, Debug)]
struct RingDepth(Depth);

impl std::str::FromStr for RingDepth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let depth = Depth::ALL
            .into_iter()
            .find(|d| d.entries().to_string() == text);
        depth
            .map(RingDepth)
            .ok_or_else(|| "expected 8, 16 or 32".to_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum LbrStorage {
    /// They are saved with the thread, and restored: perf record -- PROG, and since Linux 6.15 also
    /// perf record -a.
    Task,
    /// They are wiped: perf record -a up to Linux 6.14.
    Cpu,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Engine {
    /// The real processor, under ptrace.
    Ptrace,
    /// The emulated machine.
    Emulator,
    /// A kernel behind a gdb stub.
    Gdb,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum StatusOf {
    /// 0 if something was recorded.
    Recording,
    /// The program's, or 128 + N if signal N killed it.
    Program,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let machine = &args.machine;
    if kernel::is_booted(args) {
        return kernel::run(args);
    }
    let from_init = args.from_init.then_some("--from-init");
    let console_log = args.console_log.as_ref().map(|_| "--console-log");
    if let Some(option) = args.boot.given().or(from_init).or(console_log) {
        bail!("{option} is for a kernel that is booted");
    }
    let engine = args.engine.unwrap_or(Engine::Ptrace);

    // An attached process has its environment already.
    let has_environment = args.keep_env || machine.clear_env || !machine.env.is_empty();
    if has_environment && args.program.is_empty() {
        bail!("--env, --clear-env and --keep-env are for a program that is started");
    }

    // Options that only one engine has are refused for the others: ignored, they would make a trace
    // that is not what was asked for.
    match engine {
        _ if args.hold_interrupts && engine != Engine::Gdb => {
            bail!("--hold-interrupts is for --engine gdb")
        }
        Engine::Emulator => emulator::run(args),
        _ if !args.lbr.is_empty() => bail!("--lbr is for --engine emulator"),
        _ if args.children.is_given() => bail!("--children is for --engine emulator"),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Engine::Ptrace | Engine::Gdb if args.stub.is_some() != (engine == Engine::Gdb) => {
            bail!("--engine gdb needs a stub (HOST:PORT), and no other engine takes one")
        }
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Engine::Ptrace => ptrace::run(args),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Engine::Gdb => gdb::run(args),
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
        Engine::Ptrace | Engine::Gdb => {
            bail!("ptrace and gdb stubs need Linux on x86-64; --engine emulator works here")
        }
    }
}

impl Args {
    /// When to sample.
    fn when(&self, truth: bool) -> Result<At> {
        let at = self.at(truth)?;
        if self.fake && !matches!(at, At::Points(_)) {
            bail!("--fake needs --at SYMBOL: the function that fetches its caller's registers");
        }
        Ok(at)
    }

    /// The plan of the recording.
    fn plan(&self, at: At, stop: Option<&'static AtomicBool>) -> Plan {
        Plan {
            at,
            truth: self.truth,
            from: self.from.clone(),
            max_instructions: self.max_instructions,
            max_samples: self.max_samples,
            stack_bytes: self.stack_bytes,
            stop,
        }
    }

    fn at(&self, truth: bool) -> Result<At> {
        let Some(text) = &self.at else {
            return Ok(if truth {
                At::Every(EVERY_DEFAULT)
            } else {
                At::Freq(FREQ_DEFAULT)
            });
        };

        // Every 0 instructions or 0 times a second would never take a sample, so a typo would only
        // be noticed at the end of the run.
        let number = |n: &str| match parse_number(n) {
            Some(0) => bail!("--at {text}: 0 would take no samples; the least is 1"),
            Some(n) => Ok(n),
            None => bail!("--at {text}: `{n}` is not a number"),
        };

        Ok(match text.split_once(':') {
            _ if text == "syscall" => At::Syscall,
            _ if text == "call" => At::Call,
            Some(("every", n)) => At::Every(number(n)?),
            Some(("freq", n)) => {
                let hz = u32::try_from(number(n)?);
                At::Freq(hz.with_context(|| format!("--at {text}: at most {} a second", u32::MAX))?)
            }
            // Names of C++ and Rust have `::` in them.
            Some((word, n)) if !n.starts_with(':') => {
                bail!("--at {text}: unknown `{word}:`; expected every:N, freq:HZ or SYMBOL")
            }
            _ => {
                let fetch = self.fake.then_some(FetchFrame::Entry);
                let point = |name: &str| Point {
                    name: name.to_owned(),
                    fetch,
                    own: self.own.clone(),
                };
                // Anything else is a symbol; whether it exists is known when images are read.
                At::Points(text.split(',').map(point).collect())
            }
        })
    }

    /// The metadata that is known before the recording starts.
    fn meta(&self) -> Meta {
        // The metadata is text: bytes of arguments that are not UTF-8 become U+FFFD.
        let text = |arg: &OsStr| arg.to_string_lossy().into_owned();
        Meta {
            // The bare name, not the path of this executable.
            command: std::iter::once("unwind-sim".to_owned())
                .chain(words::given().iter().map(|a| text(a)))
                .collect(),
            program: self.program.iter().map(|a| text(a)).collect(),
            ..Meta::default()
        }
    }

    /// The part of the run for which the truth is known.
    fn truth_text(&self, instructions: u64) -> String {
        let from = self.from.as_deref().unwrap_or("the start");
        format!("from {from}, {}", counted(instructions, "instruction"))
    }

    /// Warns, before the run, of places that are neither in the program nor in the libraries it is
    /// linked with. That is not an error yet: it may load a library, or start a program, that has
    /// them.
    fn warn_of_places(&self, at: &At, program: &RunningProgram, finder: FinderOptions) {
        for place in unwind_sim_record::not_linked(program, at, self.from.as_deref(), finder) {
            let hint = similar::question(place.similar.as_deref());
            tell!(
                "unwind-sim: neither the program nor a library it is linked with has {}{hint}; \
                 running it, since it may load one that does",
                place.name
            );
        }
    }

    fn tell(&self, told: &Told<'_>) {
        output::tell_trace(told.samples, &self.output, &told.ended);
        for name in told.not_located {
            tell!("no loaded image has {name}");
        }
        if self.from.is_some() && !told.from_reached {
            tell!("--from was not reached");
        }
        if let Some(unknown) = told.unknown {
            let steps = told.instructions;
            tell!(
                "{}, truth unknown at {unknown} of them",
                counted(steps, "instruction")
            );
        }
        let file = quoted_path(&self.output);
        output::tell_next(told.samples, &format!("unwind-sim compare {file}"));
    }
}

/// What is reported about a recording.
struct Told<'a> {
    samples: u64,
    ended: String,
    not_located: &'a [String],
    from_reached: bool,
    instructions: u64,
    /// The number of instructions at which the truth was not known, if it was recorded.
    unknown: Option<u64>,
}

/// How the program ended.
#[derive(Clone, Copy)]
enum Ended {
    Exited(i32),
    Killed(i32),
    /// It is still running, or was stopped.
    Not,
}

impl Ended {
    fn status(self) -> Option<u8> {
        match self {
            Ended::Exited(status) => Some(status as u8),
            Ended::Killed(signal) => Some(128u8.wrapping_add(signal as u8)),
            Ended::Not => None,
        }
    }

    /// The status in the encoding of `waitpid`.
    fn wait_status(self) -> Option<u32> {
        match self {
            Ended::Exited(status) => Some((status as u32 & 0xff) << 8),
            Ended::Killed(signal) => Some(signal as u32 & 0x7f),
            Ended::Not => None,
        }
    }
}
