//! The stepper in this process's terminal, or played from a script.

use super::super::again::{Given, STEP};
use super::super::args::open_file;
use super::super::output::{self, tell};
use super::super::states::{Shown, Subject};
use super::super::status::Status;
use super::{Args, PlayArgs, editor};
use anyhow::{Context, Result, bail};
use clap::FromArgMatches;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_show::demo::{Demo, DemoNote};
use unwind_sim_show::stepper::script::Played;
use unwind_sim_show::stepper::terminal::{self, Jobs, SessionOptions};
use unwind_sim_show::stepper::{EditedAt, Stepper, StepperPosition};
use unwind_sim_view::timeline::Builder;

/// The size of the largest script, bytes.
const SCRIPT_MAX: u64 = 1 << 20;

/// Keys, and what is left of a session that was interrupted to edit the case.
struct Session {
    /// The script; keys come from the terminal if there is none.
    script: Option<Played>,
    /// The place to return to.
    place: Option<EditedAt>,
    /// What happened meanwhile.
    message: String,
    can_edit: bool,
    /// Look for the first finding, and go there: neither a state nor a walk was asked for.
    is_at_finding: bool,
    /// What a demo tells.
    notes: Vec<DemoNote>,
}

/// How showing states ended.
enum Ended {
    Done,
    /// The user wants to edit the case.
    Edit(EditedAt),
}

/// Plays the script, or lends the terminal, until the user quits. A case that he edits is opened again.
pub(super) fn run(args: &Args, given: &Given<'_>, subject: &Subject) -> Result<Status> {
    let mut session: Option<Session> = None;
    loop {
        let mut is_open = false;
        let mut open = || {
            let file = args.path.as_deref().map(open_file).transpose()?;
            let can_edit = file.as_ref().is_some_and(editor::can_edit);
            (args.states).open(subject, file.as_ref(), |mut shown| {
                is_open = true;
                let (session, first) = match &mut session {
                    // It returns to its place.
                    Some(session) => (session, 0),
                    none => {
                        let first = shown.first(args.from.as_deref())?;
                        (none.insert(Session::new(args)?), first)
                    }
                };
                session.can_edit = can_edit;
                show(args, given, &subject.given_words(), shown, first, session)
            })
        };

        let ended = open();
        let place = match (ended, &session) {
            (Ok(Ended::Edit(place)), _) => Some(place),
            // The edited case cannot be opened.
            (Err(error), Some(session)) if !is_open => {
                session.can_mend(&error)?;
                None
            }
            (ended, _) => return ended.map(|_| Status::AsExpected),
        };

        if let (Some(session), Some(path)) = (&mut session, args.path.as_deref()) {
            session.place = place.or(session.place.take());
            session.message = editor::edit(path);
        }
    }
}

impl Session {
    fn new(args: &Args) -> Result<Session> {
        let script = args.play.script.as_deref().map(read_script).transpose()?;
        let script = script.map(|script| Played::new(&script)).transpose()?;

        // Keys come from the one, and the screen goes to the other.
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if script.is_none() && !is_terminal {
            bail!(
                "standard input and output are not a terminal; --script plays keys, --json writes the states"
            );
        }
        Ok(Session {
            script,
            place: None,
            message: String::new(),
            can_edit: false,
            is_at_finding: args.from.is_none() && args.walk.is_none(),
            notes: Vec::new(),
        })
    }

    /// Asks whether the case that cannot be opened after an edit is edited again.
    ///
    /// # Errors
    /// With `error`, if it is not.
    fn can_mend(&self, error: &anyhow::Error) -> Result<()> {
        for line in format!("{error:#}").lines() {
            tell!("{line}");
        }
        // A script cannot answer.
        if self.script.is_none() {
            tell!("Enter edits it again; q and Enter leaves");
            let mut answer = String::new();
            let read = std::io::stdin().read_line(&mut answer)?;
            if read > 0 && answer.trim().is_empty() {
                return Ok(());
            }
        }
        bail!("the edited case cannot be shown")
    }
}

/// Plays the script, or lends the terminal.
fn show(
    args: &Args,
    given: &Given<'_>,
    words: &[OsString],
    shown: Shown<'_>,
    first: u64,
    session: &mut Session,
) -> Result<Ended> {
    // The position is part of the command, so that it opens where the reader is now.
    let again = |spot: &StepperPosition| {
        let mut own = vec!["--from".to_owned(), spot.number.to_string()];
        own.extend(["--walk".to_owned(), spot.walk.clone()]);
        let step = spot
            .step
            .map(|step| ["--at-step".to_owned(), step.to_string()]);
        own.extend(step.into_iter().flatten());
        let own: Vec<OsString> = own.into_iter().map(OsString::from).collect();
        given.command(&STEP, &own, words)
    };

    let builder = Builder::new(shown.run);
    let (states, index) = (shown.states, shown.index);
    // The samples of a case come from a trace of it; a program is the case itself.
    let can_edit = session.can_edit && states.is_program();
    let stepper = Stepper::new(states, index, builder, Box::new(again), first)?;
    let Some(mut stepper) = stepper else {
        bail!("there is nothing to step through: no sample, no instruction");
    };
    if can_edit {
        stepper.allow_edit();
    }

    stepper.tell_beside(std::mem::take(&mut session.notes));
    // What is asked for, or was left to edit the case, comes before what is wrong.
    let opens_at_finding = session.is_at_finding && session.place.is_none();
    if let Some(place) = &session.place {
        stepper.return_to(place)?;
    } else if let Some(walk) = &args.walk
        && !stepper.tell(walk, args.at_step)?
    {
        bail!("no walk {walk}; there are {}", stepper.walks().join(", "));
    }
    if !session.message.is_empty() {
        stepper.say(&std::mem::take(&mut session.message));
    }

    match &mut session.script {
        Some(script) => {
            // Screens of a script are compared as text, so they have no colours.
            let mut out = output::plain_stdout();
            if opens_at_finding {
                stepper.open_at_finding()?;
            }
            script.go_on(&mut stepper, args.play.size, &mut out)?;
            out.flush()?;
        }
        None => {
            let options = SessionOptions {
                colour: output::is_coloured(),
                stop: &shown.stop,
                ended: ended(),
                jobs: jobs(),
                opens_at_finding,
            };
            terminal::interact(&mut stepper, &options)?;
            // The terminal is as it was: now the signal may do what it does.
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            unwind_sim_host::end_by_signal();
        }
    }

    if stepper.wants_edit() {
        Ok(Ended::Edit(stepper.place()?))
    } else {
        Ok(Ended::Done)
    }
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
    // The demo's first note comes first, not what is wrong.
    let notes = demo.notes();
    let first = notes.first().map_or(0, |note| note.sample);
    let mut session = Session::new(&args)?;
    session.is_at_finding = false;
    session.notes = notes;
    args.states
        .of_opened(demo.input()?, file.clone(), |shown| {
            show(&args, &given, &[file.into()], shown, first, &mut session)
        })?;
    Ok(Status::AsExpected)
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
    let read = if path == Path::new("-") {
        std::io::stdin().take(SCRIPT_MAX).read_to_string(&mut text)
    } else {
        let file = open::stream(path).with_context(cannot)?;
        file.take(SCRIPT_MAX).read_to_string(&mut text)
    };
    read.with_context(cannot)?;
    Ok(text)
}
