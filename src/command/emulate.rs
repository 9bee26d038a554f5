//! `emulate`: runs a program in the emulated machine.

use super::Status;
use super::args::MachineArgs;
use anyhow::Result;
use unwind_sim::emulate::{self, Bounds, Run};
use unwind_sim::verify::End;
use unwind_sim_emulator::linux::{Input, Outcome, Output};

/// Run a program in the emulated machine.
///
/// It has the standard input, output and error of this process, which it sees as pipes. Files are
/// read below --root; what it writes is kept in memory and lost, unless --allow-write. Clock,
/// random numbers and process numbers are made up: the same program with the same arguments,
/// environment, files and seed executes the same instructions. There is one process with one
/// thread, and no network.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim emulate -- /bin/ls -l
  unwind-sim emulate --stats -- /usr/bin/python3 -c 'print(1)'
  unwind-sim emulate --status program --max-instructions 1000000 -- ./prog")]
pub(crate) struct Args {
    /// Say how many instructions were executed, and how fast.
    #[arg(long)]
    stats: bool,
    /// What the exit status is: whether the program ran to its end, or its own.
    #[arg(long, value_enum, default_value = "run")]
    status: StatusOf,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum StatusOf {
    /// 0 if the program ran to its end.
    Run,
    /// That of the program, 128 + N if signal N killed it.
    Program,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut program = args.machine.program()?;
    let options = &mut program.program.options;
    options.stdin = Input::Inherit;
    (options.stdout, options.stderr) = (Output::Inherit, Output::Inherit);
    let bounds = Bounds {
        instructions_max: args.machine.max_instructions,
        timeout: args.machine.timeout(),
    };
    let run = emulate::run(program.program, bounds)?;
    tell(args, &run);
    Ok(match run.end {
        End::Outcome(Outcome::Exited(status)) => match args.status {
            StatusOf::Run => Status::AsExpected,
            StatusOf::Program => Status::Program(status as u8),
        },
        End::Outcome(Outcome::Killed { signal, .. }) => match args.status {
            StatusOf::Run => Status::AsExpected,
            StatusOf::Program => Status::Program(128u8.wrapping_add(signal)),
        },
        _ => Status::NothingJudged,
    })
}

fn tell(args: &Args, run: &Run) {
    for notice in &run.notices {
        anstream::eprintln!("unwind-sim: {notice}");
    }
    if args.stats || run.end != End::Outcome(Outcome::Exited(0)) {
        anstream::eprintln!("unwind-sim: {}", run.end);
    }
    if args.stats {
        anstream::eprintln!(
            "{} instructions in {:.3} s, {:.1} million a second",
            run.instructions,
            run.time.as_secs_f64(),
            run.mips(),
        );
        anstream::eprintln!(
            "{} pages of memory, {} KiB of decoded code",
            run.pages,
            run.code_bytes / 1024,
        );
    }
}
