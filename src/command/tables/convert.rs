//! `tables convert`: a file with its unwind table in another format.

use super::super::output;
use super::super::status::Status;
use super::super::stdin;
use super::super::suggest::not_one_of;
use super::written;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::convert::in_file::{ConvertedFile, convert_in_file};
use unwind_sim_tables::convert::{FunctionLoss, LossReason, Options, Target};
use unwind_sim_tables::file::File;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_view::json::{self, ConversionLine, ConversionLossLine, LossCountLine};

/// Write a copy of an ELF file with its unwind table in another format. The file runs as before;
/// the new table is found through its program header. What the format cannot express is reported,
/// by function and reason, and gets no row.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Formats: sframe-v1, sframe-v2, sframe-v3, orc:LAYOUT (4.14, 5.12, 6.3, 6.4 or 7.1, the first Linux \
that reads its entries so; orc alone is 6.4), eh_frame.

Examples:
  unwind-sim tables convert /usr/bin/git --to sframe-v3 -o git
  unwind-sim tables convert /usr/bin/git --to orc:6.4 -o git --json
  unwind-sim tables convert program --from sframe --to eh_frame -o program")]
pub(crate) struct Args {
    /// The executable or shared object; - for standard input.
    #[arg(value_name = "ELF", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// The format to write.
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to: Target,
    /// The file to write; it may be the one that is read.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The table to read: eh_frame, debug_frame, sframe or orc. By default the first of eh_frame,
    /// sframe, orc and debug_frame that the file has, other than the one that is written.
    #[arg(long, value_name = "TABLE", value_parser = source)]
    from: Option<TableKind>,
    /// For an ORC table that is read: the encoding of its entries, instead of the detected one.
    #[arg(long, value_name = "LAYOUT", value_parser = encoding)]
    orc_layout: Option<Encoding>,
    /// For SFrame: let functions with the same rows share them. Smaller, but libsframe on a
    /// big-endian machine does not read it.
    #[arg(long)]
    share_rows: bool,
    /// Write an .eh_frame even if the file has one; its exception handlers are lost.
    #[arg(long)]
    replace: bool,
    /// One JSON object per line: every loss of every function, then a summary.
    #[arg(long)]
    json: bool,
}

/// How many functions are listed for each reason; the rest are counted.
const LISTED_MAX: usize = 10;

fn target(name: &str) -> Result<Target, String> {
    let known = Target::ALL.map(Target::as_str);
    Target::from_name(name).ok_or_else(|| not_one_of(name, &known))
}

fn source(name: &str) -> Result<TableKind, String> {
    let kinds = unwind_sim_tables::table::KINDS;
    let found = kinds.into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| not_one_of(name, &kinds.map(TableKind::as_str)))
}

fn encoding(name: &str) -> Result<Encoding, String> {
    let found = Encoding::ALL.into_iter().find(|e| e.as_str() == name);
    found.ok_or_else(|| not_one_of(name, &Encoding::ALL.map(Encoding::as_str)))
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let (file, data) = written::read(&written::open(&args.path)?)?;
    let options = Options {
        to: args.to,
        from: args.from,
        from_orc: args.orc_layout,
        share: args.share_rows,
        address: 0,
    };
    let written = convert_in_file(&file, &data, &options, args.replace)?;
    written::write(&args.output, &written.bytes, &args.path)?;
    if args.json {
        write_json(args, &file, &written)?
    } else {
        write_text(args, &file, &written)?
    }
    Ok(Status::AsExpected)
}

fn write_json(args: &Args, file: &File, written: &ConvertedFile) -> Result<()> {
    let mut out = output::raw_stdout();
    let report = &written.converted.report;

    // All losses, one a line; the text lists only the first ones of each reason.
    for loss in &report.losses {
        let line = json::Line::ConversionLoss(loss_line(file, loss));
        line.write(&mut out)?;
    }

    let counts = report.by_reason().into_iter();
    let losses = counts.map(|(lost, (functions, rows, bytes))| LossCountLine {
        reason: lost.as_str(),
        costs_rows: lost.costs_rows(),
        functions,
        rows,
        bytes,
    });

    let line = json::Line::Conversion(ConversionLine {
        schema: SCHEMA,
        file: args.path.display().to_string(),
        from: written.converted.from.as_str(),
        to: args.to.as_str(),
        functions_read: report.functions_read,
        rows_read: report.rows_read,
        functions_written: report.functions_written,
        rows_written: report.rows_written,
        bytes_equal: written.comparison.equal,
        sections: written::section_lines(&written.converted.sections),
        losses: losses.collect(),
        comparison: None,
        outside: Vec::new(),
        command: output::command_line(),
    });

    line.write(&mut out)?;
    out.flush()?;
    Ok(())
}

