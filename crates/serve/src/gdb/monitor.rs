//! The commands behind gdb's `monitor`: what the simulator knows and gdb does not.

use super::target::GdbTarget;
use crate::error::Error;
use crate::tell;
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd};
use unwind_sim_judge::states::Direction;
use unwind_sim_unwind::printable::printable_lines;

const HELP: &str = "\
monitor state                where this is in the run
monitor truth [THREAD]       the true chain, which no unwinder made
monitor walk [UNWINDER]      the chain of an unwinder; without a name, the verdict of each
monitor wrong [next|previous]  the unwinders that are wrong here, or the next or last state where
                             one becomes wrong: `continue` or `reverse-continue` then stops there
monitor explain [UNWINDER]   a walk step by step; without a name, each that is wrong
monitor files                gdb's commands that load the symbols of all files mapped here
monitor help                 this list
";

impl MonitorCmd for GdbTarget<'_> {
    fn handle_monitor_cmd(&mut self, cmd: &[u8], mut out: ConsoleOutput<'_>) -> Result<(), Error> {
        let command = String::from_utf8_lossy(cmd);
        let text = match self.told(&command)? {
            Ok(text) => text,
            Err(problem) => format!("{problem}\n"),
        };
        // A packet for each line: none gets too long.
        for line in printable_lines(&text).split_inclusive('\n') {
            out.write_raw(line.as_bytes());
            out.flush();
        }
        Ok(())
    }
}

impl GdbTarget<'_> {
    /// The answer to a command, or what is wrong with the command.
    fn told(&mut self, command: &str) -> Result<Result<String, String>, Error> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let debuggee = &mut self.debuggee;
        let (total, walkers) = (debuggee.total(), debuggee.walkers());

        Ok(match words[..] {
            [] | ["help"] => Ok(HELP.to_owned()),
            ["state"] => Ok(tell::where_it_is(debuggee.state()?, total)),
            ["truth"] => Ok(tell::truth(debuggee.state()?)),
            ["truth", tid] => match tid.parse() {
                Ok(tid) => tell::truth_of(debuggee.state()?, tid),
                Err(_) => Err(format!("{tid:?} is not the number of a thread")),
            },
            ["walk"] => Ok(tell::verdicts(debuggee.state()?, &walkers)),
            ["walk", name] => tell::walk(debuggee.state()?, &walkers, name),
            ["wrong"] => Ok(tell::wrong(debuggee.state()?, &walkers)),
            ["wrong", "next"] => Ok(self.appoint(Direction::Forward)?),
            ["wrong", "previous"] => Ok(self.appoint(Direction::Backward)?),
            ["explain"] => debuggee.explained(None)?,
            ["explain", name] => debuggee.explained(Some(name))?,
            ["files"] => Ok(debuggee.symbol_commands()?),
            _ => Err(format!(
                "no command `monitor {command}`; `monitor help` lists them"
            )),
        })
    }

    /// Looks for the next or last state at which an unwinder becomes wrong, and makes gdb's next way
    /// in this direction stop there: gdb would not notice if the state changed by itself.
    fn appoint(&mut self, direction: Direction) -> Result<String, Error> {
        let (way, command) = match direction {
            Direction::Forward => ("after", "continue"),
            Direction::Backward => ("before", "reverse-continue"),
        };
        let Some((number, names)) = self.debuggee.wrong(direction)? else {
            let judged = self.debuggee.judged().join(", ");
            if judged.is_empty() {
                return Ok("no unwinder that finds rules is shown\n".to_owned());
            }
            return Ok(format!("none of {judged} becomes wrong {way} this state\n"));
        };
        let names = names.join(", ");
        let why = format!("wrong from state {number} on: {names}");
        let text = format!("{why}; `{command}` stops there\n");
        self.debuggee.appoint(number, why);
        Ok(text)
    }
}
