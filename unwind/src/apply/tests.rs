//! Every kind of rule and value, applied to a hand-made frame.

use super::*;
use crate::memory::{MemoryCopy, MemoryError};
use crate::regs::Regs;
use alloc::vec::Vec;

const STACK: u64 = 0x7000;
/// Word i of the stack is 0x100 + i.
const WORDS: u64 = 32;

fn frame() -> Frame {
    let mut regs = Regs::UNKNOWN;
    for reg in RegMask::ALL.iter() {
        regs.set(reg, 0x9000 + 0x10 * reg as u64);
    }
    regs.set(Reg::Rip, 0x401000);
    regs.set(Reg::Rsp, STACK);
    regs.set(Reg::Rbp, STACK + 0x20);
    Frame::top(regs)
}

fn applied(rule: &Rule, expressions: &[u8], words: &mut ReadWords) -> Result<Frame, Reason> {
    let bytes: Vec<u8> = (0..WORDS).flat_map(|i| (0x100 + i).to_le_bytes()).collect();
    let context = Context {
        memory: &MemoryCopy::new(STACK, &bytes),
        expressions,
        bias: 0x10_0000,
        carries: RegMask::CALLEE_SAVED,
    };
    apply(rule, &frame(), &context, words)
}

fn apply_to_frame(rule: &Rule) -> Result<Frame, Reason> {
    applied(rule, &[], &mut ReadWords::new())
}

const CALL: Rule = Rule::call(Value::reg(Reg::Rsp, 16));

#[test]
fn an_ordinary_frame() {
    let mut words = ReadWords::new();
    let rule = CALL.with_saved(Reg::Rbp, Value::at_cfa(-16));
    let caller = applied(&rule, &[], &mut words).expect("a caller");
    assert_eq!(caller.pc, CodeAddress::Return(0x101));
    assert_eq!(caller.slot, Some(STACK + 8));
    assert_eq!((caller.regs.rip(), caller.regs.rsp()), (0x101, STACK + 16));
    assert_eq!(caller.regs.get(Reg::Rbp), Some(0x100));
    // A register that the rule does not mention is kept if it is carried, and unknown otherwise.
    assert_eq!(caller.regs.get(Reg::Rbx), Some(0x9030));
    assert_eq!(caller.regs.get(Reg::Rax), None);
    assert!(!caller.topmost && !caller.may_change_stack && caller.lost.is_empty());
    let read: Vec<_> = words.iter().map(|w| (w.address, w.value)).collect();
    assert_eq!(read, [(STACK + 8, 0x101), (STACK, 0x100)]);
}

#[test]
fn values_of_a_register() {
    let expression = |load| {
        Value::Expression(Expression {
            start: 1,
            len: 2,
            load,
        })
    };

    let cases = [
        (Value::Same, Some(0x9030)),
        (Value::Unspecified, Some(0x9030)),
        (Value::Undefined, None),
        (Value::at_cfa(8), Some(0x103)),
        (Value::reg(Reg::R11, -1), Some(0x90af)),
        (Value::reg(Reg::Rip, 0), Some(0x401000)),
        (
            Value::Offset {
                base: Base::Cfa,
                offset: 4,
            },
            Some(STACK + 20),
        ),
        (
            Value::Load {
                base: Base::Reg(Reg::Rbp),
                offset: 8,
                addend: -3,
            },
            Some(0x102),
        ),
        // The expression adds 8 to the cfa.
        (expression(false), Some(STACK + 24)),
        (expression(true), Some(0x103)),
        // Beyond the memory.
        (Value::at_cfa(0x1000), None),
    ];

    // rbx stands for the other callee-saved registers.
    for (value, expected) in cases {
        let rule = CALL.with_saved(Reg::Rbx, value);
        let caller = applied(&rule, &[0, 0x23, 8], &mut ReadWords::new()).expect("a caller");
        assert_eq!(caller.regs.get(Reg::Rbx), expected, "{value}");
        assert_eq!(
            caller.lost.len(),
            usize::from(expected.is_none()),
            "{value}"
        );
    }
}

#[test]
fn why_a_register_is_lost() {
    let rule = CALL
        .with_saved(Reg::Rbx, Value::Undefined)
        .with_saved(Reg::R12, Value::at_cfa(0x1000));
    let caller = apply_to_frame(&rule).expect("a caller");
    let undefined = Reason::UndefinedByTable { reg: Reg::Rbx };
    let beyond = Reason::Memory(MemoryError::BeyondCopy {
        address: STACK + 0x1010,
        end: STACK + 8 * WORDS,
    });
    assert_eq!(caller.lost[..], [(Reg::Rbx, undefined), (Reg::R12, beyond)]);
    assert_eq!(caller.why_unknown(Reg::Rbx), undefined);
    assert_eq!(caller.why_unknown(Reg::R12), beyond);
    let not_carried = Reason::RegisterNotCarried { reg: Reg::Rax };
    assert_eq!(caller.why_unknown(Reg::Rax), not_carried);
    let missing = Reason::RegistersMissing { reg: Reg::Rax };
    assert_eq!(frame().why_unknown(Reg::Rax), missing);
    // If a register is lost again for another reason, the later reason counts.
    let mut again = caller;
    again.lose(Reg::Rbx, beyond);
    assert_eq!(again.lost[..], [(Reg::R12, beyond), (Reg::Rbx, beyond)]);
}

