//! Maps of the running kernel, created, read and changed from user space.

use super::{BpfError, bpf, owned};
use nix::libc;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `BPF_MAP_CREATE`.
const MAP_CREATE: libc::c_long = 0;
/// `BPF_MAP_LOOKUP_ELEM`.
const MAP_LOOKUP_ELEM: libc::c_long = 1;
/// `BPF_MAP_UPDATE_ELEM`.
const MAP_UPDATE_ELEM: libc::c_long = 2;
/// `BPF_MAP_DELETE_ELEM`.
const MAP_DELETE_ELEM: libc::c_long = 3;

/// A map in the kernel with 4-byte keys or no keys, and one value per key for all processors.
#[derive(Debug)]
pub struct KernelMap {
    fd: OwnedFd,
    value_size: usize,
}

/// The first fields of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// The fields of `union bpf_attr` for operations on elements.
#[repr(C)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl KernelMap {
    /// Creates an array (`BPF_MAP_TYPE_ARRAY`).
    ///
    /// # Errors
    /// If this process lacks the permission, or the kernel rejects the sizes.
    pub fn array(value_size: u32, entries: u32) -> Result<Self, BpfError> {
        const ARRAY: u32 = 2;
        Self::create(ARRAY, 4, value_size, entries)
    }

    /// Creates a stack trace map (`BPF_MAP_TYPE_STACK_TRACE`).
    ///
    /// # Errors
    /// As [`KernelMap::array`].
    pub fn stacks(value_size: u32, entries: u32) -> Result<Self, BpfError> {
        const STACK_TRACE: u32 = 7;
        Self::create(STACK_TRACE, 4, value_size, entries)
    }

    /// Creates a ring buffer (`BPF_MAP_TYPE_RINGBUF`) of `size` bytes. It has no keys.
    ///
    /// # Errors
    /// As [`KernelMap::array`].
    pub fn ring(size: u32) -> Result<Self, BpfError> {
        const RINGBUF: u32 = 27;
        Self::create(RINGBUF, 0, 0, size)
    }

    fn create(
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    ) -> Result<Self, BpfError> {
        let mut attributes = Create {
            map_type,
            key_size,
            value_size,
            max_entries,
            flags: 0,
        };
        match bpf(MAP_CREATE, &mut attributes) {
            Ok(fd) => Ok(Self {
                fd: owned(fd),
                value_size: value_size as usize,
            }),
            Err(error) => Err(match error.raw_os_error() {
                Some(libc::EPERM | libc::ENOSYS) => BpfError::Denied(error),
                _ => BpfError::Other(error),
            }),
        }
    }

    /// The file descriptor by which programs refer to the map.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    fn element(&self, key: &u32, value: u64) -> Element {
        Element {
            map: self.fd.as_raw_fd() as u32,
            pad: 0,
            key: std::ptr::from_ref(key) as u64,
            value,
            flags: 0,
        }
    }

    /// The value of a key; `None` if the key is absent.
    ///
    /// # Errors
    /// If the kernel cannot read it.
    pub fn lookup(&self, key: u32) -> Result<Option<Vec<u8>>, BpfError> {
        let mut value = vec![0u8; self.value_size];
        let mut attributes = self.element(&key, value.as_mut_ptr() as u64);
        match bpf(MAP_LOOKUP_ELEM, &mut attributes) {
            Ok(_) => Ok(Some(value)),
            Err(error) => absent(error).map(|()| None),
        }
    }

    /// Sets the value of a key. `value` must have the map's value size.
    ///
    /// # Errors
    /// If the size differs, or the kernel refuses.
    pub fn update(&self, key: u32, value: &[u8]) -> Result<(), BpfError> {
        if value.len() != self.value_size {
            return Err(BpfError::Other(io::ErrorKind::InvalidInput.into()));
        }
        let mut attributes = self.element(&key, value.as_ptr() as u64);
        let updated = bpf(MAP_UPDATE_ELEM, &mut attributes);
        updated.map(drop).map_err(BpfError::Other)
    }

    /// Removes a key; `false` if it was absent.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete(&self, key: u32) -> Result<bool, BpfError> {
        match bpf(MAP_DELETE_ELEM, &mut self.element(&key, 0)) {
            Ok(_) => Ok(true),
            Err(error) => absent(error).map(|()| false),
        }
    }
}

fn absent(error: io::Error) -> Result<(), BpfError> {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Ok(()),
        _ => Err(BpfError::Other(error)),
    }
}
