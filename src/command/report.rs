//! `report`: one page for a browser, of states or of findings, or an image of a state.

use super::args::open_file;
use super::output::{self, tell};
use super::states::{self, Explored, Shown, StateArgs};
use super::status::Status;
use super::stdin;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_judge::input::FileKind;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::output_file::OutputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_show::report::{self, Embedded, PageSummary, Pick};
use unwind_sim_view::timeline::{self, Builder};

/// What a page is made of besides recordings.
const LINES: &str = ", or output of `verify --json` or `tables check --json`";

/// Write a page for a browser: the states of a recording, case or program with every unwinder's
/// walk beside the true chain, or the findings of `verify --json` or `tables check --json`.
///
/// The page is one file of at most 2 MB that loads nothing else. It says which states it left out. With
/// --svg or --embed it is an image of one state.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "unwind-sim report [OPTIONS] -o <FILE> [TRACE|CASE|JSON] [-- <PROG>...]"
)]
#[command(group(clap::ArgGroup::new("image").args(["svg", "embed"]).multiple(true)))]
#[command(after_help = "\
Examples:
  unwind-sim report corpus/cases/frame/leaf-keeps-data-in-the-red-zone.s \\
      -o report.html
  unwind-sim report --svg in_leaf \\
      corpus/cases/frame/leaf-keeps-data-in-the-red-zone.s -o leaf.svg
  unwind-sim report --from 100 trace.bin -o report.html
  unwind-sim report -o report.html --from main -- ./prog
  unwind-sim verify --json -- ./prog >verify.json
  unwind-sim report verify.json -o report.html")]
pub(crate) struct Args {
    /// The page or image to write.
    #[arg(long, short, value_name = "FILE", required = true)]
    output: PathBuf,
    /// The first state: a number of instructions executed or of a sample, or a function. Without it
    /// the page has those that matter: of each kind of wrong stack some, then an even spread; of a
    /// program, those around the first wrong one.
    #[arg(long, value_name = "N|FUNCTION")]
    from: Option<String>,
    /// The number of states, at most; by default 1000, with --embed 25.
    #[arg(long, value_name = "M")]
    count: Option<u64>,
    /// Write an SVG image instead: the stack of this state (a number, a function, or a label of a
    /// case), with a walk. Of several unwinders, the first that is wrong there, those first whose
    /// errors count.
    #[arg(long, value_name = "STATE", conflicts_with_all = ["from", "count", "embed"])]
    svg: Option<String>,
    /// The same, with a slider over the states around it, or over those of --from and --count, where
    /// the page that shows the image runs scripts in it (`<object>`, but not `<img>`).
    #[arg(long, value_name = "STATE")]
    embed: Option<String>,
    /// With --svg or --embed, below the rule of each frame: the bytes of its row in the table.
    #[arg(long, requires = "image")]
    bytes: bool,
    #[command(flatten)]
    states: StateArgs,
    #[arg(value_name = "TRACE|CASE|JSON", help = stdin::help_with(FileKind::is_recording, LINES), value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: Option<PathBuf>,
    /// A program and its arguments.
    #[arg(value_name = "PROG", last = true, conflicts_with = "path")]
    program: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let Some(subject) = args.states.subject(args.path.as_deref(), &args.program)? else {
        bail!("nothing to show: unwind-sim report TRACE|CASE|JSON -o FILE, or ... -o FILE -- PROG")
    };

    // Before the output, so that this cannot be the same file.
    let input = args.path.as_deref().map(open_file).transpose()?;
    let path = &args.output;
    let cannot = || format!("cannot write {}", path.printable());
    // Before the work, so that a wrong path is reported at once.
    let mut file = OutputFile::create(path).with_context(cannot)?;

    let mut page = Vec::new();
    let (written, status) = match &input {
        // The JSON of another command, whose findings are listed; anything else has states.
        Some(input) if input.kind() == FileKind::Lines => {
            if let Some(option) = args.image() {
                bail!("{option}: findings have no states to draw");
            }
            (findings(input, &mut page)?, Status::AsExpected)
        }
        _ => {
            let states = |shown: Shown<'_>| match args.image() {
                Some(_) => image(args, shown, &mut page),
                None => states_page(args, shown, &mut page),
            };
            args.states.open(&subject, input.as_ref(), states)?
        }
    };

    // Only a page that is complete gets the name.
    file.write_all(&page).with_context(cannot)?;
    file.finish().with_context(cannot)?;

    let left_out = match written.left_out {
        Some(0) | None => String::new(),
        Some(n) => format!(", {n} others left out"),
    };
    tell!(
        "{} shown{left_out}, {} in {}",
        written.shown,
        counted(written.bytes, "byte"),
        path.printable()
    );

    Ok(status)
}

impl Args {
    /// The option that asks for an image, if one does.
    fn image(&self) -> Option<&'static str> {
        let svg = self.svg.as_ref().map(|_| "--svg");
        svg.or(self.embed.as_ref().map(|_| "--embed"))
    }
}

/// The image of a state. Nothing is searched: it needs no other states.
fn image(args: &Args, mut shown: Shown<'_>, out: &mut Vec<u8>) -> Result<(PageSummary, Status)> {
    let opening = shown.first(args.svg.as_deref().or(args.embed.as_deref()))?;
    let first = match args.from.as_deref() {
        None => None,
        from => Some(shown.first(from)?),
    };

    let mut builder = Builder::new(shown.run);
    let states = &mut shown.states;
    let written = match args.svg {
        Some(_) => report::drawing(states, &mut builder, opening, args.bytes, out)?,
        None => {
            let count = args.count.unwrap_or(report::EMBEDDED);
            let wanted = Embedded {
                opening,
                first,
                count,
                has_bytes: args.bytes,
            };
            report::embedded(states, &mut builder, wanted, out)?
        }
    };
    Ok((written, states::status(states)))
}

/// The page of states.
fn states_page(args: &Args, shown: Shown<'_>, out: &mut Vec<u8>) -> Result<(PageSummary, Status)> {
    let mut shown = shown;
    let count = args.count.unwrap_or(timeline::WINDOW);
    let pick = match args.from.as_deref() {
        None => Pick::OfInterest(count),
        from => Pick::Window {
            first: shown.first(from)?,
            count,
        },
    };
    let Explored {
        about,
        mut states,
        mut builder,
        index,
    } = shown.explored()?;
    let written = report::timeline(about, &mut states, &mut builder, &index, pick, out)?;
    Ok((written, states::status(&states)))
}

/// The page of findings.
fn findings(file: &InputFile, out: &mut Vec<u8>) -> Result<PageSummary> {
    let named = || file.path().printable().to_string();
    let bytes = file.bytes().with_context(named)?;
    let mut lines = (*bytes).as_ref();
    let written = report::findings(&named(), output::command_line(), &mut lines, out);
    written.with_context(named)
}
