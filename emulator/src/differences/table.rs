//! The table of differences.
//!
//! SDM: Intel 64 and IA-32 Architectures Software Developer's Manual. APM: AMD64 Architecture
//! Programmer's Manual. An entry observed only on an AMD processor applies only to AMD's
//! processors.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "one range of bytes is a list of ranges as well"
)]

use super::{
    AF, ALL, Bits, CF, Difference, End, Form, Instructions, OF, PF, Processors, SF, STATUS, Source,
};
use super::{Instructions::Named, ZF};
use crate::processor::{Generation, Vendor};
use iced_x86::Mnemonic::{self, *};

/// The AMD processor on which differences were measured, in a virtual machine.
const EPYC: &str = "AMD EPYC, family 25, model 17";

const ROTATIONS: &[Mnemonic] = &[Rol, Ror, Rcl, Rcr];
const TRANSCENDENTAL: &[Mnemonic] = &[F2xm1, Fcos, Fpatan, Fptan, Fsin, Fsincos, Fyl2x, Fyl2xp1];

const fn open(
    name: &'static str,
    instructions: &'static [Mnemonic],
    form: Form,
    bits: &'static [Bits],
    sdm: &'static str,
    apm: &'static str,
) -> Difference {
    Difference {
        name,
        instructions: Named(instructions),
        form,
        bits,
        on: Processors::Any,
        source: Source::Open { sdm, apm },
    }
}

const fn amd(
    name: &'static str,
    instructions: Instructions,
    form: Form,
    bits: &'static [Bits],
    source: Source,
) -> Difference {
    Difference {
        name,
        instructions,
        form,
        bits,
        on: Processors::Of(Vendor::Amd),
        source,
    }
}

/// A difference of processors that load the x87 pointers only if an exception is pending.
const fn kept(
    name: &'static str,
    instructions: Instructions,
    form: Form,
    bits: &'static [Bits],
) -> Difference {
    Difference {
        name,
        instructions,
        form,
        bits,
        on: Processors::Like(Generation::Zen),
        source: Source::Expected {
            why: "without XSaveErPtr (CPUID 8000_0008, EBX bit 2), FXRSTOR leaves the previous \
                  pointers, which the machine does not know",
            manuals: "APM volume 5, FXSAVE and FXRSTOR: the pointers are stored and loaded if an \
                      exception is pending",
        },
    }
}

const fn measured(manuals: &'static str) -> Source {
    Source::Measured { on: EPYC, manuals }
}

