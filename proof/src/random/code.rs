//! Machine code for a program: every instruction with the layout of the frame at it.

mod body;
mod frame;
mod start;

use super::asm::{Assembler, Label, Layout, Section};
use super::program::RandomProgram;
use iced_x86::IcedError;

/// Where the data lies.
pub(super) const DATA: u64 = 0x60_0000;
/// Where the handlers' own stack ends, and its size.
pub(super) const OWN_STACK: u64 = 0x70_0000;
/// Bytes of it.
pub(super) const OWN_STACK_SIZE: u64 = 0x4_0000;
/// The size of the faulting instructions, which the handler skips.
pub(super) const FAULT_LEN: i32 = 3;

/// A word of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
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
    data: Vec<Word>,
    functions: Vec<Label>,
    /// A word for each function, with its address.
    pointers: Vec<u64>,
    fail: Label,
    retpoline: Label,
    needs_retpoline: bool,
    restorer: Label,
}

/// The code of a program.
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
        restorer,
        functions,
    };
    for at in 0..lowering.functions.len() {
        let pointer = lowering.word(Word::Address(lowering.functions[at]));
        lowering.pointers.push(pointer);
    }
    lowering.start(entry);
    for at in 0..program.functions.len() {
        lowering.function(at);
    }
    lowering.helpers();
    let layout = lowering.asm.place()?;
    let address = |label| layout.addresses.get(&label).copied().unwrap_or_default();
    let data = lowering.data.iter().map(|word| match *word {
        Word::Number(number) => number,
        Word::Address(label) => address(label),
    });
    Ok(Code {
        data: data.collect(),
        entry: address(entry),
        layout,
    })
}

impl Lowering<'_> {
    /// A new word of data; gives its address.
    fn word(&mut self, word: Word) -> u64 {
        self.data.push(word);
        DATA + 8 * (self.data.len() as u64 - 1)
    }

    /// A chunk in the hot section, with a function's first layout.
    fn begin(&mut self, name: &str, label: Label) {
        self.asm.begin(name, Section::Hot, label);
        self.asm.row = super::row::FrameLayout::ENTRY;
        self.asm.depth = 8;
    }
}

/// A value for a callee-saved register that no other function, and no address, has.
fn nonce(taste: u64, saved: u8) -> u64 {
    let mixed = (taste ^ u64::from(saved) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed | 0x8100_0000_0000_0001
}
