//! Stacks, and what the kernel's stack walks find.
//!
//! There are two walks: user frames by frame pointers, and kernel frames from a mark. When they run
//! is up to `world`.
//!
//! A program may also walk a user stack itself, from user memory and registers. A stack that is
//! written down is laid out as compiled with frame pointers: each frame has its caller's frame
//! pointer and, above it, its return address. A stack from a file has what was recorded there.

use super::{KERNEL_TEXT, MACHINERY_TEXT};

/// The number of a stack of a [`StackSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// The position of the instruction pointer in the innermost function. It decides what a walk by
/// frame pointers finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaf {
    /// After the prologue: every frame is found.
    #[default]
    Body,
    /// At its first instruction. The kernel finds the caller only if it knows that a uprobe hit
    /// there (`is_uprobe_at_func_entry`): it then reads the return address from the stack.
    Entry,
    /// Between `push %rbp` and `mov %rsp,%rbp`: the caller is not found.
    AfterPush,
}

/// A source of stacks: a scenario, a recording, an emulated program.
pub trait StackSource {
    /// The number of frames of a stack; 0 if there is no such stack.
    fn depth(&self, stack: StackId) -> usize;
    /// The address of frame `index`, counted from the innermost; 0 if it does not exist.
    fn frame(&self, stack: StackId, index: usize) -> u64;
    /// The registers of user code in its innermost frame.
    fn pointers(&self, stack: StackId, leaf: Leaf) -> Pointers {
        laid_out(self.depth(stack), leaf)
    }
    /// Reads user memory. Returns `false` if a part of it does not exist.
    fn read(&self, stack: StackId, address: u64, into: &mut [u8]) -> bool {
        let depth = self.depth(stack);
        read_laid_out(depth, |index| self.frame(stack, index), address, into)
    }
    /// The name for logs.
    fn name(&self, stack: StackId) -> String {
        format!("s{}", stack.0)
    }
}

/// Stacks given as lists of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scripted {
    stacks: Vec<NamedStack>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedStack {
    name: String,
    stack: UserStack,
}

/// A user stack: its frames, innermost first, and its memory if it comes from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserStack {
    /// The addresses of its frames.
    pub frames: Vec<u64>,
    /// Registers and memory; without them the stack is laid out as compiled with frame pointers.
    pub memory: Option<UserMemory>,
}

impl From<Vec<u64>> for UserStack {
    fn from(frames: Vec<u64>) -> Self {
        Self {
            frames,
            memory: None,
        }
    }
}

impl Scripted {
    /// Adds a stack, innermost frame first.
    pub fn add(&mut self, name: &str, frames: Vec<u64>) -> StackId {
        let id = self.next();
        self.stacks.push(NamedStack {
            name: name.to_owned(),
            stack: frames.into(),
        });
        id
    }

    /// Replaces the frames and the memory of a stack.
    pub(super) fn set(&mut self, id: StackId, stack: UserStack) {
        if let Some(named) = self.stacks.get_mut(id.0 as usize) {
            named.stack = stack;
        }
    }

    /// The number of the next stack.
    pub(super) const fn next(&self) -> StackId {
        StackId(self.stacks.len() as u32)
    }

    /// The stack with that name.
    pub fn find(&self, name: &str) -> Option<StackId> {
        let index = self.stacks.iter().position(|known| known.name == name)?;
        Some(StackId(index as u32))
    }

    /// All stacks, with their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &[u64])> {
        let all = self.stacks.iter();
        all.map(|named| (named.name.as_str(), named.stack.frames.as_slice()))
    }

    fn get(&self, stack: StackId) -> Option<&NamedStack> {
        self.stacks.get(stack.0 as usize)
    }

    fn memory(&self, stack: StackId) -> Option<&UserMemory> {
        self.get(stack)?.stack.memory.as_ref()
    }
}

impl StackSource for Scripted {
    fn depth(&self, stack: StackId) -> usize {
        self.get(stack).map_or(0, |named| named.stack.frames.len())
    }

