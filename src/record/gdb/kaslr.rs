//! How far the kernel was moved.
//!
//! The interrupt descriptor table is where it always is, and its gates lead to handlers whose names
//! are known. A kernel that has none there yet has return addresses on its stack.

use super::GdbRecordError;
use super::machine::{IDT, Machine};
use super::world;
use unwind_sim_corpus::kernel::KernelImage;

/// Words of the stack that are looked at.
const WORDS: u64 = 512;
/// Vectors, and the names of their handlers since Linux 5.8 and before.
const HANDLERS: [(u64, &str, &str); 4] = [
    (0, "asm_exc_divide_error", "divide_error"),
    (6, "asm_exc_invalid_op", "invalid_op"),
    (13, "asm_exc_general_protection", "general_protection"),
    (14, "asm_exc_page_fault", "page_fault"),
];

pub(super) fn find(machine: &mut Machine, image: &KernelImage) -> Result<u64, GdbRecordError> {
    if let Some(bias) = by_handlers(machine, image) {
        return Ok(bias);
    }
    let sp = world::regs(&machine.registers()?).rsp() & !7;
    // The stack may end.
    let words = (0..WORDS).map_while(|n| machine.word(sp.wrapping_add(8 * n)).ok());
    let words: Vec<u64> = words.collect();
    image.kaslr(&words).ok_or(GdbRecordError::NotFound)
}

/// By the handlers: all have to agree.
fn by_handlers(machine: &mut Machine, image: &KernelImage) -> Option<u64> {
    let mut biases = HANDLERS.into_iter().map(|(vector, name, old_name)| {
        let gate = machine.read(IDT + 16 * vector, 16).ok()?;
        let address = world::gate(gate.first_chunk()?);
        let bias = image.kaslr_by_symbol(name, address);
        bias.or_else(|| image.kaslr_by_symbol(old_name, address))
    });
    let first = biases.next()??;
    biases.all(|bias| bias == Some(first)).then_some(first)
}
