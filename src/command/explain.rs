//! `explain`: a reason code's page, or one walk step by step.

use super::args::{InputArgs, KernelArgs, WalkArgs};
use super::{Status, output};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim::engine::{Engine, View};
use unwind_sim::input::Filter;
use unwind_sim::run::Column;
use unwind_sim::{explain, pages};
use unwind_sim_unwind::reason::Code;

/// Explain a reason code, or one walk: which rule, which row, which words, and what is true.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim explain US203
  unwind-sim explain trace.bin --sample 12 --unwinder fp
  unwind-sim explain trace.bin --sample 12 --unwinder dwarf --frame 3")]
pub(crate) struct Args {
    /// A reason code such as US203, or a trace, case, perf.data or core.
    #[arg(value_name = "USnnn|TRACE|CASE")]
    what: PathBuf,
    /// The sample, counted from 0.
    #[arg(long, value_name = "N", default_value = "0")]
    sample: u64,
    /// Only this frame of the chain; the one behind the last explains the end.
    #[arg(long, value_name = "K")]
    frame: Option<usize>,
    /// Look for images below this folder first.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    walk: WalkArgs,
    #[command(flatten)]
    kernel: KernelArgs,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut out = output::stdout();
    let name = args.what.to_string_lossy();
    if let Some(code) = Code::from_name(&name) {
        write!(out, "{}", pages::page(code))?;
        out.flush()?;
        return Ok(Status::AsExpected);
    }
    let is_code = name.get(..2).is_some_and(|s| s.eq_ignore_ascii_case("us"))
        && name[2..].bytes().all(|b| b.is_ascii_digit());
    if is_code && !args.what.exists() {
        let codes: Vec<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        bail!("no reason code {name}; there are {}", codes.join(" "));
    }
    let input = InputArgs {
        path: args.what.clone(),
        symfs: args.symfs.clone(),
        sample: Some(args.sample),
        tid: None,
        time: None,
        limit: None,
        kernel: args.kernel.clone(),
    };
    let engines = args.walk.engines(&input, &["dwarf"])?;
    let variants = args.walk.variants()?;
    let setting = args.walk.setting(&args.what)?;
    let mut seen = false;
    let mut explain_view = |view: &View<'_>| {
        seen = true;
        for (engine, built) in engines.iter().enumerate() {
            let column = Column {
                engine,
                variant: None,
            };
            let starts = if variants.is_empty() {
                vec![column.variant_for(view)]
            } else {
                variants.clone()
            };
            for variant in starts {
                let text = explain::explain(view, built, variant, &setting, args.frame);
                writeln!(out, "{text}")?;
            }
        }
        Ok(())
    };
    let filter = Filter {
        sample: Some(args.sample),
        stitch: engines.iter().any(Engine::wants_stitching),
        ..Filter::default()
    };
    input.open()?.for_each(&filter, &mut explain_view)?;
    if !seen {
        return Err(anyhow::anyhow!("no sample {}", args.sample)).context(name.into_owned());
    }
    writeln!(out, "{}", output::command_line())?;
    out.flush()?;
    Ok(Status::AsExpected)
}
