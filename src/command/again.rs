//! Prints follow-up commands. Each repeats the options of this run that it also accepts.
//!
//! Options are taken from the parsed command line, not from the structs they are parsed into, so a
//! new option is repeated without a change here. A test checks that every option of every command
//! is either repeated or listed.

use clap::{Arg, ArgAction, ArgMatches};
use std::ffi::{OsStr, OsString};
use unwind_sim_judge::shell::quoted;

/// A command that is printed as the next step for another command's result.
pub(crate) struct Printed {
    /// The words after `unwind-sim`.
    pub(crate) name: &'static [&'static str],
    /// Options that the caller writes itself.
    own: &'static [&'static str],
    /// Options of the printing command that are dropped, because they choose only what is shown,
    /// and in which form.
    left_out: &'static [&'static str],
}

/// Printed by `compare`, for a sample of a group.
pub(crate) const EXPLAIN: Printed = Printed {
    name: &["explain"],
    own: &["sample", "unwinder", "regs", "against"],
    left_out: &[
        "tid",
        "time",
        "limit",
        "group_by",
        "strict",
        "baseline",
        "threads",
        "json",
        // It belongs to a console log, of which no sample is shown.
        "recording",
    ],
};

/// Printed by `doctor`, for a stack of a complaint.
pub(crate) const BROKEN: Printed = Printed {
    name: &["explain"],
    own: &["sample", "unwinder", "regs", "against"],
    left_out: &["tid", "time", "limit", "all", "json"],
};

/// Printed by `doctor`, for a chain that perf recorded without a stack.
pub(crate) const CHAIN: Printed = Printed {
    name: &["perf", "script"],
    own: &["time"],
    left_out: &[
        "tid",
        "limit",
        "all",
        "json",
        "sample",
        "unwinder",
        "regs",
        // No program of a case is run, and no unwinder asked.
        "max_instructions",
        "timeout",
        "max_samples",
        "max_tasks",
        "unwinder_timeout",
        // The chain is printed as it was recorded.
        "exe",
        "force",
        "frame_pointer_kernel",
        "kaslr",
        "kernel",
        "max_frames",
        "offset",
        "orc_layout",
        "system_map",
        "view",
    ],
};

#[cfg(feature = "machine")]
/// Printed by `verify`, for one finding.
pub(crate) const VERIFY: Printed = Printed {
    name: &["verify"],
    own: &["unwinder", "only"],
    left_out: &["all", "baseline", "json", "stats"],
};

#[cfg(feature = "terminal")]
/// Printed by `step`, for the place that is shown.
pub(crate) const STEP: Printed = Printed {
    name: &["step"],
    own: &["from", "walk", "at_step"],
    left_out: &["json", "count", "script", "size"],
};

#[cfg(feature = "perf")]
/// Printed by `perf fuzz`, for one seed.
pub(crate) const FUZZ: Printed = Printed {
    name: &["perf", "fuzz"],
    own: &["seeds"],
    left_out: &["shrink", "threads"],
};

/// Printed by `import`, for the trace it wrote.
pub(crate) const COMPARE: Printed = Printed {
    name: &["compare"],
    own: &[],
    // The trace holds the images.
    left_out: &["output", "symfs"],
};

/// The options given to this run.
pub(crate) struct Given<'a> {
    command: &'a clap::Command,
    matches: &'a ArgMatches,
    /// What has to be run before any of them: a command line and ` && `.
    before: String,
}

impl<'a> Given<'a> {
    /// `command` is the whole tool; `matches` are those of the subcommand.
    pub(crate) fn new(command: &'a clap::Command, matches: &'a ArgMatches) -> Given<'a> {
        Given {
            command,
            matches,
            before: String::new(),
        }
    }

    /// The same, where a command line has to be run before each that is printed.
    #[cfg(feature = "terminal")]
    pub(crate) fn after(self, before: &str) -> Given<'a> {
        Given {
            before: format!("{before} && "),
            ..self
        }
    }

    /// The command line, quoted for a shell: `unwind-sim`, the name, `own`, the given options that
    /// the command accepts, and `rest`.
    pub(crate) fn command(&self, printed: &Printed, own: &[OsString], rest: &[OsString]) -> String {
        let mut words: Vec<OsString> = vec!["unwind-sim".into()];
        words.extend(printed.name.iter().map(OsString::from));
        words.extend_from_slice(own);
        if let Some(target) = subcommand(self.command, printed.name) {
            let carried = target.get_arguments().filter(|arg| carries(printed, arg));
            carried.for_each(|arg| self.given(arg, &mut words));
        }
        words.extend_from_slice(rest);
        let words: Vec<String> = words.iter().map(quoted).collect();
        self.before.clone() + &words.join(" ")
    }

    /// Adds the option with its values, if it was given.
    fn given(&self, arg: &Arg, words: &mut Vec<OsString>) {
        let (id, matches) = (arg.get_id().as_str(), self.matches);
        let by_hand = Some(clap::parser::ValueSource::CommandLine);
        if !matches.try_contains_id(id).unwrap_or(false) || matches.value_source(id) != by_hand {
            return;
        }
        let option: OsString = match arg.get_long() {
            Some(long) => format!("--{long}").into(),
            None => return,
        };
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            words.push(option);
            return;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            words.extend(assigned(&option, value));
        }
    }
}

