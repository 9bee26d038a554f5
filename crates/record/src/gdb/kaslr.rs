//! Determines the KASLR offset.
//!
//! The interrupt descriptor table has a fixed address, and its gates lead to handlers with known
//! names. A kernel that has not set it up yet has return addresses on its stack.

use super::GdbRecordError;
use super::machine::{self, IDT, Machine};
use crate::kernel::{KernelMachine as _, world};
use unwind_sim_host::gdb::GdbError;
use unwind_sim_recordings::kernel::KernelImage;

/// Number of stack words examined.
const WORDS: u64 = 512;
/// Vectors, and the names of their handlers since Linux 5.8 and before.
const HANDLERS: [(u64, &str, &str); 4] = [
    (0, "asm_exc_divide_error", "divide_error"),
    (6, "asm_exc_invalid_op", "invalid_op"),
    (13, "asm_exc_general_protection", "general_protection"),
    (14, "asm_exc_page_fault", "page_fault"),
];

/// Start of every kernel's banner.
const BANNER: &str = "Linux version ";
/// Length of the banner that is read, bytes.
const BANNER_LEN: usize = 128;

pub(super) fn find(machine: &mut Machine, image: &KernelImage) -> Result<u64, GdbRecordError> {
    if let Some(bias) = by_handlers(machine, image) {
        return Ok(bias);
    }
    let sp = machine::regs(&machine.registers()?).rsp() & !7;
    // The stack may end before.
    let words = (0..WORDS).map_while(|n| machine.word(sp.wrapping_add(8 * n)).ok());
    let words: Vec<u64> = words.collect();
    image.kaslr(&words).ok_or_else(|| other_kernel(image, None))
}

/// Checks, by its banner, that the running kernel is the one of `image`, with the KASLR offset
/// `bias`.
pub(super) fn is_image(
    machine: &mut Machine,
    image: &KernelImage,
    bias: u64,
) -> Result<(), GdbRecordError> {
    let banner = image.symbols.address("linux_banner");
    let (Some(at), Some(version)) = (banner, &image.version) else {
        return Ok(());
    };
    let bytes = match machine.read(at.wrapping_add(bias), BANNER_LEN) {
        Ok(bytes) => bytes,
        Err(GdbError::Refused { .. }) => return Err(other_kernel(image, None)),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&bytes);
    let release = text
        .strip_prefix(BANNER)
        .and_then(|rest| rest.split(' ').next());
    if release == Some(version.as_str()) {
        Ok(())
    } else {
        Err(other_kernel(image, release))
    }
}

fn other_kernel(image: &KernelImage, running: Option<&str>) -> GdbRecordError {
    GdbRecordError::OtherKernel {
        image: image
            .version
            .clone()
            .unwrap_or_else(|| "another kernel".into()),
        running: running.map(str::to_owned),
    }
}

/// The offset by the handlers, which must all agree.
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
