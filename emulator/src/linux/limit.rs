//! The machine's own limits, by name. Not here: keeping them (`quota`).

use super::options::Limits;
use crate::address_space::PAGE_SIZE;
use std::fmt;

/// A limit of the machine that a program can reach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::pages`].
    Memory,
    /// [`Limits::file_bytes`].
    Files,
    /// [`Limits::tasks`].
    Tasks,
    /// [`Limits::objects`].
    Objects,
    /// The open files of this process on the host.
    HostFiles,
}

impl Limit {
    /// All limits that can be set.
    pub const SETTABLE: [Limit; 4] = [Limit::Memory, Limit::Files, Limit::Tasks, Limit::Objects];

    /// Its name, as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::Memory => "memory",
            Limit::Files => "files",
            Limit::Tasks => "tasks",
            Limit::Objects => "objects",
            Limit::HostFiles => "host-files",
        }
    }

    /// What it limits.
    pub fn description(self) -> &'static str {
        match self {
            Limit::Memory => "bytes of memory in use by all processes",
            Limit::Files => "bytes of files, names and links kept in memory",
            Limit::Tasks => "threads and processes at the same time",
            Limit::Objects => "pipe ends, sockets, timers and the like at the same time",
            Limit::HostFiles => "files of the host open at the same time",
        }
    }

    /// How a user raises it.
    fn advice(self) -> String {
        match self {
            Limit::HostFiles => "`ulimit -n` raises the limit".to_owned(),
            limit => format!("--limit {}=N raises the limit", limit.as_str()),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "too many {}; {}", self.description(), self.advice())
    }
}

impl Limits {
    /// The limit of memory, bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.pages as u64).saturating_mul(PAGE_SIZE)
    }

    /// Sets a limit: bytes, or a number.
    pub fn set(&mut self, limit: Limit, value: u64) {
        let number = usize::try_from(value).unwrap_or(usize::MAX);
        match limit {
            Limit::Memory => self.pages = number / PAGE_SIZE as usize,
            Limit::Files => self.file_bytes = value,
            Limit::Tasks => self.tasks = number,
            Limit::Objects => self.objects = number,
            Limit::HostFiles => {}
        }
    }
}
