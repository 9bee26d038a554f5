//! `explain`: a reason code's page, or one walk step by step.

use super::args::{InputArgs, JudgeArgs, KernelArgs, ProgramArgs, WalkArgs};
use super::case_limits::CaseLimitArgs;
use super::status::Status;
use super::stdin;
use super::{output, suggest};
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::unwinders;
use unwind_sim_unwind::reason::Code;
use unwind_sim_view::listing::ListingLength;
use unwind_sim_view::{explain, pages};

/// Explain a reason code, or one walk: the rules, their rows, the words read, and the right answer.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim explain US203
  unwind-sim explain --list
  unwind-sim explain trace.bin --sample 12 --unwinder fp
  unwind-sim explain trace.bin --sample 12 --unwinder dwarf --frame 3")]
pub(crate) struct Args {
    /// A reason code such as US203, or a recording, as `replay` takes it; - for standard input.
    #[arg(
        value_name = "USnnn|TRACE|CASE",
        required_unless_present = "list",
        hide_possible_values = true,
        value_parser = suggest::codes_or_recordings()
    )]
    what: Option<PathBuf>,
    /// List the reason codes.
    #[arg(long, conflicts_with = "what")]
    list: bool,
    /// The sample, counted from 0.
    #[arg(long, value_name = "N", default_value = "0")]
    sample: u64,
    /// Only this frame of the chain; the number after the last frame explains the end.
    #[arg(long, value_name = "K")]
    frame: Option<usize>,
    /// Show every frame. By default, of frames that repeat, as in a deep recursion, only the first
    /// and the last are shown.
    #[arg(long)]
    all: bool,
    /// Look for images below this folder first. One that is not there is taken from its original
    /// path if its build ID is the recorded one.
    #[arg(long, visible_alias = "sysroot", value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    case: CaseLimitArgs,
    #[command(flatten)]
    walk: WalkArgs,
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    judge: JudgeArgs,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut out = output::stdout();
    let Some(what) = args.what.as_deref().filter(|_| !args.list) else {
        for code in Code::ALL {
            writeln!(out, "{code} {}", code.description())?;
        }
        out.flush()?;
        return Ok(Status::AsExpected);
    };

    // A code counts before a file of the same name, which can be given as ./US103.
    let name = what.to_string_lossy();
    if let Some(code) = Code::from_name(&name) {
        write!(out, "{}", pages::page(code))?;
        out.flush()?;
        return Ok(Status::AsExpected);
    }

    // What is not a code may be a file; a code with a typo is not, unless there is such a file.
    let is_code = name.get(..2).is_some_and(|s| s.eq_ignore_ascii_case("us"))
        && name[2..].bytes().all(|b| b.is_ascii_digit());
    if (is_code || suggest::is_like_a_code(&name)) && !what.exists() {
        bail!("{}", suggest::unknown_code(&name));
    }

    // The same options as other commands, but for exactly one sample.
    let input = InputArgs {
        path: stdin::named(what.into())?,
        symfs: args.symfs.clone(),
        sample: Some(args.sample),
        tid: None,
        time: None,
        limit: None,
        program: args.program.clone(),
        case: args.case,
        kernel: args.kernel.clone(),
    };

    input.read(|recording| walk(args, &input, recording, &mut out))
}

/// Explains the walks of the unwinders on the sample.
fn walk(args: &Args, input: &InputArgs, recording: &Input, out: &mut dyn Write) -> Result<Status> {
    let run = Run {
        engines: args
            .walk
            .engines(recording, &input.kernel, &[unwinders::REFERENCE])?,
        variants: args.walk.variants()?,
        setting: args.walk.setting(recording)?,
        against: Against::from_name(args.judge.name().unwrap_or("truth"))?,
        group_by: GroupBy::default(),
    };

    let columns = run.columns();
    let shown = if args.all {
        ListingLength::All
    } else {
        ListingLength::Folded
    };

    run.for_each(recording, &input.filter(), &mut |view, column, outcome| {
        // The outcome has the chain and its verdict; rows and code are looked up again to be shown.
        let engine = &run.engines[columns[column].engine];
        let variant = columns[column].variant_for(view);
        let walk = explain::Walk {
            engine,
            variant,
            setting: &run.setting,
            outcome,
        };

        writeln!(out, "{}", explain::explain(view, &walk, args.frame, shown))?;
        // A proof may end early: without this, a chain that goes on would look too long.
        if let Against::Proof(proof) = &run.against
            && let Some(ending) = proof.ending()
        {
            let frames = view.sample.truth.frames().len();
            writeln!(
                out,
                "the proof ends with frame {}: {ending}",
                frames.saturating_sub(1)
            )?;
        }
        Ok(())
    })?;

    writeln!(out, "{}", output::command_line())?;
    out.flush()?;
    Ok(Status::AsExpected)
}
