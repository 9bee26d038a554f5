//! Walks over random stacks with random tables, and DWARF expressions.
//!
//! Besides not panicking, a walk must end within its limits, and both sinks must see the same
//! frames.

use crate::input::Input;
use crate::tables::{BIAS, mapping};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Addresses;
use unwind_sim_unwind::derived::{Tables, simplify};
use unwind_sim_unwind::dwarf::{Dwarf, expression};
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::frame::Frame;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::lbr::{Branch, BranchStack, Branches, LbrOptions};
use unwind_sim_unwind::memory::{MemoryCopy, Regions};
use unwind_sim_unwind::orc::Orc;
use unwind_sim_unwind::rule::{Expression, Rule, Value};
use unwind_sim_unwind::sframe::{Profile, Sframe};
use unwind_sim_unwind::start::{SampleRegs, Start, Variant};
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};
use unwind_sim_unwind::unwinder::{Guess, Lbr, Stack, Unwinder, WithFallback};
use unwind_sim_unwind::verdict;
use unwind_sim_unwind::walk::Limits;

/// Address of the first piece of memory, unless the input gives another.
const STACK: u64 = 0x7ffc_0000_0000;
/// Maximum number of frames of a walk.
const FRAMES_MAX: u32 = 512;

/// A DWARF expression. The input is registers, memory (a piece), and the expression.
pub fn expression(data: &[u8]) {
    let mut input = Input::new(data);
    let initial = input.address(&(0x1000..0x2000), STACK);
    let frame = Frame::top(input.regs(&(0x1000..0x2000), STACK));
    let memory = MemoryCopy::new(STACK, input.piece());
    let bytes = input.rest();
    let evaluate = |bytes, initial| expression::evaluate(bytes, &frame, initial, BIAS, &memory);
    let first = evaluate(bytes, initial);
    assert_eq!(first, evaluate(bytes, initial), "the same again");

    // A simplified rule must have the same value wherever it can be applied.
    let Ok(len) = u16::try_from(bytes.len()) else {
        return;
    };
    let rule = Rule::call(Value::Expression(Expression {
        start: 0,
        len,
        load: false,
    }));
    if let Value::Offset { base, offset } = simplify(&rule, bytes).cfa
        && let unwind_sim_unwind::rule::Base::Reg(reg) = base
        && let (Some(value), Ok(given)) = (frame.regs.get(reg), evaluate(bytes, None))
    {
        assert_eq!(
            given,
            value.wrapping_add_signed(offset.into()),
            "{reg} + {offset}"
        );
    }
}

