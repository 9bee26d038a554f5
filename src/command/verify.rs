//! `verify`: checks unwind tables against the shadow stack at every executed instruction.

mod kernel;

use super::again::{Given, VERIFY};
use super::boot::BootArgs;
use super::output::{self, tell};
use super::status::Status;
use super::suggest;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use unwind_sim_judge::baseline::{Baseline, Origin, Source};
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::shell::quoted;
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, Request};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::progress::Progress;
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_view::json;
use unwind_sim_view::verification;

/// The unwinders that are checked if none are named.
const DEFAULT_UNWINDERS: &str = "dwarf,sframe,orc,fp";
/// What a walk can read if nothing else is said.
const DEFAULT_VIEW: &str = "cpu";

/// Run a program in the emulated machine, and compare every row of every table with the shadow
/// stack, at every executed instruction.
///
/// There are three checks: the row of the innermost frame at each instruction; the row of the
/// caller at each call, looked up by the return address - 1 and by the return address; and walks of
/// the whole stack. These do not affect the exit status: the expected errors of frame pointers,
/// errors of a lookup that the unwinder does not use, what a derived table cannot represent (but
/// see --strict), and rows that describe the frame that longjmp jumps to.
///
/// With --kernel a kernel is booted, and the rows of its own table are checked wherever it executes code in
/// ring 0, until it powers off. How many of its functions and rows were executed is printed by section.
/// Without --init and --initrd, its first process is a program that is built in and uses much of it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim verify -- /bin/ls
  unwind-sim verify --unwinder dwarf -- /usr/bin/python3 -c 'print(1)'
  unwind-sim verify corpus/cases/dynamic/constructor-runs-before-main.s
  unwind-sim verify --json -- ./prog > known.json
  unwind-sim verify --baseline known.json -- ./prog
  unwind-sim verify --kernel /boot/vmlinuz
  unwind-sim verify --kernel /boot/vmlinuz --init ./init")]
pub(crate) struct Args {
    /// Unwinders: dwarf, sframe, orc or fp. The full form is NAME[:PROFILE][+FALLBACK]. With --kernel,
    /// orc:kernel, fp:kernel and guess:kernel are walked; the default is orc and these three.
    #[arg(
        long,
        short,
        value_name = "U[,U..]",
        value_delimiter = ',',
        default_value = DEFAULT_UNWINDERS,
        hide_possible_values = true,
        value_parser = suggest::unwinders()
    )]
    unwinder: Vec<String>,
    /// Use the unwind tables of this ELF file for the program. It must have the same code, with
    /// tables made by another tool.
    #[arg(long, value_name = "FILE")]
    tables_from: Option<PathBuf>,
    /// Memory that a walk can read: cpu, or copy:BYTES from rsp upwards.
    #[arg(long, value_name = "VIEW", default_value = DEFAULT_VIEW)]
    view: String,
    /// Check everything again at each instruction. The report is the same, but it takes longer.
    #[arg(long)]
    no_elide: bool,
    /// Show only findings at this address, in hex.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_hex)]
    only: Option<u64>,
    /// Show every cause, and each finding of unwinders that are expected to err. Otherwise these are
    /// counted by cause.
    #[arg(long)]
    all: bool,
    /// Also exit with 1 for what derived tables cannot represent.
    #[arg(long)]
    strict: bool,
    /// Exit with 1 only for contradictions that are not in this earlier --json output, or were met
    /// less often there. It must be from the same program and options.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// With --kernel: send an NMI whenever so many instructions were executed (every:N), or in front of
    /// each instruction between two symbols, or of one function, when it is met first (at:SYMBOL[..SYMBOL]).
    /// Each is handled on a copy of the state, so that the boot goes on as without it.
    #[arg(long, value_name = "WHEN", requires = "kernel")]
    nmi: Vec<String>,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
    /// Print the speed and the memory used.
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    boot: BootArgs,
    #[command(flatten)]
    children: super::children::ChildrenArgs,
    #[command(flatten)]
    machine: super::machine::MachineArgs,
}

impl Args {
    /// The program and options that the findings belong to.
    fn origin(&self, engines: &[Engine], view: MemoryView) -> Origin {
        let names: Vec<&str> = engines.iter().map(Engine::name).collect();
        let mut options = vec![
            format!("--unwinder {}", names.join(",")),
            format!("--view {view}"),
        ];
        let tables = self.tables_from.as_ref();
        options.extend(tables.map(|path| format!("--tables-from {}", quoted(path))));
        options.extend(self.only.map(|address| format!("--only {address:#x}")));
        options.extend(self.children.text());
        options.extend(self.machine.options_text());
        let program = self.machine.words().first().map(Path::new);
        let program = program.and_then(Path::file_name).unwrap_or_default();
        Origin {
            program: program.to_string_lossy().into_owned(),
            options,
        }
    }
}

fn parse_hex(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is not a hex address"))
}

/// Prints the speed and the memory used.
fn tell_numbers(results: &verify::Results, seconds: f64) {
    let rate = results.instructions as f64 / seconds / 1e6;
    tell!(
        "{} in {seconds:.3} s, {rate:.1} million a second",
        counted(results.instructions, "instruction")
    );
    let (memory, addresses) = (&results.memory, results.addresses.max(1));
    tell!(
        "{}; {memory}; {} for each instruction",
        counted(results.addresses, "distinct instruction"),
        counted(memory.total() as u64 / addresses, "byte")
    );
    tell!("{}", results.work);
}

