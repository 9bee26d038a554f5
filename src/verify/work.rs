//! What a run evaluated: the rest was known from before.

/// Evaluations of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Instructions at which the outcome of some claim was not known.
    pub frames: u64,
    /// Claims that were evaluated as a whole.
    pub whole: u64,
    /// Claims of which that was evaluated which may have changed.
    pub parts: u64,
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Work {
            frames,
            whole,
            parts,
        } = self;
        write!(
            f,
            "evaluated: at {frames} instructions, {whole} claims as a whole, {parts} in parts"
        )
    }
}
