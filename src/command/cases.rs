//! `cases`: lists, runs, blesses, shows and asks about the cases of the corpus.

mod quiz;
mod show;

use super::case_limits::CaseLimitArgs;
use super::error_text::cause_text;
use super::machine::CpuArgs;
use super::status::{self, Status};
use super::{output, suggest};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use unwind_sim_judge::cases::{self, carried};
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::similar;
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::reason::Code;

/// List, run, bless or show the cases of the corpus, or be asked for the chain of one.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim cases list
  unwind-sim cases list --covers US203
  unwind-sim cases run fp-loses-the-caller-before-push-rbp
  unwind-sim cases bless fp-loses-the-caller-before-push-rbp
  unwind-sim cases show popped-slot-lies-outside-a-copy --unwinder dwarf,fp
  unwind-sim cases quiz fp-loses-the-caller-after-pop-rbp \\
      --answer 'leaf < mid < _start'")]
pub(crate) struct Args {
    /// What to do.
    #[arg(value_enum)]
    what: What,
    /// Only cases whose group or name contains this; or the path of a case. `show` and `quiz` need
    /// one case.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The folder that holds the cases. Where there is no corpus/cases, those in the program are
    /// used.
    #[arg(long, value_name = "DIR", default_value = "corpus/cases")]
    folder: PathBuf,
    /// list: only cases that cover this code.
    #[arg(long, value_name = "USnnn", hide_possible_values = true, value_parser = suggest::codes())]
    covers: Option<String>,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    limits: CaseLimitArgs,
    /// bless: let this cell get worse.
    #[arg(long, value_name = "CASE:UNWINDER")]
    accept: Vec<String>,
    #[command(flatten)]
    show: show::ShowArgs,
    #[command(flatten)]
    quiz: quiz::QuizArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum What {
    /// Print names and claims.
    List,
    /// Run them, and check everything they state.
    Run,
    /// Regenerate their expectations.
    Bless,
    /// Draw the stack of one at a sample point: its words, which unwinder read them, and the chains.
    Show,
    /// Show one without the answer, and judge the chain that you give.
    Quiz,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    // Each option belongs to some subcommands; silently ignoring one would look as if it worked.
    if args.what != What::Run && args.cpu.is_given() {
        bail!("--cpu is for `cases run`; cases are blessed on the default processor");
    }
    if let Some(option) = args.limits.given().filter(|_| args.what == What::List) {
        bail!("{option} is for the commands that run a case; `cases list` runs none");
    }
    let is_shown = matches!(args.what, What::Show | What::Quiz);
    if !is_shown && args.show.is_given() {
        bail!(
            "--at, --unwinder, --regs, --program and --chains are for `cases show` and `cases quiz`"
        );
    }
    if args.what != What::Quiz && args.quiz.is_given() {
        bail!("--answer is for `cases quiz`");
    }

    let covers = match &args.covers {
        None => None,
        Some(name) => match Code::from_name(name) {
            Some(code) => Some(code),
            None => bail!("{}", suggest::unknown_code(name)),
        },
    };

    // Where there is no checkout, the program has its own copy of the cases.
    let is_carried = args.folder == Path::new(carried::FOLDER) && carried::are_used();
    let has_folder = args.folder.is_dir() || is_carried;

    // A path to a case needs no folder; everything else is a name in the folder of cases.
    if let Some(path) = args.name.as_deref().map(Path::new)
        && !args.folder.is_dir()
        && is_there(path)?
    {
        InputFile::expect(path, "a case (.s)", &[FileKind::Case])?;
    } else if !has_folder {
        let folder = args.folder.printable();
        bail!("no folder {folder} here; name the folder of the cases with --folder");
    } else if is_carried && args.what == What::Bless {
        bail!(
            "there is no folder {} here, and cases in the program cannot be blessed; name a case, \
             or the folder of your cases with --folder",
            carried::FOLDER
        );
    }

    let paths = match &args.name {
        Some(name) if name.ends_with(".s") && is_there(Path::new(name))? => vec![name.into()],
        name => {
            let mut paths = cases::find(&args.folder)?;
            let name = name.as_deref().unwrap_or_default();
            paths.retain(|p| p.to_string_lossy().contains(name));
            paths
        }
    };

    // Without this, a typo would look like a run in which nothing fails.
    if paths.is_empty() {
        let folder = args.folder.printable();
        let Some(name) = &args.name else {
            bail!("no case in {folder}");
        };
        let all = cases::find(&args.folder)?;
        let known = all.iter().filter_map(|path| path.file_stem()?.to_str());
        bail!("no case `{name}` in {folder}{}", similar::hint(name, known));
    }

    let mut out = output::stdout();
    if let What::Show | What::Quiz = args.what {
        let path = the_one(args.name.as_deref(), &paths)?;
        let status = match args.what {
            What::Show => show::run(path, &args.show, &args.limits.limits(), &mut out)?,
            _ => quiz::run(path, args, &mut out)?,
        };
        out.flush()?;
        return Ok(status);
    }

    let mut failed = 0;
    for path in &paths {
        match args.what {
            What::List => {
                let case = cases::read(path)?;
                if covers.is_none_or(|code| case.header.covers.contains(&code)) {
                    let claim = Printable::new(&case.header.claim);
                    writeln!(out, "{}\n    {claim}", Printable::new(&case.name))?;
                }
            }
            What::Run => match cases::check_on(path, args.cpu.processor(), &args.limits.limits()) {
                Ok(()) => writeln!(out, "ok   {}", path.printable())?,
                Err(error) => {
                    failed += 1;
                    status::found();
                    writeln!(out, "FAIL {}\n{}", path.printable(), cause_text(&error))?;
                }
            },
            What::Show | What::Quiz => {}
            What::Bless => {
                let accept = accepted(path, &args.accept);
                match cases::bless(path, &accept, &args.limits.limits()) {
                    Ok(blessed) if blessed.changes.is_empty() => {}
                    Ok(blessed) => {
                        writeln!(
                            out,
                            "blessed {}\n{}",
                            blessed.name,
                            blessed.changes.join("\n")
                        )?;
                    }
                    Err(error) => {
                        failed += 1;
                        status::found();
                        writeln!(out, "REFUSED {}", cause_text(&error))?;
                    }
                }
            }
        }
        // After each case, so that a reader sees the outcome while the next one runs.
        out.flush()?;
    }

    Ok(if failed == 0 {
        Status::AsExpected
    } else {
        Status::Difference
    })
}

/// Whether there is such a file. That this cannot be told is an error, and not the name of a case.
fn is_there(path: &Path) -> Result<bool> {
    let is_there = path.try_exists();
    is_there.with_context(|| path.printable().to_string())
}

/// The case that `name` stands for: the one of that name, or the only one that contains it.
fn the_one<'a>(name: Option<&str>, paths: &'a [PathBuf]) -> Result<&'a Path> {
    let stem = |path: &Path| {
        path.file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };

    let Some(name) = name else {
        bail!("name one case; `unwind-sim cases list` lists them");
    };

    // The whole name of one case may be a part of the names of others.
    if let Some(path) = paths.iter().find(|path| stem(path) == name) {
        return Ok(path);
    }

    match paths {
        [path] => Ok(path),
        _ => {
            let names: Vec<String> = paths.iter().take(4).map(|path| stem(path)).collect();
            let more = if paths.len() > names.len() {
                ", .."
            } else {
                ""
            };
            bail!(
                "`{name}` is in the names of {} cases; name one of them: {}{more}",
                paths.len(),
                names.join(", ")
            );
        }
    }
}

/// The unwinders that `--accept` names for this case.
fn accepted(path: &std::path::Path, accept: &[String]) -> Vec<String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let of_case = accept.iter().filter_map(|a| a.split_once(':'));
    of_case
        .filter(|(case, _)| *case == stem)
        .map(|(_, unwinder)| unwinder.to_owned())
        .collect()
}
