//! Applies a rule to a frame, as a pure function. The walk's fast path does the same for common
//! rules; a test checks that both agree.

use crate::address::CodeAddress;
use crate::chain::{ReadWords, Word};
use crate::dwarf::expression;
use crate::frame::Frame;
use crate::memory::Memory;
use crate::pt_regs::{BELOW_IRET_FRAME, IRET_FRAME_OFFSET};
use crate::reason::Reason;
use crate::regs::{Reg, RegMask};
use crate::rule::{Base, Expression, Rule, RuleKind, Value};

/// The environment in which a rule is applied.
#[derive(Debug)]
pub struct Context<'a, M: Memory + ?Sized> {
    /// The stack memory.
    pub memory: &'a M,
    /// The section bytes that contain the rule's expressions.
    pub expressions: &'a [u8],
    /// avma - svma of the image, for `DW_OP_addr`.
    pub bias: u64,
    /// The registers that the unwinder carries.
    pub carries: RegMask,
}

struct Apply<'a, M: Memory + ?Sized> {
    frame: &'a Frame,
    context: &'a Context<'a, M>,
    cfa: u64,
    words: &'a mut ReadWords,
}

/// The caller's frame according to `rule`, or why there is none. Appends the words read to `words`.
pub fn apply<M: Memory + ?Sized>(
    rule: &Rule,
    frame: &Frame,
    context: &Context<'_, M>,
    words: &mut ReadWords,
) -> Result<Frame, Reason> {
    if rule.is_root(&frame.regs) {
        return Err(Reason::RootReached);
    }
    let mut a = Apply {
        frame,
        context,
        cfa: 0,
        words,
    };
    a.cfa = a
        .value(rule.cfa, Reg::Rsp)?
        .ok_or(Reason::UndefinedByTable { reg: Reg::Rsp })?;
    match rule.kind {
        RuleKind::PtRegs => a.saved_registers(true),
        RuleKind::Iret => a.saved_registers(false),
        RuleKind::Call | RuleKind::Signal | RuleKind::Outermost => a.caller(rule),
    }
}

/// The caller's sp according to `rule`, even if the rest of the rule cannot be applied. `None` if
/// it is unknown or the rule does not take it from the CFA.
pub fn cfa<M: Memory + ?Sized>(
    rule: &Rule,
    frame: &Frame,
    context: &Context<'_, M>,
) -> Option<u64> {
    let is_call = matches!(rule.kind, RuleKind::Call | RuleKind::Signal);
    if !is_call || !rule.sp_is_cfa() || rule.is_root(&frame.regs) {
        return None;
    }
    let mut apply = Apply {
        frame,
        context,
        cfa: 0,
        words: &mut ReadWords::new(),
    };
    apply.value(rule.cfa, Reg::Rsp).ok().flatten()
}

