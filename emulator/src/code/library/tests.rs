//! Which blocks a second space takes from the library.

use super::super::{Code, Kind, PAGE_SIZE};
use super::Library;
use crate::address_space::{AddressSpace, Permissions};
use crate::processor::Processor;
use std::sync::Arc;

const AT: u64 = 0x40_0000;
/// `mov $1, %eax`, of five bytes.
const MOV: [u8; 5] = [0xb8, 1, 0, 0, 0];
const RET: u8 = 0xc3;

/// Memory of one page that ends with these bytes, which are at the address.
fn memory(code: &[u8]) -> (AddressSpace, u64) {
    let mut memory = AddressSpace::default();
    let end = AT + PAGE_SIZE;
    memory.map(AT..end, Permissions::ALL).expect("free");
    let address = end - code.len() as u64;
    memory.poke(address, code).expect("mapped");
    (memory, address)
}

/// `count` moves, a return, and `rest` behind it.
fn moves(count: usize, rest: &[u8]) -> Vec<u8> {
    [&MOV.repeat(count), &[RET][..], rest].concat()
}

/// Whether a space with the code `second` takes the block from one with `first`, and the bytes of the block
/// that it has then.
fn taken(first: &[u8], second: &[u8], processors: [&str; 2], kinds: [Kind; 2]) -> (bool, u64) {
    let mut library = Library::new();
    library.begin();
    let [one, two] = processors.map(|name| name.parse::<Processor>().expect("a processor"));

    // What is decoded for the second time is kept.
    let mut decode = || {
        let (mut memory, address) = memory(first);
        let mut code = Code::new(kinds[0]);
        let id = code.find(&mut memory, address, &one, &mut library);
        (code, id)
    };
    decode();
    let (code, id) = decode();

    let (mut memory_two, address) = memory(second);
    let mut other = Code::new(kinds[1]);
    let number = other.find(&mut memory_two, address, &two, &mut library);

    let [ours, theirs] = [&code.blocks[id as usize], &other.blocks[number as usize]];
    let is_same = Arc::ptr_eq(&ours.ops, &theirs.ops);
    (is_same, theirs.end - theirs.start)
}

#[test]
fn a_block_is_taken_if_all_of_its_bytes_are_the_same() {
    let here = ["v3,intel"; 2];
    let kinds = [Kind::Joined; 2];
    let padding = [0xcc; 16];

    // Short ones, and one that is longer than what is fetched first.
    for count in [0, 1, 3, 20] {
        let code = moves(count, &padding);
        let len = 5 * count as u64 + 1;
        assert_eq!(taken(&code, &code, here, kinds), (true, len), "{count}");
        for kind in [Kind::Both, Kind::Single] {
            assert_eq!(taken(&code, &code, here, [kind; 2]), (true, len));
        }

        // Another byte anywhere in it.
        for at in 0..len as usize {
            let mut other = code.clone();
            // `mov $N, %ecx` for the first byte of a move, another number for the others; `nop`.
            other[at] ^= if other[at] == RET { RET ^ 0x90 } else { 1 };
            assert!(!taken(&code, &other, here, kinds).0, "{count}, {at}");
        }

        // Other code behind it: a short block may be decoded again.
        let other = moves(count, &[0x90; 16]);
        assert_eq!(taken(&code, &other, here, kinds), (count > 1, len));
    }
}

#[test]
fn a_block_is_for_its_processor_and_its_observer() {
    let code = moves(3, &[0xcc; 16]);
    let kinds = [Kind::Joined; 2];
    assert!(!taken(&code, &code, ["v3,intel", "v3,amd"], kinds).0);
    assert!(!taken(&code, &code, ["v3,intel", "v2,intel"], kinds).0);
    let kinds = [Kind::Joined, Kind::Both];
    assert!(!taken(&code, &code, ["v3,intel"; 2], kinds).0);
}

/// Where nothing can be fetched behind it, a block may end for that reason.
#[test]
fn a_block_that_is_cut_is_not_taken() {
    let here = ["v3,intel"; 2];
    let kinds = [Kind::Joined; 2];
    for code in [MOV.repeat(3), MOV.repeat(3)[..13].to_vec(), vec![RET]] {
        assert!(!taken(&code, &code, here, kinds).0, "{code:x?}");
    }
}

/// What no space has any more is dropped, and what one has is kept.
#[test]
fn the_library_is_pruned() {
    let processor = Processor::default();
    let mut library = Library::new();
    library.begin();
    let held = |library: &mut Library, number: u8| {
        let (mut memory, address) = memory(&[&[0xb8, number], &MOV[2..], &[RET; 16]].concat());
        let mut decode = || {
            let mut code = Code::new(Kind::Joined);
            code.find(&mut memory, address, &processor, library);
            code
        };
        decode();
        decode()
    };

    let kept = held(&mut library, 0);
    library.prune_at = 10;
    for number in 1..=100 {
        held(&mut library, number);
        // The bound is twice what was left, or that of a library of a usual size.
        library.prune_at = library.prune_at.min(10);
        assert!(library.blocks.len() <= 10, "{number}");
    }
    assert!(kept.blocks[0].is_shared());
    assert!(library.bytes() > 0);
}
