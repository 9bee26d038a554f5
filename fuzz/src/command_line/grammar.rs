//! Command lines, drawn from the definition of the command line itself: a new option is drawn without a
//! change here.

use super::bounds;
use super::choices::Choices;
use super::values::{Paths, value};
use clap::{Arg, Command};
use std::ffi::OsString;

/// Maximum number of options of a run that need not be there.
const OPTIONS: usize = 2;
/// The same, for runs that try everything.
const OPTIONS_WILD: usize = 8;
/// Maximum number of values of an argument that takes several.
const VALUES_MAX: usize = 3;

/// A command without subcommands, and its arguments.
pub(super) struct LeafCommand {
    /// Its words, such as `tables check`.
    pub(super) name: String,
    command: Command,
    args: Vec<Arg>,
    /// The statuses that its help names.
    pub(super) statuses: Vec<u8>,
}

impl LeafCommand {
    /// The kinds of files that it wants.
    pub(super) fn kinds(&self) -> &'static [&'static str] {
        let positional = self.args.iter().filter(|arg| arg.is_positional());
        let mut names = positional.filter_map(|arg| arg.get_value_names()?.first());
        names.next().map_or(&[], |name| bounds::kinds(name))
    }

    /// The names of its arguments.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.args.iter().map(|arg| arg.get_id().as_str())
    }
}

/// All commands that are drawn.
pub(super) fn leaves(tool: &Command) -> Vec<LeafCommand> {
    let mut leaves = Vec::new();
    add(tool, "", &mut leaves);
    leaves
}

fn add(command: &Command, path: &str, leaves: &mut Vec<LeafCommand>) {
    for below in command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
    {
        let name = format!("{path} {}", below.get_name())
            .trim_start()
            .to_owned();

        // The list has the reason for each; a test checks that it names no command that is gone.
        if bounds::COMMANDS_LEFT_OUT
            .iter()
            .any(|(left_out, _)| *left_out == name)
        {
            continue;
        }

        // A group of commands does nothing by itself.
        if below.get_subcommands().next().is_some() {
            add(below, &name, leaves);
            continue;
        }

        // The definition is the source: a new option is drawn without a change here.
        let args = below.get_arguments();
        let args = args.filter(|arg| !bounds::is_left_out(&name, arg.get_id().as_str()));
        leaves.push(LeafCommand {
            args: args.cloned().collect(),
            command: below.clone(),
            statuses: statuses(below),
            name,
        });
    }
}

/// The statuses below `Exit status:` in the help.
fn statuses(command: &Command) -> Vec<u8> {
    let help = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let (_, list) = help.split_once("Exit status:").unwrap_or_default();
    let words = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// A command line that was drawn.
pub(super) struct CommandLine {
    /// The words, of which the first is the program's name.
    pub(super) words: Vec<OsString>,
    /// The arguments that are in it.
    pub(super) given: Vec<String>,
}

/// Draws a command line of `leaf`, in which the argument `wanted` is.
pub(super) fn draw(
    leaf: &LeafCommand,
    wanted: Option<&str>,
    paths: &dyn Paths,
    choices: &mut Choices<'_>,
) -> CommandLine {
    let chosen = chosen(leaf, wanted, choices);
    let mut words: Vec<OsString> = vec!["unwind-sim".into()];
    words.extend(leaf.name.split(' ').map(OsString::from));

    // Options first, then positional arguments, which keep their order.
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        chosen.iter().partition(|arg| arg.is_positional());

    for arg in options {
        let flag = match (arg.get_long(), arg.get_short()) {
            // Both spellings must mean the same.
            (Some(long), Some(_)) if choices.one_in(2) => format!("--{long}"),
            (_, Some(short)) => format!("-{short}"),
            (Some(long), None) => format!("--{long}"),
            (None, None) => continue,
        };

        // A flag has no word after it, or that would become a positional argument.
        if !arg.get_action().takes_values() {
            words.push(flag.into());
            continue;
        }
        let word = value(arg, &leaf.name, paths, choices);
        // What starts with a dash would be taken for an option.
        let is_dashed = word.as_encoded_bytes().starts_with(b"-");
        if flag.starts_with("--") && (is_dashed || choices.one_in(4)) {
            let mut joined = OsString::from(flag + "=");
            joined.push(word);
            words.push(joined);
        } else {
            words.extend([flag.into(), word])
        }
    }
    for arg in positional {
        // What follows belongs to a program and may look like options.
        if arg.is_last_set() {
            words.push("--".into());
        }
        let many = arg
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1);
        let count = if many {
            1 + choices.below(VALUES_MAX)
        } else {
            1
        };
        words.extend((0..count).map(|_| value(arg, &leaf.name, paths, choices)));
    }

    let given = chosen.iter().map(|arg| arg.get_id().to_string()).collect();
    CommandLine { words, given }
}

/// The arguments of a line: those that are wanted or required, a few others, and what makes a program
/// end. In most lines none conflicts with another.
fn chosen(leaf: &LeafCommand, wanted: Option<&str>, choices: &mut Choices<'_>) -> Vec<Arg> {
    let few = if choices.rarely(1) {
        OPTIONS_WILD
    } else {
        OPTIONS
    };
    let mut few = choices.below(few + 1);
    let is_wanted = |arg: &&Arg| wanted == Some(arg.get_id().as_str());
    let mut chosen: Vec<&Arg> = leaf.args.iter().filter(is_wanted).collect();
    for arg in &leaf.args {
        // Rarely without what is needed, since the error for that is a path of the program, too.
        let is_needed = arg.is_required_set() && !choices.rarely(16)
            || arg.is_positional() && !choices.rarely(4)
            || bounds::always(&leaf.name, arg.get_id().as_str()).is_some();
        let is_drawn = few > 0 && choices.one_in(leaf.args.len() / 4 + 1);
        if is_wanted(&arg) || !(is_needed || is_drawn) {
            continue;
        }

        // Arguments that conflict end in a usage error: seldom, or little else would be tested.
        if !choices.rarely(1)
            && chosen
                .iter()
                .any(|other| conflict(&leaf.command, arg, other))
        {
            continue;
        }
        few -= usize::from(is_drawn && !is_needed);
        chosen.push(arg);
    }

    // A damaged program may never end by itself, nor may a case that is shown.
    if !chosen.iter().any(|arg| arg.get_id() == bounds::ENDS) {
        chosen.extend(leaf.args.iter().filter(|arg| arg.get_id() == bounds::ENDS));
    }
    // Positional arguments are in their order.
    chosen.sort_by_key(|arg| arg.get_index());
    chosen.into_iter().cloned().collect()
}

fn conflict(command: &Command, one: &Arg, other: &Arg) -> bool {
    let is = |of: &Arg, with: &Arg| {
        let conflicts = command.get_arg_conflicts_with(of);
        conflicts.iter().any(|arg| arg.get_id() == with.get_id())
    };
    is(one, other) || is(other, one)
}
