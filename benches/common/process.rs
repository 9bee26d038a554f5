//! Whole processes as rivals, with discarded output.

use super::timing::{Timing, children_cpu};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// User and system time of the process.
    Cpu,
    /// The time that passed.
    Wall,
}

/// A process and its times in each round.
pub(crate) struct BenchedProcess {
    pub(crate) name: &'static str,
    command: Command,
    /// Another exit status than zero that is no failure.
    accepted: Option<i32>,
    cpu_ns: Vec<f64>,
    wall_ns: Vec<f64>,
}

impl BenchedProcess {
    pub(crate) fn new(name: &'static str, mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self {
            name,
            command,
            accepted: None,
            cpu_ns: Vec::new(),
            wall_ns: Vec::new(),
        }
    }

    /// The same, whose exit status may also be `status`.
    pub(crate) fn accepting(mut self, status: i32) -> Self {
        self.accepted = Some(status);
        self
    }

    pub(crate) fn text(&mut self) -> Result<Vec<u8>, String> {
        let output = self.command.stdout(Stdio::piped()).output();
        self.command.stdout(Stdio::null());
        let output = output.map_err(|e| format!("{}: {e}", self.name))?;
        if !output.status.success() {
            return Err(format!("{}: {}", self.name, output.status));
        }
        if output.stdout.is_empty() {
            return Err(format!("{} writes nothing", self.name));
        }
        Ok(output.stdout)
    }

    /// Runs it once and measures.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let (cpu, wall) = (children_cpu(), Instant::now());
        let done = self.warm_up();
        let (cpu, wall) = (children_cpu() - cpu, wall.elapsed());
        self.cpu_ns.push(cpu.as_nanos() as f64);
        self.wall_ns.push(wall.as_nanos() as f64);
        done
    }

    /// Runs it once.
    pub(crate) fn warm_up(&mut self) -> Result<(), String> {
        match self.command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) if self.accepted.is_some() && status.code() == self.accepted => Ok(()),
            Ok(status) => Err(format!("{}: {status}", self.name)),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    /// The times of its rounds for each of `units`.
    pub(crate) fn figure(&self, clock: Clock, units: f64) -> Timing {
        let times = match clock {
            Clock::Cpu => &self.cpu_ns,
            Clock::Wall => &self.wall_ns,
        };
        Timing::new(self.name, times.iter().map(|ns| ns / units).collect())
    }
}
