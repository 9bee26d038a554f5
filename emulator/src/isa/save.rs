//! Saving and restoring the x87, SSE and AVX state: fxsave, fxrstor, xsave, xsavec, xsaveopt,
//! xrstor.
//!
//! Source: Intel SDM volume 1, chapters 10 and 13. The components are x87, SSE and, if the
//! processor has it, AVX. AVX follows the header in standard and in compacted form, so an area is
//! the same in both. Unlike on processors, `xsaveopt` never omits components that were not
//! modified.

use crate::core::Core;
use crate::float::x87::F80;
use crate::op::{Flow, Op, Run, flow, raise};
use crate::processor::{Pointers, Processor, Vendor};
use crate::state::fpu::Fpu;
use crate::state::{MXCSR_DEFAULT, Vectors, reg};
use crate::stop::Exception;
use iced_x86::{Instruction, Mnemonic};
use std::ops::Range;

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;
    // Instruction and operand addresses are stored as 32 bits with selectors, or as 64 bits.
    op.extra = u8::from(matches!(
        insn.mnemonic(),
        Fxsave64 | Fxrstor64 | Xsave64 | Xsavec64 | Xsaveopt64 | Xrstor64
    ));
    Some(match insn.mnemonic() {
        Fxsave | Fxsave64 => fxsave,
        Fxrstor | Fxrstor64 => fxrstor,
        Xsave | Xsave64 => xsave::<STANDARD>,
        Xsaveopt | Xsaveopt64 => xsave::<OPTIMIZED>,
        Xsavec | Xsavec64 => xsave::<COMPACTED>,
        Xrstor | Xrstor64 => xrstor,
        // `cpuid` does not announce them.
        Xsaves | Xsaves64 | Xrstors | Xrstors64 => crate::op::invalid,
        _ => return None,
    })
}

const X87: u64 = 1;
const SSE: u64 = 1 << 1;
/// The upper halves of ymm registers.
const AVX: u64 = 1 << 2;

/// Width of a linear address, bits.
pub(super) const LINEAR_BITS: u32 = 48;

/// Bytes that `fxsave` writes, of the 512 in its area.
const FX_SIZE: usize = 416;
/// Offset of the `xsave` header.
const HEADER: usize = 512;
const HEADER_SIZE: usize = 64;
/// Size of the `xsave` area without AVX, bytes.
const LEGACY_SIZE: usize = HEADER + HEADER_SIZE;
/// Offset of the AVX component, bytes, in both forms.
pub(super) const AVX_OFFSET: usize = LEGACY_SIZE;
/// Size of the AVX component, bytes.
pub(super) const AVX_SIZE: usize = 256;
/// Size of the `xsave` area with all components, bytes.
const SIZE_MAX: usize = AVX_OFFSET + AVX_SIZE;
/// The bit of XCOMP_BV that says that the form is compacted.
const IS_COMPACTED: u64 = 1 << 63;

// Offsets in the area.
const MXCSR: usize = 24;
const REGISTERS: usize = 32;
const XMM: usize = 160;
const XSTATE_BV: usize = HEADER;
const XCOMP_BV: usize = HEADER + 8;

/// Size of an `xsave` area with these components, bytes: the same in standard and in compacted
/// form.
pub(super) fn size(components: u64) -> usize {
    match components & AVX {
        0 => LEGACY_SIZE,
        _ => SIZE_MAX,
    }
}

