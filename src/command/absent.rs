//! What the program lacks that another build of it has, for its help.

use clap::Command;

/// What is absent, and what it would need.
const ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "machine"))]
    (
        "record, extract, verify, emulate, lockstep, cases, step",
        "the feature machine",
    ),
    #[cfg(all(
        feature = "machine",
        not(all(target_os = "linux", target_arch = "x86_64"))
    ))]
    (
        "lockstep, and recording by ptrace or from a gdb stub",
        "Linux on x86-64; `--engine emulator` is here",
    ),
    #[cfg(not(feature = "perf"))]
    ("perf", "the feature perf"),
    #[cfg(not(feature = "report"))]
    ("report", "the feature report"),
    #[cfg(all(feature = "machine", not(feature = "terminal")))]
    (
        "step in a terminal",
        "the feature terminal; `--json` is here",
    ),
];

/// Adds to the help what is not in this build.
pub(crate) fn named(command: Command) -> Command {
    let Some(text) = text(ABSENT) else {
        return command;
    };
    let above = command.get_after_help().map(ToString::to_string);
    let above = above.map(|above| above + "\n\n").unwrap_or_default();
    command.after_help(above + &text)
}

fn text(absent: &[(&str, &str)]) -> Option<String> {
    let lines: Vec<String> = absent
        .iter()
        .map(|(what, needs)| format!("\n  {what}\n      needs {needs}"))
        .collect();
    (!lines.is_empty()).then(|| format!("Not in this build:{}", lines.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn what_is_absent_is_named_with_what_it_needs() {
        assert_eq!(text(&[]), None);
        let text = text(&[("perf", "the feature perf"), ("report", "a page")]);
        let text = text.expect("two are absent");
        assert_eq!(
            text,
            "Not in this build:\n  perf\n      needs the feature perf\n  report\n      needs a page"
        );
    }

    /// Each subcommand is in the help or named as absent.
    #[test]
    fn every_subcommand_is_there_or_named() {
        let tool = super::super::Cli::command();
        let help = named(tool.clone()).render_help().to_string();
        for name in [
            "record", "extract", "verify", "emulate", "lockstep", "cases", "step", "perf", "report",
        ] {
            let is_here = tool.find_subcommand(name).is_some();
            let absent = help.split("Not in this build:").nth(1).unwrap_or_default();
            assert!(is_here || absent.contains(name), "{name}: {help}");
        }
    }
}
