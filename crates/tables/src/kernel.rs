//! What a kernel module says of its own code beside the code: static branches, exception tables,
//! bugs, alternatives; and the kernel's functions that never return.
//!
//! Sources: Linux `arch/x86/include/asm/{alternative,jump_label,extable,bug}.h`,
//! `include/linux/jump_label.h`, `include/asm-generic/bug.h`,
//! `tools/objtool/{check.c,special.c,noreturns.h}`, 6.1, 6.12 and 7.2. Only relocatable objects are
//! read: in a linked kernel the sections have no names that a program needs.

use crate::file::File;
use std::collections::BTreeMap;
use std::ops::Range;

/// The maximum number of entries read from one of these sections.
const ENTRIES_MAX: usize = 1 << 20;
/// `struct jump_entry`, bytes.
const JUMP_ENTRY_LEN: u64 = 16;
/// `struct exception_table_entry`, bytes.
const EX_ENTRY_LEN: u64 = 12;
/// The sizes of `struct bug_entry`, bytes, and where `flags` is in each: alone, with file and line
/// (`CONFIG_DEBUG_BUGVERBOSE`), and with a format as well (`CONFIG_HAVE_ARCH_BUG_FORMAT`, since 6.19). The
/// smallest comes first: entries of twice that size begin with code, too.
const BUG_LAYOUTS: [(u64, u64); 3] = [(8, 4), (12, 10), (16, 14)];
const BUGS: &str = "__bug_table";
/// Execution goes on behind this `ud2`.
const BUGFLAG_WARNING: u8 = 1;
/// The sizes of `struct alt_instr`, bytes: with a 16-bit feature (to 6.3), with 32 bits of flags.
const ALT_LENS: [u64; 2] = [12, 14];

/// Functions of the kernel that never return.
const NO_RETURN: &[&str] = &[
    "__fortify_panic",
    "__ia32_sys_exit",
    "__ia32_sys_exit_group",
    "__invalid_creds",
    "__module_put_and_kthread_exit",
    "__reiserfs_panic",
    "__stack_chk_fail",
    "__ubsan_handle_builtin_unreachable",
    "__x64_sys_exit",
    "__x64_sys_exit_group",
    "arch_cpu_idle_dead",
    "bch2_trans_in_restart_error",
    "bch2_trans_restart_error",
    "bch2_trans_unlocked_error",
    "cpu_bringup_and_idle",
    "cpu_startup_entry",
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "ex_handler_msr_mce",
    "fortify_panic",
    "hlt_play_dead",
    "hv_ghcb_terminate",
    "kthread_complete_and_exit",
    "kthread_exit",
    "kunit_try_catch_throw",
    "lbug_with_loc",
    "machine_real_restart",
    "make_task_dead",
    "mpt_halt_firmware",
    "nmi_panic_self_stop",
    "panic",
    "panic_smp_self_stop",
    "rest_init",
    "rewind_stack_and_make_dead",
    "rust_begin_unwind",
    "rust_helper_BUG",
    "sev_es_terminate",
    "snp_abort",
    "start_kernel",
    "stop_this_cpu",
    "usercopy_abort",
    "x86_64_start_kernel",
    "x86_64_start_reservations",
    "xen_cpu_bringup_again",
    "xen_start_kernel",
];

/// Whether a function of the kernel with this name never returns.
pub fn never_returns(name: &str) -> bool {
    NO_RETURN.binary_search(&name).is_ok()
}

/// Code that replaces other code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alternative {
    /// The addresses (svma) of the code that is replaced.
    pub original: Range<u64>,
    /// The addresses (svma) of what replaces it, in another section.
    pub replacement: Range<u64>,
}

/// What the sections say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpecialSections {
    /// Static branches: instruction (a jump or a nop) and where it may lead (svma).
    pub branches: BTreeMap<u64, u64>,
    /// Instructions that may fault, and where execution goes on then (svma).
    pub fixups: BTreeMap<u64, u64>,
    /// `ud2` instructions behind which execution goes on (svma).
    pub warnings: BTreeMap<u64, ()>,
    /// By the address of the code that is replaced.
    pub alternatives: BTreeMap<u64, Vec<Alternative>>,
}

