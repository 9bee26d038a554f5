//! The commands behind gdb's `monitor`: what the simulator knows and gdb does not.

use super::target::GdbTarget;
use crate::error::Error;
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd};
use unwind_sim_unwind::printable::printable_lines;

impl MonitorCmd for GdbTarget<'_> {
    fn handle_monitor_cmd(&mut self, cmd: &[u8], mut out: ConsoleOutput<'_>) -> Result<(), Error> {
        let command = String::from_utf8_lossy(cmd);
        let text = match self.debuggee.command(&command)? {
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
