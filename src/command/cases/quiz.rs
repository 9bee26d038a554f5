//! `cases quiz`: shows a case without its answer, and judges the reader's chain.

use super::choice::{self, Level, Random};
use super::{Corpus, OneArgs, show};
use crate::command::case_limits::CaseLimitArgs;
use crate::command::output;
use crate::command::status::Status;
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, Read as _, Write};
use unwind_sim_judge::case::{Chain, Frame};
use unwind_sim_judge::cases::{self, Recorded};
use unwind_sim_judge::engine::Outcome;
use unwind_sim_recordings::view::View;
use unwind_sim_show::picture::{Hidden, picture, value};
use unwind_sim_show::quiz::{AnswerCheck, can_be_asked, judge, question};
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::regs::Reg;

/// The maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 16;

/// Show a case without the answer, and judge the chain that you give.
///
/// Without NAME the case and its sample point are drawn at random.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim cases quiz
  unwind-sim cases quiz --next --level easy
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
    /// Draw by this seed: the same seed asks the same. Without it the seed is drawn, too, and printed.
    #[arg(long, value_name = "N", conflicts_with = "name")]
    seed: Option<u64>,
    /// After each answer ask another case, until standard input ends (Ctrl-D).
    #[arg(long, conflicts_with_all = ["name", "answer"])]
    next: bool,
    /// Draw only cases of this level.
    #[arg(long, value_name = "LEVEL", conflicts_with = "name")]
    level: Option<Level>,
    #[command(flatten)]
    limits: CaseLimitArgs,
}

pub(super) fn run(corpus: &Corpus<'_>, args: &Args) -> Result<Status> {
    let mut out = output::stdout();
    let status = if args.case.name.is_some() {
        one(corpus, args, &mut out)?
    } else {
        drawn(corpus, args, &mut out)?
    };
    out.flush()?;
    Ok(status)
}

/// Asks the case that was named.
fn one(corpus: &Corpus<'_>, args: &Args, out: &mut dyn Write) -> Result<Status> {
    let path = corpus.one(&args.case)?;
    let recorded = cases::emulate(&path, &args.limits.limits())?;
    let index = args.shown.point(&recorded)?;
    let called = Corpus::called(&args.case, &path, &recorded.case);
    match ask(&recorded, index, &called, args, out)? {
        Some(true) => Ok(Status::AsExpected),
        Some(false) => Ok(Status::Difference),
        None => bail!("no answer; write the chain on standard input, or with --answer"),
    }
}

/// Draws cases, asks them, and counts the right answers.
fn drawn(corpus: &Corpus<'_>, args: &Args, out: &mut dyn Write) -> Result<Status> {
    if args.shown.has_point() {
        bail!("--at names a point of a case; name the case, too");
    }
    if args.answer.is_some() && args.seed.is_none() {
        bail!("--answer needs the case, or the --seed by which it was drawn");
    }

    let paths = corpus.find(None, false)?;
    let mut paths = choice::of_level(paths, args.level);
    if paths.is_empty() {
        bail!("no case of this level; {}", choice::GROUPS_ARE_LEVELS);
    }
    let seed = args.seed.unwrap_or_else(choice::seed);
    let mut random = Random::new(seed);
    random.shuffle(&mut paths);

    let level = args.level.map(|level| format!(" --level {level}"));
    let level = level.unwrap_or_default();
    let next = if args.next { " --next" } else { "" };
    writeln!(
        out,
        "seed {seed}; the same again: unwind-sim cases quiz --seed {seed}{level}{next}\n"
    )?;

    let (mut asked, mut right) = (0_u32, 0_u32);
    for path in &paths {
        let recorded = cases::emulate(path, &args.limits.limits())?;
        let Some(index) = point(&recorded, args, &mut random)? else {
            continue;
        };
        let name = recorded.case.name.clone();
        let Some(is_right) = ask(&recorded, index, &name, args, out)? else {
            break;
        };
        asked += 1;
        right += u32::from(is_right);
        // After the answer, as names say what is special.
        let point = &recorded.points[index].key;
        writeln!(out, "That was {} --at {point}.\n", Printable::new(&name))?;
        if !args.next {
            break;
        }
    }

    if asked == 0 {
        bail!("no answer; write the chain on standard input, or with --answer");
    }
    writeln!(out, "score: {right} of {asked} right")?;
    let is_wrong = right < asked;
    Ok(if is_wrong {
        Status::Difference
    } else {
        Status::AsExpected
    })
}