/// Whole walks by every unwinder from every start. The input is an image, one or two sets of
/// registers, and memory with its address.
pub fn walk(data: &[u8]) {
    let mut input = Input::new(data);
    let mapping = mapping(input.image());
    let text = mapping.range.clone();
    let mut space = AddressSpace::new();
    space.map(mapping);

    // One byte decides which of the optional parts there are, so that an input of one shape can
    // become another by one change.
    let shape = input.u8();
    let sample = SampleRegs {
        sampled: input.regs(&text, STACK),
        fetch: None,
        own: (shape & 1 != 0).then(|| input.regs(&text, STACK)),
    };

    // Mostly where registers point at, or hardly any walk would leave its first frame.
    let address = if shape & 2 == 0 { STACK } else { input.u64() };
    let second = if shape & 4 == 0 { &[] } else { input.piece() };
    let first = MemoryCopy::new(address, input.rest());

    // A page of nothing between both, so that walks meet a hole.
    let behind = MemoryCopy::new(first.end().wrapping_add(4096), second);
    let memory = Regions::new(vec![first, behind]);
    let truth = invented_truth(shape, &text, input.rest());

    let sframe = |profile| Sframe::new(profile, Tables::RealOrDerived);

    // Each kind with real and derived tables, and the ones that need no table.
    let unwinders: Vec<Box<dyn Unwinder>> = vec![
        Box::new(Dwarf::new()),
        Box::new(sframe(Profile::Spec)),
        Box::new(sframe(Profile::KernelV3)),
        Box::new(Orc::default()),
        Box::new(Orc::new(None, Tables::Derived)),
        Box::new(FramePointer),
        Box::new(WithFallback::new(
            Box::new(Orc::default()),
            Box::new(FramePointer),
        )),
        Box::new(Guess),
        Box::new(Lbr::new(LbrOptions::default())),
        Box::new(Lbr::new(LbrOptions {
            depth: Some(8),
            stitch: true,
        })),
    ];

    // Branch records from the same bytes as the truth: sometimes they agree with it.
    let entries = truth.frames().iter().map(|frame| Branch {
        from: frame.pc,
        to: frame.cfa,
    });
    let ring = BranchStack {
        depth: 8,
        hw_index: None,
        entries: entries.collect(),
    };
    let branches = Branches {
        stacks: &[ring],
        stitched: &[vec![text.start, address]],
    };

    // A start that the sample does not have is an error, not a walk.
    for variant in Variant::ALL {
        let Ok(start) = sample.start(variant, shape & 8 != 0, &memory) else {
            continue;
        };
        for unwinder in &unwinders {
            one_walk(&**unwinder, &start, &space, &memory, &truth, branches);
        }
    }
}

fn one_walk(
    unwinder: &dyn Unwinder,
    start: &Start,
    space: &AddressSpace,
    memory: &Regions<'_>,
    truth: &Truth,
    branches: Branches<'_>,
) {
    let limits = Limits {
        frames_max: FRAMES_MAX,
    };
    let mut stack = Stack::new(start, space, memory);
    stack.limits = limits;
    stack.branches = branches;
    let mut cache = Cache::new();
    let chain = unwinder.walk(&stack, &mut cache);

    assert!(
        chain.frames.len() <= FRAMES_MAX as usize + 1,
        "{} frames",
        chain.frames.len()
    );

    let mut addresses = Addresses::default();

    // Collecting only addresses takes another path through the walk, and must end with the same
    // reason.
    let end = unwinder.addresses(&stack, &mut cache, &mut addresses);
    let pcs: Vec<u64> = chain.frames.iter().map(|frame| frame.pc.value()).collect();
    let name = unwinder.name();
    assert_eq!(
        (&addresses.0, end),
        (&pcs, chain.end),
        "{name}: the two sinks differ"
    );

    // Judging is tested, too: it must not find more frames than the truth knows.
    let from = verdict::expected_from(truth, start.regs.rsp(), start.first_frame);
    let (verdict, ground) = verdict::judge(&chain, truth, from);
    assert!(ground.found <= ground.known, "{ground:?}");
    assert!(
        verdict != verdict::Verdict::Ok || ground.found == ground.known,
        "{ground:?}"
    );

    // A pc that cannot be looked up would panic here.
    for frame in &chain.frames {
        let _ = CodeAddress::value(frame.pc);
    }
}

/// An arbitrary true chain: judging must cope with anything.
fn invented_truth(shape: u8, text: &std::ops::Range<u64>, bytes: &[u8]) -> Truth {
    let kinds = [
        TrueKind::Call,
        TrueKind::Call,
        TrueKind::Interrupted,
        TrueKind::Top,
    ];
    let frames = bytes.chunks_exact(4).take(16).map(|b| TrueFrame {
        pc: text
            .start
            .wrapping_add(u16::from_le_bytes([b[0], b[1]]).into()),
        cfa: STACK.wrapping_add(u64::from(b[2]) * 8),
        kind: kinds[usize::from(b[3]) % kinds.len()],
        saved: None,
    });
    match shape >> 6 {
        0 => Truth::Unknown,
        1 => Truth::Known(frames.collect()),
        _ => Truth::Complete(frames.collect()),
    }
}
