//! Two rules for the same address.
//!
//! # When two rules contradict each other
//!
//! Rules are compared in their normal form ([`super::normal`]), and only in what both formats
//! describe.
//!
//! - **CFA**: the same base with different offsets is a contradiction. Different base registers
//!   are a difference in form, because one stack slot has an address relative to each. They are a
//!   contradiction if the code shows another distance between the registers, on the path that
//!   falls through from the instruction that set one from the other; or if one table bases the CFA
//!   on a callee-saved register that the other calls unchanged, since the CFA has no constant
//!   distance from a value of the caller.
//!   A computed and a loaded CFA, or an expression and anything else, differ in form.
//! - **Root**: one row that ends the walk and one that does not are a contradiction.
//! - **Return address, sp**: two different places are a contradiction; an expression or no rule on
//!   one side is a difference in form.
//! - **Callee-saved registers**: "lost" against anything else, and two different places, are a
//!   contradiction. "Unchanged" against a stack slot is only a difference in form as long as no
//!   instruction of the function before that address writes the register: until then both are
//!   right. No rule means unchanged.
//! - **Kind**: only one signal frame is a contradiction if both formats can mark them. The kernel's
//!   `struct pt_regs` against anything else differs in form.

use super::cause::{Cause, Causes};
use super::code::CodeScan;
use super::format::Format;
use crate::file::File;
use std::cell::OnceCell;
use std::ops::Range;
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Expression, Rule, RuleKind, Value};

/// A row of one of the tables, in normal form.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowSide<'a> {
    pub(super) rule: Rule,
    pub(super) format: Format,
    pub(super) section: &'a [u8],
}

impl RowSide<'_> {
    fn expression(&self, e: Expression) -> Option<&[u8]> {
        let start = e.start as usize;
        self.section.get(start..start.checked_add(e.len.into())?)
    }
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RowDifference {
    pub(super) causes: Causes,
    /// What a format has no word for.
    pub(super) loss: Option<Loss>,
}

/// The code of a function, decoded when first needed.
#[derive(Debug)]
pub(super) struct Function<'a> {
    pub(super) file: &'a File,
    /// Its addresses (svma).
    pub(super) range: Range<u64>,
    pub(super) code: OnceCell<CodeScan>,
}

impl Function<'_> {
    pub(super) fn code(&self) -> &CodeScan {
        self.code
            .get_or_init(|| CodeScan::of(self.file, &self.range))
    }
}

/// The address of the rows, and its function.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowContext<'a> {
    pub(super) address: u64,
    pub(super) function: &'a Function<'a>,
}

/// Compares two rules for the same address.
pub(super) fn compare(a: &RowSide<'_>, b: &RowSide<'_>, place: &RowContext<'_>) -> RowDifference {
    let mut found = RowDifference::default();
    let is_root = |side: &RowSide<'_>| side.rule.kind == RuleKind::Outermost;
    // Where the stack ends there is no caller whose registers could differ.
    if is_root(a) || is_root(b) {
        if is_root(a) != is_root(b) {
            found.causes.add(Cause::Root);
        }
        return found;
    }

    // Frames of different kinds have their values in different places, so nothing else can be
    // compared.
    kind(a, b, &mut found);
    if found.causes.has(Cause::Kind) {
        return found;
    }

    if let Some(cause) = cfa(a, b, place) {
        found.causes.add(cause);
    }

    // Return address and rsp differ in form if one of them is only told in another way.
    let (ra, form) = (Cause::ReturnAddress, Cause::ReturnAddressForm);
    value(a, b, (a.rule.ra, b.rule.ra), (ra, form), &mut found);
    value(
        a,
        b,
        (a.rule.sp, b.rule.sp),
        (Cause::Sp, Cause::SpForm),
        &mut found,
    );

    for reg in Reg::CALLEE_SAVED {
        register(a, b, reg, place, &mut found);
    }
    found
}

fn kind(a: &RowSide<'_>, b: &RowSide<'_>, found: &mut RowDifference) {
    let (ka, kb) = (a.rule.kind, b.rule.kind);
    if ka == kb {
        return;
    }
    let is_plain = |kind| matches!(kind, RuleKind::Call | RuleKind::Signal);
    if !is_plain(ka) || !is_plain(kb) {
        found.causes.add(Cause::Kind);
    } else if a.format.marks_signals() && b.format.marks_signals() {
        found.causes.add(Cause::Signal);
    } else {
        found.loss = Some(Loss::SignalFrame);
    }
}