/// `--option VALUE`; `--option=VALUE` where the value looks like an option.
fn assigned(option: &OsStr, value: &OsStr) -> Vec<OsString> {
    if value.as_encoded_bytes().first() != Some(&b'-') {
        return vec![option.to_owned(), value.to_owned()];
    }
    let mut word = option.to_owned();
    word.push("=");
    word.push(value);
    vec![word]
}

fn carries(printed: &Printed, arg: &Arg) -> bool {
    arg.get_long().is_some()
        && !arg.is_global_set()
        && !printed.own.contains(&arg.get_id().as_str())
        && !printed.left_out.contains(&arg.get_id().as_str())
}

fn subcommand<'a>(command: &'a clap::Command, name: &[&str]) -> Option<&'a clap::Command> {
    let down = |command: &'a clap::Command, word: &&str| command.find_subcommand(word);
    name.iter().try_fold(command, down)
}

#[cfg(feature = "perf")]
#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// A command, and the follow-up command that it prints.
    const PAIRS: [(&[&str], Printed); 7] = [
        (&["compare"], EXPLAIN),
        (&["doctor"], BROKEN),
        (&["doctor"], CHAIN),
        (&["verify"], VERIFY),
        (&["step"], STEP),
        (&["perf", "fuzz"], FUZZ),
        (&["import"], COMPARE),
    ];

    fn options(command: &clap::Command) -> Vec<&Arg> {
        let all = command.get_arguments();
        all.filter(|a| a.get_long().is_some() && !a.is_global_set())
            .filter(|a| !["help", "version"].contains(&a.get_id().as_str()))
            .collect()
    }

    /// Every option is repeated, written by the caller, or listed as dropped.
    #[test]
    fn no_option_is_forgotten() {
        let mut tool = super::super::Cli::command();
        tool.build();

        for (from, printed) in PAIRS {
            let (from, to) = (subcommand(&tool, from), subcommand(&tool, printed.name));
            let (from, to) = (from.expect("a command"), to.expect("a command"));
            // Options are repeated by id: one of the same id has the same meaning in both commands.
            let known: Vec<&str> = options(to).iter().map(|a| a.get_id().as_str()).collect();

            for option in options(from) {
                let id = option.get_id().as_str();
                let is_left_out = printed.left_out.contains(&id);
                assert!(
                    known.contains(&id) || is_left_out,
                    "`{}` has the option `{id}`, which `{}` would lose: add it there, or \
                     list it as one that does not change the result",
                    from.get_name(),
                    to.get_name()
                );
            }

            for id in printed.own {
                assert!(known.contains(id), "`{}` has no `{id}`", to.get_name());
            }

            // A list that outlives its option would hide that a later one of this name is lost.
            let own: Vec<&str> = options(from).iter().map(|a| a.get_id().as_str()).collect();
            for id in printed.left_out {
                assert!(own.contains(id), "`{}` has no `{id}`", from.get_name());
            }
        }
    }

    fn printed(line: &[&str], printed: &Printed) -> String {
        let mut tool = super::super::Cli::command();
        tool.build();
        let matches = tool.clone().try_get_matches_from(line).expect("it parses");
        let mut inner = &matches;
        while let Some((_, below)) = inner.subcommand() {
            inner = below;
        }
        Given::new(&tool, inner).command(printed, &["o".into()], &["x".into()])
    }

    #[test]
    fn what_was_given_is_carried() {
        // What selects samples or starts is left out: the printed command names its own.
        let line = "unwind-sim --color never compare a.bin --view copy:64 --max-frames=3 --limit 9 \
                    --kernel 5.2 --kernel vmlinuz --frame-pointer-kernel --regs hw,fake";
        let line: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            printed(&line, &EXPLAIN),
            "unwind-sim explain o --view copy:64 --max-frames 3 --frame-pointer-kernel --kernel 5.2 \
             --kernel vmlinuz x"
        );

        let line = [
            "unwind-sim",
            "verify",
            "--all",
            "--env=A=b c",
            "--env",
            "D=",
            "--defect",
            "p",
        ];
        assert_eq!(
            printed(&line, &VERIFY),
            "unwind-sim verify o --env 'A=b c' --env D= --defect x"
        );

        let line = [
            "unwind-sim",
            "perf",
            "fuzz",
            "--seeds",
            "0..9",
            "--events",
            "5",
        ];
        assert_eq!(printed(&line, &FUZZ), "unwind-sim perf fuzz o --events 5 x");
    }
}
