//! The memory that both processes share, as this process sees it, and waking and waiting.
//!
//! Who may write when is agreed on through two counters: between [`Shared::ask`] and
//! [`Shared::is_done`] the child writes, else this process. What is read here is believed only
//! as values of cases: the child may write anything, even when it is not its turn.

use super::error::NativeError;
use super::layout::*;
use super::{CODE_MAX, NativeState};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A file in memory, close-on-exec and executable.
pub(super) fn memory_file(name: &str) -> Result<File, NativeError> {
    let flags = MFdFlags::MFD_CLOEXEC;
    // Before Linux 6.3 there is no such flag, and all are executable.
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

// SAFETY: the mapping belongs to this value alone, and may be used from any thread.
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

    /// Its file, for the child.
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
        // SAFETY: the slots, of which there are SLOTS, lie within the mapping.
        unsafe { self.base.add(SLOTS_OFFSET).cast::<Slot>().add(index) }
    }

    /// A counter, which lives as long as the mapping.
    fn counter(&self, of: fn(NonNull<Control>) -> *mut u32) -> &AtomicU32 {
        // SAFETY: `of` gives a field of the control page, which is mapped as long as `self`
        // lives and aligned; both processes use it atomically.
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

    /// The slot that is being executed, as the child says.
    pub(super) fn current(&self) -> u32 {
        // SAFETY: a field's address, in the mapping.
        self.counter(|control| unsafe { &raw mut (*control.as_ptr()).current })
            .load(Ordering::Relaxed)
    }

    /// How many of its system calls a new child has made.
    pub(super) fn calls(&self) -> u32 {
        // SAFETY: a field's address, in the mapping.
        self.counter(|control| unsafe { &raw mut (*control.as_ptr()).calls })
            .load(Ordering::Relaxed)
    }

    /// Forgets about the last child.
    pub(super) fn reset(&mut self) {
        // SAFETY: zeroes are valid for the control page, and there is no child.
        unsafe { self.control().write_bytes(0, 1) };
    }

    /// Places an instruction, the jump that follows it, and the traps behind that.
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
        // SAFETY: `slot` gives an address in the mapping, of a type that any bytes are valid for.
        unsafe { self.slot(index).write(*slot) };
    }

    pub(super) fn get_slot(&self, index: usize) -> Slot {
        // SAFETY: `slot` gives an address in the mapping, of a type that any bytes are valid for.
        unsafe { self.slot(index).read() }
    }

    /// The kind of a slot's outcome.
    pub(super) fn kind(&self, index: usize) -> u32 {
        // SAFETY: as for `get_slot`.
        unsafe { (&raw const (*self.slot(index).as_ptr()).kind).read() }
    }

    fn fx(&self, index: usize) -> NonNull<[u8; 512]> {
        assert!(index < SLOTS);
        // SAFETY: the states, of which there are SLOTS, lie within the mapping.
        unsafe { self.base.add(FX_OFFSET).cast::<[u8; 512]>().add(index) }
    }

    fn window(&self, index: usize) -> NonNull<[u8; WINDOW_SIZE]> {
        assert!(index < SLOTS);
        // SAFETY: the windows, of which there are SLOTS, lie within the mapping.
        unsafe {
            self.base
                .add(WINDOWS_OFFSET)
                .cast::<[u8; WINDOW_SIZE]>()
                .add(index)
        }
    }

    pub(super) fn set_fx(&mut self, index: usize, state: &NativeState) {
        // SAFETY: `fx` gives an address in the mapping.
        unsafe { self.fx(index).write(state.fx) };
    }

    pub(super) fn get_fx(&self, index: usize, state: &mut NativeState) {
        // SAFETY: `fx` gives an address in the mapping; any bytes are valid.
        state.fx = unsafe { self.fx(index).read() };
    }

    pub(super) fn set_window(&mut self, index: usize, state: &NativeState) {
        // SAFETY: `window` gives an address in the mapping.
        unsafe { self.window(index).write(state.window) };
    }

    pub(super) fn get_window(&self, index: usize, state: &mut NativeState) {
        // SAFETY: `window` gives an address in the mapping; any bytes are valid.
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

    /// Does this process have the slots again?
    pub(super) fn is_done(&self) -> bool {
        self.done().load(Ordering::Acquire) == self.request().load(Ordering::Relaxed)
    }

    /// Waits until the slots are handed back, at most `timeout`. True if they are.
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
        // SAFETY: the mapping was made by `new` with this length, and nothing refers to it.
        // It cannot fail then; if it did, memory would be lost and nothing else.
        let _ = unsafe { munmap(self.base.cast(), SHARED_SIZE) };
    }
}

/// The instruction that traps.
const INT3: u8 = 0xcc;
/// `jmp rel32`.
pub(super) const JUMP_SIZE: usize = 5;
/// The bytes of a slot's code that ever change.
const CODE_USED: usize = 32;
const _: () = assert!(CODE_MAX + JUMP_SIZE <= CODE_USED && CODE_USED <= CODE_STRIDE);

/// FUTEX_WAIT or FUTEX_WAKE. Its result does not matter: whoever waits looks again.
fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both pointers are valid during the call, which writes to neither.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout) };
}
