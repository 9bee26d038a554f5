//! Whether what is known after an instruction is so.

use super::draw::{Case, is_bit_string, repeats};
use super::meaning::{ConcreteContext, HEAP, is_exact, word};
use super::precision::Precision;
use super::run::{CARRY, ConcreteRun, DIRECTION, ZERO, gpr, outcome};
use iced_x86::{FlowControl, Mnemonic, Register};
use std::fmt;
use unwind_sim_emulator_compare::differential::{Access, AddressRegister, address};
use unwind_sim_emulator_native::single::{Mode, NativeState};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::exec::Machine;
use unwind_sim_tables::proof::jump_table::JumpTable;
use unwind_sim_tables::proof::state::{ComparedPlace, Direction, Slot, State};
use unwind_sim_tables::proof::value::{Anchor, Value};
use unwind_sim_tables::proof::ways::{BranchOutcome, not_taken, taken};
use unwind_sim_unwind::regs::Reg;

/// What must have held in this many states before it counts as always so.
const ALWAYS: usize = 2;

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// A register does not hold what it is said to hold.
    Register {
        /// The register.
        reg: Reg,
        /// What is said.
        said: Value,
        /// What it holds; rsp at entry in this state.
        found: (u64, u64),
    },
    /// A word of the stack does not.
    Slot {
        /// Where it is.
        at: Value,
        /// What is said.
        said: Value,
        /// What it holds; rsp at entry in this state.
        found: (u64, u64),
    },
    /// A place is said to hold something that the function computed, and holds this in all states.
    NotComputed {
        /// The place.
        place: String,
        /// What it holds.
        holds: String,
    },
    /// The flags are not those of the comparison.
    Flags,
    /// A jump goes elsewhere.
    Target {
        /// What is said.
        said: Value,
        /// Where it goes.
        found: u64,
    },
    /// The way that was taken is said to be impossible.
    Impossible,
    /// A way that is not taken moves a stack address.
    Moved {
        /// The register.
        reg: Reg,
    },
}

impl Violation {
    /// Whether more states may show that it is not so.
    pub(super) fn may_be_chance(&self) -> bool {
        matches!(self, Violation::NotComputed { .. })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Register { reg, said, found } => write!(
                f,
                "{reg} is said to be {said}, and is {:#x} (rsp at entry: {:#x})",
                found.0, found.1
            ),
            Violation::Slot { at, said, found } => write!(
                f,
                "the word at {at} is said to be {said}, and is {:#x} (rsp at entry: {:#x})",
                found.0, found.1
            ),
            Violation::NotComputed { place, holds } => {
                write!(f, "{place} is said to be computed, and always is {holds}")
            }
            Violation::Flags => f.write_str("the flags are not those of the comparison"),
            Violation::Target { said, found } => {
                write!(
                    f,
                    "the jump is said to go to {said}, and goes to {found:#x}"
                )
            }
            Violation::Impossible => f.write_str("the way that was taken is said to be impossible"),
            Violation::Moved { reg } => write!(f, "a way that is not taken changes {reg}"),
        }
    }
}

/// A state, as text.
pub(super) fn text(state: &State) -> String {
    let regs = Reg::ALL.into_iter().take(16);
    let mut all: Vec<String> = regs
        .map(|reg| format!("{reg}={:?}", state.reg(reg)))
        .collect();
    all.extend(
        state
            .slots()
            .map(|s| format!("{:?}/{}={:?}", s.at, s.size, s.value)),
    );
    all.push(format!("{:?}", state.comparison));
    all.push(format!(
        "elsewhere {}, lossy {}",
        state.is_elsewhere, state.is_lossy
    ));
    all.join(", ")
}

/// What the interpreter makes of a case.
pub(super) struct AbstractResult {
    /// The state where the instruction falls through, and where it jumps.
    next: Option<State>,
    taken: Option<State>,
    target: Option<Value>,
    anchors: Vec<Anchor>,
    tables: Vec<JumpTable>,
    /// Whether it took a store to hit nothing that is known.
    stored_anywhere: bool,
}

