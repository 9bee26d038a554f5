//! ORC's tables of a linked kernel.

use super::{TEXT, found};
use crate::made::{ALLOC, CODE, EXEC, LOAD, Made, PROGBITS, section};
use unwind_sim_tables::index::Flaw;

const ENTRIES: u64 = 0x1000;
const IPS: u64 = 0x1400;
const LOOKUP: u64 = 0x1800;
const LOOKUP_NAME: &str = ".orc_lookup";
const IPS_NAME: &str = ".orc_unwind_ip";
/// The bytes of code for which the lookup table has an entry.
const BLOCK: u64 = 256;

/// A kernel of two and a half blocks of code, with entries at these addresses (svma).
fn kernel(starts: &[u64], lookup: &[u32]) -> Made {
    let mut ips = Vec::new();
    for (number, start) in (0..).zip(starts) {
        let slot = IPS + 4 * number;
        ips.extend((start.wrapping_sub(slot) as u32).to_le_bytes());
    }
    // sp_offset 8, sp_reg rsp, type call.
    let entries = [8_u8, 0, 0, 0, 5, 2].repeat(starts.len());
    let lookup = lookup.iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = vec![0x90; (2 * BLOCK + BLOCK / 2) as usize];
    Made {
        kind: EXEC,
        sections: vec![
            section(".orc_unwind", (PROGBITS, ALLOC), ENTRIES, entries),
            section(IPS_NAME, (PROGBITS, ALLOC), IPS, ips),
            section(LOOKUP_NAME, (PROGBITS, ALLOC), LOOKUP, lookup),
            section(".text", (PROGBITS, CODE), TEXT, text),
        ],
        programs: vec![(LOAD, 4, 0, 0x2000), (LOAD, 5, 0x2000, 0x1000)],
        has_section_headers: true,
    }
}

const STARTS: [u64; 3] = [TEXT, TEXT + 0x80, TEXT + 0x180];

#[test]
fn the_addresses_of_a_linked_kernel_are_sorted() {
    assert_eq!(found(&kernel(&STARTS, &[0; 4])), []);
    let swapped = [STARTS[1], STARTS[0], STARTS[2]];
    let flaw = (Flaw::OrcUnsorted, IPS_NAME, 4);
    assert_eq!(found(&kernel(&swapped, &[0; 4])), [flaw]);
}

#[test]
fn each_entry_has_an_address() {
    let mut made = kernel(&STARTS, &[0; 4]);
    made.get(IPS_NAME).bytes.truncate(8);
    assert_eq!(found(&made), [(Flaw::OrcCount, IPS_NAME, 8)]);
}

#[test]
fn the_lookup_table_has_a_word_for_each_block_and_one_more() {
    let flaw = (Flaw::OrcLookup, LOOKUP_NAME, 12);
    assert_eq!(found(&kernel(&STARTS, &[0; 3])), [flaw]);
    // Filled, it leads to the last entry at or before each block.
    assert_eq!(found(&kernel(&STARTS, &[0, 1, 2, 2])), []);
    let flaw = (Flaw::OrcLookup, LOOKUP_NAME, 4);
    assert_eq!(found(&kernel(&STARTS, &[0, 2, 2, 2])), [flaw]);
}
