//! `tables generate`: a file with an unwind table made from its code.

use super::super::output;
use super::super::status::Status;
use super::super::stdin;
use super::super::suggest::not_one_of;
use super::written;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::file::File;
use unwind_sim_tables::generate::breach::Breach;
use unwind_sim_tables::generate::compare::{Class, Comparison, compare};
use unwind_sim_tables::generate::outside::UncoveredCode;
use unwind_sim_tables::generate::write::{GeneratedFile, write_in_file};
use unwind_sim_tables::generate::{Boundaries, Function, GAPS, Gap, Generated, Options, generate};
use unwind_sim_tables::table::Table;
use unwind_sim_view::json::{
    self, ConversionLine, ConversionLossLine, GenerationClassLine, GenerationComparisonLine,
    GenerationDifferenceLine, GenerationWarningLine, LossCountLine, OutsideLine,
};

/// Write a copy of an ELF file with an unwind table made from its code alone. Functions with
/// addresses that get no row, because ways that lead there disagree or the frame is not known, are
/// listed with the reason. With ORC, code that breaks the kernel's rules is reported in objtool's
/// words.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Formats: orc:LAYOUT (4.14, 5.12, 6.3, 6.4 or 7.1, the first Linux that reads its entries so; orc \
alone is 6.4), sframe-v1, sframe-v2, sframe-v3, eh_frame. Relocatable objects and kernel modules \
get ORC only.

Examples:
  unwind-sim tables generate module.ko --to orc:6.4 -o new.ko
  unwind-sim tables generate module.ko --to orc:5.12 --compare -o new.ko
  unwind-sim tables generate vmlinux --to orc --compare -o new
  unwind-sim tables generate /usr/bin/git --to sframe-v3 \\
      --functions table -o git")]
pub(crate) struct Args {
    /// The executable, shared object, relocatable object or kernel module; - for standard input.
    #[arg(value_name = "ELF", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// The format to write.
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to: Target,
    /// The file to write; it may be the one that is read.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Where the boundaries of functions come from: symbols with a size, the FDEs of the table that
    /// the file has, or all that is known: both of these, and elsewhere what the program starts with,
    /// what the loader calls, and what other functions call. By default all.
    #[arg(long, value_name = "SOURCE")]
    functions: Option<Functions>,
    /// Compare with the table of this format that the file has, address by address.
    #[arg(long)]
    compare: bool,
    /// With ORC, warn also of what breaks the rules of kernels with frame pointers (objtool
    /// --stackval).
    #[arg(long)]
    frame_pointers: bool,
    /// One JSON object per line: every function with a gap, every warning and difference, then a
    /// summary.
    #[arg(long)]
    json: bool,
}

/// `--functions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Functions {
    Symbols,
    Table,
    All,
}

fn outside_line(outside: &UncoveredCode) -> OutsideLine {
    OutsideLine {
        section: outside.section.clone(),
        section_bytes: outside.section_bytes,
        bytes: outside.bytes,
        code_bytes: outside.code_bytes,
        first: hex(outside.first),
    }
}

/// A share in percent, rounded up: what is left out is never shown as nothing.
fn share(part: u64, whole: u64) -> String {
    let hundredths = (u128::from(part) * 10_000).div_ceil(u128::from(whole.max(1)));
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

/// How many functions are listed for each reason; the rest are counted.
const LISTED_MAX: usize = 10;
fn target(name: &str) -> Result<Target, String> {
    let known = Target::ALL.map(Target::as_str);
    Target::from_name(name).ok_or_else(|| not_one_of(name, &known))
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let what = "an ELF program, library or object";
    let input = InputFile::expect(&args.path, what, &[FileKind::Elf])?;
    let (file, data) = written::read(&input)?;

    let boundaries = match args.functions {
        Some(Functions::Symbols) => Boundaries::Symbols,
        Some(Functions::Table) => Boundaries::Table,
        Some(Functions::All) | None => Boundaries::All,
    };
    let options = Options::new(boundaries, args.to);

    // Only a table of the same kind says the same things at each address.
    let (generated, compared) = if args.compare {
        let encoding = match args.to {
            Target::Orc(encoding) => Some(encoding),
            _ => None,
        };
        let Some(old) = Table::read_as(&file, args.to.kind(), encoding) else {
            bail!(
                "{}: no {} to compare with",
                file.name(),
                args.to.kind().as_str()
            );
        };
        let (generated, comparison) = compare(&file, options, &old, args.to)?;
        (generated, Some((comparison, old)))
    } else {
        (generate(&file, options)?, None)
    };

    let shown = Shown {
        args,
        file: &file,
        generated: &generated,
        compared: compared.as_ref(),
    };

    let written = write_in_file(&file, &data, &generated, args.to)?;
    // The input was read whole, since the output may have the same name.
    written::write(&args.output, &written.bytes, &args.path)?;

    if args.json {
        shown.write_json(&written)?
    } else {
        shown.write_text(&written)?
    }
    Ok(Status::AsExpected)
}

/// The functions with a gap for this reason, and the first address (svma).
fn with_gap(generated: &Generated, gap: Gap) -> impl Iterator<Item = (&Function, u64)> {
    let functions = generated.functions.iter();
    functions.filter_map(move |f| Some((f, f.gaps.iter().find(|g| g.0 == gap)?.1)))
}

/// What there is to show.
struct Shown<'a> {
    args: &'a Args,
    file: &'a File,
    generated: &'a Generated,
    compared: Option<&'a (Comparison, Table)>,
}