fn put<const N: usize>(area: &mut [u8], at: usize, bytes: [u8; N]) {
    area[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(area: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&area[at..at + N]);
    bytes
}

/// Writes the x87 component.
fn put_x87(core: &Core, area: &mut [u8], wide: bool) {
    let fpu = &core.state.fpu;
    put(area, 0, fpu.control_word().to_le_bytes());
    put(area, 2, fpu.status_word().to_le_bytes());
    put(area, 4, u16::from(!fpu.empty).to_le_bytes());
    area[5] = 0;
    let pointers = match core.processor.pointers() {
        _ if fpu.is_pending() => Some((fpu.opcode, fpu.instruction, fpu.data)),
        Pointers::Always => Some((fpu.opcode, fpu.instruction, fpu.data)),
        Pointers::Zero => Some((0, 0, 0)),
        Pointers::Kept => None,
    };
    if let Some((opcode, instruction, data)) = pointers {
        let mask = if wide { u64::MAX } else { u32::MAX.into() };
        put(area, 6, opcode.to_le_bytes());
        put(area, 8, (instruction & mask).to_le_bytes());
        put(area, 16, (data & mask).to_le_bytes());
    }
    for position in 0..8 {
        let at = REGISTERS + 16 * usize::from(position);
        put(area, at, fpu.content(position).to_bytes());
        put(area, at + 10, [0; 6]);
    }
}

/// Reads the x87 component.
fn get_x87(fpu: &mut Fpu, pointers: Pointers, area: &[u8], wide: bool) {
    let word = |at| u16::from_le_bytes(get(area, at));
    fpu.set_control_word(word(0));
    fpu.set_status_word(word(2));
    fpu.empty = !area[4];
    if pointers != Pointers::Kept || fpu.is_pending() {
        fpu.opcode = word(6) & 0x7ff;
        let mask = if wide { u64::MAX } else { u32::MAX.into() };
        // A linear address has as many bits as `cpuid` says (leaf 0x8000_0008).
        let unused = 64 - LINEAR_BITS;
        let instruction = u64::from_le_bytes(get(area, 8)) & mask;
        fpu.instruction = (instruction.cast_signed() << unused >> unused).cast_unsigned();
        fpu.data = u64::from_le_bytes(get(area, 16)) & mask;
    }
    for position in 0..8 {
        let number = (usize::from(fpu.top) + position) & 7;
        fpu.registers[number] = F80::from_bytes(get(area, REGISTERS + 16 * position));
    }
}

fn put_mxcsr(core: &Core, area: &mut [u8]) {
    put(area, MXCSR, core.state.mxcsr.to_le_bytes());
    put(area, MXCSR + 4, core.processor.mxcsr_mask().to_le_bytes());
}

/// MXCSR in an area; `None` if bits outside `mask` are set.
fn get_mxcsr(mask: u32, area: &[u8]) -> Option<u32> {
    let mxcsr = u32::from_le_bytes(get(area, MXCSR));
    (mxcsr & !mask == 0).then_some(mxcsr)
}

fn put_xmm(core: &Core, area: &mut [u8]) {
    for (number, register) in core.state.vectors.lower().iter().enumerate() {
        put(area, XMM + 16 * number, register.to_le_bytes());
    }
}

fn get_xmm(core: &mut Core, area: &[u8]) {
    let register = |number| u128::from_le_bytes(get(area, XMM + 16 * number));
    core.state.vectors.set_lower(std::array::from_fn(register));
}

/// Writes the upper halves of ymm registers.
fn put_avx(core: &Core, area: &mut [u8]) {
    for number in 0..16 {
        let [_, upper] = core.state.vectors.ymm(number);
        put(area, AVX_OFFSET + 16 * number, upper.to_le_bytes());
    }
}

/// Sets the upper halves of ymm registers, to zero if there is no area.
fn set_avx(core: &mut Core, area: Option<&[u8]>) {
    for number in 0..16 {
        let upper = area.map_or(0, |area| {
            u128::from_le_bytes(get(area, AVX_OFFSET + 16 * number))
        });
        let lower = core.state.vectors.xmm(number);
        core.state.vectors.set_ymm(number, [lower, upper]);
    }
}

impl Core {
    /// The x87 and SSE state as FXSAVE64 stores it; zero after xmm15.
    pub fn fx_image(&self) -> [u8; 512] {
        let mut area = [0; 512];
        put_fx(self, &mut area, true);
        area
    }

    /// Restores the state as FXRSTOR64 does. `None`, with nothing changed, if reserved bits of
    /// MXCSR are set.
    pub fn set_fx_image(&mut self, area: &[u8; 512]) -> Option<()> {
        get_fx(self, area, true)
    }

    /// Size of the area that [`Core::xsave_image`] returns on this processor, bytes.
    pub(crate) fn xsave_size(processor: &Processor) -> usize {
        size(processor.xcr0())
    }

    /// The components that the processor has, as XSAVE64 stores them in standard form.
    pub(crate) fn xsave_image(&self) -> Vec<u8> {
        let components = self.processor.xcr0();
        let mut area = vec![0; size(components)];
        put_fx(self, &mut area, true);
        if components & AVX != 0 {
            put_avx(self, &mut area);
        }
        // The kernel marks x87 and SSE as present (`save_xstate_epilog`).
        let present = X87 | SSE | in_use(self) & AVX;
        put(&mut area, XSTATE_BV, present.to_le_bytes());
        area
    }

    /// Restores `requested` components as XRSTOR64 does. `None`, with nothing changed, if it
    /// refuses the area.
    pub(crate) fn set_xsave_image(&mut self, area: &[u8], requested: u64) -> Option<()> {
        restore(self, area, requested & self.processor.xcr0(), true)
    }

    /// Resets components to their state in a new program.
    pub(crate) fn reset_components(&mut self, components: u64) {
        let mut area = [0; SIZE_MAX];
        put(&mut area, MXCSR, MXCSR_DEFAULT.to_le_bytes());
        // An area without components is never refused.
        let components = components & self.processor.xcr0();
        if components & SSE == 0 {
            put(&mut area, MXCSR, self.state.mxcsr.to_le_bytes());
        }
        let _ = restore(self, &area, components, true);
    }

    /// Resets the x87, SSE and AVX state to that of a new program.
    pub(crate) fn reset_fx(&mut self) {
        self.state.fpu = Fpu::default();
        self.state.mxcsr = MXCSR_DEFAULT;
        self.state.vectors = Vectors::default();
    }
}

fn put_fx(core: &Core, area: &mut [u8], wide: bool) {
    put_x87(core, area, wide);
    put_mxcsr(core, area);
    put_xmm(core, area);
}

fn get_fx(core: &mut Core, area: &[u8], wide: bool) -> Option<()> {
    core.state.mxcsr = get_mxcsr(core.processor.mxcsr_mask(), area)?;
    get_x87(&mut core.state.fpu, core.processor.pointers(), area, wide);
    get_xmm(core, area);
    Some(())
}

fn fxsave(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    if !address.is_multiple_of(16) {
        return raise(core, Exception::GeneralProtection);
    }
    if core.memory.check_store(address, HEADER).is_none() {
        return Flow::Stop;
    }
    let mut area = [0; FX_SIZE];
    if core.processor.pointers() == Pointers::Kept {
        let Some(old) = core.memory.load_bytes(address) else {
            return Flow::Stop;
        };
        area = old;
    }
    put_fx(core, &mut area, op.extra != 0);
    flow(core.memory.store_bytes(address, area))
}

fn fxrstor(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    if !address.is_multiple_of(16) {
        return raise(core, Exception::GeneralProtection);
    }
    let Some(area) = core.memory.load_bytes::<HEADER>(address) else {
        return Flow::Stop;
    };
    match get_fx(core, &area, op.extra != 0) {
        Some(()) => Flow::Next,
        None => raise(core, Exception::GeneralProtection),
    }
}

/// The components requested in edx and eax.
fn requested(core: &Core) -> u64 {
    (core.state.gpr[reg::RAX] & 0xffff_ffff | core.state.gpr[reg::RDX] << 32)
        & core.processor.xcr0()
}

/// The components that are not in their reset state (XINUSE).
pub(super) fn in_use(core: &Core) -> u64 {
    let x87 = if core.state.fpu == Fpu::default() {
        0
    } else {
        X87
    };
    let sse = if core.state.vectors.lower() == [0; 16] {
        0
    } else {
        SSE
    };
    let avx = (0..16).any(|number| core.state.vectors.ymm(number)[1] != 0);
    x87 | sse | if avx { AVX } else { 0 }
}

/// `xsave`.
const STANDARD: u8 = 0;
/// `xsaveopt`.
const OPTIMIZED: u8 = 1;
/// `xsavec`.
const COMPACTED: u8 = 2;

fn xsave<const FORM: u8>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    // Even without AC: `xsave` needs 64 bytes, `fxsave` 16 (SDM volume 2).
    if !address.is_multiple_of(64) {
        return raise(core, Exception::GeneralProtection);
    }

    let requested = requested(core);
    let used = used(core, requested, FORM == COMPACTED);

    // First, so that a fault is one of a write and leaves nothing half saved.
    let start = address.wrapping_add(used.start as u64);
    if core.memory.check_store(start, used.len()).is_none() {
        return Flow::Stop;
    }
    let Some(mut area) = load(core, address, &used) else {
        return Flow::Stop;
    };

    let mut in_use = in_use(core);

    // `xsavec` counts SSE as in use if MXCSR is not its initial value (SDM volume 1).
    if FORM == COMPACTED && core.state.mxcsr != MXCSR_DEFAULT {
        in_use |= SSE;
    }

    let written = match FORM {
        STANDARD => requested,
        _ => requested & in_use,
    };

    if written & X87 != 0 {
        put_x87(core, &mut area, op.extra != 0);
    }
    if written & SSE != 0 {
        put_xmm(core, &mut area);
    }
    if written & AVX != 0 {
        put_avx(core, &mut area);
    }
    // MXCSR belongs to SSE, but without compaction also to AVX.
    let mxcsr = match FORM {
        COMPACTED => written & SSE,
        _ => requested & (SSE | AVX),
    };
    if mxcsr != 0 {
        put_mxcsr(core, &mut area);
    }

    let mut components = requested & in_use;
    if FORM == COMPACTED {
        put(
            &mut area,
            XCOMP_BV,
            (requested | IS_COMPACTED).to_le_bytes(),
        );
    } else {
        // Bits of components that were not requested keep their value (SDM volume 1).
        components |= u64::from_le_bytes(get(&area, XSTATE_BV)) & !requested;
    }

    put(&mut area, XSTATE_BV, components.to_le_bytes());
    flow(store(core, address, &area, &used))
}

