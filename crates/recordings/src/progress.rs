//! The progress of a long run: a line on standard error that is overwritten, and erased at the end.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use unwind_sim_unwind::printable::printable;

/// Shorter runs show nothing.
const QUIET: Duration = Duration::from_secs(1);
/// Time between updates.
const EVERY: Duration = Duration::from_millis(250);
/// Start of the line, and erase to its end (ECMA-48, `CR` and `EL`).
const ERASE: &str = "\r\x1b[K";

/// Shows progress on standard error if that is a terminal.
pub struct Progress {
    unit: &'static str,
    /// The final count, if known.
    total: Option<u64>,
    begin: Instant,
    next: Duration,
    is_wanted: bool,
    is_shown: bool,
}

impl Progress {
    /// Progress of a run that counts `unit`. With `shares_output`, the run itself writes to
    /// standard output, and nothing is shown if that is a terminal.
    pub fn new(unit: &'static str, shares_output: bool) -> Progress {
        let shares = shares_output && std::io::stdout().is_terminal();
        Progress {
            unit,
            total: None,
            begin: Instant::now(),
            next: QUIET,
            is_wanted: std::io::stderr().is_terminal() && !shares,
            is_shown: false,
        }
    }

    /// Progress of a run that counts `unit` up to `total`.
    pub fn up_to(unit: &'static str, total: u64) -> Progress {
        Progress {
            total: Some(total),
            ..Progress::new(unit, false)
        }
    }

    /// Reports a count of `count` so far. Cheap, but reads the clock, so do not call it for every
    /// unit.
    pub fn tell(&mut self, count: u64) {
        self.tell_with(count, String::new);
    }

    /// Like [`Progress::tell`]; what `detail` returns comes behind it.
    pub fn tell_with(&mut self, count: u64, detail: impl FnOnce() -> String) {
        if !self.is_wanted {
            return;
        }
        let time = self.begin.elapsed();
        if time < self.next {
            return;
        }
        self.next = time + EVERY;
        self.is_shown = true;
        let line = line(count, self.unit, time, self.total) + &printable(&detail());
        // Other output to the terminal starts at the start of the line, not after this text.
        let _ = write!(std::io::stderr(), "{ERASE}{line}\r");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "{ERASE}");
        }
    }
}

fn line(count: u64, unit: &str, time: Duration, total: Option<u64>) -> String {
    let seconds = time.as_secs_f64();
    let (all, rate) = (short(count as f64), count as f64 / seconds);
    let told = short(rate);
    match total.filter(|_| count > 0) {
        Some(total) => {
            let left = total.saturating_sub(count) as f64 / rate;
            let total = short(total as f64);
            format!("{all} of {total} {unit}, {told} a second, {left:.0} s left")
        }
        None => format!("{all} {unit}, {told} a second, {seconds:.0} s"),
    }
}

/// A number with three or four digits and an SI prefix.
pub fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_count_and_the_rate() {
        let told = line(90_000_000, "instructions", Duration::from_secs(2), None);
        assert_eq!(told, "90.0 M instructions, 45.0 M a second, 2 s");
        let told = line(900, "programs", Duration::from_secs(3), None);
        assert_eq!(told, "900 programs, 300 a second, 3 s");
        let told = line(900, "samples", Duration::from_secs(3), Some(2400));
        assert_eq!(told, "900 of 2400 samples, 300 a second, 5 s left");
        let told = line(0, "samples", Duration::from_secs(3), Some(2400));
        assert_eq!(told, "0 samples, 0 a second, 3 s");
    }
}