impl Case {
    /// Interprets the instruction.
    pub(super) fn interpret(&self, file: &File) -> AbstractResult {
        let mut machine = Machine::new(file);

        // Anchors of the case are known before, and the instruction may add some.
        machine.anchors.clone_from(&self.anchors);
        let insn = &self.subject.insn;
        let mut state = self.state.clone();

        let mut out = AbstractResult {
            next: None,
            taken: None,
            target: None,
            anchors: Vec::new(),
            tables: Vec::new(),
            stored_anywhere: false,
        };

        match insn.flow_control() {
            // Both ways are followed, each with what its condition says of the state.
            FlowControl::ConditionalBranch => {
                out.taken = match taken(insn, &mut state) {
                    BranchOutcome::Same => Some(state.clone()),
                    BranchOutcome::With(taken) => Some(taken),
                    BranchOutcome::Impossible => None,
                };
                out.next = not_taken(insn, &mut state).then_some(state);
            }
            // Where it goes is a value of the state.
            FlowControl::IndirectBranch => {
                out.target = Some(machine.target(insn, &state));
                out.taken = Some(state);
            }
            _ => {
                machine.execute(insn, &mut state);
                out.next = Some(state);
            }
        }

        out.stored_anywhere = machine.stored_anywhere;
        (out.anchors, out.tables) = (machine.anchors, machine.tables);
        out
    }
}

impl AbstractResult {
    /// What is known afterwards, as text.
    pub(super) fn text(&self) -> String {
        let parts = [("", &self.next), ("taken: ", &self.taken)];
        let parts = parts.into_iter().filter_map(|(name, state)| {
            let state = state.as_ref()?;
            Some(format!("{name}{}", text(state)))
        });
        let parts: Vec<String> = parts.collect();
        format!("{}, {:?}", parts.join("\n"), self.anchors)
    }

    /// The first thing that is wrong after the `runs` of `case`.
    pub(super) fn judge(
        &self,
        case: &Case,
        runs: &[ConcreteRun],
        precision: Option<&mut Precision>,
    ) -> Option<Violation> {
        let insn = &case.subject.insn;
        let mut always = ConstantPlaces::default();
        let mut done = 0;
        for run in runs.iter().filter(|run| run.is_done) {
            done += 1;
            let is_next = run.after.rip == run.before.state.rip + insn.len() as u64;
            let is_jump = insn.flow_control() != FlowControl::Next;

            // With some prefixes, processors disagree about the target.
            let is_near = insn.flow_control() == FlowControl::ConditionalBranch;
            let distance = insn.near_branch64().wrapping_sub(insn.ip());
            let target = run.before.state.rip.wrapping_add(distance);
            if is_near && !is_next && run.after.rip != target {
                continue;
            }

            // A jump to the next instruction is both.
            let is_both = is_jump && insn.near_branch64() == insn.next_ip();
            let (state, other) = if is_jump && !is_next {
                (&self.taken, &self.next)
            } else {
                (&self.next, &self.taken)
            };

            if let Some(said) = self.target
                && let Some(wrong) = self.judge_target(case, run, said)
            {
                return Some(wrong);
            }

            // Nothing tells which of the two states is meant.
            if is_both {
                continue;
            }

            let Some(state) = state else {
                return Some(Violation::Impossible);
            };
            if let Some(other) = other
                && let Some(reg) = moved(&case.state, other, insn)
            {
                return Some(Violation::Moved { reg });
            }
            if let Some(wrong) = self.judge_run(case, run, state, &mut always) {
                return Some(wrong);
            }
        }

        if let Some(precision) = precision.filter(|_| done > 0) {
            precision.case(insn.code());
            if let Some(state) = &self.next {
                let done: Vec<&ConcreteRun> = runs.iter().filter(|run| run.is_done).collect();
                count(precision, case, &done, state);
            }
        }

        // With a comparison of what is known, a conditional instruction may always do the same.
        let is_conditional = insn.condition_code() != iced_x86::ConditionCode::None;
        let is_settled = is_conditional && case.compared.is_some();

        // Where words lie over each other, or memory is all zeros, much is the same by chance.
        // Through a segment or an address of 32 bits, proofs take nothing for a part of the frame.
        let is_segment = matches!(insn.segment_prefix(), Register::FS | Register::GS);
        let is_outside = |run: &ConcreteRun| {
            let mut accesses = case.subject.accesses.iter();
            accesses.any(|access| {
                let at = address(&case.subject, access, &run.before);
                let is_apart = is_segment || access.small;
                is_apart || word(&run.before.state.window, at, 1).is_none()
            })
        };

        if is_settled || !case.anchors.is_empty() || runs.iter().any(is_outside) {
            return None;
        }
        always.wrong(done)
    }