/// A point of the case whose chain can be asked for, if there is one.
fn point(recorded: &Recorded, args: &Args, random: &mut Random) -> Result<Option<usize>> {
    let mut points: Vec<usize> = (0..recorded.points.len()).collect();
    random.shuffle(&mut points);
    for index in points {
        let can_be = recorded.with_view(index, |view| -> Result<bool> {
            let walks = show::walks(recorded, index, view, &args.shown)?;
            Ok(can_be_asked(view, from(&walks)))
        })?;
        if can_be {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// The true frame with which the chain begins.
fn from(walks: &[(String, Outcome)]) -> usize {
    let from = walks.iter().map(|(_, outcome)| outcome.from);
    from.min().unwrap_or(0)
}

/// Asks for the chain at a point, and says whether the answer is right. `None` if there is no answer.
fn ask(
    recorded: &Recorded,
    index: usize,
    called: &str,
    args: &Args,
    out: &mut dyn Write,
) -> Result<Option<bool>> {
    let shown = &args.shown;
    let case = &recorded.case;
    let setting = cases::setting_of(case);

    recorded.with_view(index, |view| {
        let walks = show::walks(recorded, index, view, shown)?;
        let from = from(&walks);

        // With --answer the reader has seen the question already.
        if args.answer.is_none() {
            write!(out, "{}", show::program(case))?;
            show::heading(recorded, index, view, out)?;
            registers(view, out)?;
            write!(out, "\n{}", picture(view, &[], &setting, Hidden::Answers))?;
            writeln!(out, "\n{}", question(view, from))?;
        }

        let names = loop {
            // The question has to be on the screen before standard input is read.
            out.flush()?;
            let Some(answer) = answer(args)? else {
                return Ok(None);
            };
            match names(&answer) {
                Ok(names) => break names,
                // A slip does not end a series of questions.
                Err(error) if args.next => {
                    let told = error.to_string();
                    writeln!(out, "{}; once more", Printable::new(&told))?;
                }
                Err(error) => return Err(error),
            }
        };

        let answered = judge(view, from, &names);
        let is_wrong = matches!(answered, AnswerCheck::Wrong { .. });
        if is_wrong {
            Status::Difference.known();
        }

        writeln!(out, "{answered}")?;
        if is_wrong {
            same_mistake(view, &answered, &walks, out)?;
            let point = &recorded.points[index].key;
            let words = format!("{called} --at {point}");
            writeln!(
                out,
                "The picture with its names: unwind-sim cases show {}",
                Printable::new(&words)
            )?;
            return Ok(Some(false));
        }

        // The claim says what the case shows, so it comes only with a right answer.
        writeln!(out, "{}", Printable::new(&case.header.claim))?;
        Ok(Some(true))
    })
}

/// Names the unwinders that have the reader's chain: their reason explains the reader's mistake.
fn same_mistake(
    view: &View<'_>,
    answered: &AnswerCheck,
    walks: &[(String, Outcome)],
    out: &mut dyn Write,
) -> Result<()> {
    let same: Vec<&str> = walks
        .iter()
        .filter(|(_, outcome)| answered.is_as(view, outcome))
        .map(|(name, _)| name.as_str())
        .collect();
    if same.is_empty() {
        return Ok(());
    }

    let names = same.join(", ");
    writeln!(
        out,
        "That is the chain of {names}, which is wrong for this reason:"
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
    Ok(())
}

/// The reader's chain: the option, or the next line of standard input that is not blank. `None` if there is
/// no more.
fn answer(args: &Args) -> Result<Option<String>> {
    if let Some(answer) = &args.answer {
        return Ok(Some(answer.clone()));
    }
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = String::new();
        let mut limited = input.by_ref().take(ANSWER_BYTES_MAX);
        let read = limited.read_line(&mut line);
        let read = read.context("cannot read your answer")?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == ANSWER_BYTES_MAX && !line.ends_with('\n') {
            bail!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
        }
        if !line.trim().is_empty() {
            return Ok(Some(line.trim().to_owned()));
        }
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