impl SpecialSections {
    /// Reads the sections of a relocatable object; a program has none of this.
    pub fn read(file: &File) -> SpecialSections {
        let mut out = SpecialSections::default();
        each(file, "__jump_table", JUMP_ENTRY_LEN, |at| {
            let (code, target) = (near(file, at)?, near(file, at + 4)?);
            out.branches.insert(code, target);
            Some(())
        });
        each(file, "__ex_table", EX_ENTRY_LEN, |at| {
            let (code, fixup) = (near(file, at)?, near(file, at + 4)?);
            out.fixups.insert(code, fixup);
            Some(())
        });
        if let Some((len, flags)) = bug_layout(file) {
            each(file, BUGS, len, |at| {
                let code = near(file, at)?;
                if file.bytes(at + flags).first()? & BUGFLAG_WARNING != 0 {
                    out.warnings.insert(code, ());
                }
                Some(())
            });
        }
        out.read_alternatives(file);
        out
    }

    /// Where (svma) ways lead from the instruction at `pc`, which `next` follows (svma), that it does not
    /// show: behind a fault, and through a static branch.
    pub fn ways(&self, pc: u64, next: u64) -> impl Iterator<Item = u64> {
        let fixup = self.fixups.get(&pc).copied();
        let branch = self.branches.get(&pc).map(|&target| [target, next]);
        fixup.into_iter().chain(branch.into_iter().flatten())
    }

    /// The addresses (svma) in `range` of instructions from which ways lead on that the code does not
    /// show, in no order.
    pub fn places(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let branches = self.branches.range(range.clone()).map(|at| *at.0);
        let fixups = self.fixups.range(range.clone()).map(|at| *at.0);
        let alternatives = self.alternatives.range(range.clone()).map(|at| *at.0);
        branches.chain(fixups).chain(alternatives)
    }

    fn read_alternatives(&mut self, file: &File) {
        let Some(range) = file.section_range(".altinstructions") else {
            return;
        };

        // No field says how large an entry is: the size is right with which all are readable.
        let sizes = ALT_LENS.into_iter();
        let readable = sizes.filter_map(|len| {
            if (range.end - range.start) % len != 0 {
                return None;
            }
            let entries = (range.start..range.end).step_by(len as usize);
            let all = entries
                .take(ENTRIES_MAX)
                .map(|at| alternative(file, at, len));
            all.collect::<Option<Vec<_>>>()
        });

        let Some(found) = readable.into_iter().next() else {
            return;
        };

        for alternative in found {
            let start = alternative.original.start;
            self.alternatives
                .entry(start)
                .or_default()
                .push(alternative);
        }
    }
}

/// The size of the entries of `__bug_table`, and where `flags` is in them: the one with which every entry
/// begins with the address of code. `None` if there is no table, or none fits.
fn bug_layout(file: &File) -> Option<(u64, u64)> {
    let range = file.section_range(BUGS)?;
    let fits = |&(len, _): &(u64, u64)| {
        let mut entries = (range.start..range.end).step_by(len as usize);
        (range.end - range.start) % len == 0
            && entries.all(|at| near(file, at).is_some_and(|code| file.code_at(code).is_some()))
    };
    BUG_LAYOUTS.into_iter().find(fits)
}

/// The entry at `at`, if it makes sense with this size.
fn alternative(file: &File, at: u64, len: u64) -> Option<Alternative> {
    let (original, replacement) = (near(file, at)?, near(file, at + 4)?);
    let lengths = file.bytes(at + len - 2).first_chunk::<2>()?;
    let [original_len, replacement_len] = lengths.map(u64::from);
    let fits = |start: u64, len: u64| {
        let code = file.code_at(start)?;
        (start.checked_add(len)? <= code.range.end).then_some(())
    };
    fits(original, original_len)?;
    if replacement_len > 0 {
        fits(replacement, replacement_len)?;
    }
    Some(Alternative {
        original: original..original + original_len,
        replacement: replacement..replacement + replacement_len,
    })
}

/// The address that the word at `at` has the distance to.
fn near(file: &File, at: u64) -> Option<u64> {
    let bytes = file.bytes(at).first_chunk()?;
    Some(at.wrapping_add_signed(i32::from_le_bytes(*bytes).into()))
}

fn each(file: &File, section: &str, len: u64, mut entry: impl FnMut(u64) -> Option<()>) {
    let Some(range) = file.section_range(section) else {
        return;
    };
    for at in (range.start..range.end)
        .step_by(len as usize)
        .take(ENTRIES_MAX)
    {
        if range.end - at < len || entry(at).is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_for_the_search() {
        assert!(NO_RETURN.is_sorted());
        assert!(never_returns("panic") && never_returns("xen_start_kernel"));
        assert!(!never_returns("panics"));
    }
}
