//! Addresses and offsets in the child's memory, and in the memory that both processes share.

use crate::extended::{HEADER, UPPER};
use std::mem::offset_of;
use std::ops::Range;

/// Page size in bytes.
pub(super) const PAGE: u64 = 4096;

/// Address of the driver's image in the child: one page of code, then its data.
pub(super) const DRIVER: u64 = 0x1000_0000;
/// The address space reserved for the image.
pub(super) const DRIVER_SIZE: u64 = 4 * PAGE;
/// Address of the driver's data. Its first word is the address of the table of system calls.
pub(super) const DRIVER_DATA: u64 = DRIVER + PAGE;

/// Maximum number of cases in a batch. Few enough that their state stays in the processor's cache.
pub(super) const SLOTS: usize = 512;
/// Distance between the code of two cases in bytes.
pub(super) const CODE_STRIDE: usize = 64;
/// The bytes of the FXSAVE area that the processor defines: up to the end of XMM15.
pub(super) const FX_DEFINED: usize = 416;

/// An XSAVE area in the standard format, with the x87, SSE and AVX state.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) legacy: [u8; 512],
    /// `XSTATE_BV`, `XCOMP_BV`, reserved.
    pub(super) header: [u64; 8],
    /// The upper halves of YMM0 to YMM15.
    pub(super) upper: [u128; 16],
}

const _: () = assert!(offset_of!(Area, header) == HEADER && offset_of!(Area, upper) == UPPER);
const _: () = assert!(size_of::<Area>() == AREA_SIZE);
/// Size of an [`Area`] in bytes.
pub(super) const AREA_SIZE: usize = 832;

/// The child's address of the shared memory, except for the code.
pub(super) const SHARED: u64 = 0x1010_0000;
/// Offsets in the shared memory. The first page is [`Control`].
pub(super) const SLOTS_OFFSET: usize = PAGE as usize;
pub(super) const FX_OFFSET: usize = SLOTS_OFFSET + SLOTS * size_of::<Slot>();
pub(super) const WINDOWS_OFFSET: usize = FX_OFFSET + SLOTS * AREA_SIZE;
pub(super) const CODE_OFFSET: usize = WINDOWS_OFFSET + SLOTS * WINDOW_SIZE;
pub(super) const SHARED_SIZE: usize = CODE_OFFSET + SLOTS * CODE_STRIDE;

/// The only data page of a case.
pub const WINDOW_PAGE: Range<u64> = 0x1100_0000..0x1100_0000 + PAGE;
/// Size of the window in bytes.
pub const WINDOW_SIZE: usize = 1024;
/// Address of the window. Nothing is mapped after it.
pub const WINDOW: u64 = WINDOW_PAGE.end - WINDOW_SIZE as u64;

/// The data pages of a case whose window lies over the boundary between them.
pub const MIDDLE_PAGES: Range<u64> = 0x1140_0000..0x1140_0000 + 2 * PAGE;
/// Address of such a window: half of it is in each page.
pub const MIDDLE_WINDOW: u64 = MIDDLE_PAGES.start + PAGE - WINDOW_SIZE as u64 / 2;

/// Addresses at which instructions are placed.
pub const CODE_RANGE: Range<u64> = CODE..CODE + (SLOTS * CODE_STRIDE) as u64;
pub(super) const CODE: u64 = 0x1180_0000;

/// The signal stack, then the driver's own stack.
pub(super) const STACKS: u64 = 0x1280_0000;
pub(super) const SIGNAL_STACK_SIZE: u64 = 16 * PAGE;
pub(super) const STACKS_SIZE: u64 = SIGNAL_STACK_SIZE + PAGE;
pub(super) const DRIVER_STACK_TOP: u64 = STACKS + STACKS_SIZE;

/// The child unmaps everything from here up to `TASK_END`, the end of user space.
pub(super) const ARENA_END: u64 = 0x1300_0000;
pub(super) const TASK_END: u64 = 0x7fff_ffff_f000;

const _: () = assert!(SHARED + CODE_OFFSET as u64 <= WINDOW_PAGE.start - PAGE);
const _: () = assert!(CODE_RANGE.end < STACKS && DRIVER_STACK_TOP < ARENA_END);
const _: () = assert!(CODE_OFFSET.is_multiple_of(PAGE as usize));
const _: () = assert!(WINDOWS_OFFSET.is_multiple_of(64));
const _: () = assert!(FX_OFFSET.is_multiple_of(64) && size_of::<Slot>() == 192);
const _: () = assert!(size_of::<Control>() <= PAGE as usize);

/// A value in a cache line of its own.
#[repr(C, align(64))]
pub(super) struct Line<T>(pub(super) T);

/// The first page of the shared memory.
#[repr(C)]
pub(super) struct Control {
    /// Number of batches requested. The child waits on this.
    pub(super) request: Line<u32>,
    /// Number of batches done. The parent waits on this.
    pub(super) done: Line<u32>,
    /// The first slot of the batch, and the one after the last.
    pub(super) first: u32,
    pub(super) end: u32,
    /// The slot being executed.
    pub(super) current: u32,
    /// Number of system calls in the table that the child has made.
    pub(super) calls: u32,
    /// Used only by the driver: the slot's address, the instruction's address, rax, and the address
    /// at which the last tick interrupted.
    pub(super) slot: u64,
    pub(super) target: u64,
    pub(super) rax: u64,
    pub(super) tick: u64,
}

/// One case as the driver sees it. The state after the instruction overwrites the one before.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    pub(super) gpr: [u64; 16],
    pub(super) rip: u64,
    pub(super) rflags: u64,
    /// Bits `FX`, `AVX`, `MEMORY`, `STEP`.
    pub(super) flags: u32,
    /// `UNDONE`, `DONE`, `SIGNAL` or `HUNG`.
    pub(super) kind: u32,
    pub(super) signal: i32,
    pub(super) code: i32,
    pub(super) trapno: u64,
    pub(super) error_code: u64,
    pub(super) address: u64,
}

/// Load and store the x87 and SSE state.
pub(super) const FX: u32 = 1;
/// Load and store the window.
pub(super) const MEMORY: u32 = 2;
/// Enter the instruction by `iretq`, with TF set.
pub(super) const STEP: u32 = 4;
/// With `FX`: load and store the AVX state, too.
pub(super) const AVX: u32 = 8;
/// With `MEMORY`: the window is at `MIDDLE_WINDOW`.
pub(super) const MIDDLE: u32 = 16;

/// The case has not been executed yet.
pub(super) const UNDONE: u32 = 0;
pub(super) const DONE: u32 = 1;
pub(super) const SIGNAL: u32 = 2;
pub(super) const HUNG: u32 = 3;

/// The child's address of a field of `Control`.
macro_rules! control {
    ($field:ident) => {
        (SHARED as usize + offset_of!(Control, $field)) as u64
    };
}

pub(super) const REQUEST: u64 = control!(request);
pub(super) const DONE_COUNT: u64 = control!(done);
pub(super) const FIRST: u64 = control!(first);
pub(super) const END: u64 = control!(end);
pub(super) const CURRENT: u64 = control!(current);
pub(super) const CALLS: u64 = control!(calls);
pub(super) const SLOT: u64 = control!(slot);
pub(super) const TARGET: u64 = control!(target);
pub(super) const RAX: u64 = control!(rax);
pub(super) const TICK: u64 = control!(tick);
