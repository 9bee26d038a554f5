//! `compare` of a console's log: the stacks that a kernel has printed.

use super::Args;
use crate::command::args;
use crate::command::output::{self, tell};
use crate::command::status::Status;
use anyhow::{Result, bail};
use std::io::Write;
use unwind_sim_judge::input::{FileKind, Input, InputError, check_recording};
use unwind_sim_judge::kernel::{Places, PrintedTrace, printed_trace};
use unwind_sim_recordings::console::log::{self, LoggedTrace};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_view::console::{LogReport, Matched};
use unwind_sim_view::json;

/// Maximum size of a log, bytes.
const LOG_MAX: u64 = 256 << 20;

/// The stacks in the file, if it is the log of a console.
pub(super) fn traces(args: &Args, file: &InputFile) -> Result<Option<Vec<LoggedTrace>>> {
    let is_text = matches!(file.kind(), FileKind::Text | FileKind::Unknown);
    let traces = match is_text {
        true => log::traces((*file.bytes_within(LOG_MAX)?).as_ref()),
        false => Vec::new(),
    };
    if traces.is_empty() {
        if args.recording.is_some() {
            bail!("--recording goes with the log of a console that has a `Call Trace:`");
        }
        return Ok(None);
    }

    let options = [
        (!args.walk.unwinder.is_empty(), "--unwinder"),
        (args.judge.name().is_some(), "--against"),
        (args.baseline.is_some(), "--baseline"),
        (args.input.sample.is_some(), "--sample"),
        (args.input.tid.is_some(), "--tid"),
        (args.input.time.is_some(), "--time"),
        (args.input.limit.is_some(), "--limit"),
    ];
    if let Some((_, option)) = options.iter().find(|(given, _)| *given) {
        bail!(
            "{option} does not go with the log of a console, whose stacks were walked by the kernel"
        );
    }
    Ok(Some(traces))
}

pub(super) fn compare(args: &Args, traces: &[LoggedTrace]) -> Result<Status> {
    let printed = match &args.recording {
        Some(path) => {
            let file = args::open_file(path)?;
            check_recording(&file)?;
            recorded(&file, args, traces)?
        }
        None => traces.iter().map(|_| None).collect(),
    };
    let matched = traces.iter().zip(&printed);
    let matched = matched.map(|(logged, printed)| Matched {
        logged,
        printed: printed.as_ref(),
    });
    let report = LogReport {
        traces: matched.collect(),
        has_recording: args.recording.is_some(),
    };

    let mut out = output::stdout();
    let command = output::command_line();
    match args.json {
        true => json::write_console_log(&report, &command, &mut out)?,
        false => write!(out, "{report}\n{command}\n")?,
    }
    out.flush()?;
    if args.recording.is_none() {
        tell!(
            "what is true of these stacks says only a recording of the run that printed them: unwind-sim \
             record --kernel FILE --console-log LOG -o RECORDING, and --recording RECORDING here"
        );
    }
    Ok(match (report.is_judged(), report.is_right()) {
        (false, _) => Status::NothingJudged,
        (true, true) => Status::AsExpected,
        (true, false) => Status::Difference.known(),
    })
}

/// The recorded stacks that the text has, for each of its own: in order, since a console is.
fn recorded(
    file: &InputFile,
    args: &Args,
    traces: &[LoggedTrace],
) -> Result<Vec<Option<PrintedTrace>>> {
    let input: Input = args::open(file, &args.input.kernel.options(args.input.symfs.clone())?)?;
    let mut out: Vec<Option<PrintedTrace>> = traces.iter().map(|_| None).collect();
    let (mut places, mut cache, mut next) = (Places::default(), Cache::new(), 0);
    input.for_each::<InputError>(&Filter::default(), &mut |view| {
        let Some(trace) = printed_trace(view, &mut cache) else {
            return Ok(());
        };
        let mut rest = traces.iter().enumerate().skip(next);
        let found = rest.find(|(_, logged)| places.is_same(view.space, logged, &trace.lines));
        if let Some((number, _)) = found {
            out[number] = Some(trace);
            next = number + 1;
        }
        Ok(())
    })?;
    Ok(out)
}
