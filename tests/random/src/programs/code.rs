//! Generates a program's machine code: every instruction with the frame layout at it.

mod body;
mod frame;
mod jump;
mod start;

use super::asm::{Assembler, Label, Layout, Section};
use super::program::RandomProgram;
use iced_x86::IcedError;

/// Address of the data.
pub(super) const DATA: u64 = 0x60_0000;
/// End of the handlers' own stack.
pub(super) const OWN_STACK: u64 = 0x70_0000;
/// Size of that stack in bytes.
pub(super) const OWN_STACK_SIZE: u64 = 0x4_0000;
/// Size of the faulting instructions, which the handler skips.
pub(super) const FAULT_LEN: i32 = 3;

/// A word of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DataWord {
    Number(u64),
    Address(Label),
}

/// The program's code and data.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) layout: Layout,
    pub(super) data: Vec<u64>,
    /// The entry point.
    pub(super) entry: u64,
}

struct Lowering<'a> {
    program: &'a RandomProgram,
    asm: Assembler,
    data: Vec<DataWord>,
    functions: Vec<Label>,
    /// Addresses of the words that hold each function's address.
    pointers: Vec<u64>,
    fail: Label,
    retpoline: Label,
    needs_retpoline: bool,
    restorer: Label,
    links: jump::IndirectTargets,
}

/// Generates the code of a program.
///
/// # Errors
/// If an instruction cannot be encoded.
pub(super) fn lower(program: &RandomProgram) -> Result<Code, IcedError> {
    let mut asm = Assembler::new();
    let functions: Vec<Label> = program.functions.iter().map(|_| asm.label()).collect();
    let [fail, retpoline, restorer, entry] = [(); 4].map(|()| asm.label());
    let mut lowering = Lowering {
        program,
        asm,
        data: Vec::new(),
        pointers: Vec::new(),
        fail,
        retpoline,
        needs_retpoline: false,
        links: jump::IndirectTargets::default(),
        restorer,
        functions,
    };

    // Pointers first: code that calls through memory needs their addresses.
    for at in 0..lowering.functions.len() {
        let pointer = lowering.word(DataWord::Address(lowering.functions[at]));
        lowering.pointers.push(pointer);
    }

    lowering.start(entry);
    lowering.links();
    for at in 0..program.functions.len() {
        lowering.function(at);
    }

    // Last, because only now is it known which of them are needed.
    lowering.helpers();
    let layout = lowering.asm.place()?;

    let address = |label| layout.addresses.get(&label).copied().unwrap_or_default();

    // Labels have addresses only after all code was placed.
    let data = lowering.data.iter().map(|word| match *word {
        DataWord::Number(number) => number,
        DataWord::Address(label) => address(label),
    });
    Ok(Code {
        data: data.collect(),
        entry: address(entry),
        layout,
    })
}

impl Lowering<'_> {
    /// Adds a word of data and returns its address.
    fn word(&mut self, word: DataWord) -> u64 {
        self.data.push(word);
        DATA + 8 * (self.data.len() as u64 - 1)
    }

    /// Starts a chunk in the hot section, with the layout of a function's entry.
    fn begin(&mut self, name: &str, label: Label) {
        self.asm.begin(name, Section::Hot, label);
        self.asm.row = super::row::FrameLayout::ENTRY;
        self.asm.depth = 8;
    }
}

/// A value for a callee-saved register that is unique, and not an address.
fn nonce(taste: u64, saved: u8) -> u64 {
    let mixed = (taste ^ u64::from(saved) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed | 0x8100_0000_0000_0001
}
