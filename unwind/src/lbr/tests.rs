//! Rings given by the caller, and code from an assembler listing.

use super::*;
use crate::chain::{Chain, How};
use crate::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind};
use crate::reason::Code;
use crate::regs::Regs;
use alloc::sync::Arc;
use alloc::vec;

const BASE: u64 = 0x40_1000;
/// `call +0`, `call *(%rax)`, `call *0x10(%rsp)`, `notrack call *%rax`, `nop`, `call *0(%rip)`.
const CODE: [u8; 23] = [
    0xe8, 0, 0, 0, 0, 0xff, 0x10, 0xff, 0x54, 0x24, 0x10, 0x3e, 0xff, 0xd0, 0x90, 0x41, 0xff, 0xd4,
    0xff, 0x15, 0, 0, 0,
];

fn space() -> AddressSpace {
    let image = Image::new(ImageParts {
        text: core::iter::once(BASE..BASE + CODE.len() as u64).collect(),
        sections: vec![Section {
            kind: SectionKind::Text,
            address: BASE,
            data: Bytes::from_vec(CODE.to_vec()),
        }],
        ..ImageParts::default()
    });
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: BASE..BASE + 0x1000,
        bias: 0,
        image: Some(Arc::new(image)),
        name: "a".into(),
    });
    space
}

fn ring(depth: u32, froms: &[u64]) -> BranchStack {
    let entries = froms.iter().map(|&from| Branch { from, to: 1 });
    BranchStack {
        depth,
        hw_index: None,
        entries: entries.collect(),
    }
}

fn walked(branches: Branches<'_>, options: LbrOptions, frames_max: u32) -> Chain {
    let start = Start::from_regs(Regs::frame(BASE, 0x7000, 0));
    let mut chain = Chain::default();
    let limits = Limits { frames_max };
    chain.end = walk(&start, &space(), branches, options, &limits, &mut chain);
    chain
}

fn pcs(chain: &Chain) -> Vec<CodeAddress> {
    chain.frames.iter().map(|f| f.pc).collect()
}

#[test]
fn a_call_becomes_its_return_address() {
    let (call, plain) = (CodeAddress::Return, CodeAddress::Instruction);
    let froms = [0, 5, 7, 11, 14, 15].map(|at| BASE + at);

    // A call cut off by the end of the known code, and one without any known code.
    let ring = ring(32, &[&froms[..], &[BASE + 18, 0x9999]].concat());
    let branches = Branches {
        stacks: &[ring],
        stitched: &[],
    };

    // A call's length is in the code, so without code its return address is unknown.
    let chain = walked(branches, LbrOptions::default(), 100);

    let behind = [5, 7, 11, 14].map(|at| call(BASE + at));
    let others = [
        plain(BASE + 14),
        call(BASE + 18),
        plain(BASE + 18),
        plain(0x9999),
    ];
    let want = [&[plain(BASE)][..], &behind, &others].concat();
    assert_eq!(pcs(&chain), want);
    assert_eq!(chain.end.reason, Reason::NotAtRoot);

    let found = |from| How::Branch {
        from,
        stitched: false,
    };
    assert_eq!(chain.step(1).how, found(BASE));
}

#[test]
fn a_full_ring_is_reported_as_full() {
    // Eight branches in rings of 32 and of 8 entries, and in one of unknown depth.
    let froms: Vec<u64> = (0..8).collect();
    let stacks = [ring(32, &froms), ring(8, &froms), ring(0, &froms)];
    let branches = Branches {
        stacks: &stacks,
        stitched: &[],
    };

    let end = |depth| {
        let options = LbrOptions {
            depth,
            stitch: false,
        };
        walked(branches, options, 100).end.reason
    };

    assert_eq!(end(None), Reason::NotAtRoot);
    assert_eq!(end(Some(8)), Reason::LbrDepth { depth: 8 });
    assert_eq!(
        end(Some(0)),
        Reason::NotAtRoot,
        "the ring's depth is unknown"
    );

    // A depth that no stack has.
    assert_eq!(end(Some(16)).code(), Code::NoBranchRecords);

    let none = walked(Branches::default(), LbrOptions::default(), 100);
    assert_eq!(none.end.reason, Reason::NoBranchRecords);
    assert_eq!(none.frames.len(), 1, "the sampled pc is known");
}

#[test]
fn the_stitched_chain_follows_on_request() {
    let (stacks, stitched) = ([ring(1, &[0x10])], [vec![0x20, 0x30]]);
    let branches = Branches {
        stacks: &stacks,
        stitched: &stitched,
    };
    let frames = |stitch, max| {
        let options = LbrOptions {
            depth: None,
            stitch,
        };
        let chain = walked(branches, options, max);
        (chain.frames.len(), chain.end.reason.code())
    };
    assert_eq!(frames(false, 9), (2, Code::LbrDepth));
    assert_eq!(frames(true, 9), (4, Code::LbrDepth));
    assert_eq!(frames(true, 3), (3, Code::FrameLimit));
}
