//! `lockstep`: a program in the emulated machine and on this processor, compared.

mod lines;

use super::output::{self, tell};
use super::status::Status;
use anyhow::{Context, Result};
use std::io::Write;
use std::time::Instant;
use unwind_sim_emulator::linux::{Input, Output};
use unwind_sim_emulator_compare::lockstep::{self, Request, Run};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::progress::Progress;

/// Run a program in the emulated machine and on this computer's processor, and compare all
/// registers, flags and written memory after every instruction.
///
/// Stops at the first difference. On both sides the machine answers system calls, signals, cpuid
/// and clocks: only instructions are compared, and the program sees and changes as little of this
/// computer as under `emulate`. Its standard output is discarded. This needs ptrace and is slow:
/// some ten thousand instructions a second.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim lockstep -- /bin/true
  unwind-sim lockstep --stats --max-instructions 1000000 -- \\
      /usr/bin/python3 -c 'print(1)'
  unwind-sim lockstep --timeout 60 --report-every 100000 -- ./prog")]
pub(crate) struct Args {
    /// Print the speed, and the speed of bare single-stepping on this computer.
    #[arg(long)]
    stats: bool,
    /// Print the number of instructions every N instructions.
    #[arg(long, value_name = "N")]
    report_every: Option<u64>,
    /// Execute the first N instructions in the machine only, which is fast.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    skip: u64,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: super::machine::MachineArgs,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut program = args.machine.program()?;
    let options = &mut program.program.options;
    options.stdin = Input::Inherit;
    (options.stdout, options.stderr) = (Output::Capture, Output::Inherit);
    // Differences between processors are not findings: the machine follows the closest one.
    options.processor = args.machine.cpu().processor_or_host();
    let timeout = args.machine.timeout();
    options.deadline = timeout.and_then(|most| Instant::now().checked_add(most));

    let request = Request {
        skip: args.skip,
        instructions_max: args.machine.max_instructions,
        timeout: args.machine.timeout(),
        measure: args.stats,
    };

    // Two reports: a line that is overwritten, for a terminal, and lines that stay, for a log.
    let mut told = 0;
    let mut line = Progress::new("instructions", false);
    let mut progress = |number: u64| {
        line.tell(number);
        if let Some(every) = args.report_every
            && number - told >= every
        {
            told = number;
            tell!("{}", counted(number, "instruction"));
        }
    };

    let run = lockstep::run(program.program, &request, &mut progress)?;
    drop(line);
    output::tell_notices(&run.notices);

    // A difference counts even if a call of the program was not modelled.
    let status = match run.difference {
        Some(_) => Status::Difference,
        None if run.compared == 0 || run.end.is_not_modelled() => Status::NothingJudged,
        None => Status::AsExpected,
    };
    let status = status.of_machine(&run.notices).known();

    let mut out = output::stdout();
    if args.json {
        for line in lines::lines(&run, &output::command_line()) {
            line.write(&mut out)?;
        }
    } else {
        told_by(&run, &mut out)?;
    }
    out.flush().context("cannot write the report")?;

    tell(args, &run);
    // After the report: what was compared before a schedule did not fit is printed.
    args.machine.schedule().finish(&run.followed, &run.end)?;
    Ok(status)
}

fn told_by(run: &Run, out: &mut dyn Write) -> std::io::Result<()> {
    if let Some(difference) = &run.difference {
        writeln!(out, "{difference}{}", output::command_line())?;
    }
    let (compared, led, exceptions) = (run.compared, run.led, run.exceptions);
    writeln!(
        out,
        "{} compared, {led} answered by the machine, {exceptions} \
         exceptions: {}",
        counted(compared, "instruction"),
        match &run.difference {
            None => "no difference",
            Some(_) => "they differ",
        }
    )
}

fn tell(args: &Args, run: &Run) {
    if run.difference.is_none() {
        tell!("unwind-sim: {}", run.end);
    }
    if let (true, Some(bare)) = (args.stats, run.bare_speed) {
        let speed = run.speed();
        let (time, percent) = (run.time.as_secs_f64(), 100.0 * speed / bare);
        tell!(
            "{time:.1} s, {speed:.0} instructions a second; bare single-stepping does {bare:.0} \
             ({percent:.0} %)"
        );
        let percent = 100.0 * run.vex as f64 / run.compared.max(1) as f64;
        tell!(
            "{} with VEX prefix ({percent:.1} %)",
            counted(run.vex, "instruction")
        );
    }
}
