//! What the program lacks that another build of it has, for its help.

use clap::Command;

/// What only some builds have.
struct Part {
    is_here: bool,
    /// The subcommands that are there only with it.
    subcommands: &'static [&'static str],
    /// What else is.
    besides: &'static str,
    /// What the build would need.
    needs: &'static str,
}

const MACHINE: bool = cfg!(feature = "machine");
/// Where programs can be traced.
const TRACES: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

const PARTS: [Part; 6] = [
    Part {
        is_here: MACHINE,
        subcommands: &["record", "extract", "verify", "emulate", "cases", "step"],
        besides: "",
        needs: "the feature machine",
    },
    Part {
        is_here: MACHINE && TRACES,
        subcommands: &["lockstep"],
        besides: "recording by ptrace or from a gdb stub",
        needs: "the feature machine, and Linux on x86-64",
    },
    Part {
        is_here: cfg!(feature = "perf"),
        subcommands: &["perf"],
        besides: "",
        needs: "the feature perf",
    },
    Part {
        is_here: cfg!(feature = "report"),
        subcommands: &["report"],
        besides: "",
        needs: "the feature report",
    },
    Part {
        is_here: cfg!(feature = "serve"),
        subcommands: &["gdbserver", "dap"],
        besides: "",
        needs: "the feature serve",
    },
    Part {
        is_here: cfg!(feature = "terminal"),
        subcommands: &[],
        besides: "step in a terminal",
        needs: "the feature terminal",
    },
];

/// Adds to the help what is not in this build.
pub(crate) fn named(command: Command) -> Command {
    let Some(text) = text(PARTS.iter().filter(|part| !part.is_here)) else {
        return command;
    };
    let above = command.get_after_help().map(ToString::to_string);
    let above = above.map(|above| above + "\n\n").unwrap_or_default();
    command.after_help(above + &text)
}

fn text<'a>(absent: impl Iterator<Item = &'a Part>) -> Option<String> {
    let line = |part: &Part| {
        let mut what = part.subcommands.to_vec();
        what.extend(Some(part.besides).filter(|text| !text.is_empty()));
        format!("\n  {}\n      needs {}", what.join(", "), part.needs)
    };
    let lines: String = absent.map(line).collect();
    (!lines.is_empty()).then(|| format!("Not in this build:{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn what_is_absent_is_named_with_what_it_needs() {
        assert_eq!(text([].into_iter()), None);
        assert_eq!(
            text(PARTS[1..3].iter()).expect("two are absent"),
            "Not in this build:\n  lockstep, recording by ptrace or from a gdb stub\n      \
             needs the feature machine, and Linux on x86-64\n  perf\n      needs the feature perf"
        );
    }

    #[test]
    fn a_subcommand_is_there_if_its_part_is() {
        let tool = super::super::Cli::command();
        for part in &PARTS {
            for name in part.subcommands {
                let found = tool.find_subcommand(name).is_some();
                assert_eq!(found, part.is_here, "{name}");
            }
        }
    }
}