    fn judge_target(&self, case: &Case, run: &ConcreteRun, said: Value) -> Option<Violation> {
        let mut world = run.world.clone();
        self.place_anchors(case, &mut world, None);
        let words = |at, size| word(&run.before.state.window, at, size);
        let found = run.after.rip;
        // With an operand-size prefix, AMD's processors jump to an address of 16 bits.
        if found <= u16::MAX.into() {
            return None;
        }
        let holds = world.holds(said, found, 8, &self.tables, words);
        (!holds).then_some(Violation::Target { said, found })
    }

    fn judge_run(
        &self,
        case: &Case,
        run: &ConcreteRun,
        state: &State,
        always: &mut ConstantPlaces,
    ) -> Option<Violation> {
        let mut world = run.world.clone();

        self.place_anchors(case, &mut world, Some((state, &run.after)));

        // Tables are read as they were before the instruction.
        let words = |at, size| word(&run.before.state.window, at, size);

        for reg in Reg::ALL.into_iter().take(16) {
            let (said, found) = (state.reg(reg), gpr(&run.after, reg));
            if !world.holds(said, found, 8, &self.tables, words) {
                let found = (found, world.frame());
                return Some(Violation::Register { reg, said, found });
            }

            // `Computed` says nothing of the value, but one that is the same in all states could
            // have been known.
            if said == Value::Computed && reg != Reg::Rsp {
                always.add(
                    &world,
                    ComputedPlace::Register(reg),
                    found,
                    !case.is_partial,
                );
            }
        }

        for slot in state.slots() {
            let address = world.number(slot.at)?;

            // Outside of the window there is no memory to look at.
            let Some(found) = word(&run.after.window, address, slot.size) else {
                continue;
            };
            let holds = world.holds(slot.value, found, slot.size, &self.tables, words);
            if !holds && !self.is_excused(case, run, &slot) {
                let found = (found, world.frame());
                let (at, said) = (slot.at, slot.value);
                return Some(Violation::Slot { at, said, found });
            }
        }

        // Words that changed, and hold nothing that is known.
        for place in (-30..8).map(|word| Value::frame(8 * word)) {
            let address = world.number(place)?;
            let [old, new] =
                [&run.before.state, &run.after].map(|state| word(&state.window, address, 8));
            if let (Some(old), Some(new)) = (old, new)
                && old != new
                && state.load(place, 8) == Value::Computed
            {
                let slot = Slot {
                    at: place,
                    size: 8,
                    value: Value::Computed,
                };
                if !self.is_excused(case, run, &slot) {
                    always.add(&world, ComputedPlace::Word(place), new, !case.is_partial);
                }
            }
        }

        // What is not known may be anything, and is not followed elsewhere.
        let is_unknown = |value: Value| value == Value::Unknown;
        let is_segment = matches!(
            case.subject.insn.segment_prefix(),
            Register::FS | Register::GS
        );
        let is_followed = !case.state.is_elsewhere
            && !case.state.is_lossy
            && !is_segment
            && !case.subject.accesses.iter().any(|access| access.small)
            && !Reg::ALL[..16]
                .iter()
                .any(|reg| is_unknown(case.state.reg(*reg)))
            && !case.state.slots().any(|slot| is_unknown(slot.value));

        if !state.is_elsewhere && is_followed {
            Self::judge_elsewhere(run, &world, always);
        }
        self.judge_flags(case, run, state, &world)
    }

