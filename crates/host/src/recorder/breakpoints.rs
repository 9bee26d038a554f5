//! Software breakpoints of a process that runs at full speed.

use crate::error::HostError;
use crate::memory::ProcessMemory;
use std::collections::BTreeMap;
use unwind_sim_emulator_native::{TraceError, ptrace};

const INT3: u8 = 0xcc;

/// The breakpoints in a process' memory, with the bytes they replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakpoints {
    set: BTreeMap<u64, u8>,
}

impl Breakpoints {
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.set.contains_key(&address)
    }

    /// Forgets all breakpoints, because the memory is gone.
    pub(crate) fn forget(&mut self) {
        self.set.clear();
    }

    /// Puts the original byte back temporarily, so that the stopped thread `tid` can step.
    pub(crate) fn lift(&self, tid: i32, address: u64) -> Result<(), HostError> {
        match self.set.get(&address) {
            Some(&byte) => write_byte(tid, address, byte).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Undoes [`Breakpoints::lift`].
    pub(crate) fn restore(&self, tid: i32, address: u64) -> Result<(), HostError> {
        if self.contains(address) {
            write_byte(tid, address, INT3)?;
        }
        Ok(())
    }

    /// Changes the set of breakpoints to `wanted`, through the stopped thread `tid`.
    pub(crate) fn set_to(&mut self, tid: i32, wanted: &[u64]) -> Result<(), HostError> {
        let old: Vec<(u64, u8)> = self
            .set
            .iter()
            .map(|(&a, &b)| (a, b))
            .filter(|(a, _)| !wanted.contains(a))
            .collect();
        for (address, byte) in old {
            self.set.remove(&address);
            // The code may have been unmapped meanwhile.
            let _ = write_byte(tid, address, byte);
        }
        for &address in wanted {
            if !self.contains(address) {
                let byte = write_byte(tid, address, INT3)?;
                self.set.insert(address, byte);
            }
        }
        Ok(())
    }

    /// Replaces breakpoints in copied memory by the original bytes.
    pub(crate) fn hide(&self, start: u64, bytes: &mut [u8]) {
        let end = start.saturating_add(bytes.len() as u64);
        for (&address, &byte) in self.set.range(start..end) {
            bytes[(address - start) as usize] = byte;
        }
    }
}

/// Writes one byte of code and returns the previous one.
fn write_byte(tid: i32, address: u64, byte: u8) -> Result<u8, HostError> {
    let aligned = address & !7;
    let word = ProcessMemory::new(tid)
        .word(aligned)
        .ok_or_else(|| TraceError::last("process_vm_readv", tid))?;
    let mut bytes = word.to_le_bytes();
    let old = std::mem::replace(&mut bytes[(address & 7) as usize], byte);
    ptrace::poke(tid, aligned, u64::from_le_bytes(bytes))?;
    Ok(old)
}
