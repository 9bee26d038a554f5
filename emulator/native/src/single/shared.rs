//! This process' view of the memory that both processes share, and waking and waiting.
//!
//! Two counters decide who may write: from [`Shared::ask`] until [`Shared::is_done`] the child,
//! otherwise this process. Whatever is read here is trusted only as a case's values: the child may
//! write anything, even when it is not its turn.

use super::error::NativeError;
use super::layout::*;
use super::{CODE_MAX, NativeState};
use crate::extended::{AVX_BIT, LEGACY_BITS};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Creates a file in memory, close-on-exec and executable.
pub(super) fn memory_file(name: &str) -> Result<File, NativeError> {
    let flags = MFdFlags::MFD_CLOEXEC;
    // Before Linux 6.3 this flag does not exist, and every memfd is executable.
    memfd_create(name, flags | MFdFlags::from_bits_retain(libc::MFD_EXEC))
        .or_else(|_| memfd_create(name, flags))
        .map(File::from)
        .map_err(|error| NativeError::System {
            call: "memfd_create",
            error: error.into(),
        })
}

/// The mapping, and its file.
pub(super) struct Shared {
    base: NonNull<u8>,
    file: File,
}

// SAFETY: this value owns the mapping, which may be used from any thread.
unsafe impl Send for Shared {}

