//! Instruction bytes of a process, cached by page.

use crate::memory::ProcessMemory;
use std::collections::HashMap;
use unwind_sim_emulator_native::maps::Maps;
use unwind_sim_unwind::insn::{BYTES_BEFORE, INSN_BYTES_MAX};

const PAGE: usize = 4096;

/// Pages of code that cannot change while they are mapped. Writable and shared pages are read again
/// for every instruction.
#[derive(Debug, Default)]
pub(crate) struct CodeCache {
    pages: HashMap<u64, Option<Box<[u8; PAGE]>>>,
}

impl CodeCache {
    /// Drops all pages, because the mappings changed.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }

    /// The bytes at `address`, as many as an instruction can have; zeros where memory is
    /// unreadable.
    pub(crate) fn bytes(
        &mut self,
        address: u64,
        maps: &Maps,
        memory: ProcessMemory,
    ) -> [u8; INSN_BYTES_MAX] {
        let mut out = [0; INSN_BYTES_MAX];
        let offset = (address % PAGE as u64) as usize;
        let inside = (PAGE - offset).min(INSN_BYTES_MAX);
        match self.page(address - offset as u64, maps, memory) {
            Some(page) => out[..inside].copy_from_slice(&page[offset..offset + inside]),
            None => {
                memory.read(address, &mut out);
                return out;
            }
        }
        if inside < INSN_BYTES_MAX {
            memory.read(address + inside as u64, &mut out[inside..]);
        }
        out
    }

    /// The bytes on the same page before `address`, at most as many as the class of an instruction
    /// depends on; none where the page may change.
    pub(crate) fn bytes_before(
        &mut self,
        address: u64,
        maps: &Maps,
        memory: ProcessMemory,
    ) -> &[u8] {
        let offset = (address % PAGE as u64) as usize;
        let count = offset.min(BYTES_BEFORE);
        let page = self.page(address - offset as u64, maps, memory);
        page.map_or(&[], |page| &page[offset - count..offset])
    }

    fn page(&mut self, start: u64, maps: &Maps, memory: ProcessMemory) -> Option<&[u8; PAGE]> {
        let page = self.pages.entry(start).or_insert_with(|| {
            let stable = maps
                .find(start)
                .is_some_and(|m| m.execute && !m.write && !m.shared);
            let mut bytes = Box::new([0; PAGE]);
            (stable && memory.read(start, &mut bytes[..]) == PAGE).then_some(bytes)
        });
        page.as_deref()
    }
}
