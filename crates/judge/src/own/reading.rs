//! What a `read` of the process gives: recorded memory, and code of the images where none was
//! recorded.

use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::memory::{Memory, MemoryError};
use unwind_sim_unwind::unwinder::Stack;

/// Up to `length` bytes from `address`, and why there are no more.
pub(super) fn read(
    stack: &Stack<'_>,
    address: u64,
    length: usize,
) -> (Vec<u8>, Option<MemoryError>) {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = address.wrapping_add(bytes.len() as u64);
        let wanted = length - bytes.len();
        let error = match recorded(stack.memory, at, wanted, &mut bytes) {
            Ok(()) => continue,
            Err(error) => error,
        };
        match code(stack, at) {
            Some(code) => bytes.extend(&code[..code.len().min(wanted)]),
            None => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

/// Adds as much of the recorded memory as there is in one piece.
///
/// # Errors
/// If there is nothing at `at`.
fn recorded(
    memory: &dyn Memory,
    at: u64,
    wanted: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), MemoryError> {
    let mut piece = vec![0; wanted];
    if memory.read(at, &mut piece).is_ok() {
        bytes.extend(piece);
        return Ok(());
    }
    // The longest piece that can be read: one of this length or more cannot.
    let (mut can, mut cannot) = (0, wanted);
    while cannot - can > 1 {
        let middle = can + (cannot - can) / 2;
        match memory.read(at, &mut piece[..middle]) {
            Ok(()) => can = middle,
            Err(_) => cannot = middle,
        }
    }
    memory.read(at, &mut piece[..can.max(1)])?;
    bytes.extend(&piece[..can.max(1)]);
    Ok(())
}

/// The code of the image at `at`, as far as it is known in one piece.
fn code<'a>(stack: &Stack<'a>, at: u64) -> Option<&'a [u8]> {
    let mapping = stack.space.find(at)?;
    let svma = mapping.svma(at);
    let sections = mapping.image.as_ref()?.sections();
    let texts = sections.iter().filter(|s| s.kind == SectionKind::Text);
    let left = usize::try_from(mapping.range.end - at).unwrap_or(usize::MAX);
    let found = texts.filter_map(|section| {
        let from = usize::try_from(svma.checked_sub(section.address)?).ok()?;
        section.data.get(from..).filter(|code| !code.is_empty())
    });
    found.map(|code| &code[..code.len().min(left)]).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unwind_sim_unwind::image::{AddressSpace, Bytes, Image, ImageParts, Mapping, Section};
    use unwind_sim_unwind::memory::{MemoryCopy, Regions};
    use unwind_sim_unwind::regs::Regs;
    use unwind_sim_unwind::start::Start;

    #[test]
    fn memory_comes_first_then_code_and_what_is_missing_is_said() {
        let text = Section {
            kind: SectionKind::Text,
            address: 0x1000,
            data: Bytes::from_vec((1..=16).collect()),
        };
        let image = Image::new(ImageParts {
            text: std::iter::once(0x1000..0x1010).collect(),
            sections: vec![text],
            ..ImageParts::default()
        });
        let mut space = AddressSpace::new();
        space.map(Mapping {
            range: 0x40_1000..0x40_1010,
            bias: 0x40_0000,
            image: Some(Arc::new(image)),
            name: "a".into(),
        });
        let first = MemoryCopy::new(0x7000, &[0xaa; 24]);
        let second = MemoryCopy::new(0x7018, &[0xbb; 8]);
        let memory = Regions::new(vec![first, second]);
        let start = Start::from_regs(Regs::frame(0x40_1001, 0x7000, 0));
        let stack = Stack::new(&start, &space, &memory);

        // Both pieces of memory, as if they were one.
        let (bytes, error) = read(&stack, 0x7010, 16);
        assert_eq!((bytes, error), ([[0xaa; 8], [0xbb; 8]].concat(), None));

        // The second piece ends at 0x7020, and no code follows.
        let (bytes, error) = read(&stack, 0x7019, 16);
        assert_eq!(bytes, [0xbb; 7]);
        assert!(matches!(
            error,
            Some(MemoryError::BeyondCopy {
                address: 0x7020,
                ..
            })
        ));
        // Code, up to its end.
        let (bytes, error) = read(&stack, 0x40_1004, 4);
        assert_eq!((bytes, error), (vec![5, 6, 7, 8], None));
        let (bytes, error) = read(&stack, 0x40_100e, 4);
        assert_eq!(bytes, [15, 16]);
        assert_eq!(error.map(MemoryError::address), Some(0x40_1010));

        // Nothing is mapped there; but to read nothing cannot fail.
        let (bytes, error) = read(&stack, 0, 8);
        assert!(bytes.is_empty() && error.is_some());
        assert_eq!(read(&stack, 0, 0), (Vec::new(), None));
    }
}
