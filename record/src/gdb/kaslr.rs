//! How far the kernel was moved.
//!
//! The interrupt descriptor table is where it always is, and its gates lead to handlers whose names
//! are known. A kernel that has none there yet has return addresses on its stack.

use super::GdbRecordError;
use super::machine::{IDT, Machine};
use super::world;
use unwind_sim_host::gdb::GdbError;
use unwind_sim_recordings::kernel::KernelImage;

/// Words of the stack that are looked at.
const WORDS: u64 = 512;
/// Vectors, and the names of their handlers since Linux 5.8 and before.
const HANDLERS: [(u64, &str, &str); 4] = [
    (0, "asm_exc_divide_error", "divide_error"),
    (6, "asm_exc_invalid_op", "invalid_op"),
    (13, "asm_exc_general_protection", "general_protection"),
    (14, "asm_exc_page_fault", "page_fault"),
];

/// What every kernel's banner starts with.
const BANNER: &str = "Linux version ";
/// Bytes of the banner that are read.
const BANNER_LEN: usize = 128;

pub(super) fn find(machine: &mut Machine, image: &KernelImage) -> Result<u64, GdbRecordError> {
    if let Some(bias) = by_handlers(machine, image) {
        return Ok(bias);
    }
    let sp = world::regs(&machine.registers()?).rsp() & !7;
    // The stack may end.
    let words = (0..WORDS).map_while(|n| machine.word(sp.wrapping_add(8 * n)).ok());
    let words: Vec<u64> = words.collect();
    image.kaslr(&words).ok_or_else(|| other_kernel(image, None))
}

/// Is it the kernel of `image` that runs, moved by `bias`? Its banner says so.
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
    match release == Some(version.as_str()) {
        true => Ok(()),
        false => Err(other_kernel(image, release)),
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
