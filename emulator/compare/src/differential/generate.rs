//! Generates the state for an instruction: interesting values, and addresses in the window,
//! sometimes just outside.

use super::areas;
use super::relate;
use super::subject::{AREA_SIZE, Access, AddressRegister, Jump, TestInstruction};
use super::values::{self, Element, Random};
use iced_x86::{Instruction, Mnemonic, Register};
use unwind_sim_emulator_native::Extended;
use unwind_sim_emulator_native::single::{
    CODE_RANGE, MIDDLE_PAGES, Mode, Native, NativeCase, WINDOW_PAGE, WINDOW_SIZE,
};

/// Carry, parity, auxiliary carry, zero, sign, direction and overflow.
const FLAGS: u64 = 0xcd5;
const NESTED: u64 = 1 << 14;
const ALIGNMENT: u64 = 1 << 18;
const IDENTIFY: u64 = 1 << 21;
const DIRECTION: u64 = 1 << 10;
const TRAP: u64 = 1 << 8;
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;
/// Size of a slot of code in bytes; its second half holds only traps.
const SLOT: u64 = 64;

/// Random values and memory to draw from, renewed a little at a time.
#[derive(Debug)]
pub(super) struct Pools {
    integers: Vec<u64>,
    /// By the number of the [`Element`].
    vectors: [Vec<[u8; 16]>; 3],
    extended: Vec<(u16, u64)>,
    /// By the number of the [`Element`].
    memory: [Vec<u8>; 3],
    /// Whether the processor has the upper halves of ymm registers.
    avx: bool,
}

/// How many of 256 cases with memory have it over the boundary between two pages.
const WITH_MIDDLE: u8 = 24;
const PAGE: u64 = 0x1000;
/// How many of 256 cases of x87 and SSE instructions have the AVX state, too.
const WITH_UPPER: u8 = 24;
const INTEGERS: usize = 8192;
const VECTORS: usize = 2048;
const EXTENDED: usize = 1024;
const MEMORY: usize = 1 << 15;
/// The number of vectors and numbers replaced by one renewal.
const RENEWED: usize = 16;

impl Pools {
    /// Fills the pools.
    pub(super) fn new(random: &mut Random) -> Pools {
        let mut pools = Pools {
            integers: vec![0; INTEGERS],
            vectors: [(); 3].map(|()| vec![[0; 16]; VECTORS]),
            extended: vec![(0, 0); EXTENDED],
            memory: [(); 3].map(|()| vec![0; MEMORY]),
            avx: Native::has_avx(),
        };
        for _ in 0..8 * VECTORS / RENEWED {
            pools.renew(random);
        }
        pools
    }