    fn frame(&self, stack: StackId, index: usize) -> u64 {
        let named = self.get(stack);
        let frame = named.and_then(|named| named.stack.frames.get(index).copied());
        frame.unwrap_or(0)
    }

    fn pointers(&self, stack: StackId, leaf: Leaf) -> Pointers {
        match self.memory(stack) {
            Some(memory) => memory.pointers,
            None => laid_out(self.depth(stack), leaf),
        }
    }

    fn read(&self, stack: StackId, address: u64, into: &mut [u8]) -> bool {
        match self.memory(stack) {
            Some(memory) => memory.read(address, into),
            None => {
                let frame = |index| self.frame(stack, index);
                read_laid_out(self.depth(stack), frame, address, into)
            }
        }
    }

    fn name(&self, stack: StackId) -> String {
        match self.get(stack) {
            Some(named) => named.name.clone(),
            None => format!("s{}", stack.0),
        }
    }
}

/// Computed stacks, for random runs. The innermost frame's address identifies the stack, and the
/// outermost two frames are the same in all stacks of a task.
#[derive(Clone, Copy, Debug)]
pub struct Numbered;

impl Numbered {
    /// Distance between the addresses of two stacks.
    pub const STRIDE: u64 = 0x1_0000;
    /// The lowest address.
    pub const BASE: u64 = 0x10_0000_0000;
    /// Stacks of one task.
    pub(super) const OF_TASK: u32 = 64;
    /// Outermost frames that all stacks of a task share.
    const COMMON: usize = 2;
    /// Depths around the limits of buffers, which some stacks have.
    const DEPTHS: [usize; 8] = [126, 127, 128, 129, 509, 510, 511, 600];
}

impl StackSource for Numbered {
    fn depth(&self, stack: StackId) -> usize {
        let mixed = u64::from(stack.0)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(20);
        if mixed & 0xff == 0 {
            return Self::DEPTHS[(mixed >> 8 & 7) as usize];
        }
        1 + (mixed >> 8 & 7) as usize
    }

    fn frame(&self, stack: StackId, index: usize) -> u64 {
        let depth = self.depth(stack);
        if index >= depth {
            return 0;
        }
        let above = depth - 1 - index;
        if index > 0 && above < Self::COMMON {
            let first = stack.0 / Self::OF_TASK * Self::OF_TASK;
            return Self::BASE + u64::from(first) * Self::STRIDE + 0x8000 + 16 * above as u64;
        }
        Self::BASE + u64::from(stack.0) * Self::STRIDE + 8 * index as u64
    }
}

/// Frame `index` of the walk of a user stack by frame pointers.
///
/// The walk misses the caller of a function that has not set up its frame: the saved frame pointer
/// is the caller's own, so the walk continues at the caller's caller. With `at_uprobe` the kernel
/// knows that the task is at a uprobe, and reads the return address at `*sp`.
pub(super) fn user_frame(
    source: &dyn StackSource,
    stack: StackId,
    leaf: Leaf,
    at_uprobe: bool,
    index: usize,
) -> Option<u64> {
    let finds_caller = match leaf {
        Leaf::Body => true,
        Leaf::Entry => at_uprobe,
        Leaf::AfterPush => false,
    };
    let index = index + usize::from(index > 0 && !finds_caller);
    (index < source.depth(stack)).then(|| {
        let address = source.frame(stack, index);
        address + u64::from(index == 0 && leaf == Leaf::AfterPush)
    })
}

/// Frames of those functions on the stack.
const MACHINERY_FRAMES: u64 = 2;

