//! `replay --confirm`: resumes the recorded stacks in the emulated machine.

use crate::command::machine::CpuArgs;
use crate::command::output;
use crate::command::status::{self, Status};
use anyhow::{Context, Result};
use std::io::Write;
use unwind_sim_judge::confirm::{self, Source};
use unwind_sim_judge::input::{FileKind, Input};
use unwind_sim_judge::run::Run;
use unwind_sim_recordings::leftovers::TemporaryFolder;
use unwind_sim_view::{confirmation, json, text};

/// The default of --max-instructions for each stack.
const INSTRUCTIONS_MAX: u64 = 10_000_000;

/// What is confirmed, and how.
#[derive(clap::Args, Debug)]
pub(super) struct ConfirmArgs {
    /// Resume each stack in the emulated machine, and print which frames execution returns to: the
    /// only truth that an import can have. From an ELF core all memory is used; from other
    /// recordings the stacks, with the code from the image files. System calls are answered as for
    /// a process without files or other threads, and calls that would block are interrupted; such
    /// assumed results are counted. --max-instructions holds for each stack, too; without it 10000000.
    #[arg(long, conflicts_with_all = ["format", "print"])]
    confirm: bool,
    #[command(flatten)]
    cpu: CpuArgs,
}

impl ConfirmArgs {
    pub(super) fn is_wanted(&self) -> bool {
        self.confirm
    }
}

/// Resumes each stack, and judges its chains by where execution returns to.
pub(super) fn run(
    args: &super::Args,
    run: &Run,
    input: &Input,
    out: &mut dyn Write,
) -> Result<Status> {
    let symfs = input.options().symfs.clone();
    let mut source = match input.file() {
        // Of a core all memory is used; a sample has only its stacks, and the files' code.
        Some(file) if file.kind() == FileKind::Core => Source::core(file, symfs)?,
        _ => Source::samples(symfs),
    };

    let (columns, names) = (run.columns(), run.column_names());
    // The process may not see the files of this computer, which need not be the one it ran on.
    let root = TemporaryFolder::new("unwind-sim-root-").context("cannot create an empty folder")?;
    let (mut last, mut resumed) = (None, None);
    let mut tally = confirm::Tally::default();

    run.for_each(input, &args.input.filter(), &mut |view, column, outcome| {
        // All columns of a sample come in a row, and its stack is resumed once for all of them.
        if last.replace(view.number) != Some(view.number) {
            let core = source.core_at(view).map_err(|error| error.to_string());
            let cpu = args.confirm.cpu.processor();
            // A stack that was recorded in a loop without end would never return.
            let most = args.input.case.max_instructions.unwrap_or(INSTRUCTIONS_MAX);
            let went = core.map(|s| confirm::resume(s, cpu, most, root.path()));
            if args.json {
                let went = went.as_ref().map_err(Clone::clone);
                json::Line::resumed(view, went).write(out)?;
            } else {
                writeln!(out, "{}", text::sample_line(view))?;
                match &went {
                    Ok(went) => write!(out, "{}", confirmation::resumed_text(view.space, went))?,
                    Err(error) => writeln!(out, "not resumed: {error}")?,
                }
            }
            resumed = went.ok();
        }

        let unwinder = run.engines[columns[column].engine].name();
        let start = columns[column].variant_for(view).as_str();
        if args.json {
            json::chain(view, unwinder, start, outcome).write(out)?
        } else {
            write!(
                out,
                "{}",
                text::chain_text(&names[column], view, outcome, args.shown())
            )?
        }

        // A stack that cannot be resumed says nothing about a chain.
        if let Some(resumed) = &resumed {
            let frames = &outcome.chain.frames;
            let judged = confirm::judge(frames, resumed);
            tally.add(unwinder, &judged);
            // Noted before the line is written: the reader may go away.
            if tally.unexpected() {
                status::found();
            }
            if args.json {
                let confirmed = json::Line::confirmed(view, unwinder, start, frames, &judged);
                confirmed.write(out)?;
            } else {
                let told = confirmation::judgement_text(view.space, frames, &judged);
                write!(out, "{told}")?;
            }
        }
        Ok(())
    })?;

    if args.json {
        let sums = json::Line::confirmation(&tally, &output::command_line());
        sums.write(out)?;
    }

    Ok(match (tally.judged(), tally.unexpected()) {
        (false, _) => Status::NothingJudged,
        (true, true) => Status::Difference,
        (true, false) => Status::AsExpected,
    })
}
