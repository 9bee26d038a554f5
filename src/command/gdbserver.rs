//! `gdbserver`: a run or a recording behind gdb's remote protocol.

use super::args::open_file;
use super::output::{self, tell};
use super::states::{Shown, StateArgs, Subject};
use super::status::Status;
use super::stdin;
use anyhow::{Result, bail};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_serve::debuggee::Debuggee;
use unwind_sim_serve::gdb::{self, Once};

/// Serve gdb: a program in the emulated machine, forwards and backwards, or the samples of a
/// recording.
///
/// gdb connects with `target remote :PORT`, or starts this program itself, with `-`. All is
/// read-only. `monitor help` in gdb lists what the simulator adds: the true chain, the walks of all
/// unwinders, and where they become wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim gdbserver :1234 -- /bin/ls
  gdb -ex 'target remote | unwind-sim gdbserver - -- ./prog'
  gdb -ex 'target remote | unwind-sim gdbserver - trace.bin'
  unwind-sim gdbserver --from main corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s")]
pub(crate) struct Args {
    /// The first state: a number of instructions executed or of a sample, or a function.
    #[arg(long, value_name = "N|FUNCTION")]
    from: Option<String>,
    /// End when the first client leaves. By default the next one is waited for, until one kills the
    /// program.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    states: StateArgs,
    /// The port of 127.0.0.1 to listen on, or - for standard input and output. By default any that is
    /// free. It is printed.
    #[arg(value_name = ":PORT|-", value_hint = clap::ValueHint::Other)]
    at: Option<OsString>,
    #[arg(value_name = "TRACE|CASE", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath, help = stdin::help(FileKind::is_recording))]
    path: Option<PathBuf>,
    /// A program and its arguments, or a recording or case.
    #[arg(value_name = "PROG", last = true, conflicts_with = "path")]
    program: Vec<OsString>,
}

/// Where the client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Streams,
    Port(u16),
}

/// The place that a word names; `None` if it is the name of a file.
fn place(word: &OsStr) -> Result<Option<At>> {
    let text = word.to_string_lossy();
    if text == "-" {
        return Ok(Some(At::Streams));
    }
    let Some((host, port)) = text.split_once(':') else {
        return Ok(None);
    };
    let Ok(port) = port.parse() else {
        return match host {
            "" => bail!("`{text}` is not a port such as :1234; :0 is any that is free"),
            _ => Ok(None),
        };
    };
    match host {
        "" | "127.0.0.1" | "localhost" => Ok(Some(At::Port(port))),
        _ => bail!(
            "gdbserver listens on 127.0.0.1 only, since anybody who connects sees what the program \
             can see; to reach it from another computer, forward the port with ssh"
        ),
    }
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let at = args.at.as_deref().map(place).transpose()?.flatten();
    let path = match (&args.at, at, &args.path) {
        // A single word that is not a place is the recording.
        (Some(word), None, None) if args.program.is_empty() => Some(stdin::named(word.clone())?),
        (Some(word), None, _) => {
            bail!(
                "`{}` is not a port such as :1234",
                word.as_os_str().printable()
            )
        }
        (_, _, path) => path.clone(),
    };

    if at == Some(At::Streams) && path.as_deref().is_some_and(stdin::is_named_by) {
        bail!(
            "standard input cannot be both the recording and what gdb sends; give the recording by its \
             name, or a port such as :1234"
        );
    }

    // A path is opened here, once, because a pipe can be read only once.
    let named = match &path {
        Some(path) => {
            let subject = args.states.subject(Some(path), &[])?;
            subject.zip(Some(Some(open_file(path)?)))
        }
        None if args.program.is_empty() => args.states.subject(None, &[])?.zip(Some(None)),
        None => Subject::of_words(&args.program),
    };
    let Some((subject, file)) = named else {
        bail!(
            "nothing to serve: unwind-sim gdbserver :PORT -- PROG, unwind-sim gdbserver :PORT TRACE|CASE, \
             or unwind-sim gdbserver :PORT --kernel FILE"
        )
    };

    // Port 0 lets the kernel choose a free one (bind, ip(7)); it is printed.
    let at = at.unwrap_or(At::Port(0));
    let from = args.from.as_deref();
    args.states.open(&subject, file.as_ref(), |shown| {
        serve(shown, from, at, args.once)
    })
}

fn serve(mut shown: Shown<'_>, from: Option<&str>, at: At, once: bool) -> Result<Status> {
    let first = shown.first(from)?;
    let debuggee = Debuggee::new(shown.opened(first))?;

    match at {
        At::Streams => {
            let mut out = output::raw_stdout();
            gdb::serve(debuggee, std::io::stdin(), &mut out)?;
        }
        At::Port(port) => {
            let once = if once { Once::Yes } else { Once::No };
            gdb::listen(debuggee, port, once, |address| {
                let mut out = output::raw_stdout();
                writeln!(out, "listening on {address}")?;
                out.flush()?;
                tell!("unwind-sim: in gdb: target remote {address}");
                Ok(())
            })?;
        }
    }
    Ok(Status::AsExpected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_from_files() {
        let at = |word: &str| place(OsStr::new(word)).expect("a place or a file");
        assert_eq!(at("-"), Some(At::Streams));
        assert_eq!(at(":0"), Some(At::Port(0)));
        assert_eq!(at("localhost:65535"), Some(At::Port(65535)));
        assert_eq!(at("127.0.0.1:1"), Some(At::Port(1)));
        assert_eq!(at("trace.bin"), None);
        assert_eq!(at("a:b"), None);
    }

    #[test]
    fn other_computers_are_not_served() {
        for (word, problem) in [
            ("0.0.0.0:1234", "127.0.0.1 only"),
            ("example.org:1", "127.0.0.1 only"),
            (":65536", "not a port"),
            (":", "not a port"),
        ] {
            let error = place(OsStr::new(word)).expect_err(word).to_string();
            assert!(error.contains(problem), "{word}: {error}");
        }
    }
}