impl Shared {
    pub(super) fn new() -> Result<Shared, NativeError> {
        let system = |call| move |error: io::Error| NativeError::System { call, error };
        let file = memory_file("unwind-sim-cases")?;
        file.set_len(SHARED_SIZE as u64)
            .map_err(system("ftruncate"))?;
        let size = NonZeroUsize::new(SHARED_SIZE).expect("a constant");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no memory of ours is replaced. The file's
        // length never changes: no access to the mapping faults.
        let base = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, &file, 0) };
        let base = base.map_err(|error| system("mmap")(error.into()))?.cast();
        let shared = Shared { base, file };
        // SAFETY: the code lies within the mapping, and there is no child yet.
        unsafe {
            let code = shared.base.add(CODE_OFFSET);
            code.write_bytes(INT3, SHARED_SIZE - CODE_OFFSET);
        }
        Ok(shared)
    }

    /// The mapping's file, for the child.
    pub(super) fn file(&self) -> Result<File, NativeError> {
        self.file
            .try_clone()
            .map_err(|error| NativeError::System { call: "dup", error })
    }

    fn control(&self) -> NonNull<Control> {
        self.base.cast()
    }

    fn slot(&self, index: usize) -> NonNull<Slot> {
        assert!(index < SLOTS);
        // SAFETY: the mapping holds SLOTS slots.
        unsafe { self.base.add(SLOTS_OFFSET).cast::<Slot>().add(index) }
    }

    /// A counter in the control page, valid as long as the mapping.
    fn counter(&self, of: fn(NonNull<Control>) -> *mut u32) -> &AtomicU32 {
        // SAFETY: `of` returns the address of an aligned field in the control page, which stays
        // mapped as long as `self` lives; both processes use it atomically.
        unsafe { AtomicU32::from_ptr(of(self.control())) }
    }

    fn request(&self) -> &AtomicU32 {
        // SAFETY: a field's address, in the mapping.
        self.counter(|control| unsafe { &raw mut (*control.as_ptr()).request.0 })
    }

    fn done(&self) -> &AtomicU32 {
        // SAFETY: a field's address, in the mapping.
        self.counter(|control| unsafe { &raw mut (*control.as_ptr()).done.0 })
    }

    /// The slot being executed, according to the child.
    pub(super) fn current(&self) -> u32 {
        // SAFETY: a field's address, in the mapping.
        self.counter(|control| unsafe { &raw mut (*control.as_ptr()).current })
            .load(Ordering::Relaxed)
    }

    /// Number of system calls that a new child has made.
    pub(super) fn calls(&self) -> u32 {
        // SAFETY: a field's address, in the mapping.
        self.counter(|control| unsafe { &raw mut (*control.as_ptr()).calls })
            .load(Ordering::Relaxed)
    }

    /// Clears the control page for a new child.
    pub(super) fn reset(&mut self) {
        // SAFETY: zeroes are valid for the control page, and there is no child.
        unsafe { self.control().write_bytes(0, 1) };
    }

    /// Places an instruction, the jump that follows it, and traps after that.
    pub(super) fn set_code(&mut self, index: usize, code: &[u8], then: &[u8]) {
        let mut bytes = [INT3; CODE_USED];
        bytes[..code.len()].copy_from_slice(code);
        bytes[code.len()..code.len() + then.len()].copy_from_slice(then);
        assert!(index < SLOTS);
        // SAFETY: the code of slot `index` lies within the mapping, and has CODE_STRIDE bytes.
        unsafe {
            let place = self.base.add(CODE_OFFSET + index * CODE_STRIDE);
            place.cast::<[u8; CODE_USED]>().write(bytes);
        }
    }

    pub(super) fn set_slot(&mut self, index: usize, slot: &Slot) {
        // SAFETY: `slot` returns an address in the mapping, of a type for which any bytes are
        // valid.
        unsafe { self.slot(index).write(*slot) };
    }

    pub(super) fn get_slot(&self, index: usize) -> Slot {
        // SAFETY: `slot` returns an address in the mapping, of a type for which any bytes are
        // valid.
        unsafe { self.slot(index).read() }
    }

    /// The kind of outcome in a slot.
    pub(super) fn kind(&self, index: usize) -> u32 {
        // SAFETY: as for `get_slot`.
        unsafe { (&raw const (*self.slot(index).as_ptr()).kind).read() }
    }

    fn area(&self, index: usize) -> NonNull<Area> {
        assert!(index < SLOTS);
        // SAFETY: the mapping holds SLOTS areas.
        unsafe { self.base.add(FX_OFFSET).cast::<Area>().add(index) }
    }

    fn window(&self, index: usize) -> NonNull<[u8; WINDOW_SIZE]> {
        assert!(index < SLOTS);
        // SAFETY: the mapping holds SLOTS windows.
        unsafe {
            self.base
                .add(WINDOWS_OFFSET)
                .cast::<[u8; WINDOW_SIZE]>()
                .add(index)
        }
    }

    /// Sets the x87 and SSE state.
    pub(super) fn set_fx(&mut self, index: usize, state: &NativeState) {
        let area = self.area(index).as_ptr();
        // SAFETY: `area` returns an address in the mapping.
        unsafe { (&raw mut (*area).legacy).write(state.fx.legacy) };
    }

    pub(super) fn get_fx(&self, index: usize, state: &mut NativeState) {
        let area = self.area(index).as_ptr();
        // SAFETY: `area` returns an address in the mapping; any bytes are valid.
        state.fx.legacy = unsafe { (&raw const (*area).legacy).read() };
    }

    /// Sets the AVX state, and which components are loaded. Zeros are loaded as the initial state.
    pub(super) fn set_avx(&mut self, index: usize, state: &NativeState) {
        let area = self.area(index).as_ptr();
        let is_initial = state.fx.upper == [0; 16];
        let header = [
            LEGACY_BITS | if is_initial { 0 } else { AVX_BIT },
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        // SAFETY: `area` returns an address in the mapping.
        unsafe {
            (&raw mut (*area).header).write(header);
            (&raw mut (*area).upper).write(state.fx.upper);
        }
    }

    pub(super) fn get_avx(&self, index: usize, state: &mut NativeState) {
        let area = self.area(index).as_ptr();
        // SAFETY: `area` returns an address in the mapping; any bytes are valid.
        let (header, upper) = unsafe {
            (
                (&raw const (*area).header).read(),
                (&raw const (*area).upper).read(),
            )
        };
        state.fx.upper = match header[0] & AVX_BIT {
            0 => [0; 16],
            _ => upper,
        };
    }

    pub(super) fn set_window(&mut self, index: usize, state: &NativeState) {
        // SAFETY: `window` returns an address in the mapping.
        unsafe { self.window(index).write(state.window) };
    }

    pub(super) fn get_window(&self, index: usize, state: &mut NativeState) {
        // SAFETY: `window` returns an address in the mapping; any bytes are valid.
        state.window = unsafe { self.window(index).read() };
    }

    /// Hands the slots from `first` to `end` to the child.
    pub(super) fn ask(&mut self, first: usize, end: usize) {
        let control = self.control().as_ptr();
        // SAFETY: fields of the control page, which is mapped.
        unsafe {
            (&raw mut (*control).first).write(first as u32);
            (&raw mut (*control).end).write(end as u32);
            (&raw mut (*control).current).write(first as u32);
        }
        let count = self.done().load(Ordering::Relaxed);
        self.request()
            .store(count.wrapping_add(1), Ordering::Release);
        futex(self.request(), libc::FUTEX_WAKE, 1, None);
    }

    /// Whether the child has handed the slots back.
    pub(super) fn is_done(&self) -> bool {
        self.done().load(Ordering::Acquire) == self.request().load(Ordering::Relaxed)
    }

    /// Waits at most `timeout` for the child to hand the slots back; true if it has.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let count = self.request().load(Ordering::Relaxed).wrapping_sub(1);
        if !self.is_done() {
            futex(self.done(), libc::FUTEX_WAIT, count, Some(timeout));
        }
        self.is_done()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was created by `new` with this length, and nothing refers to it. So
        // this cannot fail; if it did, it would only leak memory.
        let _ = unsafe { munmap(self.base.cast(), SHARED_SIZE) };
    }
}

/// The trap instruction.
const INT3: u8 = 0xcc;
/// Length of `jmp rel32`.
pub(super) const JUMP_SIZE: usize = 5;
/// The bytes of a slot's code that ever change.
const CODE_USED: usize = 32;
const _: () = assert!(CODE_MAX + JUMP_SIZE <= CODE_USED && CODE_USED <= CODE_STRIDE);

/// FUTEX_WAIT or FUTEX_WAKE. The result does not matter: whoever waits checks again.
fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both pointers are valid during the call, which writes through neither.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout) };
}