    fn judge_flags(
        &self,
        case: &Case,
        run: &ConcreteRun,
        state: &State,
        world: &ConcreteContext,
    ) -> Option<Violation> {
        let is_down = run.after.rflags & DIRECTION != 0;
        let other = if is_down {
            Direction::Up
        } else {
            Direction::Down
        };
        // A direction that is not known is never wrong.
        if state.direction == other {
            return Some(Violation::Flags);
        }

        let known = state.comparison?;
        // A store that hits nothing that is known does not hit what was compared.
        if self.stored_anywhere && matches!(known.place, ComparedPlace::Memory(_)) {
            return None;
        }

        let is_new = case.subject.insn.mnemonic() == Mnemonic::Cmp;
        let is_old = !is_new && case.state.comparison == Some(known);

        // The flags of an earlier comparison are those of its own operand.
        let with = if is_old {
            run.with
        } else {
            world.number(known.with)?
        };

        let value = run.compared(known.place, known.width, &run.after)?;
        let (carry, zero) = outcome(value, with, known.width);
        let flags = run.after.rflags;
        let is_so = (flags & CARRY != 0, flags & ZERO != 0) == (carry, zero);
        (!is_so).then_some(Violation::Flags)
    }

    /// What vector registers and memory elsewhere hold, of which is said that it is nothing of the
    /// caller's.
    fn judge_elsewhere(run: &ConcreteRun, world: &ConcreteContext, always: &mut ConstantPlaces) {
        let (before, after) = (&run.before.state, &run.after);
        if run.before.mode != Mode::Plain {
            let halves = |state: &NativeState, number: usize| {
                // Number 2n is the lower half of register n's lower 128 bits, 2n + 1 the upper one.
                let whole = state.fx.ymm(number / 2)[0];
                (whole >> (64 * (number % 2))) as u64
            };
            for number in 0..32 {
                let new = halves(after, number);
                if halves(before, number) != new {
                    always.add(world, ComputedPlace::Vector(number), new, false);
                }
            }

            // The x87 registers: bytes 32 to 159 of the FXSAVE area, 16 for each (Intel SDM volume
            // 1).
            for (number, bytes) in after.fx.legacy[32..160]
                .as_chunks::<16>()
                .0
                .iter()
                .enumerate()
            {
                let word = bytes
                    .first_chunk()
                    .map_or(0, |word| u64::from_le_bytes(*word));
                always.add(world, ComputedPlace::Vector(32 + number), word, false);
            }
        }

        // A word that was not written may hold anything from before, so only changed ones count.
        for address in HEAP.step_by(8) {
            let [old, new] = [before, after].map(|state| word(&state.window, address, 8));
            if let Some(new) = new
                && old != Some(new)
            {
                always.add(world, ComputedPlace::Heap(address), new, false);
            }
        }
    }

    /// Whether a slot may not hold what is said because a store at a place that is not known hit it,
    /// which proofs assume not to happen.
    fn is_excused(&self, case: &Case, run: &ConcreteRun, slot: &Slot) -> bool {
        let mut written = case.subject.accesses.iter().filter(|a| a.written);
        // From a fixed address, it may reach the frame only here.
        let is_far = |access: &Access| match access.base {
            AddressRegister::Register(base) => {
                let base = Reg::BY_NUMBER[usize::from(base) & 15];
                let insn = &case.subject.insn;
                let is_long = access.size > 64 || is_bit_string(insn) || repeats(insn);
                let is_behind = address(&case.subject, access, &run.before) >= HEAP.end;
                (is_long || is_behind) && matches!(case.state.reg(base), Value::Const(_))
            }
            _ => false,
        };
        if written.clone().any(is_far) {
            return true;
        }
        self.stored_anywhere && written.any(|access| !is_known(case, access, slot))
    }

