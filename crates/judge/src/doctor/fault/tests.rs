//! What a break in the C library's start code means for walks by rbp and by rows, and what is missing
//! where a walk cannot start.

use super::*;
use crate::doctor::stack::called_before;
use crate::doctor::stack::is_at_return;
use crate::engine::Setting;
use crate::spec;
use crate::whole::is_canonical;
use crate::whole::one_row::{RBX, rows};
use std::sync::Arc;
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::model::Sample;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol,
};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::{SampleRegs, Variant};

const START: u64 = 0x1000;

/// The kind of a break at frame `frame`, in the start code, of the walk by this unwinder.
fn kind(unwinder: &str, frame: usize, what: whole::Fault) -> Option<Kind> {
    kind_in("__libc_start_main@@GLIBC_2.34", unwinder, frame, what)
}

/// The same, in a function with this name.
fn kind_in(name: &str, unwinder: &str, frame: usize, what: whole::Fault) -> Option<Kind> {
    let mut space = AddressSpace::new();
    let start_code = Symbol {
        address: START,
        size: 0x100,
        name: name.into(),
    };

    space.map(Mapping {
        range: START..START + 0x1000,
        bias: 0,
        image: Some(Arc::new(Image::new(ImageParts {
            symbols: vec![start_code],
            ..ImageParts::default()
        }))),
        name: "/lib/libc.so.6".into(),
    });

    let sample = Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN));
    let view = View {
        number: 0,
        sample: &sample,
        space: &space,
        pristine: None,
        stitched: &[],
        world: None,
    };

    let found = Break {
        frame,
        pc: CodeAddress::Return(START + 0x20),
        what,
    };

    let made = Made::default();
    // The rest of the chain is not whole either.
    let fault = of_break(&view, (found, &[]), Reading::of(unwinder, &made), || false);
    fault.map(|fault| fault.kind)
}

#[test]
fn start_code_is_to_blame_only_for_its_frame_pointer() {
    let beyond = Reason::Memory(MemoryError::BeyondCopy {
        address: 0x8000,
        end: 0x7000,
    });
    let cut = whole::Fault::Ended(beyond);
    assert_eq!(kind("fp", 1, cut), Some(Kind::StartCode));
    // Its rows are right, and the copy is too short.
    assert_eq!(kind("dwarf", 1, cut), None);
    let no_frame_pointer = whole::Fault::FramePointersEnd;
    assert_eq!(kind("dwarf+fp", 1, no_frame_pointer), Some(Kind::StartCode));
    // The sample itself is there.
    let innermost = kind("fp", 0, whole::Fault::NoFramePointer);
    assert_eq!(innermost, Some(Kind::NoFramePointer));
}

/// perf's `--user-regs=ip,sp,bp`, and a row on rbx: the first rule lacks its register.
#[test]
fn registers_that_were_not_recorded_are_named() {
    let mut space = AddressSpace::new();
    let code = START..START + 0x100;
    space.map(Mapping {
        range: START..START + 0x1000,
        bias: 0,
        image: Some(Arc::new(Image::new(ImageParts {
            text: vec![code.clone()],
            sections: vec![rows(code, RBX)],
            ..ImageParts::default()
        }))),
        name: "/bin/prog".into(),
    });

    // All but rbx, from which the row counts.
    let mut regs = Regs::UNKNOWN;
    for (reg, value) in [
        (Reg::Rip, START + 8),
        (Reg::Rsp, 0x7000),
        (Reg::Rbp, 0x7010),
    ] {
        regs.set(reg, value);
    }

    // No stack: the walk must fail before it reads any.
    let sample = Sample::of_regs(SampleRegs::hardware(regs));
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

    let made = Made::default();
    let judged = judge(
        &view,
        &outcome,
        Reading::of("dwarf", &made),
        &Dwarf::new(),
        &mut cache,
    );

    let Judged::Broken(fault) = judged else {
        panic!("the walk cannot start");
    };
    assert_eq!(
        (fault.kind, fault.lack),
        (Kind::NotRecorded, Some(Lack::Register))
    );
    assert!(fault.note.is_some_and(|note| note.contains("rbx")));
}

