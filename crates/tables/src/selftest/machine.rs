//! A few instructions on real numbers: what a prologue does to registers and stack.
//!
//! It shares nothing with the proof. What it does not know becomes a random number, so that no
//! rule can be right by accident.

use crate::proof::claims::Claims;
use crate::random::Random;
use hashbrown::HashMap;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};

/// The lowest address of stacks.
const STACK: u64 = 0x7ff0_0000_0000;

/// Registers, stack, and the values that the caller had.
#[derive(Clone)]
pub(super) struct Machine {
    regs: [u64; 16],
    /// Words that were written, by address.
    words: HashMap<u64, u64>,
    cfa: u64,
    return_address: u64,
    saved: [u64; 6],
    random: Random,
}

impl Machine {
    /// Some state for which `rule` is right; `None` if the rule has a form that is not understood.
    pub(super) fn new(rule: &Rule, random: &mut Random) -> Option<Machine> {
        if rule.kind != RuleKind::Call || rule.sp != Value::Unspecified {
            return None;
        }

        // A generator of its own: the state must not depend on how many numbers others drew.
        let mut random = Random::new(random.bits());
        // psABI 3.2.2: a call is made with rsp, and so the CFA, at a multiple of 16.
        let cfa = STACK + ((random.bits() & 0xff_ffff) << 4);
        let mut machine = Machine {
            regs: std::array::from_fn(|_| random.bits()),
            words: HashMap::new(),
            cfa,
            return_address: random.bits(),
            saved: std::array::from_fn(|_| random.bits()),
            random,
        };

        // How deep rsp is below the CFA is random: a rule by rsp sets it below.
        let depth = 0x10_0000 + (machine.random.bits() & 0xfff8);
        machine.set(Reg::Rsp, cfa - depth);

        let Value::Offset {
            base: Base::Reg(base),
            offset,
        } = rule.cfa
        else {
            return None;
        };

        for (index, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
            if is_unchanged(rule.saved[index]) {
                machine.set(reg, machine.saved[index]);
            }
        }

        // The base may be one of them. Then what it has now is what the caller had.
        machine.set(base, cfa.wrapping_add_signed(-i64::from(offset)));
        for (index, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
            if is_unchanged(rule.saved[index]) {
                machine.saved[index] = machine.reg(reg);
            }
        }

        // The slots that the rule names get the values that it promises.
        for index in 0..6 {
            machine.put(rule.saved[index], machine.saved[index]);
        }
        machine.put(rule.ra, machine.return_address);

        // Where two claims of a rule exclude each other, there is no such state.
        let all = Claims::of(Convention::SystemV);
        machine.is_right(rule, rule, &all).then_some(machine)
    }

    /// Puts `value` where a rule says that it is.
    fn put(&mut self, place: Value, value: u64) {
        match place {
            Value::Load {
                base,
                offset,
                addend: 0,
            } => {
                let at = self.base(base).wrapping_add_signed(offset.into());
                self.words.insert(at, value);
            }
            Value::Offset {
                base: Base::Reg(reg),
                offset,
            } => self.set(reg, value.wrapping_add_signed(-i64::from(offset))),
            _ => {}
        }
    }

    /// Whether the `claims` of `rule` are the caller's values. What it says in the words of `known`,
    /// which is right, is not computed.
    pub(super) fn is_right(&self, rule: &Rule, known: &Rule, claims: &Claims) -> bool {
        if rule.kind != known.kind || rule.sp != known.sp || self.value(rule.cfa) != Some(self.cfa)
        {
            return false;
        }
        let is = |value: Value, known: Value, wanted: u64| {
            value == known || self.value(value) == Some(wanted)
        };
        let saved = Reg::CALLEE_SAVED.into_iter().enumerate();
        (!claims.return_address || is(rule.ra, known.ra, self.return_address))
            && saved
                .into_iter()
                .all(|(index, reg)| match rule.saved[index] {
                    value if !claims.has(index, value) => true,
                    value if is_unchanged(value) => self.reg(reg) == self.saved[index],
                    value => is(value, known.saved[index], self.saved[index]),
                })
    }

    fn value(&self, value: Value) -> Option<u64> {
        match value {
            Value::Offset { base, offset } => {
                Some(self.base(base).wrapping_add_signed(offset.into()))
            }
            Value::Load {
                base,
                offset,
                addend,
            } => {
                let at = self.base(base).wrapping_add_signed(offset.into());
                Some(self.words.get(&at)?.wrapping_add_signed(addend.into()))
            }
            _ => None,
        }
    }

    fn base(&self, base: Base) -> u64 {
        match base {
            Base::Cfa => self.cfa,
            Base::Reg(reg) => self.reg(reg),
        }
    }

    fn reg(&self, reg: Reg) -> u64 {
        self.regs[reg as usize & 15]
    }

    fn set(&mut self, reg: Reg, value: u64) {
        self.regs[reg as usize & 15] = value;
    }

    fn read(&mut self, register: Register) -> u64 {
        match whole(register) {
            Some(reg) => self.reg(reg),
            None => self.random.bits(),
        }
    }

