//! `emulate`: runs a program in the emulated machine, or boots a kernel in it.

mod kernel;

use super::boot::BootArgs;
use super::machine::MachineArgs;
use super::output::{self, tell};
use super::status::Status;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, Write};
use std::path::Path;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::linux::End;
use unwind_sim_emulator::linux::{Input, Outcome, Output, Unsupported};
use unwind_sim_emulator_compare::flat::{self, Bytes, Case, INSTRUCTIONS_MAX, Span};
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::deadlock;
use unwind_sim_record::emulate::{self, Bounds, Run};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::open;
use unwind_sim_recordings::progress::Progress;

/// Maximum size of a file for `--flat`, bytes.
const FLAT_BYTES_MAX: u64 = 1 << 30;

/// Run a program in the emulated machine, or boot a kernel in it.
///
/// The program shares the standard input, output and error of this process, and sees them as pipes.
/// It reads files below --root; what it writes is kept in memory and discarded, unless
/// --allow-write is given. Clock, random numbers and process ids are simulated: the same program
/// with the same arguments, environment, files and seed executes the same instructions, also in the
/// threads and processes that it starts. There is no network. A program that asks for something that
/// is not modelled gets an error, and the exit status is 3.
///
/// With --kernel the machine is a computer with a serial console, and a Linux is booted in it. It reads
/// nothing but the files that are named. It is the same run for the same files, options and seed. Without
/// --init and --initrd, the first process is a program that is built in and uses much of the kernel.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim emulate -- /bin/ls -l
  unwind-sim emulate --stats -- /usr/bin/python3 -c 'print(1)'
  unwind-sim emulate --flat code.bin@0x1000 --set rdi=5 --until hlt --json
  unwind-sim emulate --status program --max-instructions 1000000 -- ./prog
  unwind-sim emulate --kernel /boot/vmlinuz
  unwind-sim emulate --kernel /boot/vmlinuz --init ./init --timeout 300")]
pub(crate) struct Args {
    /// Print how many instructions were executed, and how fast.
    #[arg(long)]
    stats: bool,
    /// The exit status: whether the program ran to its end, or the program's own.
    #[arg(long, value_enum, default_value = "run")]
    status: StatusOf,
    /// Run bare code instead of a program: the bytes of this file, at this address. `-` runs a case
    /// from each line of standard input, as JSON.
    #[arg(long, value_name = "FILE@ADDR", conflicts_with_all = ["program", "kernel"])]
    flat: Vec<String>,
    /// With --flat: map zeroed memory.
    #[arg(long, value_name = "ADDR:SIZE", requires = "flat")]
    map: Vec<String>,
    /// With --flat: put bytes into memory.
    #[arg(long, value_name = "ADDR:HEX", requires = "flat")]
    data: Vec<String>,
    /// With --flat: set a register at the start.
    #[arg(long, value_name = "REG=VALUE", requires = "flat")]
    set: Vec<String>,
    /// With --flat: where to stop, hlt or an address.
    #[arg(long, value_name = "WHERE", requires = "flat")]
    until: Option<String>,
    /// With --flat: memory to print at the end.
    #[arg(long, value_name = "ADDR:SIZE", requires = "flat")]
    dump: Vec<String>,
    /// With --flat: print the state as a JSON line. With --kernel: print the console and the end as
    /// JSON lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    boot: BootArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

/// The unwinder that gives the chains of a deadlock.
pub(super) const CHAINS: &str = "dwarf+fp";

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum StatusOf {
    /// 0 if the program ran to its end.
    Run,
    /// The program's, or 128 + N if signal N killed it; 3 if something is not modelled.
    Program,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    if args.boot.is_given() {
        return kernel::run(args);
    }
    if args.json && args.flat.is_empty() {
        bail!("--json is for --flat and --kernel: a program's output is its own");
    }
    if args.flat.first().is_some_and(|first| first == "-") {
        return each_line(args.machine.cpu().processor());
    }
    if !args.flat.is_empty() {
        return bare(args);
    }

    // The streams are those of this command, so that the program can be used in a pipe.
    let mut program = args.machine.program()?;
    let options = &mut program.program.options;
    options.stdin = Input::Inherit;
    (options.stdout, options.stderr) = (Output::Inherit, Output::Inherit);

    let bounds = Bounds {
        instructions_max: args.machine.max_instructions,
        timeout: args.machine.timeout(),
    };

    let mut progress = Progress::new("instructions", true);
    let mut run = emulate::run(program.program, bounds, &mut |n| progress.tell(n))?;
    drop(progress);
    tell(args, &run);

    // In a deadlock, the stacks of the waiting threads say why nothing can happen any more.
    if let End::Outcome(Outcome::Blocked { .. }) = run.end {
        // There is no truth to compare with: `emulate` keeps no shadow stack.
        let engines = [spec::engine(CHAINS)?];
        let unknown = |_| None;
        let root = args.machine.root();
        let threads = deadlock::threads(&mut run.process, root, &engines, &unknown);
        output::tell_deadlock(&threads);
    }

    // A schedule that does not fit is an error, whatever the program returned.
    args.machine.schedule().finish(&run.followed, &run.end)?;
    let status = match run.end {
        End::Outcome(Outcome::Exited(status)) => match args.status {
            StatusOf::Run => Status::AsExpected,
            StatusOf::Program => Status::Program(status as u8),
        },
        // As shells report it: 128 and the number of the signal.
        End::Outcome(Outcome::Killed { signal, .. }) => match args.status {
            StatusOf::Run => Status::AsExpected,
            StatusOf::Program => Status::Program(128u8.wrapping_add(signal)),
        },
        _ => Status::NothingJudged,
    };

    Ok(status.of_machine(&run.notices))
}

fn tell(args: &Args, run: &Run) {
    output::tell_notices(&run.notices);
    // The error that follows says where a schedule does not fit.
    let is_misfit = matches!(run.end, End::Outcome(Outcome::Misfit(_)));
    if !is_misfit && (args.stats || run.end != End::Outcome(Outcome::Exited(0))) {
        match (&run.end, &run.place) {
            (End::Outcome(Outcome::Unsupported { rip, bytes }), Some(place)) => {
                let unsupported = Unsupported::of(*rip, bytes).within(place);
                tell!("unwind-sim: {unsupported}");
            }
            (end, _) => tell!("unwind-sim: {end}"),
        }
    }

    if args.stats {
        tell!(
            "{} in {:.3} s, {:.1} million a second",
            counted(run.instructions, "instruction"),
            run.time.as_secs_f64(),
            run.mips()
        );
        tell!(
            "{} pages of memory, {} KiB of decoded code",
            run.pages,
            run.code_bytes / 1024,
        );
    }
}

/// `A:B` or `A@B`, split at the last separator.
fn parts<'a>(text: &'a str, separator: char, form: &str) -> Result<(&'a str, &'a str)> {
    let split = text.rsplit_once(separator);
    split.with_context(|| format!("`{text}` is not of the form {form}"))
}

