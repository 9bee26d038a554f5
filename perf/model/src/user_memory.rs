//! User memory and registers: what a program reads that walks a user stack.
//!
//! A stack that is written down is laid out as compiled with frame pointers: each frame has its
//! caller's frame pointer and, above it, its return address. A stack from a file has what was
//! recorded there.

use super::stack::Leaf;

/// Where the innermost frame of a stack that is laid out keeps its caller's frame pointer.
const BASE: u64 = 0x7ffd_1000_0000;
/// From one frame to its caller's, bytes.
const FRAME: u64 = 32;

/// Stack pointer and frame pointer of user code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointers {
    /// rsp.
    pub sp: u64,
    /// rbp.
    pub bp: u64,
}

/// What a file has of a stack besides its frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMemory {
    /// The registers.
    pub pointers: Pointers,
    /// Where the copy of the stack begins.
    pub address: u64,
    /// The copy.
    pub bytes: Vec<u8>,
}

impl UserMemory {
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let start = address.checked_sub(self.address);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let end = start.and_then(|start| start.checked_add(into.len()));
        let found = start
            .zip(end)
            .and_then(|(start, end)| self.bytes.get(start..end));
        found.inspect(|found| into.copy_from_slice(found)).is_some()
    }
}

/// Where frame `index` of `depth` keeps its caller's frame pointer; 0 behind the outermost.
fn slot(index: usize, depth: usize) -> u64 {
    match index < depth {
        true => BASE + FRAME * index as u64,
        false => 0,
    }
}

/// The registers of a stack that is laid out.
pub(super) fn pointers(depth: usize, leaf: Leaf) -> Pointers {
    let own = slot(0, depth);
    let callers = slot(1, depth);
    match leaf {
        Leaf::Body => Pointers { sp: own, bp: own },
        // The return address is at the top; rbp is the caller's.
        Leaf::Entry => Pointers {
            sp: own + 8,
            bp: callers,
        },
        Leaf::AfterPush => Pointers {
            sp: own,
            bp: callers,
        },
    }
}

/// Reads memory of a stack of `depth` frames that is laid out; `frame` gives their addresses.
pub(super) fn read(
    depth: usize,
    frame: impl Fn(usize) -> u64,
    address: u64,
    into: &mut [u8],
) -> bool {
    for (at, byte) in (0..).zip(into) {
        let Some(offset) = address.checked_add(at).and_then(|a| a.checked_sub(BASE)) else {
            return false;
        };
        let index = (offset / FRAME) as usize;
        if index >= depth {
            return false;
        }
        let word = match offset % FRAME / 8 {
            0 => slot(index + 1, depth),
            1 if index + 1 < depth => frame(index + 1),
            _ => 0,
        };
        *byte = word.to_le_bytes()[(offset % 8) as usize];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: [u64; 3] = [0x30, 0x20, 0x10];

    fn word(address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let found = read(3, |index| FRAMES[index], address, &mut bytes);
        found.then(|| u64::from_le_bytes(bytes))
    }

    #[test]
    fn frames_are_linked_by_their_frame_pointers() {
        let Pointers { sp, bp } = pointers(3, Leaf::Body);
        assert_eq!((sp, word(bp + 8)), (bp, Some(0x20)));
        let next = word(bp).expect("it is there");
        assert_eq!((word(next), word(next + 8)), (Some(next + 32), Some(0x10)));
        // The outermost frame has no caller.
        assert_eq!((word(next + 32), word(next + 40)), (Some(0), Some(0)));
        // Bytes of two words.
        let [low, high] = [word(bp), word(bp + 8)].map(|word| word.expect("it is there"));
        assert_eq!(word(bp + 4), Some(low >> 32 | high << 32));
    }

    #[test]
    fn there_is_nothing_around_the_stack() {
        for address in [0, BASE - 8, BASE - 1, BASE + 96, BASE + 89, u64::MAX] {
            assert_eq!(word(address), None, "{address:#x}");
        }
        assert!(word(BASE + 88).is_some());
    }

    #[test]
    fn at_the_entry_the_return_address_is_at_the_top() {
        let entry = pointers(3, Leaf::Entry);
        assert_eq!(word(entry.sp), Some(0x20));
        let pushed = pointers(3, Leaf::AfterPush);
        assert_eq!((word(pushed.sp), pushed.bp), (Some(entry.bp), entry.bp));
        assert_eq!(pointers(1, Leaf::Entry).bp, 0);
    }

    #[test]
    fn a_copy_is_read_where_it_is() {
        let memory = UserMemory {
            address: 0x1000,
            bytes: (0..16).collect(),
            ..UserMemory::default()
        };
        let mut bytes = [0; 8];
        assert!(memory.read(0x1008, &mut bytes));
        assert_eq!(bytes, [8, 9, 10, 11, 12, 13, 14, 15]);
        for address in [0xfff, 0x1009, u64::MAX] {
            assert!(!memory.read(address, &mut bytes), "{address:#x}");
        }
    }
}