/// The part of an area that is accessed for these components. An instruction may access no others, nor what
/// precedes the header for their sake (SDM volume 1, section 13.13); AMD's processors do access that.
fn used(core: &Core, requested: u64, is_compacted: bool) -> Range<usize> {
    // MXCSR precedes the header, too, and belongs to AVX without compaction.
    let in_front = match is_compacted {
        true => X87 | SSE,
        false => X87 | SSE | AVX,
    };
    let is_whole = core.processor.vendor() == Vendor::Amd || requested & in_front != 0;
    let start = if is_whole { 0 } else { HEADER };
    start..size(requested)
}

/// Loads the part `used` of an area.
fn load(core: &mut Core, address: u64, used: &Range<usize>) -> Option<[u8; SIZE_MAX]> {
    let mut area = [0; SIZE_MAX];
    let at = |offset: usize| address.wrapping_add(offset as u64);
    if used.start == 0 {
        let legacy = core.memory.load_bytes::<LEGACY_SIZE>(address)?;
        put(&mut area, 0, legacy);
    } else {
        let header = core.memory.load_bytes::<HEADER_SIZE>(at(HEADER))?;
        put(&mut area, HEADER, header);
    }
    if used.end > LEGACY_SIZE {
        let avx = core.memory.load_bytes::<AVX_SIZE>(at(AVX_OFFSET))?;
        put(&mut area, AVX_OFFSET, avx);
    }
    Some(area)
}