#[test]
fn values_of_the_cfa() {
    let slot = |cfa| apply_to_frame(&Rule::call(cfa)).map(|f| (f.regs.rsp(), f.may_change_stack));
    assert_eq!(slot(Value::reg(Reg::Rbp, 8)), Ok((STACK + 0x28, false)));
    // cfa = *(rsp + 8) is 0x101, and the return address is not there.
    let loaded = Value::Load {
        base: Base::Reg(Reg::Rsp),
        offset: 8,
        addend: 0,
    };
    let below = MemoryError::BelowCopy {
        address: 0xf9,
        start: STACK,
    };
    assert_eq!(slot(loaded), Err(below.into()));
    let loaded = Value::Load {
        base: Base::Reg(Reg::Rsp),
        offset: 0,
        addend: (STACK - 0x100 + 32) as i32,
    };
    assert_eq!(slot(loaded), Ok((STACK + 32, true)));
    let lost = Reason::UndefinedByTable { reg: Reg::Rsp };
    assert_eq!(slot(Value::Undefined), Err(lost));
}

#[test]
fn values_of_ra_and_sp() {
    let with = |ra, sp| apply_to_frame(&Rule { ra, sp, ..CALL });

    // A return address in a register has no slot, and rsp stays on its stack.
    let caller = with(Value::reg(Reg::Rdx, 0), Value::Unspecified).expect("a caller");
    assert_eq!(
        (caller.pc, caller.slot),
        (CodeAddress::Return(0x9010), None)
    );
    assert!(!caller.may_change_stack);

    // A rule of its own for rsp may lead to another stack.
    let caller = with(Value::at_cfa(-8), Value::reg(Reg::R8, 0)).expect("a caller");
    assert_eq!((caller.regs.rsp(), caller.may_change_stack), (0x9080, true));

    // Without a return address there is no caller.
    let lost = |reg| Err(Reason::UndefinedByTable { reg });
    let reason = |result: Result<Frame, Reason>| result.map(|f| f.pc);
    assert_eq!(
        reason(with(Value::Undefined, Value::Unspecified)),
        lost(Reg::Rip)
    );

    // Without a value for rsp, it is the CFA, as if nothing had been said.
    let caller = with(Value::at_cfa(-8), Value::Undefined).expect("a caller");
    let known = with(Value::at_cfa(-8), Value::Unspecified).expect("a caller");
    assert_eq!(
        (caller.regs.rsp(), caller.may_change_stack),
        (known.regs.rsp(), false)
    );

    // The CFA is STACK + 16, so this is 0.
    let zero = Value::Offset {
        base: Base::Cfa,
        offset: -(STACK as i32) - 16,
    };
    assert_eq!(
        reason(with(zero, Value::Unspecified)),
        Err(Reason::NotAtRoot)
    );
}

#[test]
fn signal_and_outermost() {
    let kind = |kind| apply_to_frame(&Rule { kind, ..CALL });
    let caller = kind(RuleKind::Signal).expect("a caller");
    assert_eq!(caller.pc, CodeAddress::Instruction(0x101));
    assert!(caller.may_change_stack);
    let root = kind(RuleKind::Outermost).map(|f| f.pc);
    assert_eq!(root, Err(Reason::RootReached));
}

#[test]
fn pt_regs_and_iret_frames() {
    // struct pt_regs starts at rsp + 8: word 1 is r15, word 1 + 16 is the ip.
    let rule = Rule {
        kind: RuleKind::PtRegs,
        cfa: Value::reg(Reg::Rsp, 8),
        ..CALL
    };

    let mut words = ReadWords::new();
    let caller = applied(&rule, &[], &mut words).expect("a caller");
    assert_eq!(caller.pc, CodeAddress::Instruction(0x111));
    assert_eq!(caller.slot, Some(STACK + 8 + 128));
    assert!(caller.may_change_stack);

    // The order of `struct pt_regs`, up to `orig_ax`.
    let order = [
        Reg::R15,
        Reg::R14,
        Reg::R13,
        Reg::R12,
        Reg::Rbp,
        Reg::Rbx,
        Reg::R11,
        Reg::R10,
        Reg::R9,
        Reg::R8,
        Reg::Rax,
        Reg::Rcx,
        Reg::Rdx,
        Reg::Rsi,
        Reg::Rdi,
    ];
    for (i, reg) in order.into_iter().enumerate() {
        assert_eq!(caller.regs.get(reg), Some(0x101 + i as u64), "{reg}");
    }

    // The last five words are the frame that the processor pushes; ss is not followed.
    let iret = [
        (Reg::Rip, 0x111),
        (Reg::Cs, 0x112),
        (Reg::Rflags, 0x113),
        (Reg::Rsp, 0x114),
    ];
    for (reg, value) in iret {
        assert_eq!(caller.regs.get(reg), Some(value), "{reg}");
    }

    // The same frame alone, at the same place: the other registers are the callee's or lost.
    let rule = Rule {
        kind: RuleKind::Iret,
        ..rule
    };
    let caller = applied(&rule, &[], &mut words).expect("a caller");
    assert_eq!(
        (caller.pc, caller.slot),
        (CodeAddress::Instruction(0x101), Some(STACK + 8))
    );
    assert_eq!(
        (caller.regs.rsp(), caller.regs.get(Reg::Cs)),
        (0x104, Some(0x102))
    );
    assert_eq!(caller.regs.get(Reg::Rbx), Some(0x9030));
    assert_eq!(caller.regs.get(Reg::R11), None);
}

