//! The environment of a recorded program: little of ours, since it is on the recorded stacks.

use super::Args;
use crate::command::output::tell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use unwind_sim_recordings::counted::counted;

/// What a program needs to be found and to start as it does for its user.
const KEPT: [&str; 4] = ["PATH", "LANG", "TERM", "LD_LIBRARY_PATH"];
/// The number of names that are listed.
const LISTED: usize = 24;

/// The variables of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    pub(super) variables: Vec<(OsString, OsString)>,
    /// The names of ours that it does not get, in order.
    pub(super) left_out: Vec<OsString>,
}

/// Is a variable of this name passed on?
fn is_kept(name: &OsStr) -> bool {
    KEPT.iter().any(|kept| name == *kept)
}

impl Environment {
    /// The variables as `execve` takes them.
    pub(super) fn pairs(&self) -> Vec<Vec<u8>> {
        let pair = |(name, value): &(OsString, OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        self.variables.iter().map(pair).collect()
    }
}

impl Args {
    /// The environment of a program that is started.
    pub(super) fn environment(&self) -> Environment {
        let given = self.machine.env.iter();
        let given = given.map(|pair| split(pair));
        if !self.machine.env.is_empty() || self.machine.clear_env {
            return Environment {
                variables: given.collect(),
                left_out: Vec::new(),
            };
        }
        let mut ours: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        ours.sort();
        let (variables, other): (Vec<_>, Vec<_>) = ours
            .into_iter()
            .partition(|(name, _)| self.keep_env || is_kept(name));
        Environment {
            variables,
            left_out: other.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

/// `NAME=VALUE` as a name and a value.
fn split(pair: &OsStr) -> (OsString, OsString) {
    let bytes = pair.as_bytes();
    let (name, value) = match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let owned = |bytes| OsStr::from_bytes(bytes).to_owned();
    (owned(name), owned(value))
}

/// Says which variables the program did not get.
pub(super) fn tell_left_out(left_out: &[OsString]) {
    if left_out.is_empty() {
        return;
    }
    let names = left_out
        .iter()
        .take(LISTED)
        .map(|name| name.to_string_lossy());
    let names: Vec<_> = names.collect();
    let more = match left_out.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tell!(
        "the program did not get {} of the environment: {}{more} (--keep-env passes all on)",
        counted(left_out.len(), "variable"),
        names.join(", ")
    );
}
