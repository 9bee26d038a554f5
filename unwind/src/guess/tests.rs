//! Every word that points past a code byte is a frame, from the mark up to the limits.

use super::*;
use crate::chain::Chain;
use crate::chain::How;
use crate::image::{AddressSpace, Image, ImageParts, Mapping};
use crate::memory::MemoryCopy;
use crate::regs::Regs;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

const STACK: u64 = 0x7fff_0000;
const TEXT: core::ops::Range<u64> = 0x1000..0x2000;

fn space() -> AddressSpace {
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: 0..0x1_0000,
        bias: 0,
        image: Some(Arc::new(Image::new(ImageParts {
            text: vec![TEXT],
            ..ImageParts::default()
        }))),
        name: String::new(),
    });
    space
}

/// The scan of `words` at [`STACK`].
fn scan(start: &Start, words: &[u64], frames_max: u32) -> Chain {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let place = WalkTarget {
        space: &space(),
        memory: &MemoryCopy::new(STACK, &bytes),
    };
    let mut chain = Chain::default();
    chain.end = walk(&place, start, &Limits { frames_max }, &mut chain);
    chain
}

/// Address, sp and slot of each frame.
fn frames(chain: &Chain) -> Vec<(CodeAddress, u64, Option<u64>)> {
    let frames = chain.frames.iter();
    frames.map(|f| (f.pc, f.sp, f.slot)).collect()
}

fn found(at: u64, word: u64) -> (CodeAddress, u64, Option<u64>) {
    (CodeAddress::Return(word), at + 8, Some(at))
}

const WORDS: [u64; 6] = [0x1001, 7, 0x2000, 0x1000, 0x2001, 0x1fff];

#[test]
fn words_after_code_are_frames() {
    let start = Start::from_regs(Regs::frame(0x1234, STACK, 0));
    let chain = scan(&start, &WORDS, 100);
    // A return address follows a call: it may be at the end of the text, but not at its start.
    let expected = [
        (CodeAddress::Instruction(0x1234), STACK, None),
        found(STACK, 0x1001),
        found(STACK + 0x10, 0x2000),
        found(STACK + 0x28, 0x1fff),
    ];
    assert_eq!(frames(&chain), expected);
    assert_eq!(chain.end.reason, Reason::NotAtRoot);
    assert_eq!(chain.step(0).how, How::Start);
    assert_eq!(chain.step(1).how, How::Guess);
}

#[test]
fn a_scan_starts_at_the_next_aligned_word() {
    for (rsp, first) in [(0, 0), (1, 8), (7, 8), (8, 8), (9, 16)] {
        let start = Start::from_regs(Regs::frame(0x1234, STACK + rsp, 0));
        let chain = scan(&start, &[0x1001, 0x1002, 0x1003], 100);
        assert_eq!(chain.frames[1].slot, Some(STACK + first), "{rsp}");
    }
}

#[test]
fn a_mark_hides_the_start_and_everything_below() {
    let mut start = Start::from_regs(Regs::frame(0x1234, STACK, 0));
    start.first_frame = Some(STACK + 9);
    let chain = scan(&start, &WORDS, 100);
    let expected = [found(STACK + 0x10, 0x2000), found(STACK + 0x28, 0x1fff)];
    assert_eq!(frames(&chain), expected);
    start.sampled_ip = Some(0x1777);
    let chain = scan(&start, &WORDS, 100);
    let ip = (CodeAddress::Return(0x1777), 0, None);
    assert_eq!(frames(&chain)[0], ip);
    assert_eq!(frames(&chain)[1..], expected);
}

#[test]
fn the_frame_limit_is_exact() {
    let limit = |limit| Reason::FrameLimit { limit };
    let mut start = Start::from_regs(Regs::frame(0x1234, STACK, 0));
    // The start's own pc counts, too.
    for (max, expected) in [(4, Reason::NotAtRoot), (3, limit(3)), (1, limit(1))] {
        let chain = scan(&start, &WORDS, max);
        assert_eq!(
            (chain.frames.len(), chain.end.reason),
            (max as usize, expected)
        );
    }
    start.first_frame = Some(STACK);
    for (max, expected) in [(3, Reason::NotAtRoot), (2, limit(2))] {
        let chain = scan(&start, &WORDS, max);
        assert_eq!(
            (chain.frames.len(), chain.end.reason),
            (max as usize, expected)
        );
    }
}

#[test]
fn a_missing_stack_is_an_error_and_not_its_end() {
    let at = |rsp| scan(&Start::from_regs(Regs::frame(0x1234, rsp, 0)), &WORDS, 100);
    let end = STACK + 8 * WORDS.len() as u64;
    assert_eq!(at(end - 8).end.reason, Reason::NotAtRoot);
    let reason = at(end).end.reason;
    assert_eq!(
        reason,
        Reason::from(MemoryError::BeyondCopy { address: end, end })
    );
    for reg in [Reg::Rip, Reg::Rsp] {
        let mut regs = Regs::frame(0x1234, STACK, 0);
        regs.forget(reg);
        let nothing = scan(&Start::from_regs(regs), &WORDS, 100);
        assert_eq!(nothing.end.reason, Reason::RegistersMissing { reg });
        assert_eq!(nothing.frames.len(), 0);
    }
}
