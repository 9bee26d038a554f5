//! Addresses without code: after a call, a jump and a return, in memory that was unmapped, and on the stack.

use super::*;
use crate::doctor::fault::{Judged, Reading, judge};
use crate::engine::Setting;
use crate::spec;
use std::borrow::Cow;
use std::sync::Arc;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::model::{ProcessMemory, Region, RegionRole, Sample};
use unwind_sim_recordings::trace::Engine;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind,
};
use unwind_sim_unwind::memory::MappedMemory;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::{SampleRegs, Variant};

const CODE: u64 = 0x7000_0000_0000;
/// Behind the call in the code.
const BEHIND_CALL: u64 = CODE + 13;
const STACK: u64 = 0x7fff_0000_0000;
const RSP: u64 = STACK + 0x100;

/// A library at `CODE`: `nop`, and at 8 `call +0`.
fn space() -> AddressSpace {
    let mut code = vec![0x90; 0x1000];
    code[8..13].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
    let image = Image::new(ImageParts {
        text: std::iter::once(0..0x1000).collect(),
        sections: vec![Section {
            kind: SectionKind::Text,
            address: 0,
            data: Bytes::from_vec(code),
        }],
        ..ImageParts::default()
    });
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: CODE..CODE + 0x1000,
        bias: CODE,
        image: Some(Arc::new(image)),
        name: "/lib/libone.so".into(),
    });
    space
}

/// What is said of a sample at `rip`, with these words below rsp and at it. `process` is what a core lists.
fn said(rip: u64, words: [u64; 2], process: Option<ProcessMemory>) -> (Kind, String) {
    // A call leaves its return address at rsp. A `ret` has popped the address where it went, which
    // is then the word below.
    let mut bytes = vec![0; 0x1000];
    bytes[0xf8..0x100].copy_from_slice(&words[0].to_le_bytes());
    bytes[0x100..0x108].copy_from_slice(&words[1].to_le_bytes());

    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rip, rip);
    regs.set(Reg::Rsp, RSP);
    let mut sample = Sample::of_regs(SampleRegs::hardware(regs));
    sample.process_memory = process;
    sample.regions.push(Region {
        role: RegionRole::Stack,
        bounds: STACK..STACK + 0x1000,
        next_sp: 0,
        address: STACK,
        bytes: Cow::Owned(bytes),
    });

    let space = space();
    let view = View {
        number: 0,
        sample: &sample,
        space: &space,
        pristine: None,
        stitched: &[],
        world: None,
    };
    let engine = spec::engine("dwarf").expect("an unwinder");
    let mut cache = Cache::new();
    let outcome = engine.examine(&view, Variant::Hardware, &Setting::default(), &mut cache);

    let made = Made {
        engine: Engine::Import(FileKind::Core),
        ..Made::default()
    };
    let reading = Reading::of("dwarf", &made);
    let judged = judge(&view, &outcome, reading, &Dwarf::new(), &mut cache);
    let Judged::Broken(fault) = judged else {
        panic!("{judged:?}");
    };
    (fault.kind, fault.note.unwrap_or_default())
}

/// A core with these mappings, of which it has no bytes.
fn process(mapped: &[std::ops::Range<u64>]) -> ProcessMemory {
    ProcessMemory {
        memory: Arc::new(MappedMemory::new(std::iter::empty::<(u64, Bytes)>())),
        mapped: mapped.to_vec().into(),
        is_whole: true,
        crash: None,
    }
}

#[test]
fn a_return_is_told_from_a_call_and_a_jump() {
    const NOWHERE: u64 = 0x4242_4242;
    let (kind, note) = said(NOWHERE, [NOWHERE, 7], None);
    assert_eq!(kind, Kind::OverwrittenReturn, "{note}");
    assert!(
        note.contains("returned there") && note.contains("0x42424242"),
        "{note}"
    );

    // The word below rsp is another one, or was left there by somebody else: a call pushed its own.
    let (kind, note) = said(NOWHERE, [8, 7], None);
    assert_eq!(kind, Kind::BadJump, "{note}");
    let (kind, note) = said(NOWHERE, [NOWHERE, BEHIND_CALL], None);
    assert_eq!(kind, Kind::BadJump, "{note}");
}

#[test]
fn what_is_mapped_no_more_may_have_been_a_library() {
    let mapped = || Some(process(&[CODE..CODE + 0x1000, STACK..STACK + 0x1000]));
    let gone = CODE + 0x10_0000;
    let (kind, note) = said(gone, [gone, 7], mapped());
    assert_eq!(kind, Kind::UnmappedCode, "{note}");
    assert!(note.contains("near /lib/libone.so"), "{note}");

    // Far from any code, no address at all, or in memory that is mapped: nothing was unloaded.
    for other in [CODE + (1 << 40), 0x4242_4242_4242_4242, STACK + 0x800, 0x10] {
        let (kind, note) = said(other, [other, 7], mapped());
        assert_eq!(kind, Kind::OverwrittenReturn, "{other:#x}: {note}");
    }
    // A trace does not say what was mapped.
    assert_eq!(said(gone, [gone, 7], None).0, Kind::OverwrittenReturn);
}
