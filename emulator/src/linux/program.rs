//! A program to run in the emulated machine: how it is started, and how its run ended.

use super::options::ProcessOptions;
use super::outcome::Outcome;
use std::path::Path;

/// A program and how to start it.
#[derive(Clone, Debug)]
pub struct RunningProgram {
    /// Its path below the root directory.
    pub path: Vec<u8>,
    /// How to start it.
    pub options: ProcessOptions,
}

impl RunningProgram {
    /// The program at `path`, started without arguments.
    pub fn alone(path: &Path) -> RunningProgram {
        let path = path.as_os_str().as_encoded_bytes().to_vec();
        let args = vec![path.clone()];
        let options = ProcessOptions {
            args,
            ..ProcessOptions::default()
        };
        RunningProgram { path, options }
    }

    /// Starts it by its file name alone, in its folder. Unless its arguments name that folder, what is
    /// on its stack then does not depend on it.
    pub fn start_in_its_folder(&mut self) {
        if let Some(end) = self.path.iter().rposition(|&byte| byte == b'/') {
            let name = [&b"./"[..], &self.path[end + 1..]].concat();
            let path = std::mem::replace(&mut self.path, name);
            self.options.cwd = path[..end.max(1)].to_vec();
        }
    }
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The program or the machine ended the run.
    Outcome(Outcome),
    /// The time limit was reached.
    Timeout,
    /// The run was stopped by request.
    Stopped,
}

impl End {
    /// Did it end at something that is not modelled?
    pub fn is_not_modelled(&self) -> bool {
        matches!(
            self,
            End::Outcome(
                Outcome::Unsupported { .. }
                    | Outcome::Blocked { .. }
                    | Outcome::OutOfPages { .. }
                    | Outcome::OutOfTasks { .. }
            )
        )
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Outcome(outcome) => write!(f, "{outcome}"),
            End::Timeout => f.write_str("stopped: the time limit was reached"),
            End::Stopped => f.write_str("stopped by a signal"),
        }
    }
}
