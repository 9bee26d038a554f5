//! Counters of a shadow stack: calls, returns, switches, and failures of its self-check.

/// The events that a tracker has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Instructions executed.
    pub instructions: u64,
    /// Calls that made a frame, signals not included.
    pub calls: u64,
    /// Returns to the address stored by the call, with the rsp it implies.
    pub returns: u64,
    /// Returns through a slot that the program was seen to write: retpolines, eh_return.
    pub rewritten: u64,
    /// Returns to an address that was pushed or stored as data: `push; ret`.
    pub trampolines: u64,
    /// Frames dropped because rsp rose above them without a return.
    pub dropped: u64,
    /// Signals delivered.
    pub signals: u64,
    /// `rt_sigreturn` to a place other than the interrupted one.
    pub redirected: u64,
    /// Switches between stacks.
    pub switches: u64,
    /// Self-check failures: unexplained returns through a held slot to another address.
    pub mismatched: u64,
    /// Self-check failures: unexplained returns through a slot that was not held.
    pub unheld: u64,
    /// Instructions at which the ground truth was unknown.
    pub unknown: u64,
}

impl Stats {
    /// The number of self-check failures.
    pub const fn failures(&self) -> u64 {
        self.mismatched + self.unheld
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Stats) -> Stats {
        Stats {
            instructions: self.instructions + other.instructions,
            calls: self.calls + other.calls,
            returns: self.returns + other.returns,
            rewritten: self.rewritten + other.rewritten,
            trampolines: self.trampolines + other.trampolines,
            dropped: self.dropped + other.dropped,
            signals: self.signals + other.signals,
            redirected: self.redirected + other.redirected,
            switches: self.switches + other.switches,
            mismatched: self.mismatched + other.mismatched,
            unheld: self.unheld + other.unheld,
            unknown: self.unknown + other.unknown,
        }
    }
}