fn name(file: &File, loss: &FunctionLoss) -> Option<String> {
    let symbol = file.image().symbol(loss.function.start);
    symbol.map(|symbol| symbol.name.clone())
}

fn loss_line(file: &File, loss: &FunctionLoss) -> ConversionLossLine {
    ConversionLossLine {
        schema: SCHEMA,
        function: name(file, loss),
        start: hex(loss.function.start),
        end: hex(loss.function.end),
        reason: loss.lost.as_str(),
        costs_rows: loss.lost.costs_rows(),
        rows: loss.rows,
        bytes: loss.bytes,
        first: hex(loss.first),
    }
}

fn write_text(args: &Args, file: &File, written: &ConvertedFile) -> Result<()> {
    let mut out = output::stdout();
    let report = &written.converted.report;
    let (from, to) = (written.converted.from.as_str(), args.to.as_str());
    let path = args.output.printable();
    writeln!(out, "{path}: {from} as {to}")?;

    let (functions, rows) = (report.functions_read, report.rows_read);
    writeln!(
        out,
        "  read: {}, {}",
        counted(functions, "function"),
        counted(rows, "row")
    )?;
    let (functions, rows) = (report.functions_written, report.rows_written);
    writeln!(
        out,
        "  written: {}, {}",
        counted(functions, "function"),
        counted(rows, "row")
    )?;

    // The new table is read back and compared with the old one, address by address.
    let equal = written.comparison.equal;
    writeln!(
        out,
        "  the same rule at {}, no other rule at any",
        counted(equal, "address")
    )?;

    written::tell_sections(&mut out, &written.converted.sections)?;
    if written.reused {
        writeln!(out, "  in the place of the old table")?;
    }

    if let Some(share) = size_share(file, written) {
        writeln!(
            out,
            "  {share:.3} of the size of .eh_frame and .eh_frame_hdr"
        )?;
    }

    for (lost, (functions, rows, bytes)) in report.by_reason() {
        let (what, why) = (lost.as_str(), lost.description());
        writeln!(out, "lost: {what}: {why}")?;
        writeln!(
            out,
            "  {}, {}, {}",
            counted(functions, "function"),
            counted(rows, "row"),
            counted(bytes, "address")
        )?;
        // A part of a row, such as the place of a callee-saved register, may be lost in every
        // function: these are only counted.
        if !lost.costs_rows() && lost != LossReason::OtherTable {
            continue;
        }

        let mut these = report.losses.iter().filter(|loss| loss.lost == lost);
        for loss in these.by_ref().take(LISTED_MAX) {
            let name = name(file, loss).unwrap_or_else(|| "without a name".to_owned());
            let start = loss.function.start;
            let first = loss.first;
            writeln!(out, "  {start:#x} {name}, at {first:#x}")?;
        }
        // Only what the loop above has not taken is left to count.
        let more = these.count();
        if more > 0 {
            writeln!(out, "  and {more} more; --json lists all")?;
        }
    }

    out.flush()?;
    Ok(())
}

/// The size of the new sections in relation to `.eh_frame` and `.eh_frame_hdr`.
fn size_share(file: &File, written: &ConvertedFile) -> Option<f64> {
    let size = |kind| file.image().section(kind).map(|s| s.data.len() as u64);
    let old = size(SectionKind::EhFrame)? + size(SectionKind::EhFrameHdr).unwrap_or(0);
    let sections = written.converted.sections.iter();
    let new: u64 = sections.map(|s| s.bytes.len() as u64).sum();
    (old > 0).then(|| new as f64 / old as f64)
}
