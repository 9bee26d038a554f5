//! A module in memory, as a kernel has it.

use super::*;
use unwind_sim_emulator::Permissions;

/// Where `struct module` is, and other data.
const MODULE: u64 = 0x1_0000;
const KALLSYMS: u64 = MODULE + 0x100;
const SYMBOLS: u64 = MODULE + 0x200;
const STRINGS: u64 = MODULE + 0x300;
const IPS: u64 = MODULE + 0x400;
const ROWS: u64 = MODULE + 0x500;
/// Its code: what stays, and what is freed after the start.
const CODE: u64 = 0x2_0000;
const INIT: u64 = 0x3_0000;
/// Functions of the kernel.
const LOADED_AT: u64 = 0x100;
const FREED_AT: u64 = 0x200;

fn modules() -> KernelModules {
    KernelModules {
        layout: Layout {
            name: (0, 56),
            // The second one is of data.
            regions: vec![(64, 72), (80, 88), (96, 104)],
            symbols: Some([112, 8, 0, 16]),
        },
        loaded_at: LOADED_AT,
        freed_at: vec![FREED_AT],
        code: Vec::new(),
    }
}

fn memory() -> AddressSpace {
    let mut memory = AddressSpace::default();
    for at in [MODULE, CODE, INIT] {
        let range = at..at + 2 * PAGE;
        memory.map(range, Permissions::READ_WRITE).expect("free");
    }
    let mut put = |at: u64, bytes: &[u8]| memory.write(at, bytes).expect("mapped");
    let mut words = |at: u64, words: &[u64]| {
        for (at, word) in (at..).step_by(8).zip(words) {
            put(at, &word.to_le_bytes());
        }
    };
    words(
        MODULE + 64,
        &[CODE, PAGE + 1, MODULE, PAGE, INIT, 0x10, KALLSYMS],
    );
    words(KALLSYMS, &[4, SYMBOLS, STRINGS]);
    // Name, address and size: a function of each part, one of the kernel, and padding.
    let symbols = [(1, CODE + 0x10), (5, INIT), (1, 0x4000), (10, CODE)];
    for (index, (name, address)) in (0..).zip(symbols) {
        words(SYMBOLS + index * SYMBOL_LEN as u64, &[name, address, 8]);
    }
    put(STRINGS, b"\0run\0init\0__pfx_run\0");
    put(MODULE, b"crc7\0");
    put(CODE, &[0x90, 0xc3]);
    // Not in order: the kernel sorts them only now.
    for (index, ip) in (0..).zip([INIT, CODE]) {
        let at = IPS + 4 * index;
        put(at, &(ip.wrapping_sub(at) as u32).to_le_bytes());
    }
    put(ROWS, &[1; 12]);
    memory
}

const ARGS: [u64; 5] = [MODULE, IPS, 8, ROWS, 12];

#[test]
fn a_module_is_loaded_with_its_table_and_symbols() {
    let (mut modules, memory) = (modules(), memory());
    assert!(modules.is_hook(LOADED_AT) && modules.is_hook(FREED_AT) && !modules.is_hook(0));
    let mapped = modules.entered(LOADED_AT, ARGS, &memory);
    let ranges: Vec<Range<u64>> = mapped.iter().map(|m| m.range.clone()).collect();
    assert_eq!(ranges, [CODE..CODE + 2 * PAGE, INIT..INIT + PAGE]);
    assert!(mapped.iter().all(|m| m.bias == 0 && m.name == "[crc7]"));

    let image = mapped[1].image.as_ref().expect("it has a table");
    let names = image.symbols().iter().map(|s| (s.address, &*s.name));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [(CODE + 0x10, "run"), (INIT, "init")]
    );
    assert_eq!(image.text_bytes(CODE, 2), [0x90, 0xc3]);
    let ips = image.section(SectionKind::OrcUnwindIp).expect("it has one");
    assert_eq!((ips.address, ips.data.len()), (IPS, 8));
    assert_eq!(
        image.section(SectionKind::OrcUnwind).map(|s| s.data.len()),
        Some(12)
    );
}

#[test]
fn freed_code_has_no_table() {
    let (mut modules, memory) = (modules(), memory());
    modules.entered(LOADED_AT, ARGS, &memory);
    assert_eq!(modules.entered(FREED_AT, [MODULE; 5], &memory).len(), 0);
    let freed = modules.entered(FREED_AT, [INIT; 5], &memory);
    assert_eq!(freed.len(), 1);
    assert_eq!(
        (freed[0].range.clone(), freed[0].image.is_none()),
        (INIT..INIT + PAGE, true)
    );
    // Only once: something else may be there now.
    assert_eq!(modules.entered(FREED_AT, [INIT; 5], &memory).len(), 0);
}

/// A kernel may hand over anything.
#[test]
fn what_cannot_be_read_is_no_module() {
    let memory = memory();
    for args in [
        [0; 5],
        [MODULE, 8, 8, ROWS, 12],
        [MODULE, IPS, u64::MAX, ROWS, 12],
    ] {
        assert_eq!(modules().entered(LOADED_AT, args, &memory).len(), 0);
    }
    let unnamed = KernelModules {
        layout: Layout {
            name: (MODULE, 0),
            symbols: None,
            ..modules().layout
        },
        ..modules()
    };
    let mapped = unnamed.clone().entered(LOADED_AT, ARGS, &memory);
    assert_eq!(mapped[0].name, "[module 0x10000]");
    let image = mapped[0].image.as_ref().expect("it has a table");
    assert_eq!(image.symbols().len(), 0);
}