fn bare(args: &Args) -> Result<Status> {
    // The options are put in the words of a case of JSON: both forms have one reader, and so the
    // same errors.
    let mut case = Case {
        until: args.until.clone(),
        // The default of this option is no limit, but bare code has no system call that ends it.
        max_instructions: Some(args.machine.max_instructions.min(INSTRUCTIONS_MAX)),
        ..Case::default()
    };

    for text in &args.flat {
        let (path, at) = parts(text, '@', "FILE@ADDR")?;
        let bytes = open::read(Path::new(path), FLAT_BYTES_MAX).with_context(|| path.to_owned())?;
        case.flat.push(Bytes {
            at: at.to_owned(),
            hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        });
    }

    for text in &args.data {
        let (at, hex) = parts(text, ':', "ADDR:HEX")?;
        case.data.push(Bytes {
            at: at.to_owned(),
            hex: hex.to_owned(),
        });
    }

    for (texts, spans) in [(&args.map, &mut case.map), (&args.dump, &mut case.dump)] {
        for text in texts {
            let (at, size) = parts(text, ':', "ADDR:SIZE")?;
            spans.push(Span {
                at: at.to_owned(),
                size: size.to_owned(),
            });
        }
    }

    for text in &args.set {
        let (register, value) = parts(text, '=', "REG=VALUE")?;
        case.set.insert(register.to_owned(), value.to_owned());
    }

    // Numbers are parsed there: decimal, or hexadecimal with 0x.
    let line = flat::run(&case, args.machine.cpu().processor(), SCHEMA)?;
    let mut out = output::raw_stdout();
    if args.json {
        serde_json::to_writer(&mut out, &line)?
    } else {
        write!(out, "{}", serde_json::to_string_pretty(&line)?)?
    }
    writeln!(out)?;
    out.flush()?;

    Ok(if line.is_not_modelled() {
        Status::NothingJudged
    } else {
        Status::AsExpected
    })
}

/// Runs a case from each line of standard input. Writes a line for each: its final state, or what
/// is wrong with the case.
fn each_line(processor: Processor) -> Result<Status> {
    let mut out = output::raw_stdout();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("standard input")?;
        if line.trim().is_empty() {
            continue;
        }

        // A case that is wrong gets an answer, too: the writer counts on one line for each.
        let answer = match serde_json::from_str::<Case>(&line) {
            Ok(case) => flat::run(&case, processor, SCHEMA).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };

        match answer {
            Ok(state) => serde_json::to_writer(&mut out, &state)?,
            Err(error) => serde_json::to_writer(
                &mut out,
                &serde_json::json!({
                    "schema": SCHEMA, "type": "error", "error": error,
                }),
            )?,
        }
        writeln!(out)?;
        // The writer may wait for this line before it sends the next case.
        out.flush()?;
    }
    Ok(Status::AsExpected)
}