/// Checks that the rows of these unwinders can be checked, all of them together.
fn checked_engines(engines: &[Engine]) -> Result<()> {
    // The rows of a table are what is checked; an unwinder without a finder has none.
    if let Some(engine) = engines.iter().find(|e| e.finder().is_none()) {
        bail!(
            "{} reads no table, so there are no rows to verify",
            engine.name()
        );
    }
    if engines.len() > verify::UNWINDERS_MAX {
        bail!(
            "at most {} at a time",
            counted(verify::UNWINDERS_MAX, "unwinder")
        );
    }
    Ok(())
}

/// What was known before, if it is given.
fn baseline(args: &Args, origin: &Origin) -> Result<Option<Baseline>> {
    // An empty file is a baseline, too; what is wrong in a device is told when it is read.
    let kinds = [FileKind::Lines, FileKind::Empty, FileKind::Special];
    let wanted = "the --json output of verify";
    let known = args.baseline.as_deref();
    let known = known.map(|path| InputFile::expect(path, wanted, &kinds));
    let known = known.transpose()?;

    // A baseline of another program or of other options would hide new findings.
    let known = known.map(|file| Baseline::of(&file, Source::Verify, origin));
    Ok(known.transpose()?)
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    if args.boot.is_given() {
        return kernel::run(args, given);
    }
    let engines: Vec<Engine> = spec::engines(&args.unwinder)?;
    checked_engines(&engines)?;

    let Some(view) = MemoryView::from_name(&args.view) else {
        bail!("unknown view `{}`; expected cpu or copy:BYTES", args.view);
    };
    // A file of another kind is an error now, not after a run that may take minutes.
    if let Some(path) = &args.tables_from {
        InputFile::expect(path, "an ELF file with tables", &[FileKind::Elf])?;
    }

    let origin = args.origin(&engines, view);
    let known = baseline(args, &origin)?;

    let mut program = args.machine.program()?;
    program.program.options.observed = args.children.observed();
    let request = Request {
        engines: &engines,
        setting: Setting {
            view,
            ..Setting::default()
        },
        elide: !args.no_elide,
        each: args.all || args.only.is_some(),
        tables_from: args.tables_from.clone(),
        instructions_max: args.machine.max_instructions,
        timeout: args.machine.timeout(),
    };

    // The progress line is erased when `progress` is dropped, so that no message lands on it.
    let begin = Instant::now();
    let mut progress = Progress::new("instructions", false);
    let mut run = verify::run(program.program, &request, &mut |n| progress.tell(n))?;
    drop(progress);
    output::tell_notices(&run.notices);

    if args.stats {
        tell_numbers(&run.results, begin.elapsed().as_secs_f64());
    }

    // The run checks every address all the same: only the findings, and with them the status, are
    // narrowed. The command that reproduces one finding uses this.
    if let Some(address) = args.only {
        run.results.findings.retain(|f| f.address == address);
    }
    let names: Vec<String> = engines.iter().map(|e| e.name().to_owned()).collect();
    let checked = run.results.tallies.iter().any(|t| t.checked > 0);
    // What was checked before a deadlock counts.
    let is_deadlock = !run.deadlock.is_empty();
    // Known findings, and those of unwinders that are expected to err, do not change the status.
    let unexpected = verify::unexpected(&engines, &run.results, args.strict, known.as_ref());
    let status = match unexpected {
        _ if run.end.is_not_modelled() && !is_deadlock || !checked => Status::NothingJudged,
        true => Status::Difference.known(),
        false if is_deadlock => Status::NothingJudged,
        false => Status::AsExpected,
    };

    let mut out = output::stdout();
    if args.json {
        // The origin goes into the JSON, so that it can be the `--baseline` of a later run.
        let command = output::command_line();
        let end = run.end.to_string();
        let what = (&*end, &run.results, &*run.deadlock);
        json::write_verification(&names, what, origin, &command, &mut out)?;
    } else {
        // The words behind `--` come last, as this run got them: what the program gets as its
        // arguments is on its stack.
        let again = |unwinder: &str, address: u64| {
            let address = format!("{address:#x}");
            let own = ["--unwinder", unwinder, "--only", &address].map(OsString::from);
            let program = [&["--".into()], args.machine.words()].concat();
            given.command(&VERIFY, &own, &program)
        };
        let subject = verification::Subject {
            names: &names,
            results: &run.results,
            coverage: &[],
            again: &again,
            all: args.all || args.only.is_some(),
        };
        writeln!(out, "{}", run.end)?;
        let deadlock = unwind_sim_view::deadlock::text(&run.deadlock);
        if !deadlock.is_empty() {
            writeln!(out, "\n{deadlock}")?;
        }
        write!(out, "{}", verification::text(&subject))?;
        writeln!(out, "\n{}", output::command_line())?;
    }

    out.flush().context("cannot write the report")?;
    // After the report: a schedule that does not fit is an error, but what was found is printed.
    args.machine.schedule().finish(&run.followed, &run.end)?;
    if run.end.is_not_modelled() || !checked {
        tell!("unwind-sim: {}", run.end);
    }
    // The line above says how the program ended; here the option is the reason.
    if !checked && args.children.is_given() {
        tell!("unwind-sim: no process ran that --children names");
    }

    Ok(status.of_machine(&run.notices))
}