/// All differences; at most 64.
pub const TABLE: &[Difference] = &[
    open(
        "logic-af",
        &[And, Or, Xor, Test],
        Form::Any,
        &[Bits::Flags(AF)],
        "volume 2, AND: the state of AF is undefined",
        "volume 3, AND: AF U",
    ),
    open(
        "multiply-flags",
        &[Mul, Imul],
        Form::Any,
        &[Bits::Flags(PF | AF | ZF | SF)],
        "volume 2, MUL: SF, ZF, AF and PF are undefined",
        "volume 3, MUL: SF, ZF, AF, PF U",
    ),
    open(
        "divide-flags",
        &[Div, Idiv],
        Form::Any,
        &[Bits::Flags(STATUS)],
        "volume 2, DIV: CF, OF, SF, ZF, AF and PF are undefined",
        "volume 3, DIV: OF, SF, ZF, AF, PF, CF U",
    ),
    open(
        "shift-af",
        &[Shl, Sal, Shr, Sar],
        Form::CountAbove(0),
        &[Bits::Flags(AF)],
        "volume 2, SAL/SAR/SHL/SHR: AF is undefined for a non-zero count",
        "volume 3, SHL: AF U",
    ),
    open(
        "shift-of",
        &[Shl, Sal, Shr, Sar],
        Form::CountAbove(1),
        &[Bits::Flags(OF)],
        "volume 2, SAL/SAR/SHL/SHR: OF is defined for 1-bit shifts only",
        "volume 3, SHL: OF is undefined for other counts than 1",
    ),
    open(
        "double-shift-af",
        &[Shld, Shrd],
        Form::CountAbove(0),
        &[Bits::Flags(AF)],
        "volume 2, SHLD: AF is undefined for a non-zero count",
        "volume 3, SHLD: AF U",
    ),
    open(
        "double-shift-of",
        &[Shld, Shrd],
        Form::CountAbove(1),
        &[Bits::Flags(OF)],
        "volume 2, SHLD: OF is undefined for counts above 1",
        "volume 3, SHLD: OF is undefined for counts above 1",
    ),
    open(
        "double-shift-too-far",
        &[Shld, Shrd],
        Form::SmallCountAbove(16),
        &[Bits::Flags(STATUS), Bits::Destination],
        "volume 2, SHLD: a count above the operand's size leaves result and flags undefined",
        "volume 3, SHLD: a count above the operand's size leaves result and flags undefined",
    ),
    open(
        "rotate-of",
        ROTATIONS,
        Form::CountAbove(1),
        &[Bits::Flags(OF)],
        "volume 2, RCL/RCR/ROL/ROR: OF is defined for 1-bit rotates only",
        "volume 3, ROL: OF is undefined for other counts than 1",
    ),
    open(
        "bit-test-flags",
        &[Bt, Btc, Btr, Bts],
        Form::Any,
        &[Bits::Flags(PF | AF | SF | OF)],
        "volume 2, BT: OF, SF, AF and PF are undefined",
        "volume 3, BT: OF, SF, AF, PF U",
    ),
    open(
        "bit-scan-flags",
        &[Bsf, Bsr],
        Form::Any,
        &[Bits::Flags(CF | PF | AF | SF | OF)],
        "volume 2, BSF: CF, OF, SF, AF and PF are undefined",
        "volume 3, BSF: OF, SF, AF, PF, CF U",
    ),
    open(
        "bit-scan-of-zero",
        &[Bsf, Bsr],
        Form::ZeroSource,
        &[Bits::Destination],
        "volume 2, BSF: the destination is undefined if the source is 0",
        "volume 3, BSF: leaves the destination, but does not specify its upper half",
    ),
    open(
        "count-zeros-flags",
        &[Lzcnt, Tzcnt],
        Form::Any,
        &[Bits::Flags(PF | AF | SF | OF)],
        "volume 2, LZCNT: OF, SF, PF and AF are undefined",
        "volume 3, LZCNT: OF, SF, AF, PF U",
    ),
    open(
        "bit-manipulation-flags",
        &[Andn, Blsi, Blsmsk, Blsr, Bzhi],
        Form::Any,
        &[Bits::Flags(PF | AF)],
        "volume 2, ANDN: the AF and PF flags are undefined",
        "volume 3, ANDN: AF, PF U",
    ),
    open(
        "bit-field-flags",
        &[Bextr],
        Form::Any,
        &[Bits::Flags(PF | AF | SF)],
        "volume 2, BEXTR: AF, SF, and PF are undefined",
        "volume 3, BEXTR: SF, AF, PF U",
    ),
    amd(
        "byte-swap-of-16-bits",
        Named(&[Bswap]),
        Form::Register16,
        &[Bits::Destination],
        Source::Open {
            sdm: "volume 2, BSWAP: the result is undefined for a 16-bit register",
            apm: "volume 3, BSWAP: the result is undefined for a 16-bit register",
        },
    ),
    amd(
        "packed-decimal-of-no-digits",
        Named(&[Fbld]),
        Form::Any,
        &[Bits::Fx(&[32..42])],
        Source::Open {
            sdm: "volume 2, FBLD: an invalid encoding produces an undefined result",
            apm: "volume 5, FBLD: digits above 9 produce an undefined result",
        },
    ),
    Difference {
        name: "fault-order",
        instructions: Instructions::Memory,
        form: Form::PartsFault,
        bits: &[
            Bits::Ended(&[End::PageFault, End::GeneralProtection]),
            Bits::Stored(&[ALL]),
        ],
        on: Processors::Any,
        source: Source::Open {
            sdm: "volume 3, table 6-2: the order of faults of one instruction is not architectural",
            apm: "volume 2, section 8.5: the order of faults of one instruction is not architectural",
        },
    },
    Difference {
        name: "x87-operand",
        instructions: Instructions::X87,
        form: Form::Any,
        bits: &[Bits::Fx(&[6..8, 16..24])],
        on: Processors::Any,
        source: Source::Open {
            sdm: "volume 1, sections 8.1.8 and 8.1.9: FDP and FOP may be kept for unmasked \
                  exceptions only",
            apm: "volume 5, FXSAVE: the pointers are stored if an exception is pending",
        },
    },
    Difference {
        name: "x87-instruction-upper-bits",
        instructions: Named(&[Fxrstor, Fxrstor64, Xrstor, Xrstor64]),
        form: Form::Any,
        bits: &[Bits::Fx(&[14..16])],
        on: Processors::Any,
        source: Source::Measured {
            on: "Intel Xeon, family 6, model 85",
            manuals: "SDM volume 1, section 8.1.8, and APM volume 5, FXRSTOR: silent on the bits \
                      above a linear address",
        },
    },
    Difference {
        name: "x87-pointer-width",
        instructions: Named(&[Fxrstor, Fxrstor64, Xrstor, Xrstor64]),
        form: Form::Any,
        bits: &[Bits::Fx(&[14..16, 22..24])],
        on: Processors::Of(Vendor::Amd),
        source: measured(
            "APM volume 5, FXRSTOR and XRSTOR: silent on the bits above a linear address, which \
             has 57 bits there",
        ),
    },
    open(
        "x87-last-place",
        TRANSCENDENTAL,
        Form::Any,
        &[Bits::LastPlace],
        "volume 1, section 8.3.10: the error is less than 1 ulp to nearest, 1.5 in other modes",
        "volume 1, section 6.4.5: the error is less than 1 ulp",
    ),
    open(
        "reciprocal",
        &[
            Rcpps, Rcpss, Rsqrtps, Rsqrtss, Vrcpps, Vrcpss, Vrsqrtps, Vrsqrtss,
        ],
        Form::Any,
        &[Bits::Approximation],
        "volume 2, RCPPS: the relative error is at most 1.5 * 2^-12",
        "volume 4, RCPPS: the relative error is at most 1.5 * 2^-12",
    ),
    open(
        "dot-product-nan",
        &[Dpps, Dppd, Vdpps, Vdppd],
        Form::Any,
        &[Bits::Nan],
        "volume 2, DPPS: which operand of an inner sum comes first, which decides among NaNs, is \
         not specified",
        "volume 4, DPPS: which operand of an inner sum comes first is not specified",
    ),
    Difference {
        name: "gather-above-elements",
        instructions: Named(&[
            Vpgatherdd, Vpgatherdq, Vpgatherqd, Vpgatherqq, Vgatherdps, Vgatherdpd, Vgatherqps,
            Vgatherqpd,
        ]),
        form: Form::Faults,
        bits: &[Bits::AboveElements],
        on: Processors::Of(Vendor::Intel),
        source: Source::Measured {
            on: "Intel Xeon, family 6, model 207",
            manuals: "SDM volume 2, VPGATHERDD: cleared before the first element, which the processor does \
                      in some forms only; APM volume 4, VPGATHERDD: silent on faults",
        },
    },
    Difference {
        name: "xrstor-fault",
        instructions: Named(&[Xrstor, Xrstor64]),
        form: Form::Faults,
        bits: &[Bits::Components],
        on: Processors::Of(Vendor::Intel),
        source: Source::Measured {
            on: "Intel Xeon, family 6, model 207: components that precede the fault are restored",
            manuals: "SDM volume 1, section 13.12 says for supervisor components that they may be, section \
                      13.8 is silent; APM volume 4, XRSTOR: silent",
        },
    },
    kept(
        "x87-instruction",
        Instructions::X87,
        Form::Any,
        &[Bits::Fx(&[8..16])],
    ),
    kept(
        "x87-pointers-stored-32",
        Named(&[Fnstenv, Fnsave]),
        Form::Environment32,
        &[Bits::Stored(&[12..18, 18..20, 20..28])],
    ),
    kept(
        "x87-pointers-stored-16",
        Named(&[Fnstenv, Fnsave]),
        Form::Environment16,
        &[Bits::Stored(&[6..14])],
    ),
    kept(
        "x87-pointers-saved",
        Named(&[Fxsave, Fxsave64]),
        Form::Any,
        &[Bits::Stored(&[6..24])],
    ),
    amd(
        "int1-address",
        Named(&[Int1]),
        Form::Any,
        &[Bits::Rip],
        measured("SDM volume 2, INT n: a trap; APM volume 3 does not have the instruction"),
    ),
    Difference {
        name: "swapping-move-fault",
        instructions: Named(&[Movbe]),
        form: Form::Faults,
        bits: &[
            Bits::Ended(&[End::PageFault, End::GeneralProtection]),
            Bits::Stored(&[ALL]),
        ],
        on: Processors::Of(Vendor::Intel),
        source: Source::Measured {
            on: "Intel Xeon, family 6, model 85",
            manuals: "SDM volume 3, table 6-2: the order of faults of one instruction is not \
                      architectural, nor which bytes are stored before it (66 and REX.W, across \
                      pages and behind the last canonical address); APM volume 2, section 8.5: \
                      the same",
        },
    },
];
