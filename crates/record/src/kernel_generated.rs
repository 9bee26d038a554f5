//! The code that a kernel in the machine has generated: BPF programs, and the trampolines of BPF and ftrace.
//! The kernel has lists of it, which are read when a stack leads through such code, and again once they have
//! changed.

use crate::kernel_stacks::MODULES;
use crate::machine::MachineMemory;
use std::collections::HashSet;
use std::ops::Range;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_recordings::import::generated_code;
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_unwind::image::Mapping;

/// The functions that change the lists of BPF programs, and the trampolines of ftrace (Linux
/// `kernel/bpf/core.c`, `arch/x86/kernel/ftrace.c`).
const CHANGES: [&str; 4] = [
    "bpf_ksym_add",
    "bpf_ksym_del",
    "arch_ftrace_update_trampoline",
    "arch_ftrace_trampoline_free",
];
/// The maximum number of addresses that are known to be in no list.
const ABSENT_MAX: usize = 4096;

/// The generated code of a kernel.
pub struct KernelGenerated<'a> {
    kernel: &'a KernelImage,
    slide: u64,
    changes_at: Vec<u64>,
    /// What is mapped.
    known: Vec<Range<u64>>,
    /// Addresses that are in none of the lists, as they are now.
    absent: HashSet<u64>,
}

impl<'a> KernelGenerated<'a> {
    /// Nothing yet, of `kernel`, moved up by `slide`.
    pub fn of(kernel: &'a KernelImage, slide: u64) -> KernelGenerated<'a> {
        let at = kernel.symbols.addresses(CHANGES).into_iter();
        KernelGenerated {
            kernel,
            slide,
            changes_at: at.flatten().map(|at| at.wrapping_add(slide)).collect(),
            known: Vec::new(),
            absent: HashSet::new(),
        }
    }

    /// Whether the function at `address` changes the lists: then [`KernelGenerated::forget`] is due.
    pub fn is_hook(&self, address: u64) -> bool {
        self.changes_at.contains(&address)
    }

    /// The lists change. Returns what is mapped now where generated code was known: code of which nothing is
    /// known.
    pub fn forget(&mut self) -> Vec<Mapping> {
        self.absent.clear();
        let known = std::mem::take(&mut self.known);
        let mapping = |range| Mapping {
            range,
            bias: 0,
            image: None,
            name: String::new(),
        };
        known.into_iter().map(mapping).collect()
    }

    /// Whether a stack with `return_address` may lead through generated code that is not known yet.
    #[inline]
    pub fn is_unknown(&self, return_address: u64) -> bool {
        MODULES.contains(&return_address)
            && !self.known.iter().any(|code| code.contains(&return_address))
            && !self.absent.contains(&return_address)
    }

    /// Reads the lists, because `return_address` [is unknown](KernelGenerated::is_unknown). Returns what is
    /// to be mapped.
    pub fn read(&mut self, return_address: u64, memory: &AddressSpace) -> Vec<Mapping> {
        let (code, _) = generated_code(self.kernel, self.slide, &MachineMemory(memory));
        let is_new = |range: &Range<u64>| !self.known.contains(range);
        let new: Vec<Mapping> = code
            .into_iter()
            .filter(|code| is_new(&code.range))
            .map(|code| Mapping {
                range: code.range,
                bias: 0,
                image: code.image,
                name: code.name,
            })
            .collect();
        self.known.extend(new.iter().map(|code| code.range.clone()));
        if self.is_unknown(return_address) {
            if self.absent.len() >= ABSENT_MAX {
                self.absent.clear();
            }
            self.absent.insert(return_address);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_recordings::kernel::KernelSymbols;

    const CHANGE: u64 = 0xffff_ffff_8100_1000;
    const SLIDE: u64 = 0x200_0000;

    #[test]
    fn what_is_in_no_list_is_looked_for_again_once_a_list_has_changed() {
        let map = format!("{CHANGE:016x} t bpf_ksym_del\n");
        let symbols = KernelSymbols::from_map(map.as_bytes()).expect("it is a map");
        let kernel = KernelImage::of_symbols(symbols, None);
        let mut generated = KernelGenerated::of(&kernel, SLIDE);
        assert!(generated.is_hook(CHANGE + SLIDE) && !generated.is_hook(CHANGE));

        let memory = AddressSpace::default();
        let (inside, outside) = (MODULES.start, MODULES.end);
        assert!(generated.is_unknown(inside) && !generated.is_unknown(outside));
        assert_eq!(generated.read(inside, &memory).len(), 0);
        assert!(!generated.is_unknown(inside) && generated.is_unknown(inside + 1));
        assert_eq!(generated.forget().len(), 0);
        assert!(generated.is_unknown(inside));

        // What is mapped is known, until a list changes.
        generated.known.push(inside..inside + 16);
        assert!(!generated.is_unknown(inside + 15));
        let forgotten = generated.forget();
        let ranges: Vec<&Range<u64>> = forgotten.iter().map(|code| &code.range).collect();
        assert_eq!(ranges, [&(inside..inside + 16)]);
        assert!(generated.is_unknown(inside + 15));
    }
}