    fn address(&mut self, insn: &Instruction) -> u64 {
        if matches!(insn.segment_prefix(), Register::FS | Register::GS) {
            return self.random.bits();
        }
        let (regs, any) = (self.regs, self.random.bits());
        let value = |register: Register, _, _| match whole(register) {
            Some(reg) => Some(regs[reg as usize & 15]),
            None => register.is_segment_register().then_some(0),
        };
        let operand = (0..insn.op_count()).find(|&o| insn.op_kind(o) == OpKind::Memory);
        operand
            .and_then(|operand| insn.virtual_address(operand, 0, value))
            .unwrap_or(any)
    }

    fn load(&mut self, at: u64) -> u64 {
        match self.words.get(&at) {
            Some(word) => *word,
            None => {
                let word = self.random.bits();
                self.words.insert(at, word);
                word
            }
        }
    }

    /// Stores `size` bytes; `None` stands for any value.
    fn store(&mut self, at: u64, size: u64, value: Option<u64>) {
        self.words
            .retain(|&word, _| word >= at.wrapping_add(size) || word.wrapping_add(8) <= at);
        if let Some(value) = value.filter(|_| size == 8) {
            self.words.insert(at, value);
        }
    }

    fn push(&mut self, value: u64) {
        let sp = self.reg(Reg::Rsp).wrapping_sub(8);
        self.set(Reg::Rsp, sp);
        self.store(sp, 8, Some(value));
    }

    /// Executes an instruction that does not jump, or a call that gives back the registers
    /// `preserved`.
    pub(super) fn step(
        &mut self,
        insn: &Instruction,
        preserved: RegMask,
        info: &mut InstructionInfoFactory,
    ) {
        use Mnemonic as M;
        let register = |operand| {
            let register = insn.op_register(operand);
            (insn.op_kind(operand) == OpKind::Register && register.is_gpr64()).then_some(register)
        };
        let memory = |operand| insn.op_kind(operand) == OpKind::Memory;
        let number = insn.try_immediate(1).ok();

        // What a prologue consists of; everything else spoils what it writes.
        match (insn.mnemonic(), register(0), register(1)) {
            (M::Push, Some(from), _) => {
                let value = self.read(from);
                self.push(value);
            }
            (M::Pop, Some(to), _) => {
                let sp = self.reg(Reg::Rsp);
                let value = self.load(sp);
                self.set(Reg::Rsp, sp.wrapping_add(8));
                self.write(to, value);
            }
            (M::Leave, ..) => {
                let sp = self.reg(Reg::Rbp);
                let value = self.load(sp);
                self.set(Reg::Rbp, value);
                self.set(Reg::Rsp, sp.wrapping_add(8));
            }
            (M::Mov, Some(to), Some(from)) => {
                let value = self.read(from);
                self.write(to, value);
            }
            (M::Mov, Some(to), None) if memory(1) => {
                let at = self.address(insn);
                let value = self.load(at);
                self.write(to, value);
            }
            (M::Mov, None, Some(from)) if memory(0) => {
                let (at, value) = (self.address(insn), self.read(from));
                self.store(at, 8, Some(value));
            }
            (M::Lea, Some(to), _) => {
                let at = self.address(insn);
                self.write(to, at);
            }
            (M::Add | M::Sub | M::And, Some(to), None) if !memory(1) => {
                let (value, number) = (self.read(to), number.unwrap_or_default());
                let value = match insn.mnemonic() {
                    M::Add => value.wrapping_add(number),
                    M::Sub => value.wrapping_sub(number),
                    _ => value & number,
                };
                self.write(to, value);
            }
            _ if matches!(
                insn.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) =>
            {
                self.call(preserved);
            }
            _ => self.spoil(insn, info),
        }
    }

    fn write(&mut self, register: Register, value: u64) {
        if let Some(reg) = whole(register) {
            self.set(reg, value);
        }
    }

    /// A call: the callee keeps the registers `preserved`.
    fn call(&mut self, preserved: RegMask) {
        let sp = self.reg(Reg::Rsp);
        self.words.retain(|&word, _| word >= sp);
        for reg in Reg::ALL.into_iter().take(16) {
            if reg != Reg::Rsp && !preserved.contains(reg) {
                let value = self.random.bits();
                self.set(reg, value);
            }
        }
    }

    /// Any other instruction: all that it writes becomes random.
    fn spoil(&mut self, insn: &Instruction, factory: &mut InstructionInfoFactory) {
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };

        let info = factory.info(insn);
        if info.used_memory().iter().any(|m| writes(m.access())) {
            let at = self.address(insn);
            // Strings may be longer than one element.
            let size = if insn.has_rep_prefix() {
                0x1000
            } else {
                insn.memory_size().size().max(8) as u64
            };
            self.store(at, size, None);
        }

        for used in info
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
        {
            let value = self.random.bits();
            self.write(used.register(), value);
        }
    }
}

fn is_unchanged(value: Value) -> bool {
    matches!(value, Value::Same | Value::Unspecified)
}

fn whole(register: Register) -> Option<Reg> {
    let whole = register.full_register();
    let known = whole.is_gpr64();
    known.then(|| Reg::BY_NUMBER[whole.number() & 15])
}
