//! Counts of what was kept and what became zero.

/// Counts of words of memory and of registers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Samples.
    pub samples: u64,
    /// Words of memory that were not zero.
    pub words: u64,
    /// Those of them that unwinders read, and that are no address of code or of a stack.
    pub read: u64,
    /// Those that are addresses of code.
    pub code: u64,
    /// Those that are addresses of a stack.
    pub stack: u64,
    /// Those that unwinders read, but that cannot be addresses: other numbers stand for them.
    pub replaced: u64,
    /// Those that became zero.
    pub zeroed: u64,
    /// Registers that became zero, or another number.
    pub registers: u64,
    /// Samples in which a word that cannot be an address decides a walk: what is read is kept there
    /// as it is.
    pub as_they_are: u64,
}

impl Kept {
    /// Adds other counts.
    pub fn add(&mut self, other: &Kept) {
        self.samples += other.samples;
        self.words += other.words;
        self.read += other.read;
        self.code += other.code;
        self.stack += other.stack;
        self.replaced += other.replaced;
        self.zeroed += other.zeroed;
        self.registers += other.registers;
        self.as_they_are += other.as_they_are;
    }
}
