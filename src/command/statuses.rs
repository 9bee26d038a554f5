//! What the exit statuses mean: one table, from which help texts and manual pages are made. The
//! statuses themselves are in `status.rs`.

use clap::Command;
use std::fmt::Write as _;

/// The meaning of each status for the program as a whole.
const GENERAL: [(&str, &str); 5] = [
    ("0", "something was judged, and everything is as expected"),
    ("1", "a difference or a contradiction was found"),
    ("2", FAILED),
    ("3", "not modelled, or nothing could be judged"),
    ("101", "a bug in unwind-sim; please report it"),
];

const FAILED: &str = "usage error, I/O error, or malformed input";

/// What the statuses of a subcommand mean. Status 2 means the same everywhere.
struct Meanings {
    /// The subcommand as it is written behind the program's name.
    command: &'static str,
    as_expected: &'static str,
    /// Empty if the status does not occur; so in the next field.
    difference: &'static str,
    nothing_judged: &'static str,
    /// Whether `--status program` exits with the status of the program that ran.
    may_be_programs: bool,
}

const fn row(
    command: &'static str,
    as_expected: &'static str,
    difference: &'static str,
    nothing_judged: &'static str,
) -> Meanings {
    Meanings {
        command,
        as_expected,
        difference,
        nothing_judged,
        may_be_programs: false,
    }
}

/// For what shows the states of a program.
const NOT_MODELLED: &str = "the program does something that is not modelled";

const MEANINGS: [Meanings; 38] = [
    row("demo", "the demo was shown or written", "", NOT_MODELLED),
    Meanings {
        may_be_programs: true,
        ..row(
            "record",
            "something was recorded",
            "",
            "nothing was recorded, or the machine could not go on",
        )
    },
    row(
        "import",
        "at least one sample was imported",
        "",
        "the recording has no usable sample",
    ),
    row("extract", "the sample was written", "", ""),
    row(
        "scrub",
        "the file was written, and every unwinder gives what it gave",
        "",
        "the recording has no usable sample",
    ),
    row("inspect", "the file was shown", "", ""),
    row(
        "replay",
        "no chain is unexpectedly wrong",
        "a chain is wrong or, with --confirm, refuted",
        "no chain was made, or none could be judged",
    ),
    row(
        "compare",
        "no chain is unexpectedly wrong",
        "a chain is wrong",
        "no chain could be judged",
    ),
    row(
        "doctor",
        "no stack is broken",
        "a stack is broken",
        "there was no stack to judge",
    ),
    row(
        "verify",
        "no row that was executed is wrong",
        "a row is wrong",
        "nothing was checked, or the machine could not go on",
    ),
    Meanings {
        may_be_programs: true,
        ..row(
            "emulate",
            "the program or kernel ended, or the code was run",
            "",
            "the program or kernel did not end, or something is not modelled",
        )
    },
    row(
        "lockstep",
        "machine and processor agree",
        "they differ",
        "nothing was compared, or something is not modelled",
    ),
    row("cases", "as for its subcommands", "", ""),
    row("cases list", "the cases were listed", "", ""),
    row(
        "cases run",
        "everything that the cases state holds",
        "a case fails, and all could be judged",
        "",
    ),
    row(
        "cases bless",
        "the expectations are those of today",
        "a case cannot be blessed, and all could be judged",
        "",
    ),
    row("cases show", "the case was shown", "", ""),
    row(
        "cases quiz",
        "the reader's chain is right",
        "the reader's chain is wrong",
        "",
    ),
    row("perf", "as for its subcommands", "", ""),
    row(
        "perf bpf",
        "the handler ran",
        "it did something that the kernel's verifier would reject",
        "it was called for no sample",
    ),
    row("perf script", "the samples were printed", "", ""),
    row(
        "perf stitch",
        "every deferred chain found its samples without contradiction",
        "the recording contradicts itself, or --like gives other frames",
        "no chain is deferred",
    ),
    row(
        "perf run",
        "the output is the expected one; no rule is broken",
        "the output differs, or a rule is broken",
        "the scenario states no output",
    ),
    row(
        "perf fuzz",
        "no rule is broken; with --mutant, the defect was found",
        "a rule is broken; with --mutant, the defect was not found",
        "no schedule was run",
    ),
    row("step", "the states were shown", "", NOT_MODELLED),
    row("report", "the page was written", "", NOT_MODELLED),
    row("gdbserver", "gdb was served", "", ""),
    row("dap", "the editor was served", "", ""),
    row("explain", "the code or the walk was explained", "", ""),
    row("tables", "as for its subcommands", "", ""),
    row(
        "tables dump",
        "the tables were shown",
        "",
        "there is no such table, or no row for the function",
    ),
    row(
        "tables diff",
        "the tables do not contradict each other",
        "they contradict each other",
        "nothing could be compared",
    ),
    row(
        "tables check",
        "no row is contradicted",
        "a row is contradicted",
        "there was nothing to prove",
    ),
    row(
        "tables convert",
        "the file was written; losses are reported",
        "",
        "",
    ),
    row("tables generate", "the file was written", "", ""),
    row(
        "tables merge",
        "the file was written",
        "it was written, but tables contradict each other",
        "",
    ),
    row("unwinders", "the unwinders were listed", "", ""),
    row("generate", "the text was written", "", ""),
];

/// The statuses of a subcommand, such as `tables check`, or of the program (an empty name), each
/// with its meaning, in ascending order.
pub(crate) fn of(command: &str) -> Vec<(&'static str, &'static str)> {
    if command.is_empty() {
        return GENERAL.to_vec();
    }
    let found = MEANINGS.iter().find(|row| row.command == command);
    let Some(row) = found else {
        return Vec::new();
    };
    let mut statuses = vec![
        ("0", row.as_expected),
        ("1", row.difference),
        ("2", FAILED),
        ("3", row.nothing_judged),
    ];
    statuses.retain(|(_, meaning)| !meaning.is_empty());
    if row.may_be_programs {
        statuses.push((
            "N",
            "with --status program: the program's, or 128 + its signal",
        ));
    }
    statuses
}

/// What status 3 means for a subcommand.
pub(crate) fn nothing_judged(command: &str) -> &'static str {
    let all = of(command);
    let found = all.into_iter().find(|(status, _)| *status == "3");
    found.map_or("nothing could be judged", |(_, meaning)| meaning)
}

/// Adds its exit statuses to the help of `command` and of all its subcommands.
pub(crate) fn described(command: Command) -> Command {
    described_below(command, "")
}

fn described_below(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    for name in names {
        let below = match path {
            "" => name.clone(),
            path => format!("{path} {name}"),
        };
        command = command.mut_subcommand(name, |sub| described_below(sub, &below));
    }
    let mut text = command
        .get_after_help()
        .map(|text| format!("{text}\n\n"))
        .unwrap_or_default();
    text.push_str("Exit status:");
    for (status, meaning) in of(path) {
        write!(text, "\n  {status:<3}  {meaning}").expect("a string takes all");
    }
    command.after_help(text)
}
