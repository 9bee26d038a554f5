//! Stacks, and what the kernel's walks find of them.
//!
//! Responsible for `trait StackSource` and for the two walks: user frames by frame pointers, and
//! kernel frames from a mark. Not responsible for when they run.

use super::user_memory::{self, Pointers, UserMemory};

/// Names a stack of a [`StackSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Where the instruction pointer is in the innermost function, which decides what a walk by frame
/// pointers finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaf {
    /// Behind the prologue: every frame is found.
    #[default]
    Body,
    /// At its first instruction. The kernel finds the caller only there where it knows that a
    /// uprobe hit (`is_uprobe_at_func_entry`), by reading the return address from the stack.
    Entry,
    /// Behind `push %rbp`, before `mov %rsp,%rbp`: the caller is not found.
    AfterPush,
}

/// Where stacks come from: a scenario, a recording, an emulated program.
pub trait StackSource {
    /// How many frames the stack has; none if there is no such stack.
    fn depth(&self, stack: StackId) -> usize;
    /// The address of frame `index`, innermost first; 0 if there is none.
    fn frame(&self, stack: StackId, index: usize) -> u64;
    /// The registers of user code in its innermost frame.
    fn pointers(&self, stack: StackId, leaf: Leaf) -> Pointers {
        user_memory::pointers(self.depth(stack), leaf)
    }
    /// Reads user memory; `false` if not all of it is there.
    fn read(&self, stack: StackId, address: u64, into: &mut [u8]) -> bool {
        let depth = self.depth(stack);
        user_memory::read(depth, |index| self.frame(stack, index), address, into)
    }
    /// The name for logs.
    fn name(&self, stack: StackId) -> String {
        format!("s{}", stack.0)
    }
}

/// Stacks written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scripted {
    stacks: Vec<Named>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: String,
    stack: UserStack,
}

/// A user stack: its frames, innermost first, and what a file has of it besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserStack {
    /// The addresses of its frames.
    pub frames: Vec<u64>,
    /// Registers and memory; without them it is laid out as compiled with frame pointers.
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
    /// Adds one, innermost frame first.
    pub fn add(&mut self, name: &str, frames: Vec<u64>) -> StackId {
        let id = self.next();
        self.stacks.push(Named {
            name: name.to_owned(),
            stack: frames.into(),
        });
        id
    }

    /// Gives a stack other frames and memory.
    pub(super) fn set(&mut self, id: StackId, stack: UserStack) {
        if let Some(named) = self.stacks.get_mut(id.0 as usize) {
            named.stack = stack;
        }
    }

    /// What the next stack will be.
    pub(super) const fn next(&self) -> StackId {
        StackId(self.stacks.len() as u32)
    }

    /// The stack of that name.
    pub fn find(&self, name: &str) -> Option<StackId> {
        let index = self.stacks.iter().position(|known| known.name == name)?;
        Some(StackId(index as u32))
    }

    /// All of them, with their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &[u64])> {
        let all = self.stacks.iter();
        all.map(|named| (named.name.as_str(), named.stack.frames.as_slice()))
    }

    fn get(&self, stack: StackId) -> Option<&Named> {
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
            None => user_memory::pointers(self.depth(stack), leaf),
        }
    }

    fn read(&self, stack: StackId, address: u64, into: &mut [u8]) -> bool {
        match self.memory(stack) {
            Some(memory) => memory.read(address, into),
            None => {
                let frame = |index| self.frame(stack, index);
                user_memory::read(self.depth(stack), frame, address, into)
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

/// Stacks by arithmetic: the innermost frame's address tells the stack, so that nobody's is taken
/// for another's; the outermost two frames are those of all stacks of a task. What random runs
/// use.
#[derive(Clone, Copy, Debug)]
pub struct Numbered;

impl Numbered {
    /// Distance of two stacks' addresses.
    pub const STRIDE: u64 = 0x1_0000;
    /// The lowest address.
    pub const BASE: u64 = 0x10_0000_0000;
    /// Stacks of one task.
    pub(super) const OF_TASK: u32 = 64;
    /// How many outermost frames they have in common.
    const COMMON: usize = 2;
    /// Depths that bounds are about, met now and then.
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

/// What the user walk does next: the true frames one by one, without those it cannot find.
///
/// By frame pointers the caller of a function that has not set up its frame is missed: the saved
/// frame pointer is the caller's own, so the walk goes on at the caller's caller. `at_uprobe`:
/// the kernel knows that the task stands at a uprobe, and reads the return address at `*sp`.
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

/// First address of the kernel's text in the model.
pub(super) const KERNEL_BASE: u64 = 0xffff_ffff_8100_0000;
/// Bytes of it.
pub(super) const KERNEL_LEN: u64 = 0x100_0000;
/// First address of the functions that take a tracepoint's sample.
pub(super) const MACHINERY: u64 = 0xffff_ffff_8180_0000;
/// How many frames of them lie on the stack.
const MACHINERY_FRAMES: u64 = 2;

/// Where the kernel is at a place: the innermost of its frames.
pub(super) const fn kernel_ip(place: u64) -> u64 {
    KERNEL_BASE + 0x1000 * place
}

/// The kernel frames where the kernel is at `ip`: two to four, by its place.
///
/// With `from_mark` the walk begins in the tracing functions themselves, with a mark
/// `first_frame`, and drops all frames with `sp <= first_frame` (`__unwind_start` in
/// `arch/x86/kernel/unwind_orc.c`); `skip_less` drops `<` only.
pub(super) fn kernel_frames(ip: u64, from_mark: bool, skip_less: bool, out: &mut Vec<u64>) {
    let depth = 2 + (ip.wrapping_sub(KERNEL_BASE) >> 12) % 3;
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
            None => MACHINERY + 0x10 * index,
            Some(0) => ip,
            Some(level) => (ip & !0xfff) + 0x10 * level,
        });
    }
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
        kernel_frames(kernel_ip(3), true, false, &mut right);
        kernel_frames(kernel_ip(3), true, true, &mut wrong);
        assert_eq!(right, [KERNEL_BASE + 0x3000, KERNEL_BASE + 0x3010]);
        assert_eq!(wrong[0], MACHINERY + 0x10);
        assert_eq!(wrong[1..], right);
    }
}
