//! Random and damaged sections never panic, hang or allocate without bound.

extern crate std;

use super::super::{Dwarf, compile_all};
use super::*;
use crate::chain::Chain;
use crate::finder::Finder;
use crate::image::{AddressSpace, Mapping};
use crate::memory::MemoryCopy;
use crate::regs::{Reg, RegMask, Regs};
use crate::start::Start;
use crate::walk::{Limits, WalkTarget, walk};
use alloc::sync::Arc;
use quickcheck::QuickCheck;

/// Runs everything that reads a table: enumeration, compilation, lookups.
fn read_all(image: Image) {
    let image = Arc::new(image);
    let mut cache = Cache::new();
    for kind in [TableKind::EhFrame, TableKind::DebugFrame] {
        for unit in units(&image, kind).flatten() {
            let _ = compile_unit(&image, kind, unit.offset, &mut cache);
        }
        let compiled = compile_all(&image, kind, &mut cache);
        assert!(compiled.units <= 1 << 16);
        for offset in 0..64 {
            let _ = compile_unit(&image, kind, offset, &mut cache);
        }
    }
    let mapping = Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(image),
        name: String::new(),
    };
    for svma in [0, 0x1000, 0x1001, 0x10ff, 0x8000, u64::MAX] {
        let _ = Dwarf::new().find(&mapping, svma, &mut cache);
    }
}

fn three_sections(eh_frame: Vec<u8>, header: Vec<u8>, debug_frame: Vec<u8>) -> Image {
    let sections = [
        (SectionKind::EhFrame, eh_frame),
        (SectionKind::EhFrameHdr, header),
        (SectionKind::DebugFrame, debug_frame),
    ];
    let sections = sections.map(|(kind, bytes)| Section {
        kind,
        address: ADDRESS,
        data: Bytes::from_vec(bytes),
    });
    Image::new(ImageParts {
        text: alloc::vec![0..u64::MAX],
        sections: sections.into(),
        ..ImageParts::default()
    })
}

#[test]
fn random_sections() {
    fn property(a: Vec<u8>, mut b: Vec<u8>, c: Vec<u8>) -> bool {
        for header in [false, true] {
            if header {
                b.splice(0..0, [1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0]);
            }
            read_all(three_sections(a.clone(), b.clone(), c.clone()));
        }
        true
    }
    QuickCheck::new()
        .tests(2000)
        .quickcheck(property as fn(Vec<u8>, Vec<u8>, Vec<u8>) -> bool);
}

#[test]
fn random_programs() {
    fn property(program: Vec<u8>, initial: Vec<u8>) -> bool {
        let cie = Cie {
            program: &initial,
            ..Cie::default()
        };
        let bytes = cie.eh_frame(&program);
        read_all(image(SectionKind::EhFrame, ADDRESS, bytes));
        let _ = compile_eh_frame(&Cie::default(), &program);
        true
    }
    QuickCheck::new()
        .tests(4000)
        .quickcheck(property as fn(Vec<u8>, Vec<u8>) -> bool);
}

#[test]
fn every_byte_of_a_section_damaged() {
    let program = [
        0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x10, 3, 2, 0x77, 8, 0x02, 0x80, 0x0c, 7, 8,
        0x0b,
    ];
    let cie = Cie {
        augmentation: "zPLR",
        // Length, then encoding and value of the personality, and the encodings of LSDA and
        // addresses.
        data: &[7, 0x1b, 1, 2, 3, 4, 0x1b, 0x00],
        ..Cie::default()
    };

    let good = cie.eh_frame(&program);
    for at in 0..good.len() {
        for flip in 1..=255 {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            let len = bytes.len();
            let image = image(SectionKind::EhFrame, ADDRESS, bytes);

            let mut cache = Cache::new();
            let compiled = compile_all(&image, TableKind::EhFrame, &mut cache);
            // The shortest FDE has 12 bytes: length, CIE pointer, then an address and a length of
            // two bytes each.
            assert!(compiled.units <= len / 12, "{at} {flip}: {compiled:?}");
            assert!(compiled.units > 0 || compiled.rows == 0, "{compiled:?}");
        }

        // And every prefix of the section.
        let cut = good[..at].to_vec();
        read_all(image(SectionKind::EhFrame, ADDRESS, cut));
    }
}

