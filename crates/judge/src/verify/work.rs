//! Counts how much of the checking was computed. The rest was reused from the check before.

/// The numbers of evaluations in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Instructions at which at least one claim had to be evaluated.
    pub frames: u64,
    /// Claims that were evaluated in full.
    pub whole: u64,
    /// Claims for which only the parts that may have changed were evaluated.
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
            "claims evaluated at {frames} instructions: {whole} in full, {parts} in part"
        )
    }
}
