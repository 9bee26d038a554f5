//! `cases show`: the program of a case and the picture of its stack at a point.

use super::{Corpus, OneArgs};
use crate::command::case_limits::CaseLimitArgs;
use crate::command::output;
use crate::command::status::Status;
use anyhow::{Result, bail};
use std::io::Write;
use unwind_sim_judge::case::{Case, PointKey};
use unwind_sim_judge::cases::{self, Recorded};
use unwind_sim_judge::engine::{Engine, Outcome};
use unwind_sim_judge::spec;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::similar::hint;
use unwind_sim_recordings::view::View;
use unwind_sim_show::picture::{DrawnWalk, Hidden, chains, picture};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::start::Variant;

/// Draw the stack of a case at a sample point: its words, which unwinder read them, and the chains.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim cases show popped-slot-lies-outside-a-copy --unwinder dwarf,fp
  unwind-sim cases show rows-of-a-longjmp-describe-where-it-goes --at before --chains")]
pub(super) struct Args {
    #[command(flatten)]
    case: OneArgs,
    #[command(flatten)]
    shown: PointArgs,
    /// Print the program, too.
    #[arg(long)]
    program: bool,
    /// Only the chains.
    #[arg(long)]
    chains: bool,
    #[command(flatten)]
    limits: CaseLimitArgs,
}

/// What of a case is shown.
#[derive(clap::Args, Debug)]
pub(super) struct PointArgs {
    /// The sample point. The default is the first one.
    #[arg(long, value_name = "POINT")]
    at: Option<String>,
    /// These unwinders. The default is the case's columns.
    #[arg(long, short, value_name = "NAME", value_delimiter = ',')]
    unwinder: Vec<String>,
    /// Only these starts of the case, such as fake:v5.2.
    #[arg(long, value_name = "START", value_delimiter = ',')]
    regs: Vec<String>,
}

impl PointArgs {
    /// Whether a point was chosen.
    pub(super) fn has_point(&self) -> bool {
        self.at.is_some()
    }

    /// The number of the chosen point.
    ///
    /// # Errors
    /// If the case has no such point.
    pub(super) fn point(&self, recorded: &Recorded) -> Result<usize> {
        let Some(name) = &self.at else { return Ok(0) };
        let key = PointKey::parse(name).ok();
        let is_it = |key: &PointKey, other: &PointKey| key == other || other.to_string() == *name;
        let found = recorded.points.iter().position(|p| {
            key.as_ref().is_some_and(|key| is_it(key, &p.key)) || p.key.to_string() == *name
        });
        match found {
            Some(found) => Ok(found),
            None => {
                let all: Vec<String> = recorded.points.iter().map(|p| p.key.to_string()).collect();
                bail!(
                    "the case has no point `{name}`{}; it has {}",
                    hint(name, all.iter().map(String::as_str)),
                    points(recorded).join(", ")
                )
            }
        }
    }

    /// The starts to show at a point.
    ///
    /// # Errors
    /// If the case has none of that name there.
    fn starts(&self, recorded: &Recorded, index: usize) -> Result<Vec<Variant>> {
        let is_fake = recorded.points[index].key.own.is_some();
        let fits = |v: &Variant| (*v != Variant::Hardware) == is_fake;
        let starts = recorded.case.header.regs.iter().copied().filter(fits);
        let starts: Vec<Variant> = starts.collect();
        for name in &self.regs {
            if !starts.iter().any(|start| start.as_str() == name) {
                let known: Vec<&str> = starts.iter().map(|start| start.as_str()).collect();
                bail!(
                    "no start `{name}` at this point; it has {}",
                    known.join(", ")
                );
            }
        }
        let is_wanted = |start: &Variant| {
            self.regs.is_empty() || self.regs.iter().any(|name| name == start.as_str())
        };
        Ok(starts.into_iter().filter(is_wanted).collect())
    }

