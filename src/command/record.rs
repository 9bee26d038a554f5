//! `record`: run a program, or attach to one, and keep its stacks.

mod emulator;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod gdb;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace;

use super::args::KernelArgs;
use super::machine::MachineOptions;
use super::output;
use super::status::Status;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use unwind_sim_judge::shell::quoted_path;
use unwind_sim_perf_model::lbr::Depth;
use unwind_sim_record::program::RunningProgram;
use unwind_sim_record::{At, FetchFrame, Plan, Point, parse_number};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::trace::Meta;

/// Samples a second, where nobody said when.
const FREQ_DEFAULT: u32 = 997;
/// Instructions between samples, where nobody said when, with truth.
const EVERY_DEFAULT: u64 = 1000;

/// Run a program, or attach to one, and record its stacks into a trace.
///
/// The program runs on this machine's processor under ptrace, or in the emulated machine. Under
/// ptrace, --truth single-steps every instruction and keeps a shadow stack, so that each chain can
/// be judged; without it the trace says that the truth is unknown. The emulated machine always
/// knows the truth, and gives the same trace every time; it has one process with one thread.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim record --truth --at every:100 -o trace.bin -- /bin/ls
  unwind-sim record --truth --from main --max-instructions 200000 --at every:100 -o trace.bin -- git log
  unwind-sim record --engine emulator --at every:1000 -o trace.bin -- /bin/ls
  unwind-sim record --at freq:500 -o trace.bin -p 1234
  unwind-sim record --truth --fake --at malloc -o trace.bin -- /bin/ls
  unwind-sim record --engine gdb localhost:1234 --kernel vmlinuz --truth --from vfs_read --at every:1 --max-instructions 5000")]
pub(crate) struct Args {
    /// The trace to write.
    #[arg(short, long, value_name = "FILE", default_value = "trace.bin")]
    output: PathBuf,
    /// How the program is executed.
    #[arg(long, value_enum, default_value = "ptrace")]
    engine: Engine,
    /// When to sample: every:N (instructions), freq:HZ, syscall, call, SYMBOL[+OFF][,..].
    /// Before the run it warns of a symbol that neither the program nor a library it is linked with
    /// has.
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// Keep a shadow stack that knows the true chain; under ptrace this single-steps.
    #[arg(long)]
    truth: bool,
    /// Begin when this symbol is reached.
    #[arg(long, value_name = "SYM")]
    from: Option<String>,
    /// End after so many instructions.
    #[arg(long, value_name = "N")]
    max_instructions: Option<u64>,
    /// End after so many samples.
    #[arg(long, value_name = "N")]
    max_samples: Option<u64>,
    /// Sample as a tracepoint does: --at names functions that fetch their caller's registers, and
    /// both register sets are kept.
    #[arg(long)]
    fake: bool,
    /// With --fake: the unwinder's own registers are taken at this place inside of it.
    #[arg(long, value_name = "SYM[+OFF]", requires = "fake")]
    own: Option<String>,
    /// Copy at most so many bytes of each stack.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    stack_bytes: u64,
    /// ptrace: do not follow child processes.
    #[arg(long)]
    no_children: bool,
    /// ptrace: leave the address space randomized.
    #[arg(long)]
    randomize: bool,
    /// ptrace: attach to this process.
    #[arg(short, long, value_name = "PID", conflicts_with = "program")]
    pid: Option<i32>,
    /// What the exit status is: that of the recording, or of the program.
    #[arg(long, value_enum, default_value = "recording")]
    status: StatusOf,
    /// emulator: end after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// emulator: keep the processor's branch records in call-stack mode (LBR), in rings of these
    /// depths: 8, 16, 32.
    #[arg(long, value_name = "DEPTH[,..]", value_delimiter = ',')]
    lbr: Vec<RingDepth>,
    #[command(flatten, next_help_heading = "Options of --engine gdb")]
    kernel: KernelArgs,
    /// gdb: let no interrupt and no timer in while instructions are stepped. Only QEMU's stub can.
    /// With -icount timers fire so often otherwise that most instructions are theirs.
    #[arg(long)]
    hold_interrupts: bool,
    #[command(flatten, next_help_heading = "Options of --engine emulator")]
    machine: MachineOptions,
    /// gdb: where the stub listens, HOST:PORT or the path of a socket.
    #[arg(value_name = "STUB", conflicts_with_all = ["program", "pid"])]
    stub: Option<String>,
    /// The program and its arguments; in the emulated machine it may be a case (.s).
    #[arg(last = true, value_name = "PROG", required_unless_present_any = ["pid", "stub"])]
    program: Vec<OsString>,
}

