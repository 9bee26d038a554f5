//! The stepper in this process's terminal, or played from a script.

use super::super::again::{Given, STEP};
use super::super::output;
use super::super::states::Shown;
use super::super::status::Status;
use super::{Args, PlayArgs};
use anyhow::{Context, Result, bail};
use clap::FromArgMatches;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_show::demo::{Demo, DemoNote};
use unwind_sim_show::stepper::script::play;
use unwind_sim_show::stepper::terminal::{self, Jobs, SessionOptions};
use unwind_sim_show::stepper::{Stepper, StepperPosition};
use unwind_sim_view::timeline::Builder;

/// The size of the largest script, bytes.
const SCRIPT_MAX: u64 = 1 << 20;

/// Where the stepper opens.
struct Opening {
    /// The state.
    first: u64,
    /// Look for the first finding, and go there.
    is_at_finding: bool,
    /// What a demo tells.
    notes: Vec<DemoNote>,
}

/// Plays the script, or lends the terminal, from state `first` on. If neither that nor a walk was asked
/// for, it opens at the first finding.
pub(super) fn show(
    args: &Args,
    given: &Given<'_>,
    words: &[OsString],
    shown: Shown<'_>,
    first: u64,
) -> Result<Status> {
    let opening = Opening {
        first,
        is_at_finding: args.from.is_none() && args.walk.is_none(),
        notes: Vec::new(),
    };
    open_at(args, given, words, shown, opening)
}

fn open_at(
    args: &Args,
    given: &Given<'_>,
    words: &[OsString],
    shown: Shown<'_>,
    opening: Opening,
) -> Result<Status> {
    let script = args.play.script.as_deref().map(read_script).transpose()?;

    // Keys come from the one, and the screen goes to the other.
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if script.is_none() && !is_terminal {
        bail!(
            "standard input and output are not a terminal; --script plays keys, --json writes the states"
        );
    }

    // The printed command needs `--` in front of a program, whose options would otherwise be ours.
    let rest: Vec<OsString> = match args.path {
        Some(_) => words.to_vec(),
        None => [&["--".into()], words].concat(),
    };

    // The position is part of the command, so that it opens where the reader is now.
    let again = |spot: &StepperPosition| {
        let mut own = vec!["--from".to_owned(), spot.number.to_string()];
        own.extend(["--walk".to_owned(), spot.walk.clone()]);
        let step = spot
            .step
            .map(|step| ["--at-step".to_owned(), step.to_string()]);
        own.extend(step.into_iter().flatten());
        let own: Vec<OsString> = own.into_iter().map(OsString::from).collect();
        given.command(&STEP, &own, &rest)
    };

    let builder = Builder::new(shown.run);
    let (states, index) = (shown.states, shown.index);
    let stepper = Stepper::new(states, index, builder, Box::new(again), opening.first)?;
    let Some(mut stepper) = stepper else {
        bail!("there is nothing to step through: no sample, no instruction");
    };

    stepper.tell_beside(opening.notes);
    if let Some(walk) = &args.walk
        && !stepper.tell(walk, args.at_step)
    {
        bail!("no walk {walk}; there are {}", stepper.walks().join(", "));
    }

    match script {
        Some(script) => {
            // Screens of a script are compared as text, so they have no colours.
            let mut out = output::plain_stdout();
            if opening.is_at_finding {
                stepper.open_at_finding()?;
            }
            play(&mut stepper, &script, args.play.size, &mut out)?;
            out.flush()?;
        }
        None => {
            let options = SessionOptions {
                colour: output::is_coloured(),
                stop: &shown.stop,
                ended: ended(),
                jobs: jobs(),
                opens_at_finding: opening.is_at_finding,
            };
            terminal::interact(&mut stepper, &options)?;
            // The terminal is as it was: now the signal may do what it does.
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            unwind_sim_host::end_by_signal();
        }
    }

    Ok(Status::AsExpected)
}

/// Steps through the recording of a demo, with the walks that it tells of.
pub(crate) fn demo(demo: &Demo, play: PlayArgs, tool: &clap::Command) -> Result<Status> {
    let name = demo.name;
    if !demo.is_trace() {
        bail!("the demo `{name}` has no stacks to step through; unwind-sim demo {name} tells it");
    }
    let file = format!("{name}.bin");
    let mut words = vec!["unwind-sim".to_owned(), "step".to_owned()];
    words.extend(demo.options());
    words.push(file.clone());
    let matches = tool.clone().try_get_matches_from(words)?;
    let (_, matches) = matches.subcommand().context("the command is step")?;
    let mut args = Args::from_arg_matches(matches)?;
    args.play = play;
    let given = Given::new(tool, matches).after(&format!("unwind-sim demo {name} -o {file}"));
    // What is told comes first, not what is wrong.
    let notes = demo.notes();
    let opening = Opening {
        first: notes.first().map_or(0, |note| note.sample),
        is_at_finding: false,
        notes,
    };
    args.states.of_opened(demo.input()?, file.clone(), |shown| {
        open_at(&args, &given, &[file.into()], shown, opening)
    })
}

/// How this process is suspended.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn jobs() -> Option<Jobs> {
    let watched = unwind_sim_host::watch_job_control();
    Some(Jobs {
        asked: watched.asked,
        continued: watched.continued,
        suspend: unwind_sim_host::suspend,
    })
}

/// Signals stop this process at once, and Ctrl-Z is a key like others.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn jobs() -> Option<Jobs> {
    None
}

/// Becomes true when a signal wants the end.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn ended() -> &'static AtomicBool {
    unwind_sim_host::stop_on_signals()
}

/// Signals end this process at once.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn ended() -> &'static AtomicBool {
    static NEVER: AtomicBool = AtomicBool::new(false);
    &NEVER
}

/// Reads a script; `-` is standard input.
fn read_script(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read the script {}", path.printable());
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(SCRIPT_MAX).read_to_string(&mut text),
        false => {
            let file = open::stream(path).with_context(cannot)?;
            file.take(SCRIPT_MAX).read_to_string(&mut text)
        }
    };
    read.with_context(cannot)?;
    Ok(text)
}