    /// Says where the anchors are that are new after the instruction: an address that moved by a size
    /// that is not known is where a register has it.
    fn place_anchors(
        &self,
        case: &Case,
        world: &mut ConcreteContext,
        after: Option<(&State, &NativeState)>,
    ) {
        let ip = case.subject.insn.ip();
        for (number, anchor) in self.anchors.iter().enumerate() {
            let is_new = number >= case.anchors.len();
            let at = match *anchor {
                Anchor::Aligned { of, align } if is_new => {
                    let of = world.number(of).unwrap_or(0);
                    // `align` is a power of two, so its negative is the mask of the bits from there
                    // upwards.
                    of & u64::from(align).wrapping_neg()
                }
                Anchor::Lowered { at } if is_new || at == ip => {
                    let found = after.and_then(|(state, after)| {
                        Reg::ALL.into_iter().take(16).find_map(|reg| {
                            // Such a register says where the anchor is.
                            let Value::Below { anchor, offset } = state.reg(reg) else {
                                return None;
                            };
                            let at =
                                gpr(after, reg).wrapping_sub(i64::from(offset).cast_unsigned());
                            (usize::from(anchor) == number).then_some(at)
                        })
                    });
                    match found {
                        Some(at) => at,
                        None => continue,
                    }
                }
                _ => continue,
            };

            world
                .anchors
                .resize(self.anchors.len().max(world.anchors.len()), 0);
            world.anchors[number] = at;
        }
    }
}

/// The stack address that a way which is not taken changes.
fn moved(before: &State, other: &State, insn: &iced_x86::Instruction) -> Option<Reg> {
    if insn.flow_control() != FlowControl::ConditionalBranch {
        return None;
    }
    Reg::ALL.into_iter().take(16).find(|reg| {
        let (old, new) = (before.reg(*reg), other.reg(*reg));
        let is_in_frame = matches!(old, Value::Entry { reg: Reg::Rsp, .. });
        is_in_frame && old != new && !(*reg == Reg::Rcx && (insn.is_loop() || insn.is_loopcc()))
    })
}

/// Whether the distance of two stack addresses is known.
fn has_base_of(a: Value, b: Value) -> bool {
    match (a, b) {
        (Value::Entry { reg: a, .. }, Value::Entry { reg: b, .. }) => a == b,
        (Value::Below { anchor: a, .. }, Value::Below { anchor: b, .. }) => a == b,
        _ => false,
    }
}

/// Whether it is known where an access is, as far as `slot` is concerned.
fn is_known(case: &Case, access: &Access, slot: &Slot) -> bool {
    let insn = &case.subject.insn;
    let is_segment = matches!(insn.segment_prefix(), Register::FS | Register::GS);

    // What vector registers or bit offsets add is not known.
    let is_bit = is_bit_string(insn);
    let is_number = |reg: Reg| matches!(case.state.reg(reg), Value::Const(_));
    let is_string = repeats(insn) && !is_number(Reg::Rcx);

    // What is copied is read when a part of it is written: the one may lie over the other.
    let rsi = case.state.reg(Reg::Rsi);
    let is_copy = repeats(insn) && rsi.is_stack() && !has_base_of(rsi, case.state.reg(Reg::Rdi));
    if is_segment || access.small || insn.is_vsib() || is_bit || is_string || is_copy {
        return false;
    }

    let part = |part| match part {
        AddressRegister::Nothing | AddressRegister::Rip => None,
        AddressRegister::Register(number) => Some(Reg::BY_NUMBER[usize::from(number) & 15]),
    };
    let (base, index) = (part(access.base), part(access.index));
    let value = |reg: Reg| case.state.reg(reg);
    let is_fixed = |reg: Reg| match value(reg) {
        Value::Below { anchor, .. } => {
            matches!(slot.at, Value::Below { anchor: a, .. } if a == anchor)
        }
        Value::Entry { reg: Reg::Rsp, .. } => matches!(slot.at, Value::Entry { .. }),
        Value::Const(_) => true,
        _ => false,
    };

    let is_loaded = base.is_some_and(|base| case.state.is_loaded(base));
    !is_loaded && base.is_none_or(is_fixed) && index.is_none_or(is_number)
}

