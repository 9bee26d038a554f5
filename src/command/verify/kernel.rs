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
use unwind_sim_judge::unwinders::KERNEL;
use unwind_sim_judge::verify::{
    self, Beside, KernelRun, KernelWalked, KernelWalks, NmiPlan, Request,
};
use unwind_sim_record::kernel_stacks::KernelPlaces;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::progress::Progress;
use unwind_sim_view::{json, kernel_walks, verification};

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
    // Its unwinders read what the kernel has.
    let view = (args.view != DEFAULT_VIEW).then_some("--view");
    if let Some(option) = of_program.or(tables).or(children).or(view) {
        bail!("{option} is for programs that run without a kernel");
    }
    Ok(())
}

/// The unwinders whose rows are checked, and those that walk.
struct Unwinders {
    tables: Vec<Engine>,
    walks: Option<KernelWalks>,
    /// The same, for handlers of NMIs.
    nmi_walks: Option<KernelWalks>,
}

impl Unwinders {
    /// By default ORC, which is what a kernel has, in the layout of that kernel, and the walks of all of
    /// its unwinders.
    fn new(args: &Args, kernel: &KernelImage, slide: u64) -> Result<Unwinders> {
        let is_default = args.unwinder.join(",") == DEFAULT_UNWINDERS;
        let all = ["orc"].iter().chain(&KERNEL);
        let given: Vec<String> = match is_default {
            true => all.map(|name| (*name).to_owned()).collect(),
            false => args.unwinder.clone(),
        };
        let with_layout = given.iter().map(|spec| match (&**spec, kernel.encoding) {
            ("orc", Some(encoding)) => format!("orc:{}", encoding.as_str()),
            _ => spec.clone(),
        });
        let specs: Vec<String> = with_layout.collect();
        let engines = spec::engines(&specs)?;
        let is_kernels = |engine: &Engine| matches!(engine, Engine::Kernel(_));
        let (walkers, tables): (Vec<Engine>, Vec<Engine>) =
            engines.into_iter().partition(is_kernels);

        let has_orc = tables.iter().any(|engine| engine.name().starts_with("orc"));
        if has_orc && kernel.encoding.is_none() {
            bail!(
                "{} has no ORC table that can be read, so there are no rows to verify",
                kernel.image.name().printable()
            );
        }
        checked_engines(&tables)?;

        let walks = || KernelWalks::new(&walkers, kernel, slide);
        let (walks, nmi_walks) = match (walks(), walks()) {
            (Ok(walks), Ok(nmi_walks)) => (walks, nmi_walks),
            (Err(missing), _) | (_, Err(missing)) if is_default => {
                tell!("unwind-sim: no walks are taken: {missing}");
                (None, None)
            }
            (Err(missing), _) | (_, Err(missing)) => bail!("no walk can be taken: {missing}"),
        };
        Ok(Unwinders {
            tables,
            walks,
            nmi_walks,
        })
    }

    /// The names, as on the command line.
    fn names(&self) -> Vec<String> {
        let tables = self.tables.iter().map(Engine::name);
        let walks = self.walks.iter().flat_map(KernelWalks::names);
        tables.chain(walks).map(str::to_owned).collect()
    }
}

/// When NMIs are sent to a kernel that is moved up by `slide`.
fn nmi_plan(args: &Args, kernel: &KernelImage, slide: u64) -> Result<Option<NmiPlan>> {
    if args.nmi.is_empty() {
        return Ok(None);
    }
    let address = |name: &str| {
        let found = kernel.symbols.address(name);
        let found = found.with_context(|| format!("--nmi: the kernel has no symbol {name}"))?;
        anyhow::Ok(found + slide)
    };
    let mut plan = NmiPlan {
        entry: kernel
            .symbols
            .range("__entry_text_start", "__entry_text_end")
            .map(|range| range.start + slide..range.end + slide),
        ..NmiPlan::default()
    };
    for when in &args.nmi {
        if let Some(every) = when.strip_prefix("every:") {
            let every = every.parse().ok().filter(|every| *every > 0);
            let every = every.with_context(|| format!("--nmi {when}: not a number above 0"))?;
            plan.every = Some(every);
        } else if let Some(symbols) = when.strip_prefix("at:") {
            let range = match symbols.split_once("..") {
                Some((first, end)) => address(first)?..address(end)?,
                None => {
                    let start = address(symbols)?;
                    let addresses = kernel.symbols.iter().map(|s| s.address + slide);
                    let end = addresses.filter(|&address| address > start).min();
                    start..end.unwrap_or(kernel.range.end + slide)
                }
            };
            if range.is_empty() {
                bail!("--nmi {when}: the second symbol is not behind the first one");
            }
            plan.at.push(range);
        } else {
            bail!("--nmi {when}: expected every:N or at:SYMBOL[..SYMBOL]");
        }
    }
    Ok(Some(plan))
}

