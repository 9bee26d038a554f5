//! The few data symbols needed, found in one pass over all symbols.

use super::error::Problem;
use crate::kernel::KernelSymbols;
use std::collections::HashMap;

const WANTED: [&str; 13] = [
    "linux_banner",
    "_text",
    "init_top_pgt",
    "init_task",
    "__per_cpu_offset",
    "current_task",
    "pcpu_hot",
    "hardirq_stack_ptr",
    "cea_exception_stacks",
    "runqueues",
    "modules",
    "bpf_kallsyms",
    "ftrace_ops_trampoline_list",
];

/// Addresses (SVMA) of symbols by name.
pub(super) struct Symbols(HashMap<&'static str, u64>);

impl Symbols {
    pub(super) fn new(all: &KernelSymbols) -> Symbols {
        let found = WANTED.into_iter().zip(all.addresses(WANTED));
        Symbols(found.filter_map(|(name, at)| Some((name, at?))).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    pub(super) fn needed(&self, name: &'static str) -> Result<u64, Problem> {
        self.get(name).ok_or(Problem::NoSymbol { name })
    }
}