/// A place of which only is said that it is computed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum ComputedPlace {
    Register(Reg),
    Word(Value),
    /// Half of a vector register, or an x87 register.
    Vector(usize),
    Heap(u64),
}

/// What places that are said to be computed have held in all states so far.
#[derive(Default)]
struct ConstantPlaces {
    places: Vec<(ComputedPlace, usize, Option<Reg>, Option<u64>)>,
}

impl ConstantPlaces {
    /// Addresses in the frame count only if `is_whole`: these here are small, so that a part of one may
    /// be all of it.
    fn add(&mut self, world: &ConcreteContext, place: ComputedPlace, found: u64, is_whole: bool) {
        let of_caller = world.of_caller(found);
        let distance =
            (is_whole && world.is_in_frame(found)).then(|| found.wrapping_sub(world.frame()));
        match self.places.iter_mut().find(|p| p.0 == place) {
            Some((_, count, saved, frame)) => {
                *count += 1;
                *saved = saved.filter(|_| *saved == of_caller);
                *frame = frame.filter(|_| *frame == distance);
            }
            None => self.places.push((place, 1, of_caller, distance)),
        }
    }

    /// The first place that held the same in all of `done` states.
    fn wrong(&self, done: usize) -> Option<Violation> {
        let all = self.places.iter();
        all.filter(|place| place.1 == done && done > ALWAYS)
            .find_map(|(place, _, saved, frame)| {
                let holds = match (saved, frame) {
                    (Some(Reg::Rip), _) => "the return address".to_owned(),
                    (Some(reg), _) => format!("{reg} at entry"),
                    (None, Some(frame)) => format!("rsp at entry {:+}", frame.cast_signed()),
                    (None, None) => return None,
                };
                let place = match place {
                    ComputedPlace::Register(reg) => reg.to_string(),
                    ComputedPlace::Word(at) => format!("the word at {at}"),
                    ComputedPlace::Vector(number) => format!("vector register {}", number / 2),
                    ComputedPlace::Heap(at) => format!("the word at {at:#x}"),
                };
                Some(Violation::NotComputed { place, holds })
            })
    }
}

/// Counts what the instruction wrote, and how much of that is known.
fn count(precision: &mut Precision, case: &Case, done: &[&ConcreteRun], state: &State) {
    let code = case.subject.insn.code();
    for reg in Reg::ALL.into_iter().take(16) {
        let is_written = done
            .iter()
            .any(|run| gpr(&run.before.state, reg) != gpr(&run.after, reg));
        let (old, new) = (is_exact(case.state.reg(reg)), is_exact(state.reg(reg)));
        if is_written || old && !new {
            precision.add(code, new);
        }
    }
    let old: Vec<Slot> = case.state.slots().collect();
    let new: Vec<Slot> = state.slots().collect();
    let lost = old.iter().filter(|slot| is_exact(slot.value));
    for slot in lost.filter(|slot| !new.contains(slot)) {
        let is_exact = new.iter().any(|n| n.at == slot.at && is_exact(n.value));
        precision.add(code, is_exact);
    }
    let added = new.iter().filter(|slot| is_exact(slot.value));
    for _ in added.filter(|slot| !old.iter().any(|o| o.at == slot.at)) {
        precision.add(code, true);
    }
}
