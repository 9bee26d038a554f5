//! Concrete states of a case: drawn, executed, and what they hold.

use super::draw::{Case, KnownSlot};
use super::meaning::{ConcreteContext, Source, word};
use iced_x86::FlowControl;
use unwind_sim_emulator_compare::differential::Random;
use unwind_sim_emulator_native::single::{Mode, NativeCase, NativeState, WINDOW_SIZE};
use unwind_sim_tables::proof::state::{ComparedPlace, Direction};
use unwind_sim_tables::proof::value::Value;
use unwind_sim_unwind::regs::Reg;

/// How often a state is drawn again in which words lie over each other.
const TRIES: usize = 8;
/// The flags that hold the outcome of a comparison: carry and zero.
pub(super) const CARRY: u64 = 1;
pub(super) const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

/// What does not end in a state that is judged.
const INT3: &[u8] = &[0xcc];

/// All status flags, and the direction.
const STATUS: u64 = 0x8d5;

pub(super) const DIRECTION: u64 = 1 << 10;

/// A concrete state before and after an instruction.
#[derive(Clone, Debug)]
pub(super) struct ConcreteRun {
    pub(super) world: ConcreteContext,
    pub(super) before: NativeCase,
    pub(super) after: NativeState,
    /// Whether the instruction was executed to its end.
    pub(super) is_done: bool,
    /// What the compared place was compared with.
    pub(super) with: u64,
}

impl ConcreteRun {
    /// A concrete state of `case`, to be executed at `place`.
    pub(super) fn new(case: &Case, place: u64, random: &mut Random) -> ConcreteRun {
        ConcreteRun::with(case, place, case.align, random)
    }

    /// The same, with any alignment that the stack may have.
    pub(super) fn confirming(case: &Case, place: u64, random: &mut Random) -> ConcreteRun {
        ConcreteRun::with(case, place, None, random)
    }

    fn with(case: &Case, place: u64, align: Option<u64>, random: &mut Random) -> ConcreteRun {
        let mut tries = 0..TRIES;
        loop {
            let run = ConcreteRun::try_new(case, place, align, random);
            if run.fits(case) {
                return run;
            }
            if tries.next().is_none() {
                let nothing = NativeCase::new(Mode::Plain, INT3);
                return ConcreteRun {
                    before: nothing,
                    ..run
                };
            }
        }
    }

    /// Whether all words hold what is known of them: anchors may put one over the other.
    fn fits(&self, case: &Case) -> bool {
        let words = |at, size| word(&self.before.state.window, at, size);
        let slots = case
            .state
            .slots()
            .filter(|slot| slot.value != Value::Unknown);
        slots.into_iter().all(|slot| {
            let address = self.world.number(slot.at);
            let held = address.and_then(|address| words(address, slot.size));
            held.is_none_or(|held| self.world.holds(slot.value, held, slot.size, &[], words))
        })
    }

    fn try_new(case: &Case, place: u64, align: Option<u64>, random: &mut Random) -> ConcreteRun {
        let subject = &case.subject;
        let world = ConcreteContext::new(&case.anchors, align, random);
        let is_jump = subject.insn.flow_control() != FlowControl::Next;
        // The other modes are for instructions that do not transfer control.
        let mode = if is_jump { Mode::Step } else { subject.mode };
        let length = subject.insn.len();
        let mut before = NativeCase::new(mode, subject.bytes.get(..length).unwrap_or(&[]));

        if subject.insn.is_ip_rel_memory_operand() {
            // The instruction is somewhere else, and its operand where it was.
            let (at, size) = (
                subject.offsets.displacement_offset(),
                subject.offsets.displacement_size(),
            );
            // The displacement counts from the end of the instruction (Intel SDM volume 2).
            let moved = subject
                .insn
                .memory_displacement64()
                .wrapping_sub(place + length as u64);
            before.code[at..at + size].copy_from_slice(&moved.to_le_bytes()[..size]);
        }

        let state = &mut before.state;
        state.rip = place;
        for (number, reg) in Reg::BY_NUMBER.into_iter().enumerate() {
            state.gpr[number] = world.give(case.regs[reg as usize], random);
        }

        for chunk in state.window.as_chunks_mut::<8>().0 {
            // Where nothing is known, the caller's values may be all the same: half of these words
            // hold one.
            let source = case.forgotten.filter(|_| random.chance(128));
            let value = world.give(source.unwrap_or(Source::Random), random);
            *chunk = value.to_le_bytes();
        }

        for known in &case.words {
            let value = world.give(known.source, random);
            put(&mut state.window, &world, known, value);
        }

        if mode != Mode::Plain {
            for number in 0..16 {
                let value = world.give(case.vectors.unwrap_or(Source::Random), random);
                let high = u128::from(random.bits());
                // Only the low word is what was drawn; the rest is arbitrary.
                state
                    .fx
                    .set_ymm(number, [high << 64 | u128::from(value), high]);
            }
        }

        let mut run = ConcreteRun {
            after: before.state,
            world,
            is_done: false,
            with: 0,
            before,
        };
        run.set_flags(case, random);
        run
    }

    fn set_flags(&mut self, case: &Case, random: &mut Random) {
        let mut flags = random.bits() & STATUS;
        flags |= match case.state.direction {
            Direction::Up => 0,
            Direction::Down => DIRECTION,
            Direction::Unknown => DIRECTION * u64::from(random.chance(128)),
        };
        if let Some(compared) = case.compared {
            self.with = self.world.give(compared.with, random);
            let size = compared.what.width;
            let value = self.compared(compared.what.place, size, &self.before.state);
            let (carry, zero) = outcome(value.unwrap_or(0), self.with, size);
            flags &= !(CARRY | ZERO | SIGN | OVERFLOW);
            flags |= (u64::from(carry) * CARRY) | (u64::from(zero) * ZERO);
            // One of the two, if it is less.
            if is_less(value.unwrap_or(0), self.with, size) {
                flags |= if random.chance(128) { SIGN } else { OVERFLOW };
            }
        }
        self.before.state.rflags = 0x202 | flags;
    }

    /// The value of a compared place.
    pub(super) fn compared(
        &self,
        place: ComparedPlace,
        size: u8,
        state: &NativeState,
    ) -> Option<u64> {
        match place {
            ComparedPlace::Reg(reg) => Some(gpr(state, reg)),
            ComparedPlace::Memory(at) => word(&state.window, self.world.number(at)?, size),
        }
    }
}

/// Puts a word into a window, if it is in there.
fn put(window: &mut [u8; WINDOW_SIZE], world: &ConcreteContext, known: &KnownSlot, value: u64) {
    let Some(address) = world.number(known.at) else {
        return;
    };
    let at = address.wrapping_sub(unwind_sim_emulator_native::single::WINDOW) as usize;
    let size = usize::from(known.size);
    if let Some(to) = at.checked_add(size).and_then(|end| window.get_mut(at..end)) {
        to.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

/// The register after its number in an instruction.
pub(super) fn gpr(state: &NativeState, reg: Reg) -> u64 {
    let number = Reg::BY_NUMBER.iter().position(|r| *r == reg);
    state.gpr[number.unwrap_or(0)]
}

/// The carry and zero flags of `cmp`, of `size` bytes.
pub(super) fn outcome(value: u64, with: u64, size: u8) -> (bool, bool) {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    let (value, with) = (value << unused, with << unused);
    (value < with, value == with)
}

/// Whether `value` is less than `with` as signed numbers of `size` bytes.
fn is_less(value: u64, with: u64, size: u8) -> bool {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    (value << unused).cast_signed() < (with << unused).cast_signed()
}
