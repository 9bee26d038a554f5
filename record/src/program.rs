//! A program that runs in the emulated machine: how it is started, and how its run ended.

use std::path::Path;
use unwind_sim_emulator::linux::{Options, Outcome};

/// The program.
pub struct RunningProgram {
    /// Its path below the root.
    pub path: Vec<u8>,
    /// How it is started.
    pub options: Options,
}

impl RunningProgram {
    /// The program at a path, started without arguments.
    pub fn alone(path: &Path) -> RunningProgram {
        let path = path.as_os_str().as_encoded_bytes().to_vec();
        let args = vec![path.clone()];
        let options = Options {
            args,
            ..Options::default()
        };
        RunningProgram { path, options }
    }
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// As the program, or the machine, wanted.
    Outcome(Outcome),
    /// It took too long.
    Timeout,
    /// Somebody asked for it.
    Stopped,
}

impl End {
    /// Did it end because something is not modelled?
    pub fn is_not_modelled(&self) -> bool {
        matches!(
            self,
            End::Outcome(
                Outcome::Unsupported { .. } | Outcome::Blocked { .. } | Outcome::OutOfPages { .. }
            )
        )
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Outcome(outcome) => write!(f, "{outcome}"),
            End::Timeout => f.write_str("stopped: the time is over"),
            End::Stopped => f.write_str("stopped by a signal"),
        }
    }
}
