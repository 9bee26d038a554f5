//! How much is known after instructions.

use iced_x86::Code;

/// For each code: how many of the places that instructions wrote are known afterwards.
#[derive(Clone, Debug)]
pub struct Precision {
    /// Places written, and those of which it is known what they hold.
    counts: Vec<(u64, u64)>,
    /// Cases that were executed to the end.
    cases: Vec<u64>,
}

impl Precision {
    pub(super) fn new() -> Precision {
        Precision {
            counts: vec![(0, 0); Code::values().len()],
            cases: vec![0; Code::values().len()],
        }
    }

    pub(super) fn add(&mut self, code: Code, is_exact: bool) {
        if let Some((written, exact)) = self.counts.get_mut(code as usize) {
            *written += 1;
            *exact += u64::from(is_exact);
        }
    }

    pub(super) fn case(&mut self, code: Code) {
        if let Some(cases) = self.cases.get_mut(code as usize) {
            *cases += 1;
        }
    }

    /// The number of cases of this code that were executed to the end.
    pub fn cases(&self, code: Code) -> u64 {
        self.cases.get(code as usize).copied().unwrap_or_default()
    }

    /// The places that instructions of this code wrote, and those known afterwards.
    pub fn of(&self, code: Code) -> (u64, u64) {
        self.counts.get(code as usize).copied().unwrap_or_default()
    }
}
