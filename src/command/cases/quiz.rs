//! `cases quiz`: shows a case without its answer, and judges the reader's chain.

use super::{Corpus, OneArgs, show};
use crate::command::case_limits::CaseLimitArgs;
use crate::command::output;
use crate::command::status::Status;
use anyhow::{Context as _, Result, bail};
use std::io::{IsTerminal as _, Read as _, Write};
use std::path::Path;
use unwind_sim_judge::case::{Chain, Frame};
use unwind_sim_judge::cases;
use unwind_sim_recordings::view::View;
use unwind_sim_show::picture::{Hidden, picture, value};
use unwind_sim_show::quiz::{AnswerCheck, judge};
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::regs::Reg;

/// The maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 16;

/// Show a case without the answer, and judge the chain that you give.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim cases quiz leaf-keeps-data-in-the-red-zone
  unwind-sim cases quiz fp-loses-the-caller-after-pop-rbp \\
      --answer 'leaf < mid < _start'")]
pub(super) struct Args {
    #[command(flatten)]
    case: OneArgs,
    #[command(flatten)]
    shown: show::PointArgs,
    /// Your chain, innermost frame first, such as 'leaf < mid < _start'. Without it, it is
    /// read from standard input.
    #[arg(long, value_name = "CHAIN")]
    answer: Option<String>,
    #[command(flatten)]
    limits: CaseLimitArgs,
}

pub(super) fn run(corpus: &Corpus<'_>, args: &Args) -> Result<Status> {
    let path = corpus.one(&args.case)?;
    let mut out = output::stdout();
    let status = ask(&path, args, &mut out)?;
    out.flush()?;
    Ok(status)
}

fn ask(path: &Path, args: &Args, out: &mut dyn Write) -> Result<Status> {
    let shown = &args.shown;
    let recorded = cases::emulate(path, &args.limits.limits())?;
    let case = &recorded.case;
    let index = shown.point(&recorded)?;
    let setting = cases::setting_of(case);

    recorded.with_view(index, |view| {
        // With --answer the reader has seen the question already.
        if args.answer.is_none() {
            write!(out, "{}", show::program(case))?;
            show::heading(&recorded, index, view, out)?;
            registers(view, out)?;
            write!(out, "\n{}", picture(view, &[], &setting, Hidden::Answers))?;
            writeln!(
                out,
                "\nWhich functions are active here? Innermost first, such as: leaf < mid < _start"
            )?;
            // The question has to be on the screen before standard input is read.
            out.flush()?;
        }

        let answer = answer(args)?;
        let walks = show::walks(&recorded, index, view, shown)?;
        let from = walks
            .iter()
            .map(|(_, outcome)| outcome.from)
            .min()
            .unwrap_or(0);

        let answered = judge(view, from, &names(&answer)?);
        let is_wrong = matches!(answered, AnswerCheck::Wrong { .. });
        let status = if is_wrong {
            Status::Difference.known()
        } else {
            Status::AsExpected
        };

        writeln!(out, "{answered}")?;
        if is_wrong {
            // Where an unwinder makes the same mistake, its reason explains the reader's.
            let same: Vec<&str> = walks
                .iter()
                .filter(|(_, outcome)| answered.is_as(view, outcome))
                .map(|(name, _)| name.as_str())
                .collect();
            if !same.is_empty() {
                writeln!(
                    out,
                    "That is the chain of {}, which is wrong for this reason:",
                    same.join(", ")
                )?;
                // One reason is enough: the others have the same chain.
                for (name, outcome) in walks.iter().filter(|(name, _)| name == same[0]) {
                    if let Some(code) = outcome.code() {
                        writeln!(
                            out,
                            "  {name}: {code} {}; see `unwind-sim explain {code}`",
                            code.description()
                        )?;
                    }
                }
            }

            writeln!(
                out,
                "The picture with its names: unwind-sim cases show {} --at {}",
                case.name, recorded.points[index].key
            )?;
            return Ok(status);
        }

        // The claim says what the case shows, so it comes only with a right answer.
        writeln!(out, "{}", Printable::new(&case.header.claim))?;
        Ok(status)
    })
}

/// The reader's chain: the option, or the first line of standard input that is not blank.
fn answer(args: &Args) -> Result<String> {
    if let Some(answer) = &args.answer {
        return Ok(answer.clone());
    }
    let input = std::io::stdin();
    let mut text = String::new();
    if input.is_terminal() {
        input
            .read_line(&mut text)
            .context("cannot read your answer")?;
    } else {
        let mut limited = input.lock().take(ANSWER_BYTES_MAX);
        limited
            .read_to_string(&mut text)
            .context("cannot read your answer")?;
    }
    match text.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => Ok(line.trim().to_owned()),
        None => bail!("no answer; write the chain on standard input, or with --answer"),
    }
}

/// The functions of a chain in the notation of cases.
fn names(answer: &str) -> Result<Vec<String>> {
    let chain = match Chain::parse(answer) {
        Ok(chain) => chain,
        Err((_, kind)) => bail!("cannot read the chain `{answer}`: {kind}"),
    };
    let name = |frame: &Frame| match frame {
        Frame::Function(name) => name.clone(),
        other => other.to_string(),
    };
    Ok(chain.frames.iter().map(name).collect())
}

/// The registers that an unwinder may start with.
fn registers(view: &View<'_>, out: &mut dyn Write) -> Result<()> {
    let live = view.live();
    writeln!(out)?;
    for reg in Reg::ALL {
        let Some(word) = live.get(reg) else { continue };
        let is_shown = matches!(reg, Reg::Rip | Reg::Rsp) || Reg::CALLEE_SAVED.contains(&reg);
        if is_shown {
            writeln!(out, "  {:<4} {}", reg.to_string(), value(view, word, false))?;
        }
    }
    Ok(())
}