    /// Replaces some of the values.
    pub(super) fn renew(&mut self, random: &mut Random) {
        for _ in 0..RENEWED {
            for element in Element::ALL {
                let vector = values::vector(element, random);
                self.vectors[element as usize][random.below(VECTORS)] = vector;
                let at = 16 * random.below(MEMORY / 16);
                self.memory[element as usize][at..at + 16].copy_from_slice(&vector);
            }
            let number = values::extended(random);
            self.extended[random.below(EXTENDED)] = number;
        }
        for _ in 0..4 * RENEWED {
            let value = values::integer(random);
            self.integers[random.below(INTEGERS)] = value;
            let at = 8 * random.below(MEMORY / 8);
            self.memory[Element::Other as usize][at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }

    fn registers(&self, random: &mut Random, registers: &mut [u64; 16]) {
        for four in registers.as_chunks_mut::<4>().0 {
            let mut choice = random.bits();
            for register in four {
                *register = self.integers[choice as usize % INTEGERS];
                choice >>= 16;
            }
        }
    }

    /// Fills upper halves of ymm registers; sometimes all are zero, or like the lower halves.
    fn upper(&self, element: Element, random: &mut Random, fx: &mut Extended) {
        let bits = random.bits();
        match bits & 15 {
            0 => fx.upper = [0; 16],
            1 => fx.upper = std::array::from_fn(|number| fx.ymm(number)[0]),
            _ => {
                for four in fx.upper.as_chunks_mut::<4>().0 {
                    let mut choice = random.bits();
                    let vectors = self.vectors(element, choice);
                    for to in four {
                        *to = u128::from_le_bytes(vectors[choice as usize % VECTORS]);
                        choice >>= 16;
                    }
                }
            }
        }
    }

    fn window(&self, element: Element, random: &mut Random, window: &mut [u8; WINDOW_SIZE]) {
        let at = 8 * random.below((MEMORY - WINDOW_SIZE) / 8);
        window.copy_from_slice(&self.memory[element as usize][at..at + WINDOW_SIZE]);
    }

    /// Usually the vectors of this kind; the highest bits of `choice` decide.
    fn vectors(&self, element: Element, choice: u64) -> &[[u8; 16]] {
        let element = if choice >> 62 == 0 {
            Element::Other
        } else {
            element
        };
        &self.vectors[element as usize]
    }

    /// Makes a state as `fxsave64` stores it.
    fn fx(&self, element: Element, random: &mut Random, fx: &mut [u8; 512]) {
        let bits = random.bits();

        // All exceptions masked, all registers valid.
        let mut control = 0x37f_u16;
        let mut status = 0;
        let mut tags = 0xff_u8;
        if bits & 3 != 0 {
            control = (bits >> 8) as u16 & 0x1f00 | 0x7f;
            status = (bits >> 24) as u16 & 0x7f7f;
            tags = match bits & 12 {
                0 => (bits >> 40) as u8,
                4 => 0,
                _ => 0xff,
            };

            if bits >> 4 & 15 == 0 {
                control = control & !0x3f | (bits >> 48) as u16 & 0x3f;
            }
            // Usually no exception is pending.
            if bits >> 56 & 7 != 0 {
                status &= !(!control & 0x3f);
            }

            // ES and B say that an unmasked exception is pending (SDM volume 1).
            if status & !control & 0x3f != 0 {
                status |= 0x8080;
            }
        }

        fx[0..2].copy_from_slice(&control.to_le_bytes());
        fx[2..4].copy_from_slice(&status.to_le_bytes());
        fx[4] = tags;

        fx[24..28].copy_from_slice(&mxcsr(random).to_le_bytes());
        // MXCSR_MASK. It is stored, but not loaded.
        fx[28..32].copy_from_slice(&0xffff_u32.to_le_bytes());

        let (numbers, vectors) = fx[32..416].split_at_mut(128);
        for to in numbers.as_chunks_mut::<16>().0 {
            let (exponent, significand) = self.extended[random.below(EXTENDED)];
            to[..8].copy_from_slice(&significand.to_le_bytes());
            to[8..10].copy_from_slice(&exponent.to_le_bytes());
        }

        for to in vectors.as_chunks_mut::<64>().0 {
            let mut choice = random.bits();
            let vectors = self.vectors(element, choice);
            for to in to.as_chunks_mut::<16>().0 {
                *to = vectors[choice as usize % VECTORS];
                choice >>= 16;
            }
        }
    }
}

fn mxcsr(random: &mut Random) -> u32 {
    let bits = random.bits();
    match bits & 15 {
        0..6 => 0x1f80,
        6 => (bits >> 16) as u32 & 0xffff,
        _ => (bits >> 16) as u32 & 0xffff | 0x1f80,
    }
}

/// Makes a case of `subject`, to execute at slot `index` of a batch.
pub(super) fn case(
    subject: &TestInstruction,
    index: usize,
    pools: &Pools,
    random: &mut Random,
    case: &mut NativeCase,
) {
    let place = Native::place(index);
    let memory = !subject.accesses.is_empty();

    case.code = subject.bytes;
    case.code_len = subject.len();
    case.mode = subject.mode;
    case.memory = memory;
    case.middle = memory && random.chance(WITH_MIDDLE);

    let state = &mut case.state;
    pools.registers(random, &mut state.gpr);

    let bits = random.bits();
    state.rip = place;
    // In user mode, IF is set, and bit 1 always is.
    state.rflags = 0x202 | bits & (FLAGS & !DIRECTION);
    if bits >> 32 & 3 == 0 {
        let rare = (bits >> 8) & (DIRECTION | NESTED | IDENTIFY);
        state.rflags |= rare;

        // Linux sets CR0.AM, so with AC an unaligned access raises #AC.
        if !memory {
            state.rflags |= (bits >> 8) & ALIGNMENT;
        }
    }

    if subject.mode != Mode::Plain {
        pools.fx(subject.element, random, &mut state.fx.legacy);
        // Instructions of SSE keep the upper halves.
        let needs_upper = subject.mode == Mode::Avx || subject.has_area();
        if pools.avx && (needs_upper || random.chance(WITH_UPPER)) {
            case.mode = Mode::Avx;
            pools.upper(subject.element, random, &mut state.fx);
        }
    }

    if memory {
        pools.window(subject.element, random, &mut state.window);
    }

    // Operands first, then addresses: an operand may be a base register, whose address counts.
    operands(&subject.insn, random, case);
    let mut first = None;
    for access in &subject.accesses {
        let mut target = target(access, case, random);

        // An address without a register can only be changed in the instruction, which has 32 bits
        // for it.
        if access.is_constant() && !reaches(subject, target) {
            target = case.window();
        }
        steer(subject, access, target, case);
        first.get_or_insert(target);
    }

    // These change operands at addresses that are fixed by now.
    relate::relate(subject, first, random, case);
    if subject.insn.is_vsib() {
        gather(&subject.insn, random, case);
    }
    string(&subject.insn, random, case);
    jump(subject, first.unwrap_or(0), random, case);
    areas::far(subject, random, case);
    areas::xsave(subject, random, case);

    // A popped TF would trap in the code behind the instruction.
    if matches!(subject.insn.mnemonic(), Mnemonic::Popf | Mnemonic::Popfq)
        && let Some(at) = in_window(case, case.state.gpr[RSP], 2)
    {
        case.state.window[at + 1] &= !(TRAP >> 8) as u8;
    }
}

/// Sets operands with which the instruction does something interesting.
fn operands(insn: &Instruction, random: &mut Random, case: &mut NativeCase) {
    let gpr = &mut case.state.gpr;
    match insn.mnemonic() {
        Mnemonic::Div | Mnemonic::Idiv if !random.chance(24) => {
            // Usually a quotient that fits.
            let signed = insn.mnemonic() == Mnemonic::Idiv;
            let size = match insn.op0_register() {
                Register::None => insn.memory_size().size(),
                register => register.size(),
            };

            // rdx:rax is the dividend, for bytes ax.
            if size == 1 {
                let rax = gpr[RAX] as i8;
                let ax = if signed {
                    rax as u16
                } else {
                    (rax as u8).into()
                };
                gpr[RAX] = gpr[RAX] & !0xffff | u64::from(ax);
                return;
            }

            let negative = gpr[RAX] << (64 - 8 * size) >> 63 != 0;
            gpr[RDX] = if signed && negative { u64::MAX } else { 0 };
            if random.chance(128) {
                gpr[RDX] ^= random.bits() >> 62;
            }
        }
        // A small nesting level.
        Mnemonic::Enter => case.code[usize::from(case.code_len) - 1] &= 0x87,
        _ => {}
    }
}

/// Usually makes the indexes of a gather small, and its mask often whole.
fn gather(insn: &Instruction, random: &mut Random, case: &mut NativeCase) {
    let fx = &mut case.state.fx;
    let number = insn.memory_index().number();

    if !random.chance(8) {
        let mut halves = [0; 2];
        // An index for each element.
        for half in &mut halves {
            for shift in (0..128).step_by(if insn.is_vsib64() { 64 } else { 32 }) {
                // Nothing is mapped after the window.
                let near = (random.below(80) as i128 - 64) as u128;

                let value = if random.chance(6) {
                    random.bits().into()
                } else {
                    near
                };
                let bits = if insn.is_vsib64() {
                    u64::MAX.into()
                } else {
                    u128::from(u32::MAX)
                };
                *half |= (value & bits) << shift;
            }
        }
        fx.set_ymm(number, halves);
    }

    // The mask: all elements are loaded.
    if random.chance(128) && insn.op2_register().is_vector_register() {
        fx.set_ymm(insn.op2_register().number(), [u128::MAX; 2]);
    }
}

/// Picks an address for an access.
fn target(access: &Access, case: &NativeCase, random: &mut Random) -> u64 {
    let size = u64::from(access.size).clamp(1, WINDOW_SIZE as u64);
    let bits = random.bits();
    let room = WINDOW_SIZE as u64 - size + 1;
    let inside = case.window() + ((bits >> 16) & 0xffff_ffff) % room;

    if case.middle {
        // Mostly across the boundary of the two pages.
        return match bits & 7 {
            0 => inside,
            _ if access.size == AREA_SIZE => (MIDDLE_PAGES.start + PAGE - (bits >> 8) % size) & !63,
            _ => MIDDLE_PAGES.start + PAGE - (bits >> 8) % size,
        };
    }

    let align = if size.is_power_of_two() || access.size == AREA_SIZE {
        size.min(64)
    } else {
        8
    };

    // The small numbers are addresses that fault, or just do not.
    match bits & 0xff {
        0 if access.size == AREA_SIZE => (WINDOW_PAGE.end - (bits >> 8) % size) & !(align - 1),
        0 => WINDOW_PAGE.end - (bits >> 8) % size,
        1 => WINDOW_PAGE.start.wrapping_sub(1 + (bits >> 8) % size),
        // Not canonical, and around the end of user space.
        2 => 1 << 63 | inside,
        3 => (1 << 47) - (bits >> 8) % (2 * size),
        4 if !access.written => WINDOW_PAGE.start + (bits >> 8) % 0x800,
        4 => CODE_RANGE.start + (bits >> 8) % SLOT,
        5 => values::integer(random) & 0x0ffe_ffff,
        6 => WINDOW_PAGE.end - size,
        7 => case.window(),
        8 => random.bits() | 1 << 40,
        n if n < 64 && (size < 16 || n < 24) => inside,
        _ => inside & !(align - 1),
    }
}

/// Makes an access use `target` if possible.
fn steer(subject: &TestInstruction, access: &Access, target: u64, case: &mut NativeCase) {
    let gpr = &mut case.state.gpr;
    let want = target.wrapping_sub(access.displacement);
    let shift = access.scale.trailing_zeros();

    match (access.base, access.index) {
        (AddressRegister::Nothing, AddressRegister::Nothing) => displace(subject, target, case),
        (AddressRegister::Rip, _) => {
            let next = case.state.rip + u64::from(case.code_len);
            displace(subject, target.wrapping_sub(next), case);
        }
        (AddressRegister::Register(base), AddressRegister::Nothing) => {
            set(&mut gpr[base as usize], want, access)
        }
        (AddressRegister::Nothing, AddressRegister::Register(index)) => {
            set(&mut gpr[index as usize], want >> shift, access);
        }
        (AddressRegister::Register(base), AddressRegister::Register(index)) if base == index => {
            // The factor is 2, 3, 5 or 9; for the odd ones, multiply by the inverse modulo 2^64.
            let value = match access.scale {
                1 => want >> 1,
                2 => want.wrapping_mul(0xaaaa_aaaa_aaaa_aaab),
                4 => want.wrapping_mul(0xcccc_cccc_cccc_cccd),
                _ => want.wrapping_mul(0x8e38_e38e_38e3_8e39),
            };
            set(&mut gpr[base as usize], value, access);
        }
        (AddressRegister::Register(base), AddressRegister::Register(index)) => {
            let index = gpr[index as usize] << shift;
            set(&mut gpr[base as usize], want.wrapping_sub(index), access);
        }
        // rip is never an index.
        (_, AddressRegister::Rip) => {}
    }
}

/// Sets a register of an address; in a 32-bit address its upper half does not matter.
fn set(register: &mut u64, value: u64, access: &Access) {
    *register = if access.small {
        *register & !0xffff_ffff | value & 0xffff_ffff
    } else {
        value
    };
}

/// Whether the displacement can reach this address, alone or with a register.
fn reaches(subject: &TestInstruction, target: u64) -> bool {
    subject.offsets.displacement_size() == 8 || target < 0x6000_0000
}

fn displace(subject: &TestInstruction, value: u64, case: &mut NativeCase) {
    let (offset, size) = (
        subject.offsets.displacement_offset(),
        subject.offsets.displacement_size(),
    );
    case.code[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Usually keeps the counts of string instructions, and bit offsets, small.
fn string(insn: &Instruction, random: &mut Random, case: &mut NativeCase) {
    let gpr = &mut case.state.gpr;
    if insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix()) {
        let most = if case.state.rflags & DIRECTION != 0 {
            24
        } else {
            160
        };

        let any = random.chance(8) && case.state.rflags & DIRECTION == 0;
        // Otherwise the count is any number, which leads out of the window.
        if !any {
            gpr[RCX] = random.below(most) as u64 * u64::from(!random.chance(16));
        }
        if any && random.chance(128) {
            gpr[RCX] &= 0xffff_ffff;
        }
    }

    let bit = matches!(
        insn.mnemonic(),
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    );
    if bit && case.memory && insn.op1_register().is_gpr() && !random.chance(8) {
        let register = insn.op1_register();
        let address = [insn.memory_base(), insn.memory_index()];
        if !address
            .iter()
            .any(|part| part.full_register() == register.full_register())
        {
            // Bytes near the operand. If the register is part of the address, this would move it.
            let offset = (random.below(4096) as i64 - 2048) as u64;
            gpr[register.number()] = offset;
        }
    }
}

/// Gives a jump a target, usually traps.
fn jump(subject: &TestInstruction, from: u64, random: &mut Random, case: &mut NativeCase) {
    if subject.jump == Jump::None {
        return;
    }

    let near = case.state.rip + SLOT / 2 + random.bits() % (SLOT / 2);
    let other = Native::place(random.below(Native::BATCH)) + SLOT / 2;
    let bits = random.bits();

    // Rarely an address that is not canonical, or one in the null page.
    let anywhere = match bits & 63 {
        0 => 1 << 63 | bits,
        1 => 0x2000_0000 + (bits >> 40),
        2 => 1 << 47,
        3 => (bits >> 20) & 0x7ff,
        _ => other + (bits >> 40) % (SLOT / 2),
    };

    match subject.jump {
        Jump::Relative => {
            let size = subject.offsets.immediate_size();
            let offset = subject.offsets.immediate_offset();

            // A displacement of 8 bits reaches only this slot.
            let to = if size == 1 { near } else { other };
            let distance = to.wrapping_sub(case.state.rip + u64::from(case.code_len));
            case.code[offset..offset + size].copy_from_slice(&distance.to_le_bytes()[..size]);
        }
        Jump::Register(register) => case.state.gpr[register as usize] = anywhere,
        Jump::Memory => {
            let from = if subject.pops() {
                case.state.gpr[RSP]
            } else {
                from
            };

            if let Some(at) = in_window(case, from, 8) {
                case.state.window[at..at + 8].copy_from_slice(&anywhere.to_le_bytes());
            }
        }
        Jump::None => {}
    }
}

/// The offset of `address` in the case's window, if `size` bytes from there are in it.
pub(super) fn in_window(case: &NativeCase, address: u64, size: usize) -> Option<usize> {
    let at = address.wrapping_sub(case.window());
    (at <= (WINDOW_SIZE - size) as u64).then_some(at as usize)
}