/// Only of a `ret` is it known that the program returned to what the stack holds.
#[test]
fn a_program_that_crashed_at_a_return_is_known_by_its_code() {
    let at_return = |code: u8| {
        let mut space = AddressSpace::new();
        space.map(Mapping {
            range: START..START + 0x1000,
            bias: 0,
            image: Some(Arc::new(Image::new(ImageParts {
                text: std::iter::once(START..START + 0x100).collect(),
                sections: vec![Section {
                    kind: SectionKind::Text,
                    address: START,
                    data: Bytes::from_vec(vec![code; 0x100]),
                }],
                ..ImageParts::default()
            }))),
            name: "/bin/prog".into(),
        });

        let mut regs = Regs::UNKNOWN;
        // No stack is there: the code at the pc has to say it.
        for (reg, value) in [(Reg::Rip, START + 8), (Reg::Rsp, 0x7000)] {
            regs.set(reg, value);
        }

        let sample = Sample::of_regs(SampleRegs::hardware(regs));
        let view = View {
            number: 0,
            sample: &sample,
            space: &space,
            pristine: None,
            stitched: &[],
            world: None,
        };

        let engine = spec::engine("dwarf").expect("an unwinder");
        let setting = Setting::default();
        let outcome = engine.examine(&view, Variant::Hardware, &setting, &mut Cache::new());
        is_at_return(&view, &outcome)
    };

    // `ret` and `nop`.
    assert!(at_return(0xc3) && !at_return(0x90));
}

/// A chain that has `main`, or the function of a thread, lacks no frame of the program.
#[test]
fn main_and_the_start_of_a_thread_are_the_ends_of_frame_pointers() {
    let ended = whole::Fault::FramePointersEnd;
    let skipped = whole::Fault::NoFramePointer;
    assert_eq!(
        kind_in("start_thread", "fp", 3, skipped),
        Some(Kind::StartCode)
    );
    assert_eq!(kind_in("main", "fp", 0, ended), Some(Kind::StartCode));
    // rbp is data in main, and what follows is no frame.
    assert_eq!(
        kind_in("main", "fp", 0, skipped),
        Some(Kind::NoFramePointer)
    );
    assert_eq!(
        kind_in("main_loop", "fp", 0, ended),
        Some(Kind::NoFramePointer)
    );
}

#[test]
fn addresses_have_57_bits() {
    for address in [
        0,
        0x7fff_ffff_e000,
        0xff_ffff_ffff_ffff,
        u64::MAX,
        0xff00_0000_0000_0000,
    ] {
        assert!(is_canonical(address), "{address:#x}");
    }
    for address in [0x4242_4242_4242_424a, 1 << 56, 0xfe00_0000_0000_0000] {
        assert!(!is_canonical(address), "{address:#x}");
    }
}

/// `call` of the next function but one, and a call through a register.
#[test]
fn a_direct_call_says_what_was_called() {
    let mut space = AddressSpace::new();
    // call 20; call *%rax
    let mut code = vec![0x90; 64];
    code[..5].copy_from_slice(&[0xe8, 0x1b, 0, 0, 0]);
    code[8..10].copy_from_slice(&[0xff, 0xd0]);

    space.map(Mapping {
        range: START..START + 0x1000,
        bias: 0,
        image: Some(Arc::new(Image::new(ImageParts {
            sections: vec![Section {
                kind: SectionKind::Text,
                address: START,
                data: Bytes::from_vec(code),
            }],
            ..ImageParts::default()
        }))),
        name: "/bin/prog".into(),
    });

    let sample = Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN));
    let view = View {
        number: 0,
        sample: &sample,
        space: &space,
        pristine: None,
        stitched: &[],
        world: None,
    };

    assert_eq!(called_before(&view, START + 5), Some(START + 0x20));
    // Through a register: where it led is not in the code.
    assert_eq!(called_before(&view, START + 10), None);
    // No code is mapped there.
    assert_eq!(called_before(&view, START + 0x2000), None);
}
