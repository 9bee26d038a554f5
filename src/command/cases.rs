//! `cases`: the cases of the corpus. Each of its subcommands is a file.

mod bless;
mod choice;
mod list;
mod quiz;
mod run;
mod show;

use super::error_text::cause_text;
use super::status::{self, Status};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use unwind_sim_judge::case::Case;
use unwind_sim_judge::cases::{self, CaseFailure, carried};
use unwind_sim_judge::shell::quoted;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::similar;

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
    /// The folder that holds the cases. Where there is no corpus/cases, those in the program are
    /// used.
    #[arg(long, global = true, value_name = "DIR", default_value = carried::FOLDER)]
    folder: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    List(list::Args),
    Run(run::Args),
    Bless(bless::Args),
    Show(show::Args),
    Quiz(quiz::Args),
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let corpus = Corpus::new(&args.folder);
    match &args.command {
        Command::List(args) => list::run(&corpus, args),
        Command::Run(args) => run::run(&corpus, args),
        Command::Bless(args) => bless::run(&corpus, args),
        Command::Show(args) => show::run(&corpus, args),
        Command::Quiz(args) => quiz::run(&corpus, args),
    }
}

/// Some cases.
#[derive(clap::Args, Debug)]
struct SomeArgs {
    /// Only cases whose group or name contains this; or the path of a case.
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// One case.
#[derive(clap::Args, Debug)]
struct OneArgs {
    /// The case: its name, a part that no other name has, or its path.
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// The outcome of a command that goes through several cases.
struct Outcome {
    /// How many cases there are.
    cases: usize,
    /// Whether a case is not what it states.
    differs: bool,
    /// How many could not be judged.
    unjudged: usize,
}

impl Outcome {
    /// No case was judged yet, of `cases`.
    fn of(cases: usize) -> Outcome {
        Outcome {
            cases,
            differs: false,
            unjudged: 0,
        }
    }

    /// Prints why a case failed, after `word` if it was judged. The others are still judged.
    fn failed(&mut self, out: &mut impl Write, word: &str, failure: &CaseFailure) -> Result<()> {
        let text = cause_text(failure);
        if failure.is_judged() {
            self.differs = true;
            // `found` keeps the status if the reader goes away.
            status::found();
            writeln!(out, "{word} {text}")?;
        } else {
            self.unjudged += 1;
            writeln!(out, "ERROR {text}")?;
        }
        Ok(())
    }

    /// The status of the command. What could not be judged is an error, whatever was found beside it.
    fn status(self) -> Result<Status> {
        if self.unjudged > 0 {
            bail!(
                "{} of {} cases could not be judged; the lines that begin with ERROR say why",
                self.unjudged,
                self.cases
            );
        }
        Ok(if self.differs {
            Status::Difference
        } else {
            Status::AsExpected
        })
    }
}

/// Where the cases are.
struct Corpus<'a> {
    folder: &'a Path,
    /// Whether they are the program's own copy.
    is_carried: bool,
}

impl Corpus<'_> {
    fn new(folder: &Path) -> Corpus<'_> {
        // Where there is no checkout, the program has its own copy of the cases.
        let is_carried = folder == Path::new(carried::FOLDER) && carried::are_used();
        Corpus { folder, is_carried }
    }

    /// The files of some cases, at least one. `are_written`: they will be changed.
    fn some(&self, args: &SomeArgs, are_written: bool) -> Result<Vec<PathBuf>> {
        self.find(args.name.as_deref(), are_written)
    }

    /// The file of the one case that is meant.
    fn one(&self, args: &OneArgs) -> Result<PathBuf> {
        let name = args.name.as_deref();
        let paths = self.find(name, false)?;
        the_one(name, &paths).map(Path::to_owned)
    }

    /// How a case is called in what is printed: as it was named if that was by its path, because a name
    /// alone does not find a case outside of the folder.
    fn called(args: &OneArgs, path: &Path, case: &Case) -> String {
        let is_path = args
            .name
            .as_deref()
            .is_some_and(|name| Path::new(name) == path);
        if is_path {
            quoted(path)
        } else {
            case.name.clone()
        }
    }

    /// The files of the cases that have `name` in their path, or of the one whose path it is.
    fn find(&self, name: Option<&str>, are_written: bool) -> Result<Vec<PathBuf>> {
        let folder = self.folder.printable();

        // A path to a case needs no folder; everything else is a name in the folder of cases.
        if let Some(path) = name.map(Path::new)
            && !self.folder.is_dir()
            && is_there(path)?
        {
            InputFile::expect(path, "a case (.s)", &[FileKind::Case])?;
        } else if !self.folder.is_dir() && !self.is_carried {
            bail!("no folder {folder} here; name the folder of the cases with --folder");
        } else if self.is_carried && are_written {
            // The cases built into the program have no files that could be rewritten.
            bail!(
                "there is no folder {} here, and cases in the program cannot be blessed; name a \
                 case, or the folder of your cases with --folder",
                carried::FOLDER
            );
        }

        // An existing path counts before a part of a name, which could match several cases.
        if let Some(name) = name
            && name.ends_with(".s")
            && is_there(Path::new(name))?
        {
            return Ok(vec![name.into()]);
        }

        let all = cases::find(self.folder)?;
        let is_meant = |path: &&PathBuf| name.is_none_or(|n| path.to_string_lossy().contains(n));
        let paths: Vec<PathBuf> = all.iter().filter(is_meant).cloned().collect();

        // Without this, a typo would look like a run in which nothing fails.
        match name {
            _ if !paths.is_empty() => Ok(paths),
            None => bail!("no case in {folder}"),
            Some(name) => {
                let known = all.iter().filter_map(|path| path.file_stem()?.to_str());
                bail!("no case `{name}` in {folder}{}", similar::hint(name, known))
            }
        }
    }
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
            // A short name may match a hundred cases; a few show what to add.
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