/// The kernel frames of a walk with the kernel at `ip`: two to four, depending on `ip`.
///
/// With `from_mark` the walk starts in the tracing functions themselves, with a mark `first_frame`,
/// and drops all frames with `sp <= first_frame` (`__unwind_start` in
/// `arch/x86/kernel/unwind_orc.c`); with `skip_less` only those with `sp < first_frame`.
pub(super) fn kernel_frames(ip: u64, from_mark: bool, skip_less: bool, out: &mut Vec<u64>) {
    let depth = 2 + (ip.wrapping_sub(KERNEL_TEXT) >> 12) % 3;
    let machinery = if from_mark { MACHINERY_FRAMES } else { 0 };
    let first_frame = 8 * machinery;
    for index in 0..machinery + depth {
        let sp = 8 * (index + 1);
        let skipped = if skip_less {
            sp < first_frame
        } else {
            sp <= first_frame
        };
        if from_mark && skipped {
            continue;
        }
        out.push(match index.checked_sub(machinery) {
            None => MACHINERY_TEXT + 0x10 * index,
            Some(0) => ip,
            Some(level) => (ip & !0xfff) + 0x10 * level,
        });
    }
}

/// Address of the saved frame pointer in the innermost frame of a stack that is laid out.
const BASE: u64 = 0x7ffd_1000_0000;
/// Distance between a frame and its caller's, bytes.
const FRAME: u64 = 32;

/// Stack pointer and frame pointer of user code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointers {
    /// rsp.
    pub sp: u64,
    /// rbp.
    pub bp: u64,
}

/// The registers and the memory of a stack from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMemory {
    /// The registers.
    pub pointers: Pointers,
    /// The start address of the stack copy.
    pub address: u64,
    /// The stack copy.
    pub bytes: Vec<u8>,
}

impl UserMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let start = address.checked_sub(self.address);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let end = start.and_then(|start| start.checked_add(into.len()));
        let found = start
            .zip(end)
            .and_then(|(start, end)| self.bytes.get(start..end));
        found.inspect(|found| into.copy_from_slice(found)).is_some()
    }
}

/// Address of the saved frame pointer in frame `index` of `depth`; 0 past the outermost frame.
fn slot(index: usize, depth: usize) -> u64 {
    if index < depth {
        BASE + FRAME * index as u64
    } else {
        0
    }
}

/// The registers of a stack that is laid out.
fn laid_out(depth: usize, leaf: Leaf) -> Pointers {
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
fn read_laid_out(
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

    #[test]
    fn a_function_without_its_frame_hides_its_caller() {
        let mut source = Scripted::default();
        let stack = source.add("f3", vec![0x30, 0x20, 0x10]);
        let walk = |leaf, at_uprobe| {
            (0..9)
                .map_while(|index| user_frame(&source, stack, leaf, at_uprobe, index))
                .collect::<Vec<_>>()
        };
        assert_eq!(walk(Leaf::Body, false), [0x30, 0x20, 0x10]);
        assert_eq!(walk(Leaf::Entry, true), [0x30, 0x20, 0x10]);
        assert_eq!(walk(Leaf::Entry, false), [0x30, 0x10]);
        assert_eq!(walk(Leaf::AfterPush, true), [0x31, 0x10]);
    }

    #[test]
    fn the_mark_is_dropped_with_what_lies_below_it() {
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        kernel_frames(KERNEL_TEXT + 0x3000, true, false, &mut right);
        kernel_frames(KERNEL_TEXT + 0x3000, true, true, &mut wrong);
        assert_eq!(right, [KERNEL_TEXT + 0x3000, KERNEL_TEXT + 0x3010]);
        assert_eq!(wrong[0], MACHINERY_TEXT + 0x10);
        assert_eq!(wrong[1..], right);
    }

    const FRAMES: [u64; 3] = [0x30, 0x20, 0x10];

    fn word(address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let found = read_laid_out(3, |index| FRAMES[index], address, &mut bytes);
        found.then(|| u64::from_le_bytes(bytes))
    }

    #[test]
    fn frames_are_linked_by_their_frame_pointers() {
        let Pointers { sp, bp } = laid_out(3, Leaf::Body);
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
        let entry = laid_out(3, Leaf::Entry);
        assert_eq!(word(entry.sp), Some(0x20));
        let pushed = laid_out(3, Leaf::AfterPush);
        assert_eq!((word(pushed.sp), pushed.bp), (Some(entry.bp), entry.bp));
        assert_eq!(laid_out(1, Leaf::Entry).bp, 0);
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
