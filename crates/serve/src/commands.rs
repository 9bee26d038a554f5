//! Commands that a user types into a debugger: gdb's `monitor`, and the console of an editor.

use crate::debuggee::Debuggee;
use crate::error::Error;
use crate::tell;
use unwind_sim_judge::states::Direction;

const HELP: &str = "\
state                   where this is in the run
truth [THREAD]          the true chain, which no unwinder made
walk [UNWINDER]         the chain of an unwinder; without a name, the verdict of each
wrong [next|previous]   the unwinders that are wrong here, or the next or last state where one
                        becomes wrong: the next way on or back then stops there
explain [UNWINDER]      a walk step by step; without a name, each that is wrong
files                   gdb's commands that load the symbols of all files mapped here
help                    this list
";

impl Debuggee<'_> {
    /// The answer to a command, or what is wrong with the command.
    pub(crate) fn command(&mut self, command: &str) -> Result<Result<String, String>, Error> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let (total, walkers) = (self.total(), self.walkers());

        Ok(match words[..] {
            [] | ["help"] => Ok(HELP.to_owned()),
            ["state"] => Ok(tell::where_it_is(self.state()?, total)),
            ["truth"] => Ok(tell::truth(self.state()?)),
            ["truth", tid] => match tid.parse() {
                Ok(tid) => tell::truth_of(self.state()?, tid),
                Err(_) => Err(format!("{tid:?} is not the number of a thread")),
            },
            ["walk"] => Ok(tell::verdicts(self.state()?, &walkers)),
            ["walk", name] => tell::walk(self.state()?, &walkers, name),
            ["wrong"] => Ok(tell::wrong(self.state()?, &walkers)),
            ["wrong", "next"] => Ok(self.appoint_wrong(Direction::Forward)?),
            ["wrong", "previous"] => Ok(self.appoint_wrong(Direction::Backward)?),
            ["explain"] => self.explained(None)?,
            ["explain", name] => self.explained(Some(name))?,
            ["files"] => Ok(self.symbol_commands()?),
            _ => Err(format!("no command {command:?}; `help` lists them")),
        })
    }

    /// Looks for the next or last state at which an unwinder becomes wrong, and makes the debugger's
    /// next way in this direction stop there: it would not notice if the state changed by itself.
    fn appoint_wrong(&mut self, direction: Direction) -> Result<String, Error> {
        let (way, command) = match direction {
            Direction::Forward => ("after", "continue"),
            Direction::Backward => ("before", "reverse-continue"),
        };
        let Some((number, names)) = self.wrong(direction)? else {
            if self.is_interrupted() {
                return Ok("interrupted before the end of the run\n".to_owned());
            }
            let judged = self.judged().join(", ");
            if judged.is_empty() {
                return Ok("no unwinder that finds rules is shown\n".to_owned());
            }
            return Ok(format!("none of {judged} becomes wrong {way} this state\n"));
        };
        let names = names.join(", ");
        let why = format!("wrong from state {number} on: {names}");
        let text = format!("{why}; `{command}` stops there\n");
        self.appoint(number, why);
        Ok(text)
    }
}
