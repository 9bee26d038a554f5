//! The command line as a target: its saved inputs, and a few hundred command lines that have every option
//! of every command at least once. It is alone in its process, whose streams and folder it takes.
//!
//! `UNWIND_SIM_FUZZ_RUNS` is another number of runs. `examples/command_lines.rs` makes as many as you like.

use std::path::Path;
use unwind_sim_fuzz::command_line::bounds::{COMMANDS_LEFT_OUT, OPTIONS_LEFT_OUT};
use unwind_sim_fuzz::command_line::{Failure, Runs};

const RUNS_VARIABLE: &str = "UNWIND_SIM_FUZZ_RUNS";

/// What is left out exists: a list that names what is gone would hide what comes later.
fn check_left_out() {
    let tool = unwind_sim::definition();
    let commands: Vec<_> = tool.get_subcommands().collect();
    for (name, _) in COMMANDS_LEFT_OUT {
        let mut words = name.split(' ');
        let found = words.try_fold(&tool, |command, word| command.find_subcommand(word));
        // `lockstep` is not in every build.
        assert!(
            found.is_some() || cfg!(not(target_arch = "x86_64")),
            "no command {name}"
        );
    }
    for (of, option, _) in OPTIONS_LEFT_OUT {
        let commands = commands
            .iter()
            .filter(|c| of.is_empty() || c.get_name() == of);
        let mut arguments = commands.flat_map(|command| command.get_arguments());
        let is_generated = ["help", "version"].contains(&option);
        assert!(
            is_generated || arguments.any(|arg| arg.get_id() == option),
            "no option {option} of {of}"
        );
    }
}

#[test]
fn command_lines_end_as_they_should() {
    check_left_out();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut runs = Runs::new().expect("a temporary folder and the corpora");
    let mut failures: Vec<Failure> = Vec::new();

    let saved = std::fs::read_dir(here.join("corpus/command_line")).expect("the saved inputs");
    let mut saved: Vec<_> = saved.map(|entry| entry.expect("an entry").path()).collect();

    // The order of a folder is not defined.
    saved.sort();
    for path in saved {
        let data = std::fs::read(&path).expect("a saved input");
        failures.extend(runs.run(&data, |_| ()).err());
    }

    // Every second run has an argument that is wanted.
    let all = 2 * runs.pairs() as u64;
    let wanted = std::env::var(RUNS_VARIABLE).map_or(all, |n| n.parse().expect("a number"));
    for seed in 0..wanted {
        let data = runs.of_seed(seed);
        if let Err(failure) = runs.run(&data, |_| ()) {
            println!("seed {seed}:");
            failures.push(failure);
        }
    }

    let shown: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));

    // Only so many runs reach every argument.
    if wanted >= all {
        assert_eq!(runs.missing(), [""; 0], "arguments that no run had");
        let statuses: Vec<usize> = runs.statuses().map(|(status, _)| status).collect();
        assert_eq!(
            statuses,
            [0, 1, 2, 3],
            "runs reach what is behind the checks"
        );
    }
}
