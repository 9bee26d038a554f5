//! `record`: run a program, or attach to one, and keep its stacks.

use super::{Status, output};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;

/// Run a program under ptrace, or attach to one, and record its stacks into a trace.
///
/// With --truth every instruction is single-stepped and a shadow stack is kept, so that each
/// chain can be judged. Without it the trace says that the truth is unknown.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim record --truth --at every:100 -o trace.bin -- /bin/ls
  unwind-sim record --truth --from main --max-instructions 200000 --at every:100 -o trace.bin -- git log
  unwind-sim record --at freq:500 -o trace.bin -p 1234
  unwind-sim record --truth --fake --at malloc -o trace.bin -- /bin/ls")]
pub(crate) struct Args {
    /// The trace to write.
    #[arg(short, long, value_name = "FILE", default_value = "trace.bin")]
    output: PathBuf,
    /// How the program is executed.
    #[arg(long, value_enum, default_value = "ptrace")]
    engine: Engine,
    /// When to sample: every:N (instructions), freq:HZ, syscall, call, SYMBOL[+OFF][,..].
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// Single-step, and keep a shadow stack that knows the true chain.
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
    /// Do not follow child processes.
    #[arg(long)]
    no_children: bool,
    /// Leave the address space randomized.
    #[arg(long)]
    randomize: bool,
    /// Attach to this process.
    #[arg(short, long, value_name = "PID", conflicts_with = "program")]
    pid: Option<i32>,
    /// What the exit status is: that of the recording, or of the program.
    #[arg(long, value_enum, default_value = "recording")]
    status: StatusOf,
    /// The program and its arguments.
    #[arg(last = true, value_name = "PROG", required_unless_present = "pid")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Engine {
    /// The real processor, under ptrace.
    Ptrace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum StatusOf {
    /// 0 if something was recorded.
    Recording,
    /// That of the program, 128 + N if signal N killed it.
    Program,
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn run(_: &Args) -> Result<Status> {
    bail!("recording needs Linux on x86-64; replay, compare and explain work here")
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use linux::run;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux {
    use super::*;
    use unwind_sim::record::{TraceRecorder, parse_number};
    use unwind_sim_corpus::trace::{self, Meta, TimeUnit, TraceWriter};
    use unwind_sim_host as host;
    use unwind_sim_host::{At, FetchFrame, Options, Point, Program, ProgramEnd, Target};

    /// Samples a second, where nobody said when.
    const FREQ_DEFAULT: u32 = 997;
    /// Instructions between samples, where nobody said when, with truth.
    const EVERY_DEFAULT: u64 = 1000;

    fn when(args: &Args) -> Result<At> {
        let Some(text) = &args.at else {
            return Ok(if args.truth {
                At::Every(EVERY_DEFAULT)
            } else {
                At::Freq(FREQ_DEFAULT)
            });
        };
        let number = |n: &str| {
            parse_number(n)
                .filter(|n| *n > 0)
                .with_context(|| format!("--at {text}: `{n}`"))
        };
        Ok(match text.split_once(':') {
            _ if text == "syscall" => At::Syscall,
            _ if text == "call" => At::Call,
            Some(("every", n)) => At::Every(number(n)?),
            Some(("freq", n)) => At::Freq(u32::try_from(number(n)?).context("--at freq")?),
            _ => {
                let fetch = args.fake.then_some(FetchFrame::Entry);
                let point = |name: &str| Point {
                    name: name.to_owned(),
                    fetch,
                    own: args.own.clone(),
                };
                At::Points(text.split(',').map(point).collect())
            }
        })
    }

    fn options(args: &Args) -> Result<Options> {
        let target = match (args.pid, args.program.split_first()) {
            (Some(pid), _) => Target::Attach(pid),
            (None, Some((path, rest))) => Target::Run(Program {
                path: path.clone(),
                args: rest.to_vec(),
                ..Program::default()
            }),
            (None, None) => bail!("no program; write it behind --"),
        };
        let at = when(args)?;
        if args.fake && !matches!(at, At::Points(_)) {
            bail!("--fake needs --at SYMBOL: the function that fetches its caller's registers");
        }
        Ok(Options {
            truth: args.truth,
            from: args.from.clone(),
            max_instructions: args.max_instructions,
            max_samples: args.max_samples,
            stack_bytes: args.stack_bytes,
            children: !args.no_children,
            randomize: args.randomize,
            stop: Some(host::stop_on_interrupt()),
            ..Options::new(target, at)
        })
    }

    pub(crate) fn run(args: &Args) -> Result<Status> {
        let Engine::Ptrace = args.engine;
        let options = options(args)?;
        let steps = args.truth || matches!(options.at, At::Every(_) | At::Call);
        let mut meta = Meta {
            // By its name, wherever it lies on this machine.
            command: std::iter::once("unwind-sim".to_owned())
                .chain(std::env::args().skip(1))
                .collect(),
            program: args
                .program
                .iter()
                .map(|a| a.to_string_lossy().into_owned())
                .collect(),
            engine: trace::Engine::Ptrace,
            time_unit: if steps {
                TimeUnit::Instructions
            } else {
                TimeUnit::Nanoseconds
            },
            ..Meta::default()
        };
        let mut writer = TraceWriter::create(&args.output, &meta)?;
        // After an error, what was recorded so far is kept when the writer is dropped.
        let mut recorder = TraceRecorder::new(&mut writer);
        let summary = host::record(&options, &mut recorder)?;
        recorder.write_text()?;
        if args.truth {
            let from = args.from.as_deref().unwrap_or("the start");
            meta.truth = format!("from {from}, {} instructions", summary.instructions);
        }
        meta.instructions = summary.instructions;
        meta.unknown_instructions = summary.tracker.unknown;
        meta.status = wait_status(summary.program);
        writer.meta(&meta)?;
        writer.finish()?;
        tell(args, &summary);
        if let (StatusOf::Program, Some(status)) = (args.status, program_status(summary.program)) {
            return Ok(Status::Program(status));
        }
        Ok(if summary.samples == 0 {
            Status::NothingJudged
        } else {
            Status::AsExpected
        })
    }

    fn tell(args: &Args, summary: &host::Summary) {
        let n = summary.samples;
        let s = unwind_sim::text::plural(n);
        anstream::eprintln!(
            "{n} sample{s} in {}; {}",
            args.output.display(),
            ended(summary.program)
        );
        for name in &summary.not_located {
            anstream::eprintln!("no image that was loaded has {name}");
        }
        if args.from.is_some() && !summary.from_reached {
            anstream::eprintln!("--from was not reached");
        }
        if args.truth {
            let (steps, unknown) = (summary.instructions, summary.tracker.unknown);
            anstream::eprintln!("{steps} instructions, truth unknown at {unknown} of them");
        }
        let path = args.output.display();
        anstream::eprintln!("next: unwind-sim compare {path}");
        let _ = output::command_line();
    }

    fn ended(end: ProgramEnd) -> String {
        match end {
            ProgramEnd::Exited(status) => format!("the program exited with {status}"),
            ProgramEnd::Killed(signal) => format!("signal {signal} killed the program"),
            ProgramEnd::RunsOn => "the program runs on".to_owned(),
        }
    }

    fn program_status(end: ProgramEnd) -> Option<u8> {
        match end {
            ProgramEnd::Exited(status) => Some(status as u8),
            ProgramEnd::Killed(signal) => Some(128u8.wrapping_add(signal as u8)),
            ProgramEnd::RunsOn => None,
        }
    }

    /// As `waitpid` gives it.
    fn wait_status(end: ProgramEnd) -> Option<u32> {
        match end {
            ProgramEnd::Exited(status) => Some((status as u32 & 0xff) << 8),
            ProgramEnd::Killed(signal) => Some(signal as u32 & 0x7f),
            ProgramEnd::RunsOn => None,
        }
    }
}
