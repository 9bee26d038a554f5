//! `compare`: every unwinder on every stack, as one matrix.

mod console;

use super::again::{EXPLAIN, Given};
use super::args::{InputArgs, JudgeArgs, WalkArgs, open, open_file, threads};
use super::status::Status;
use super::{output, suggest};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_judge::baseline::{self, Baseline, Origin, Source};
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::kernel;
use unwind_sim_judge::run::{self, Against, Run};
use unwind_sim_judge::shell::path_argument;
use unwind_sim_judge::unwinders;
use unwind_sim_view::{json, text};

/// Run every unwinder on every stack: print the matrix of verdicts, and the first divergences
/// grouped by cause.
///
/// Only known frames are judged. Where the truth, or the walk used in its place, ends before the
/// root, a chain with all of its frames is unjudged. A chain is right only if it claims to end at
/// the root, unless its format cannot say so.
///
/// These do not affect the exit status: the expected errors of frame pointers and of guessing, what
/// a derived table cannot represent (but see --strict), and rows that describe the frame that
/// longjmp jumps to.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Verdicts, with their letters in the matrix (N frames; @K, the first true frame):
  ok           .     the true chain
  ok-unproven  ~     the true chain, by a rule that did not apply: by luck
  missing      mN@K  N true frames inside the chain are absent
  extra        xN@K  N frames that are not true, or a caller of the root
  wrong        w@K   frame K differs from the true one
  truncated    t@K   right as far as it goes, but ended early
  refused      r     the unwinder itself called the chain unreliable
  looped       l     caught in a cycle
  unsupported  u     not modelled, or not recorded
  unjudged     ?     nothing wrong among the known frames

Other columns:
  right   share of ok chains, of those whose frames are known up to the root
  agree   the same, where chains are judged by another walk
  frames  mean share of the known frames that were found
  end not claimed  complete chains of a format that cannot mark a root
  fallback         chains with a step from the fallback

Examples:
  unwind-sim compare trace.bin
  unwind-sim compare trace.bin --unwinder dwarf,orc --group-by function
  unwind-sim compare seed.bin --regs hw,fake:v5.1,fake:v5.2
  unwind-sim compare perf.data --against perf
  unwind-sim compare console.log --recording answers.bin")]
pub(crate) struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    walk: WalkArgs,
    #[command(flatten)]
    judge: JudgeArgs,
    /// Group divergences by cause, function or insn.
    #[arg(
        long,
        value_name = "BY",
        default_value = "cause",
        hide_possible_values = true,
        value_parser = suggest::groups()
    )]
    group_by: String,
    /// Also exit with 1 for what derived tables cannot represent.
    #[arg(long)]
    strict: bool,
    /// Exit with 1 only for groups that are not in this earlier --json output, or have fewer
    /// samples there. It must be from the same program and options.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// For the log of a kernel's console: the recording of that run, by record --kernel
    /// --console-log. Each stack in the log is judged by the truth of that moment.
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
    /// Worker threads, for traces; 0 means one for each processor.
    #[arg(long, value_name = "N", default_value = "0", value_parser = threads)]
    threads: usize,
}

/// What chains are judged by without `--against`.
fn default_against(input: &Input) -> &'static str {
    if input.has_truth() {
        return "truth";
    }
    let by_kernel = input.first(|view| {
        let kernel = view.sample.kernel.as_ref()?;
        let mut recorded = view.sample.recorded.iter();
        let has_chain = recorded.any(|r| r.source == kernel::RECORDED);
        Some(if kernel.states.is_empty() && !has_chain {
            unwinders::KERNEL[0]
        } else {
            kernel::RECORDED
        })
    });
    by_kernel.flatten().unwrap_or(unwinders::REFERENCE)
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    let file = open_file(&args.input.path)?;
    if let Some(traces) = console::traces(args, &file)? {
        return console::compare(args, &traces);
    }
    let input = open(&file, &args.input.options(&file)?)?;
    args.input
        .read_opened(&input, |input| compare(args, given, input))
}

fn compare(args: &Args, given: &Given<'_>, input: &Input) -> Result<Status> {
    let against = args.judge.name();
    let against = against.unwrap_or_else(|| default_against(input));

    let run = Run {
        engines: args
            .walk
            .engines(input, &args.input.kernel, &unwinders::DEFAULT)?,
        variants: args.walk.variants()?,
        setting: args.walk.setting(input)?,
        against: Against::from_name(against)?,
        group_by: GroupBy::from_name(&args.group_by).with_context(|| {
            let known = GroupBy::ALL.map(GroupBy::as_str);
            let told = suggest::not_one_of(&args.group_by, &known);
            format!("--group-by {}: {told}", args.group_by)
        })?,
    };

    let filter = args.input.filter();
    // Findings depend on the program and on these options; a baseline of others is refused.
    let origin = Origin {
        program: baseline::program(input),
        options: run.options(&filter),
    };

    // Known before the work, which may take long, so that a wrong baseline is an error at once.
    let known = args.baseline.as_deref();
    let known = known
        .map(|path| Baseline::read(path, Source::Compare, &origin))
        .transpose()?;

    let mut progress = args.input.progress(input);
    let comparison = run.compare_on(args.threads, input, &filter, &mut |n| progress.tell(n))?;
    drop(progress);

    let status = match comparison.judged() {
        false => Status::NothingJudged,
        true if run.unexpected(&comparison, args.strict, known.as_ref()) => {
            Status::Difference.known()
        }
        true => Status::AsExpected,
    };

    let columns = run.column_names();
    let mut out = output::stdout();
    let command = output::command_line();
    if args.json {
        for line in json::comparison(&comparison, &columns, origin, &command) {
            line.write(&mut out)?;
        }
    } else {
        let explain = |column: usize, sample: u64| {
            let column = run.columns()[column];
            let sample = sample.to_string();
            let unwinder = run.engines[column.engine].name();
            // The command repeats one cell of the matrix: its sample, its unwinder, its start.
            let mut own = vec![path_argument(&args.input.path)];
            own.extend(["--sample", &sample, "--unwinder", unwinder].map(OsString::from));
            if let Some(variant) = column.variant {
                own.extend(["--regs", variant.as_str()].map(OsString::from));
            }
            // `explain` judges by the truth unless it is told otherwise.
            if !matches!(run.against, Against::Truth) {
                own.extend(["--against", against].map(OsString::from));
            }
            given.command(&EXPLAIN, &own, &[])
        };
        // Without a truth or a proof, chains that agree with the reference count as right.
        let by_truth = matches!(run.against, Against::Truth | Against::Proof(_));

        writeln!(out, "{}", run::head(&run, &comparison))?;
        write!(
            out,
            "{}",
            text::comparison_text(&comparison, &columns, &explain, by_truth)
        )?;
        writeln!(out, "\n{command}")?;
    }

    out.flush()?;
    Ok(status)
}