    /// The unwinders to show.
    ///
    /// # Errors
    /// If there is none of that name.
    fn engines(&self, case: &Case) -> Result<Vec<Engine>> {
        let names = match self.unwinder.as_slice() {
            [] => cases::unwinders_of(case),
            names => names.to_vec(),
        };
        Ok(spec::engines(&names)?)
    }
}

/// The names of the points; of many, only the first.
pub(super) fn points(recorded: &Recorded) -> Vec<String> {
    const SHOWN_MAX: usize = 4;
    let names = recorded.points.iter().map(|p| p.key.to_string());
    let mut names: Vec<String> = names.take(SHOWN_MAX + 1).collect();
    if names.len() > SHOWN_MAX {
        names.truncate(SHOWN_MAX);
        names.push("..".to_owned());
    }
    names
}

pub(super) fn run(corpus: &Corpus<'_>, args: &Args) -> Result<Status> {
    let path = corpus.one(&args.case)?;
    let mut out = output::stdout();
    let recorded = cases::emulate(&path, &args.limits.limits())?;
    // The case is run anew, so the picture is of this computer's build of it.
    let case = &recorded.case;
    let index = args.shown.point(&recorded)?;

    if !args.chains {
        let claim = Printable::new(&case.header.claim);
        let called = Corpus::called(&args.case, &path, case);
        writeln!(out, "{}: {claim}", Printable::new(&called))?;
    }
    if args.program {
        write!(out, "\n{}", program(case))?;
    }

    let setting = cases::setting_of(case);
    recorded.with_view(index, |view| -> Result<()> {
        // All unwinders walk the same state, so their frames can be drawn into one picture.
        let walks = walks(&recorded, index, view, &args.shown)?;
        let walked: Vec<_> = walks
            .iter()
            .map(|(name, outcome)| DrawnWalk { name, outcome })
            .collect();
        if args.chains {
            write!(out, "{}", chains(view, &walked))?;
            return Ok(());
        }

        heading(&recorded, index, view, &mut out)?;
        write!(out, "{}", picture(view, &walked, &setting, Hidden::Nothing))?;
        Ok(())
    })?;

    out.flush()?;
    Ok(Status::AsExpected)
}

/// Where the program was sampled.
pub(super) fn heading(
    recorded: &Recorded,
    index: usize,
    view: &View<'_>,
    out: &mut dyn Write,
) -> Result<()> {
    let place = Location::at(view.space, view.live().rip());
    let key = &recorded.points[index].key;
    let others: Vec<String> = points(recorded)
        .into_iter()
        .filter(|name| *name != key.to_string())
        .collect();
    let also = if others.is_empty() {
        String::new()
    } else {
        format!(" (other points: {})", others.join(", "))
    };
    writeln!(out, "\nat {key}, in {place}{also}")?;
    Ok(())
}

/// The walks of the chosen unwinders at a point, from every chosen start.
pub(super) fn walks(
    recorded: &Recorded,
    index: usize,
    view: &View<'_>,
    args: &PointArgs,
) -> Result<Vec<(String, Outcome)>> {
    let setting = cases::setting_of(&recorded.case);
    let starts = args.starts(recorded, index)?;
    let mut found = Vec::new();
    for engine in args.engines(&recorded.case)? {
        let mut cache = Cache::new();
        for &variant in &starts {
            let name = match variant {
                Variant::Hardware => engine.name().to_owned(),
                _ => spec::column_name(engine.name(), variant),
            };
            let outcome = engine.examine(view, variant, &setting, &mut cache);
            found.push((name, outcome));
        }
    }
    Ok(found)
}

/// The program of a case without what the case states: the lines that the assembler needs.
pub(super) fn program(case: &Case) -> String {
    let is_code = |line: &&str| {
        !["#!", "#@", "#="].iter().any(|mark| line.starts_with(mark))
            && !line.trim().starts_with(".include")
    };
    let lines: Vec<&str> = case.author_text().lines().filter(is_code).collect();
    let text = lines.join("\n");
    format!("{}\n", text.trim_matches('\n'))
}
