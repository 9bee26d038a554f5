//! `tables check --files`: many files.

use super::super::output::{self, tell};
use super::super::status::Status;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::progress::{Progress, short};
use unwind_sim_tables::check::Options;
use unwind_sim_view::sweep::list::{List, Shard};
use unwind_sim_view::sweep::part::{PartFile, Plan, ResumePoint};
use unwind_sim_view::sweep::rows::{JsonRows, Sums};
use unwind_sim_view::sweep::run;
use unwind_sim_view::text::plural;

/// `--format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Format {
    /// JSON Lines.
    Json,
    /// Apache Parquet. It is written whole or not at all.
    Parquet,
}

/// A path that stands for standard input or output.
const STANDARD: &str = "-";

pub(super) fn run(
    files: &Path,
    shard: Shard,
    out: &Path,
    format: Format,
    options: &Options,
) -> Result<Status> {
    let of = || format!("--files {}", files.printable());
    // The list is read whole before the first file: shards are dealt out by its order.
    let list = if files == STANDARD {
        List::read(std::io::stdin().lock())
    } else {
        open::stream(files).map_err(Into::into).and_then(List::read)
    };

    let list = list.with_context(of)?;
    // A file that is listed twice would count twice in the sums.
    if list.repeated() > 0 {
        let (count, s) = (list.repeated(), plural(list.repeated() as u64));
        tell!("{count} path{s} of the list came before and are left out");
    }

    let plan = Plan {
        list: &list,
        shard,
        assume: options.assume,
        choice: options.choice,
    };

    let sums = match format {
        Format::Json if out == STANDARD => to_stdout(&plan, options)?,
        Format::Json => to_part(&plan, options, out)?,
        Format::Parquet => to_parquet(&plan, options, out)?,
    };

    tell(&sums, out);
    Ok(status(&sums))
}

fn status(sums: &Sums) -> Status {
    match sums {
        sums if sums.contradicted() > 0 || sums.index() > 0 => Status::Difference,
        sums if sums.functions() > 0 => Status::AsExpected,
        _ => Status::NothingJudged,
    }
}

/// Progress over the files that are left.
struct Told {
    progress: Progress,
    files: u64,
    functions: u64,
}

impl Told {
    fn new(files: usize) -> Told {
        Told {
            progress: Progress::up_to("files", files as u64),
            files: 0,
            functions: 0,
        }
    }

    fn add(&mut self, sums: &Sums) {
        self.files += 1;
        self.functions += sums.functions();
        let functions = self.functions;
        self.progress.tell_with(self.files, || {
            format!("; {} functions", short(functions as f64))
        });
    }
}

fn to_stdout(plan: &Plan<'_>, options: &Options) -> Result<Sums> {
    let mut out = output::raw_stdout();
    out.write_all(&plan.header())?;
    let files = plan.list.shard(plan.shard);
    let mut told = Told::new(files.len());
    let mut all = Sums::default();
    run::run(&files, options, |rows: JsonRows| {
        all.add(rows.sums());
        told.add(rows.sums());
        status(&all).known();
        out.write_all(rows.text())
    })?;
    out.write_all(&all.line())?;
    out.flush()?;
    Ok(all)
}

fn to_part(plan: &Plan<'_>, options: &Options, out: &Path) -> Result<Sums> {
    let cannot = || format!("cannot write {}", out.printable());
    let mut part = PartFile::open(out, plan).with_context(cannot)?;

    let ResumePoint {
        files: done,
        sums: mut all,
        is_whole,
        ..
    } = *part.kept();

    // Shards are dealt out by the order of the list alone, so `done` counts the same files as
    // before.
    let files = plan.list.shard(plan.shard);

    if is_whole {
        tell_done(done, files.len(), out);
        return Ok(all);
    }
    if done > 0 {
        tell_done(done, files.len(), out);
    }

    // Only the files that the part does not have yet.
    let left = &files[done..];
    let mut told = Told::new(left.len());
    run::run(left, options, |rows: JsonRows| {
        all.add(rows.sums());
        told.add(rows.sums());
        part.add(&rows)
    })
    .with_context(cannot)?;

    part.finish(&all).with_context(cannot)?;
    Ok(all)
}

#[cfg(feature = "parquet")]
fn to_parquet(plan: &Plan<'_>, options: &Options, out: &Path) -> Result<Sums> {
    use unwind_sim_view::sweep::parquet::{Parquet, done};

    if out == STANDARD {
        anyhow::bail!("--out -: Parquet needs a file");
    }
    let cannot = || format!("cannot write {}", out.printable());
    let files = plan.list.shard(plan.shard);
    if let Some(sums) = done(out, plan).with_context(cannot)? {
        tell_done(files.len(), files.len(), out);
        return Ok(sums);
    }
    let mut file = Parquet::create(out, plan).with_context(cannot)?;
    let mut told = Told::new(files.len());
    let mut all = Sums::default();
    run::run(&files, options, |rows: JsonRows| {
        all.add(rows.sums());
        told.add(rows.sums());
        file.add(&rows)
    })
    .with_context(cannot)?;
    file.finish(&all).with_context(cannot)?;
    Ok(all)
}

#[cfg(not(feature = "parquet"))]
fn to_parquet(_: &Plan<'_>, _: &Options, _: &Path) -> Result<Sums> {
    anyhow::bail!(
        "this unwind-sim writes no Parquet; build it with `cargo build --release --features parquet`"
    )
}

/// Reports how many of the files were checked before this run.
fn tell_done(done: usize, all: usize, out: &Path) {
    let (s, out) = (plural(all as u64), out.printable());
    match all - done {
        0 => tell!(
            "all {all} file{s} were checked before, none was checked now; remove {out} to check again"
        ),
        _ => tell!("{done} of {all} file{s} were checked before"),
    }
}

fn tell(sums: &Sums, out: &Path) {
    let mut text = format!(
        "{} file{}, {} function{}",
        sums.files,
        plural(sums.files),
        sums.functions(),
        plural(sums.functions())
    );

    // What was not found is not mentioned: the line is read at a glance, in the log of a job.
    if sums.contradicted() > 0 {
        text += &format!(", {} with wrong rows", sums.contradicted());
    }
    if sums.index() > 0 {
        text += &format!(
            ", {} finding{} about indexes",
            sums.index(),
            plural(sums.index())
        );
    }
    if sums.unreadable > 0 {
        text += &format!("; {} could not be checked", sums.unreadable);
    }
    if out != STANDARD {
        text += &format!("; {}", out.printable());
    }

    tell!("{text}");
}
