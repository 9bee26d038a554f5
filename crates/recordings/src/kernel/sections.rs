//! The sections of a kernel's code: those of its section headers or, where these are stripped, those whose
//! ends have symbols. What the linker collects inside of `.text` is a section here, too.

use super::symbols::KernelSymbols;
use std::ops::Range;

/// A section of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeSection {
    /// Its name, as in the object files.
    pub name: String,
    /// Its addresses (SVMA). Another section may lie within.
    pub range: Range<u64>,
}

/// Sections that are parts of others, with the symbols at their ends. Source: `include/asm-generic/vmlinux.lds.h`
/// and `arch/x86/kernel/vmlinux.lds.S`, Linux 6.12.
const PARTS: [(&str, &str, &str); 10] = [
    (
        ".noinstr.text",
        "__noinstr_text_start",
        "__noinstr_text_end",
    ),
    (
        ".cpuidle.text",
        "__cpuidle_text_start",
        "__cpuidle_text_end",
    ),
    (".sched.text", "__sched_text_start", "__sched_text_end"),
    (".spinlock.text", "__lock_text_start", "__lock_text_end"),
    (
        ".kprobes.text",
        "__kprobes_text_start",
        "__kprobes_text_end",
    ),
    (".entry.text", "__entry_text_start", "__entry_text_end"),
    (
        ".irqentry.text",
        "__irqentry_text_start",
        "__irqentry_text_end",
    ),
    (
        ".softirqentry.text",
        "__softirqentry_text_start",
        "__softirqentry_text_end",
    ),
    (
        ".static_call.text",
        "__static_call_text_start",
        "__static_call_text_end",
    ),
    (
        ".text..__x86.indirect_thunk",
        "__indirect_thunk_start",
        "__indirect_thunk_end",
    ),
];
/// The same for sections of their own, in case that there are no section headers.
const WHOLE: [(&str, &str, &str); 2] = [
    (".text", "_stext", "_etext"),
    (".init.text", "_sinittext", "_einittext"),
];

/// The sections with code: `headers` are those that the file names, if it names any.
pub(super) fn sections(headers: Vec<CodeSection>, symbols: &KernelSymbols) -> Vec<CodeSection> {
    let by_symbols = |all: &[(&str, &str, &str)]| -> Vec<CodeSection> {
        let found = all.iter().filter_map(|&(name, start, end)| {
            let range = symbols.range(start, end)?;
            let name = name.to_owned();
            Some(CodeSection { name, range })
        });
        found.collect()
    };

    let mut sections = headers;
    if sections.is_empty() {
        sections = by_symbols(&WHOLE);
    }
    let parts = by_symbols(&PARTS);
    // A file that was linked with `-r` or by another script may have them as sections.
    let is_named = |part: &CodeSection| sections.iter().any(|s| s.name == part.name);
    let parts: Vec<CodeSection> = parts.into_iter().filter(|p| !is_named(p)).collect();
    sections.extend(parts);
    sections
}

/// Whether a symbol is the start or the end of a section, and not a function.
pub(super) fn is_mark(name: &str) -> bool {
    let all = PARTS.iter().chain(&WHOLE);
    all.clone()
        .any(|&(_, start, end)| name == start || name == end)
}

#[cfg(test)]
mod tests;