/// Many FDEs share a CIE whose program is as long as all of them together. Reading each separately
/// would take time quadratic in the section's length.
#[test]
fn work_is_bounded_by_the_length_of_the_section() {
    let functions = 4000;
    let nops = alloc::vec![0; 16 * functions];

    let cie = Cie {
        program: &nops,
        ..Cie::default()
    };

    let mut bytes = cie.bytes(0);
    for i in 0..functions as u64 {
        let mut body = (bytes.len() as u32 + 4).to_le_bytes().to_vec();
        body.extend((0x1000 + 16 * i).to_le_bytes());
        body.extend(16u64.to_le_bytes());
        bytes.extend(entry(&body));
    }

    let image = image(SectionKind::EhFrame, ADDRESS, bytes);
    let mut cache = Cache::new();
    let compiled = units(&image, TableKind::EhFrame)
        .flatten()
        .map(|unit| compile_unit(&image, TableKind::EhFrame, unit.offset, &mut cache));
    let (done, refused): (Vec<_>, Vec<_>) = compiled.partition(Result::is_ok);
    // The first ones fit into the budget, the others do not.
    assert!((10..200).contains(&done.len()), "{}", done.len());

    let refused = refused.into_iter().all(|unit| match unit {
        Err(Reason::MalformedRow { what, .. }) => what == "the table's entries overlap too much",
        _ => false,
    });
    assert!(refused);

    // Read one after the other, they share the work.
    let all = compile_all(&image, TableKind::EhFrame, &mut Cache::new());
    assert_eq!((all.units, all.malformed), (functions, 0));
}

/// A walk of a stack made from `stack`, through a function with this program.
fn walked(program: &[u8], stack: &[u8], rsp: u8, rbp: u8) -> Chain {
    let cie = Cie::default();
    let image = image(SectionKind::EhFrame, ADDRESS, cie.eh_frame(program));
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: 0..0x1_0000,
        bias: 0,
        image: Some(Arc::new(image)),
        name: String::new(),
    });

    // Words that point into the function and the stack keep the walk going.
    let words = stack.iter().flat_map(|&byte| match byte % 3 {
        0 => (0x1001 + u64::from(byte)).to_le_bytes(),
        1 => (0x2_0000 + u64::from(byte)).to_le_bytes(),
        _ => u64::from(byte).to_le_bytes(),
    });
    let bytes: Vec<u8> = words.collect();

    // All registers are known, so that no rule fails for want of one.
    let mut regs = Regs::UNKNOWN;
    RegMask::ALL.iter().for_each(|reg| regs.set(reg, 0x2_0000));
    regs.set(Reg::Rip, 0x1001 + u64::from(rsp));
    regs.set(Reg::Rsp, 0x2_0000 + u64::from(rsp) / 4 * 8);
    regs.set(Reg::Rbp, 0x2_0000 + u64::from(rbp));

    let place = WalkTarget {
        space: &space,
        memory: &MemoryCopy::new(0x2_0000, &bytes),
    };
    let (start, limits) = (Start::from_regs(regs), Limits { frames_max: 4096 });
    let (finder, mut cache, mut chain) = (Dwarf::new(), Cache::new(), Chain::default());

    chain.end = walk(&finder, &place, &start, &limits, &mut cache, &mut chain);
    chain
}

/// Walks of random stacks with random rules end where the stack does. Only those that read no
/// return address from the stack continue to the frame limit.
#[test]
fn random_walks_end() {
    fn property(program: Vec<u8>, stack: Vec<u8>, rsp: u8, rbp: u8) -> bool {
        let chain = walked(&program, &stack, rsp, rbp);
        let read = chain.frames.iter().filter(|f| f.slot.is_some()).count();
        let is_read = chain.frames.last().is_some_and(|f| f.slot.is_some());
        let is_cut = matches!(chain.end.reason, Reason::FrameLimit { .. });
        read <= 1000 && !(is_read && is_cut)
    }
    QuickCheck::new()
        .tests(4000)
        .quickcheck(property as fn(Vec<u8>, Vec<u8>, u8, u8) -> bool);
}

/// DW_CFA_register: the return address is in rip and never changes.
#[test]
fn a_return_address_that_is_not_on_the_stack_ends_at_the_limit() {
    let chain = walked(&[0x09, 16, 16], &[], 0, 0);
    let limit = Reason::FrameLimit { limit: 4096 };
    assert_eq!((chain.frames.len(), chain.end.reason), (4096, limit));
    assert!(chain.frames.iter().all(|f| f.slot.is_none()));
}