/// Depth of a ring of branch records.
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
            .ok_or_else(|| "there are 8, 16 and 32".to_owned())
    }
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
    /// That of the program, 128 + N if signal N killed it.
    Program,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    match args.engine {
        _ if args.hold_interrupts && args.engine != Engine::Gdb => {
            bail!("--hold-interrupts is for --engine gdb")
        }
        Engine::Emulator => emulator::run(args),
        _ if !args.lbr.is_empty() => bail!("--lbr is for --engine emulator"),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Engine::Ptrace | Engine::Gdb if args.stub.is_some() != (args.engine == Engine::Gdb) => {
            bail!("a stub goes with --engine gdb")
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

    /// What is recorded, and until when.
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
        let number = |n: &str| match parse_number(n) {
            Some(0) => bail!("--at {text}: 0 would mean no sample at all; 1 is the least"),
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
            Some((word, n)) if !n.starts_with(':') => {
                bail!("--at {text}: no `{word}:`; there are every:N and freq:HZ, and SYMBOL")
            }
            _ => {
                let fetch = self.fake.then_some(FetchFrame::Entry);
                let point = |name: &str| Point {
                    name: name.to_owned(),
                    fetch,
                    own: self.own.clone(),
                };
                At::Points(text.split(',').map(point).collect())
            }
        })
    }

    /// What is known of the recording before it begins.
    fn meta(&self) -> Meta {
        // The description is text; what is not UTF-8 in an argument is shown as U+FFFD.
        let text = |arg: &OsStr| arg.to_string_lossy().into_owned();
        Meta {
            // By its name, wherever it lies on this machine.
            command: std::iter::once("unwind-sim".to_owned())
                .chain(std::env::args_os().skip(1).map(|a| text(&a)))
                .collect(),
            program: self.program.iter().map(|a| text(a)).collect(),
            ..Meta::default()
        }
    }

    /// For which part of the run the truth is known.
    fn truth_text(&self, instructions: u64) -> String {
        let from = self.from.as_deref().unwrap_or("the start");
        format!("from {from}, {instructions} instructions")
    }

    /// Says which places nothing has that the program is linked with, before it runs. That is no
    /// error yet: it may load a library, or start a program, that has them.
    fn warn_of_places(&self, at: &At, program: &RunningProgram, finder: FinderOptions) {
        for name in unwind_sim_record::not_linked(program, at, self.from.as_deref(), finder) {
            anstream::eprintln!(
                "unwind-sim: neither the program nor a library that it is linked with has {name}; \
                 it is run, as it may load one that has"
            );
        }
    }

    fn tell(&self, told: &Told<'_>) {
        output::tell_trace(told.samples, &self.output, &told.ended);
        for name in told.not_located {
            anstream::eprintln!("no image that was loaded has {name}");
        }
        if self.from.is_some() && !told.from_reached {
            anstream::eprintln!("--from was not reached");
        }
        if let Some(unknown) = told.unknown {
            let steps = told.instructions;
            anstream::eprintln!("{steps} instructions, truth unknown at {unknown} of them");
        }
        let file = quoted_path(&self.output);
        output::tell_next(told.samples, &format!("unwind-sim compare {file}"));
    }
}

/// What is told of a recording.
struct Told<'a> {
    samples: u64,
    ended: String,
    not_located: &'a [String],
    from_reached: bool,
    instructions: u64,
    /// With truth: at how many of them it was not known.
    unknown: Option<u64>,
}

/// How the program ended.
#[derive(Clone, Copy)]
enum Ended {
    Exited(i32),
    Killed(i32),
    /// It runs on, or was stopped.
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

    /// As `waitpid` gives it.
    fn wait_status(self) -> Option<u32> {
        match self {
            Ended::Exited(status) => Some((status as u32 & 0xff) << 8),
            Ended::Killed(signal) => Some(signal as u32 & 0x7f),
            Ended::Not => None,
        }
    }
}
