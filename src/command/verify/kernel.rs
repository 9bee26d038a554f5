//! `verify --kernel`: boots a kernel, and checks the rows of its own tables.

use super::{Args, DEFAULT_UNWINDERS, DEFAULT_VIEW, baseline, checked_engines};
use crate::command::again::{Given, VERIFY};
use crate::command::output::{self, tell};
use crate::command::status::Status;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use unwind_sim_judge::baseline::Origin;
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, KernelRun, Request};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::progress::Progress;
use unwind_sim_view::json;
use unwind_sim_view::verification;

/// Refuses what only says something of a program.
fn refuse(args: &Args) -> Result<()> {
    if let Some(word) = args.machine.words().first() {
        let word = word.printable();
        bail!(
            "--kernel boots a kernel, which starts the program of --init: unwind-sim verify --kernel \
             FILE --init {word}"
        );
    }
    let of_program = args.machine.given_for_program();
    let tables = args.tables_from.is_some().then_some("--tables-from");
    let children = args.children.is_given().then_some("--children");
    // No walk is taken, so nothing would be read through it.
    let view = (args.view != DEFAULT_VIEW).then_some("--view");
    if let Some(option) = of_program.or(tables).or(children).or(view) {
        bail!("{option} is for programs that run without a kernel");
    }
    Ok(())
}

/// The unwinders: by default ORC alone, which is what a kernel has. Its layout is that of the kernel.
fn engines(args: &Args, kernel: &KernelImage) -> Result<Vec<Engine>> {
    let is_default = args.unwinder.join(",") == DEFAULT_UNWINDERS;
    let given: &[String] = if is_default {
        &["orc".to_owned()]
    } else {
        &args.unwinder
    };
    let with_layout = given.iter().map(|spec| match (&**spec, kernel.encoding) {
        ("orc", Some(encoding)) => format!("orc:{}", encoding.as_str()),
        _ => spec.clone(),
    });
    let specs: Vec<String> = with_layout.collect();
    let engines = spec::engines(&specs)?;
    let has_orc = specs.iter().any(|spec| spec.starts_with("orc"));
    if has_orc && kernel.encoding.is_none() {
        bail!(
            "{} has no ORC table that can be read, so there are no rows to verify",
            kernel.image.name().printable()
        );
    }
    Ok(engines)
}

pub(super) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    refuse(args)?;
    let files = args.boot.open()?;
    let kernel = files.image()?;
    let engines = engines(args, &kernel)?;
    checked_engines(&engines)?;
    let path = files.path();
    let Some(places) = verify::kernel_places(&kernel, files.slide()) else {
        bail!(
            "{} has no symbols of the code that switches between tasks (__switch_to_asm), without which \
             the stacks of a kernel cannot be told apart; a kernel with CONFIG_KALLSYMS has them",
            path.printable()
        );
    };

    let names: Vec<String> = engines.iter().map(|e| e.name().to_owned()).collect();
    let origin = origin(args, path, &names);
    let known = baseline(args, &origin)?;
    let request = Request {
        engines: &engines,
        setting: Setting::default(),
        elide: !args.no_elide,
        each: args.all || args.only.is_some(),
        tables_from: None,
        instructions_max: args.machine.max_instructions,
        timeout: args.machine.timeout(),
    };
    let machine = &args.machine;
    let clock = u64::try_from(machine.clock()).context("--clock")?;
    let boot = files.boot(machine.cpu().processor(), machine.seed(), clock);

    let begin = Instant::now();
    let mut lines = 0;
    let mut progress = Progress::new("pieces of the console", false);
    let run = verify::run_kernel(&boot, (&kernel, &places), &request, &mut || {
        lines += 1;
        progress.tell(lines);
    });
    drop(progress);
    let mut run = run.with_context(|| path.printable().to_string())?;
    let seconds = begin.elapsed().as_secs_f64();

    if let Some(address) = args.only {
        run.results.findings.retain(|f| f.address == address);
    }
    let checked = run.results.tallies.iter().any(|t| t.checked > 0);
    let unexpected = verify::unexpected(&engines, &run.results, args.strict, known.as_ref());
    let status = match unexpected {
        _ if !run.boot.end.is_end_of_kernel() || !checked => Status::NothingJudged,
        true => Status::Difference.known(),
        false => Status::AsExpected,
    };

    let end = run.boot.end.to_string();
    let mut out = output::stdout();
    if args.json {
        let command = output::command_line();
        let what = (&*end, &run.results, &[][..]);
        json::write_coverage(&run.coverage, &mut out)?;
        json::write_verification(&names, what, origin, &command, &mut out)?;
    } else {
        let again = |unwinder: &str, address: u64| {
            let address = format!("{address:#x}");
            let own = ["--unwinder", unwinder, "--only", &address].map(OsString::from);
            given.command(&VERIFY, &own, &[])
        };
        let subject = verification::Subject {
            names: &names,
            results: &run.results,
            coverage: &run.coverage,
            again: &again,
            all: args.all || args.only.is_some(),
        };
        writeln!(out, "{end}")?;
        write!(out, "{}", verification::text(&subject))?;
        writeln!(out, "\n{}", output::command_line())?;
    }
    out.flush().context("cannot write the report")?;
    tell_end(args, &run, &end, seconds);
    Ok(status)
}

/// Says how the run ended, and what the kernel wrote last.
fn tell_end(args: &Args, run: &KernelRun, end: &str, seconds: f64) {
    tell!(
        "unwind-sim: {end}, after {} of the kernel's {}",
        counted(run.results.instructions, "instruction"),
        run.boot.instructions
    );
    if !run.boot.last_lines.is_empty() {
        let lines = run.boot.last_lines.iter();
        let text: String = lines.map(|line| format!("  {line}\n")).collect();
        output::tell_text(&format!("the console's last lines:\n{text}"));
    }
    if args.stats {
        super::tell_numbers(&run.results, seconds);
    }
}

/// The kernel and options that the findings belong to.
fn origin(args: &Args, path: &Path, names: &[String]) -> Origin {
    let mut options = vec![format!("--unwinder {}", names.join(","))];
    options.extend(args.only.map(|address| format!("--only {address:#x}")));
    options.extend(args.boot.options_text());
    options.extend(args.machine.options_text());
    let program = path.file_name().unwrap_or_default();
    Origin {
        program: program.to_string_lossy().into_owned(),
        options,
    }
}