/// Stores the part `used` of an area, of which all bytes are writable.
fn store(core: &mut Core, address: u64, area: &[u8; SIZE_MAX], used: &Range<usize>) -> Option<()> {
    let at = |offset: usize| address.wrapping_add(offset as u64);
    if used.start == 0 {
        let legacy = get::<LEGACY_SIZE>(area, 0);
        core.memory.store_bytes(address, legacy)?;
    } else {
        let header = get::<HEADER_SIZE>(area, HEADER);
        core.memory.store_bytes(at(HEADER), header)?;
    }
    if used.end > LEGACY_SIZE {
        let avx = get::<AVX_SIZE>(area, AVX_OFFSET);
        core.memory.store_bytes(at(AVX_OFFSET), avx)?;
    }
    Some(())
}

fn xrstor(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    if !address.is_multiple_of(64) {
        return raise(core, Exception::GeneralProtection);
    }
    let requested = requested(core);
    // The header says what else is needed: where nothing is mapped, Intel's processors fault at XCOMP_BV.
    let header = address.wrapping_add(XCOMP_BV as u64);
    let is_compacted = match core.processor.vendor() {
        Vendor::Amd => false,
        Vendor::Intel => match core.memory.load_bytes(header) {
            Some(form) => u64::from_le_bytes(form) & IS_COMPACTED != 0,
            None => return Flow::Stop,
        },
    };
    let used = used(core, requested, is_compacted);
    let Some(area) = load(core, address, &used) else {
        return Flow::Stop;
    };
    match restore(core, &area, requested, op.extra != 0) {
        Some(()) => Flow::Next,
        None => raise(core, Exception::GeneralProtection),
    }
}