#[test]
fn expressions_say_where_they_fail() {
    let expression = |start, len| {
        let cfa = Value::Expression(Expression {
            start,
            len,
            load: false,
        });
        applied(
            &Rule::call(cfa),
            &[0x77, 16, 0x9c, 0x77],
            &mut ReadWords::new(),
        )
        .map(|f| f.regs.rsp())
    };
    assert_eq!(expression(0, 2), Ok(STACK + 16));
    let failed = |offset, what| Err(Reason::ExpressionFailed { offset, what });
    assert_eq!(
        expression(2, 1),
        failed(2, "DW_OP_call_frame_cfa is not allowed in a rule")
    );
    assert_eq!(expression(3, 1), failed(3, "ends within an operation"));
    assert_eq!(expression(3, 2), failed(3, "lies outside its section"));
    assert_eq!(
        expression(9, u16::MAX),
        failed(9, "lies outside its section")
    );
}

#[test]
fn a_register_that_is_not_carried_or_stays_the_same_gets_nothing() {
    let bytes: Vec<u8> = (0..WORDS).flat_map(|i| (0x100 + i).to_le_bytes()).collect();
    let memory = &MemoryCopy::new(STACK, &bytes);

    let with = |rule: &Rule, frame: &Frame, carries| {
        let context = Context {
            memory,
            expressions: &[],
            bias: 0,
            carries,
        };
        apply(rule, frame, &context, &mut ReadWords::new()).expect("a caller")
    };

    // rbx has a slot, but the unwinder does not carry it.
    let rule = CALL.with_saved(Reg::Rbx, Value::at_cfa(-16));
    let caller = with(&rule, &frame(), RegMask::FRAME);
    assert_eq!(caller.regs.get(Reg::Rbx), None);
    assert!(caller.lost.is_empty());

    // A register that was unknown already is not reported as lost.
    let mut unknown = frame();
    unknown.regs.forget(Reg::Rbx);
    for value in [Value::Same, Value::Unspecified] {
        let rule = CALL.with_saved(Reg::Rbx, value);
        let caller = with(&rule, &unknown, RegMask::CALLEE_SAVED);
        assert_eq!(caller.regs.get(Reg::Rbx), None);
        assert!(caller.lost.is_empty(), "{value}");
    }
}

#[test]
fn the_callers_sp_alone_is_the_cfa_of_calls() {
    let bytes: Vec<u8> = (0..WORDS).flat_map(|i| (0x100 + i).to_le_bytes()).collect();
    let context = Context {
        memory: &MemoryCopy::new(STACK, &bytes),
        expressions: &[],
        bias: 0,
        carries: RegMask::CALLEE_SAVED,
    };

    let sp = |rule: Rule| cfa(&rule, &frame(), &context);
    let kind = |kind| Rule { kind, ..CALL };

    // Where all registers are saved, rsp is one of them, and the CFA says nothing.
    assert_eq!(sp(CALL), Some(STACK + 16));
    assert_eq!(sp(kind(RuleKind::Signal)), Some(STACK + 16));
    for other in [RuleKind::PtRegs, RuleKind::Iret, RuleKind::Outermost] {
        assert_eq!(sp(kind(other)), None, "{other:?}");
    }

    // The rule has its own sp, or its CFA is unknown; the rest of the rule does not matter.
    let own_sp = Rule {
        sp: Value::reg(Reg::Rbp, 0),
        ..CALL
    };
    assert_eq!(sp(own_sp), None);
    assert_eq!(sp(Rule::call(Value::Undefined)), None);
    assert_eq!(sp(Rule::call(Value::at_cfa(0x1000))), None);

    // A rule that cannot give a caller still has a CFA.
    let lost_ra = Rule {
        ra: Value::Undefined,
        ..CALL
    };
    assert_eq!(sp(lost_ra), Some(STACK + 16));
}