impl<M: Memory + ?Sized> Apply<'_, M> {
    fn read(&mut self, address: u64) -> Result<u64, Reason> {
        let value = self.context.memory.read_u64(address)?;
        self.words.push(Word { address, value });
        Ok(value)
    }

    fn base(&self, base: Base) -> Result<u64, Reason> {
        match base {
            Base::Cfa => Ok(self.cfa),
            Base::Reg(Reg::Rip) => Ok(self.frame.pc.value()),
            Base::Reg(r) => self
                .frame
                .regs
                .get(r)
                .ok_or_else(|| self.frame.why_unknown(r)),
        }
    }

    /// The address that `value` is loaded from, if it is loaded.
    fn address(&self, value: Value) -> Result<Option<u64>, Reason> {
        match value {
            Value::Load { base, offset, .. } => Ok(Some(add(self.base(base)?, offset))),
            Value::Expression(e) if e.load => Ok(Some(self.expression(e)?)),
            _ => Ok(None),
        }
    }

    /// The value of `reg` in the caller; `None` if the table says that it is lost.
    fn value(&mut self, value: Value, reg: Reg) -> Result<Option<u64>, Reason> {
        if let Some(address) = self.address(value)? {
            let addend = if let Value::Load { addend, .. } = value {
                addend
            } else {
                0
            };
            return self.read(address).map(|word| Some(add(word, addend)));
        }
        match value {
            Value::Undefined => Ok(None),
            Value::Offset { base, offset } => Ok(Some(add(self.base(base)?, offset))),
            Value::Expression(e) => self.expression(e).map(Some),
            Value::Same | Value::Unspecified | Value::Load { .. } => {
                self.base(Base::Reg(reg)).map(Some)
            }
        }
    }

    fn expression(&self, e: Expression) -> Result<u64, Reason> {
        let failed = |what| Reason::ExpressionFailed {
            offset: e.start.into(),
            what,
        };
        let start = e.start as usize;
        let bytes = self
            .context
            .expressions
            .get(start..start.saturating_add(e.len.into()));
        let bytes = bytes.ok_or(failed("lies outside its section"))?;
        let cfa = (self.cfa != 0).then_some(self.cfa);
        expression::evaluate(
            bytes,
            self.frame,
            cfa,
            self.context.bias,
            self.context.memory,
        )
        .map_err(|error| error.into_reason(failed))
    }

    fn caller(&mut self, rule: &Rule) -> Result<Frame, Reason> {
        let slot = self.address(rule.ra)?;
        let lost = Reason::UndefinedByTable { reg: Reg::Rip };
        let ra = self.value(rule.ra, Reg::Rip)?.ok_or(lost)?;
        if ra == 0 {
            return Err(Reason::NotAtRoot);
        }

        // The CFA is the caller's rsp by convention; only few tables have another rule.
        let sp = match rule.sp {
            _ if rule.sp_is_cfa() => self.cfa,
            value => {
                let lost = Reason::UndefinedByTable { reg: Reg::Rsp };
                self.value(value, Reg::Rsp)?.ok_or(lost)?
            }
        };

        let mut caller = self.frame.clone();
        caller.regs.keep(self.context.carries);
        for (reg, value) in Reg::CALLEE_SAVED.into_iter().zip(rule.saved) {
            if !self.context.carries.contains(reg)
                || matches!(value, Value::Same | Value::Unspecified)
            {
                continue;
            }
            // A lost register is an error only if a later rule needs it.
            match self.value(value, reg) {
                Ok(Some(value)) => caller.regs.set(reg, value),
                Ok(None) => caller.lose(reg, Reason::UndefinedByTable { reg }),
                Err(cause) => caller.lose(reg, cause),
            }
        }

        // A handler may run on a stack of its own, and a CFA that is loaded may be on any.
        caller.may_change_stack = rule.kind == RuleKind::Signal
            || !matches!(rule.cfa, Value::Offset { .. })
            || !rule.sp_is_cfa();

        // A signal comes between instructions: its address is the next one to execute, not behind a
        // call.
        let pc = match rule.kind {
            RuleKind::Signal => CodeAddress::Instruction(ra),
            _ => CodeAddress::Return(ra),
        };
        caller.enter(pc, sp, slot);
        Ok(caller)
    }

    /// Takes the caller's registers from `self.cfa`: a full `struct pt_regs`, or only the iret
    /// frame.
    fn saved_registers(&mut self, full: bool) -> Result<Frame, Reason> {
        let iret = if full {
            self.cfa.wrapping_add(IRET_FRAME_OFFSET)
        } else {
            self.cfa
        };

        // What `iret` pops: ip, cs, flags, sp, ss (Intel SDM volume 3, 6.14.2).
        let slot = iret;
        let ip = self.read(iret)?;
        let cs = self.read(iret.wrapping_add(8))?;
        let flags = self.read(iret.wrapping_add(16))?;
        let sp = self.read(iret.wrapping_add(24))?;

        let mut caller = self.frame.clone();
        caller.regs.keep(self.context.carries);

        // The rest of `struct pt_regs` is below the iret frame, r15 first
        // (`arch/x86/include/asm/ptrace.h`).
        if full {
            for (i, reg) in BELOW_IRET_FRAME.into_iter().enumerate() {
                let value = self
                    .context
                    .memory
                    .read_u64(self.cfa.wrapping_add(8 * i as u64))?;
                caller.regs.set(reg, value);
            }
        }

        caller.regs.set(Reg::Cs, cs);
        caller.regs.set(Reg::Rflags, flags);
        // Interrupts can have stacks of their own (Intel SDM volume 3, "Interrupt Stack Table").
        caller.may_change_stack = true;
        caller.enter(CodeAddress::Instruction(ip), sp, Some(slot));
        Ok(caller)
    }
}

/// Two's complement addition modulo 2^64, as in the processor.
const fn add(value: u64, offset: i32) -> u64 {
    value.wrapping_add(offset as i64 as u64)
}

#[cfg(test)]
mod tests;