/// Restores the requested components, of those that XCR0 has. `None`, with nothing changed, if the
/// area is refused.
fn restore(core: &mut Core, area: &[u8], requested: u64, wide: bool) -> Option<()> {
    let xcr0 = core.processor.xcr0();
    let present = u64::from_le_bytes(get(area, XSTATE_BV));
    let form = u64::from_le_bytes(get(area, XCOMP_BV));
    let is_compacted = form & IS_COMPACTED != 0;

    // Reserved bytes: all after XCOMP_BV in compacted form, otherwise XCOMP_BV and the 8 bytes
    // after it.
    let (allowed, reserved) = if is_compacted {
        (form & xcr0, XCOMP_BV + 8..LEGACY_SIZE)
    } else {
        (xcr0, XCOMP_BV..XCOMP_BV + 16)
    };

    let is_bad = present & !allowed != 0
        || is_compacted && form & !IS_COMPACTED & !xcr0 != 0
        || area[reserved].iter().any(|&byte| byte != 0);

    // MXCSR belongs to SSE, but without compaction also to AVX; then it is always present.
    let mxcsr = match is_compacted {
        true if requested & SSE != 0 && present & SSE == 0 => Some(MXCSR_DEFAULT),
        true if requested & SSE == 0 => Some(core.state.mxcsr),
        false if requested & (SSE | AVX) == 0 => Some(core.state.mxcsr),
        _ => get_mxcsr(core.processor.mxcsr_mask(), area),
    };

    // All checks precede the first change: `xrstor` faults with the registers as they were.
    let mxcsr = mxcsr.filter(|_| !is_bad)?;
    core.state.mxcsr = mxcsr;

    // What is requested but not present gets its initial state (SDM volume 1).
    if requested & X87 != 0 {
        core.state.fpu = Fpu::default();
        if present & X87 != 0 {
            get_x87(&mut core.state.fpu, core.processor.pointers(), area, wide);
        }
    }

    if requested & SSE != 0 {
        core.state.vectors.set_lower([0; 16]);
        if present & SSE != 0 {
            get_xmm(core, area);
        }
    }

    if requested & AVX != 0 {
        set_avx(core, (present & AVX != 0).then_some(area));
    }

    Some(())
}