/// Whether the values are the same expression.
fn same_expression(a: &RowSide<'_>, b: &RowSide<'_>, values: (Value, Value)) -> bool {
    match values {
        (Value::Expression(x), Value::Expression(y)) => {
            let (x_bytes, y_bytes) = (a.expression(x), b.expression(y));
            x.load == y.load && x_bytes.is_some() && x_bytes == y_bytes
        }
        _ => false,
    }
}

fn cfa(a: &RowSide<'_>, b: &RowSide<'_>, place: &RowContext<'_>) -> Option<Cause> {
    let values = (a.rule.cfa, b.rule.cfa);
    if same_expression(a, b, values) {
        return None;
    }

    let is_expression = |value| matches!(value, Value::Expression(_));
    // Two expressions are ranges of two sections: equal ranges do not mean equal bytes.
    if values.0 == values.1 && !is_expression(values.0) {
        return None;
    }

    let unchanged = |x: Value, other: &Rule| {
        let reg = x.base_reg().and_then(Rule::saved_index);
        reg.is_some_and(|i| other.saved[i] == Value::Same)
    };
    let rsp_based = |value: Value| value.base_reg() == Some(Reg::Rsp);
    // Both must say how rbp is found: a format that does not describe it says nothing.
    if unchanged(values.0, &b.rule) && rsp_based(values.1)
        || unchanged(values.1, &a.rule) && rsp_based(values.0)
    {
        return Some(Cause::CfaUnchanged);
    }

    // By one register, two offsets cannot both be right.
    match values {
        (
            Value::Offset {
                base: Base::Reg(ra),
                offset: oa,
            },
            Value::Offset {
                base: Base::Reg(rb),
                offset: ob,
            },
        ) => Some(if ra == rb {
            Cause::CfaOffset
        } else {
            distance((ra, oa), (rb, ob), place)
        }),
        (
            Value::Load {
                base: ba,
                addend: aa,
                ..
            },
            Value::Load {
                base: bb,
                addend: ab,
                ..
            },
        ) if ba == bb && aa == ab => Some(Cause::CfaOffset),
        _ => Some(Cause::CfaForm),
    }
}

/// For CFAs of different registers plus offsets: whether the code shows that they differ.
fn distance(a: (Reg, i32), b: (Reg, i32), place: &RowContext<'_>) -> Cause {
    let code = place.function.code();
    let from_rsp = |(reg, offset): (Reg, i32)| {
        let distance = code.distance(reg, place.address)?;
        distance.checked_add(offset.into())
    };
    match from_rsp(a).zip(from_rsp(b)) {
        Some((a, b)) if a != b => Cause::CfaDistance,
        _ => Cause::CfaRegister,
    }
}

/// Compares the return address or sp.
fn value(
    a: &RowSide<'_>,
    b: &RowSide<'_>,
    values: (Value, Value),
    (contradiction, form): (Cause, Cause),
    found: &mut RowDifference,
) {
    let is_vague = |value| matches!(value, Value::Expression(_) | Value::Unspecified);
    if same_expression(a, b, values) {
        return;
    }
    let is_expression = matches!(values.0, Value::Expression(_));
    if values.0 == values.1 && !is_expression {
        return;
    }
    // The sp without a rule is the CFA; the return address without one is not said.
    let is_form = match contradiction {
        Cause::Sp => [values.0, values.1]
            .iter()
            .any(|v| matches!(v, Value::Expression(_))),
        _ => is_vague(values.0) || is_vague(values.1),
    };
    found.causes.add(if is_form { form } else { contradiction });
}

fn register(
    a: &RowSide<'_>,
    b: &RowSide<'_>,
    reg: Reg,
    place: &RowContext<'_>,
    found: &mut RowDifference,
) {
    let values = (a.rule.saved(reg), b.rule.saved(reg));
    if same_expression(a, b, values) {
        return;
    }
    // Two expressions are ranges of two sections, as above.
    if values.0 == values.1 && !matches!(values.0, Value::Expression(_)) {
        return;
    }

    // A format without the register does not contradict one that has it.
    if !a.format.describes(reg) || !b.format.describes(reg) {
        found.loss = found.loss.or(Some(Loss::CalleeSaved));
        return;
    }

    // A register that is saved and has not been written since is in both places.
    let has = |is: fn(Value) -> bool| is(values.0) || is(values.1);
    let is_saved_but_unwritten = || {
        has(|v| v == Value::Same)
            && has(|v| matches!(v, Value::Load { .. }))
            && !place.function.code().is_written(reg, place.address)
    };

    let cause = if has(|v| v == Value::Undefined) {
        Cause::RegisterLost
    } else if has(|v| matches!(v, Value::Expression(_))) || is_saved_but_unwritten() {
        Cause::RegisterForm
    } else {
        Cause::Register
    };
    found.causes.add(cause);
}