impl Shown<'_> {
    /// The warnings: of kernels only, and of those with frame pointers only if they are wanted.
    fn warnings(&self) -> impl Iterator<Item = (&Function, u64, &Breach)> {
        let is_wanted = matches!(self.args.to, Target::Orc(_));
        let functions = self.generated.functions.iter().filter(move |_| is_wanted);
        let all =
            functions.flat_map(|f| f.breaches.iter().map(move |(at, breach)| (f, *at, breach)));
        all.filter(|(_, _, breach)| {
            let needs_frames = matches!(breach, Breach::NoFrame | Breach::ScratchBp);
            !needs_frames || self.args.frame_pointers
        })
    }

    fn write_json(&self, written: &GeneratedFile) -> Result<()> {
        let mut out = output::raw_stdout();

        let mut losses = Vec::new();
        // What generation leaves out has the same lines as what a conversion loses.
        for gap in GAPS {
            let mut functions = 0;
            for (function, first) in with_gap(self.generated, gap) {
                functions += 1;
                let line = json::Line::ConversionLoss(ConversionLossLine {
                    schema: SCHEMA,
                    function: named(function),
                    start: hex(function.range.start),
                    end: hex(function.range.end),
                    reason: gap.as_str(),
                    costs_rows: true,
                    rows: 0,
                    bytes: 0,
                    first: hex(first),
                });
                line.write(&mut out)?;
            }
            // A reason that no function has is left out, as in the text.
            if functions > 0 {
                losses.push(LossCountLine {
                    reason: gap.as_str(),
                    costs_rows: true,
                    functions,
                    rows: 0,
                    bytes: 0,
                });
            }
        }

        for (function, at, breach) in self.warnings() {
            let line = json::Line::GenerationWarning(GenerationWarningLine {
                schema: SCHEMA,
                file: self.args.path.display().to_string(),
                function: named(function),
                address: hex(at),
                offset: at - function.range.start,
                rule: breach.as_str(),
                message: breach.to_string(),
            });
            line.write(&mut out)?;
        }

        self.write_differences(&mut out)?;
        let report = &written.report;
        // The writer loses what the format cannot say, as in a conversion; both kinds of loss are
        // in one list.
        for (lost, (functions, rows, bytes)) in report.by_reason() {
            losses.push(LossCountLine {
                reason: lost.as_str(),
                costs_rows: lost.costs_rows(),
                functions,
                rows,
                bytes,
            });
        }

        // The same line as for a conversion, of which the source is the code.
        let line = json::Line::Conversion(ConversionLine {
            schema: SCHEMA,
            file: self.args.path.display().to_string(),
            from: "code",
            to: self.args.to.as_str(),
            functions_read: report.functions_read,
            rows_read: report.rows_read,
            functions_written: report.functions_written,
            rows_written: report.rows_written,
            bytes_equal: written.equal,
            sections: written::section_lines(&written.sections),
            losses,
            comparison: self
                .compared
                .map(|(comparison, _)| comparison_line(comparison)),
            outside: self.generated.outside.iter().map(outside_line).collect(),
            command: output::command_line(),
        });
        line.write(&mut out)?;
        out.flush()?;
        Ok(())
    }

    fn write_differences(&self, out: &mut dyn Write) -> Result<()> {
        let Some((comparison, old)) = self.compared else {
            return Ok(());
        };
        for &(class, start, len) in &comparison.listed {
            let place = self.file.place(start);
            let function = self.generated.function_at(start);
            let line = json::Line::GenerationDifference(GenerationDifferenceLine {
                schema: SCHEMA,
                class: class.as_str(),
                start: hex(start),
                end: hex(start + len),
                section: place.map(|place| place.0.to_owned()),
                section_offset: place.map(|place| place.1),
                function: function.and_then(named),
                old: old.row_at(start).map(|row| row.rule.to_string()),
                new: self.generated.rule_at(start).map(ToString::to_string),
            });
            line.write(out)?;
        }
        Ok(())
    }

    fn write_text(&self, written: &GeneratedFile) -> Result<()> {
        let mut out = output::stdout();
        let (path, to) = (self.args.output.printable(), self.args.to.as_str());
        writeln!(out, "{path}: {to} from the code")?;
        let (functions, rows) = (self.generated.functions.len(), self.generated.rows());
        writeln!(
            out,
            "  generated: {}, {}",
            counted(functions, "function"),
            counted(rows, "row")
        )?;

        let report = &written.report;
        let (functions, rows) = (report.functions_written, report.rows_written);
        writeln!(
            out,
            "  written: {}, {}",
            counted(functions, "function"),
            counted(rows, "row")
        )?;

        // The table is read back and compared with what was generated, address by address.
        let equal = written.equal;
        writeln!(
            out,
            "  read back: the same rule at {}, no other rule at any",
            counted(equal, "address")
        )?;
        written::tell_sections(&mut out, &written.sections)?;

        // Gaps are places where the code gave no row; losses, below, are rows that the format
        // cannot hold.
        for gap in GAPS {
            self.tell_gap(&mut out, gap)?;
        }

        for (lost, (functions, rows, bytes)) in report.by_reason() {
            writeln!(out, "lost: {}: {}", lost.as_str(), lost.description())?;
            writeln!(
                out,
                "  {}, {}, {}",
                counted(functions, "function"),
                counted(rows, "row"),
                counted(bytes, "address")
            )?;
        }

        // Code that belongs to no function has no row either, and would not show up in any count
        // above.
        for outside in &self.generated.outside {
            writeln!(
                out,
                "no row: {} of {} in no function, {} of it, the first at {:#x}",
                counted(outside.code_bytes, "byte"),
                outside.section,
                share(outside.code_bytes, outside.section_bytes),
                outside.first
            )?;
        }

        if let Some((comparison, _)) = self.compared {
            self.tell_comparison(&mut out, comparison)?;
        }
        for (function, at, breach) in self.warnings() {
            let (path, name) = (self.args.path.printable(), &function.name);
            let offset = at - function.range.start;
            writeln!(
                out,
                "{path}: warning: objtool-like: {name}+{offset:#x}: {breach}"
            )?;
        }

        out.flush()?;
        Ok(())
    }

    fn tell_gap(&self, out: &mut dyn Write, gap: Gap) -> Result<()> {
        let mut these = with_gap(self.generated, gap);
        let mut told = false;
        for (function, first) in these.by_ref().take(LISTED_MAX) {
            if !told {
                writeln!(out, "no row: {}: {}", gap.as_str(), gap.description())?;
                told = true;
            }
            let (start, name) = (function.range.start, &function.name);
            writeln!(out, "  {start:#x} {name}, at {first:#x}")?;
        }
        let more = these.count();
        if more > 0 {
            writeln!(out, "  and {more} more; --json lists all")?;
        }
        Ok(())
    }

    fn tell_comparison(&self, out: &mut dyn Write, comparison: &Comparison) -> Result<()> {
        let (total, share) = (comparison.total(), 100.0 * comparison.share());
        writeln!(
            out,
            "compared with the table of the file: {}, {share:.4} % the same",
            counted(total, "address")
        )?;

        for (class, count) in &comparison.addresses {
            writeln!(out, "  {}: {count}", class.as_str())?;
            if matches!(class, Class::Equal | Class::EqualInMeaning) {
                continue;
            }

            let listed = comparison.listed.iter().filter(|l| l.0 == *class);
            for (_, start, len) in listed.take(LISTED_MAX) {
                let name = self.generated.function_at(*start).map_or("", |f| &f.name);
                // Sections of a relocatable object have no addresses yet: section and offset is
                // what other tools print.
                match self.file.place(*start) {
                    Some((section, offset)) => {
                        writeln!(
                            out,
                            "    {section}+{offset:#x}, {} {name}",
                            counted(len, "address")
                        )?;
                    }
                    None => writeln!(out, "    {start:#x}, {} {name}", counted(len, "address"))?,
                }
            }
        }
        Ok(())
    }
}

fn named(function: &Function) -> Option<String> {
    Some(function.name.clone()).filter(|name| !name.is_empty())
}

fn comparison_line(comparison: &Comparison) -> GenerationComparisonLine {
    let classes = comparison.addresses.iter().map(|(class, &addresses)| {
        let listed = comparison.listed.iter().filter(|l| l.0 == *class).count();
        GenerationClassLine {
            class: class.as_str(),
            addresses,
            listed: listed as u64,
        }
    });
    GenerationComparisonLine {
        addresses: comparison.total(),
        share: comparison.share(),
        classes: classes.collect(),
    }
}
