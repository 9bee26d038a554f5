//! How far a long run is: a line on standard error that is overwritten, and taken away at the end.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Nothing is shown of runs that are shorter.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two lines.
const EVERY: Duration = Duration::from_millis(250);
/// Begin of the line, and erase to its end (ECMA-48, `CR` and `EL`).
const ERASE: &str = "\r\x1b[K";

/// Shows progress on a terminal, and nothing elsewhere.
pub struct Progress {
    unit: &'static str,
    begin: Instant,
    next: Duration,
    is_wanted: bool,
    is_shown: bool,
}

impl Progress {
    /// Of a run that counts `unit`. With `shares_output`, the run itself writes to standard output
    /// and nothing is shown if that is a terminal.
    pub fn new(unit: &'static str, shares_output: bool) -> Progress {
        let shares = shares_output && std::io::stdout().is_terminal();
        Progress {
            unit,
            begin: Instant::now(),
            next: QUIET,
            is_wanted: std::io::stderr().is_terminal() && !shares,
            is_shown: false,
        }
    }

    /// There were `count` so far. Cheap, but it asks for the time: tell it every so many.
    pub fn tell(&mut self, count: u64) {
        if !self.is_wanted {
            return;
        }
        let time = self.begin.elapsed();
        if time < self.next {
            return;
        }
        self.next = time + EVERY;
        self.is_shown = true;
        let line = line(count, self.unit, time);
        // Nobody is told if it cannot be told.
        let _ = write!(std::io::stderr(), "{ERASE}{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "{ERASE}");
        }
    }
}

fn line(count: u64, unit: &str, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (all, rate) = (short(count as f64), short(count as f64 / seconds));
    format!("{all} {unit}, {rate} a second, {seconds:.0} s")
}

/// A number with three or four digits, and its power of ten in words of the SI.
fn short(number: f64) -> String {
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
        let told = line(90_000_000, "instructions", Duration::from_secs(2));
        assert_eq!(told, "90.0 M instructions, 45.0 M a second, 2 s");
        let told = line(900, "programs", Duration::from_secs(3));
        assert_eq!(told, "900 programs, 300 a second, 3 s");
    }
}