pub(super) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    refuse(args)?;
    let files = args.boot.open()?;
    let kernel = files.image()?;
    let mut unwinders = Unwinders::new(args, &kernel, files.slide())?;
    let nmis = nmi_plan(args, &kernel, files.slide())?;
    let path = files.path();
    let Some(places) = KernelPlaces::of(&kernel, files.slide()) else {
        bail!(
            "{} has no symbols of the code that switches between tasks (__switch_to_asm), without which \
             the stacks of a kernel cannot be told apart; a kernel with CONFIG_KALLSYMS has them",
            path.printable()
        );
    };

    let origin = origin(args, path, &unwinders.names());
    let known = baseline(args, &origin)?;
    let request = Request {
        engines: &unwinders.tables,
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
    let beside = Beside {
        walks: unwinders.walks.take(),
        nmis: nmis.map(|plan| (plan, unwinders.nmi_walks.take())),
    };
    let run = verify::run_kernel(&boot, (&kernel, &places), beside, &request, &mut || {
        lines += 1;
        progress.tell(lines);
    });
    drop(progress);
    let mut run = run.with_context(|| path.printable().to_string())?;
    let seconds = begin.elapsed().as_secs_f64();

    if let Some(address) = args.only {
        run.results.findings.retain(|f| f.address == address);
        let of_nmis = run.nmis.iter_mut().flat_map(|nmis| &mut nmis.walks);
        for walked in run.walks.iter_mut().chain(of_nmis) {
            walked.findings.retain(|f| f.pc.value() == address);
        }
    }
    let tables = &unwinders.tables;
    let checked = run.results.tallies.iter().any(|t| t.checked > 0)
        || run.walks.iter().any(|walked| walked.tally.judged() > 0);
    let of_nmis = run.nmis.iter().flat_map(|nmis| &nmis.walks);
    let all_walks: Vec<&KernelWalked> = run.walks.iter().chain(of_nmis).collect();
    let unexpected = verify::unexpected(tables, &run.results, args.strict, known.as_ref())
        || verify::unexpected_walks(&all_walks, &run.space, known.as_ref());
    let status = match unexpected {
        _ if !run.boot.end.is_end_of_kernel() || !checked => Status::NothingJudged,
        true => Status::Difference.known(),
        false => Status::AsExpected,
    };

    let end = run.boot.end.to_string();
    let names: Vec<String> = tables.iter().map(|e| e.name().to_owned()).collect();
    let mut out = output::stdout();
    if args.json {
        json::write_kernel_walks(&run.walks, false, &run.space, &mut out)?;
        if let Some(nmis) = &run.nmis {
            json::write_nmis(nmis, &run.space, &mut out)?;
        }
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
        write!(
            out,
            "{}",
            kernel_walks::text(&run.walks, &run.space, subject.all)
        )?;
        if let Some(nmis) = &run.nmis {
            write!(out, "{}", kernel_walks::nmis(nmis, &run.space, subject.all))?;
        }
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
    options.extend(args.nmi.iter().map(|when| format!("--nmi {when}")));
    options.extend(args.boot.options_text());
    options.extend(args.machine.options_text());
    let program = path.file_name().unwrap_or_default();
    Origin {
        program: program.to_string_lossy().into_owned(),
        options,
    }
}
