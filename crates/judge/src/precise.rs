//! Precise samples, whose registers are not those of their instruction.
//!
//! The processor records the address of the instruction that caused the event, and the registers
//! of after it (Linux `arch/x86/events/intel/ds.c`). Where that instruction changes rsp or rbp, the
//! row of its address does not fit the registers, and is not to blame for what it gives.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::insn::INSN_BYTES_MAX;
use unwind_sim_unwind::regs::Regs;

/// Whether these registers are those of a precise sample, and not the ones with which the
/// instruction at rip was entered, as far as rows need them. So it is where the instruction is not
/// there to be read.
pub fn is_shifted(regs: &Regs, space: &AddressSpace) -> bool {
    if !regs.is_exact_ip() {
        return false;
    }

    let mapping = space.find(regs.rip());
    let image = mapping.and_then(|mapping| Some((mapping, mapping.image.as_ref()?)));
    let Some((mapping, image)) = image else {
        return true;
    };

    let code = image.text_bytes(mapping.svma(regs.rip()), INSN_BYTES_MAX);
    let insn = Decoder::new(64, code, DecoderOptions::NONE).decode();
    if insn.is_invalid() {
        return true;
    }

    // Only of rsp and rbp do rows say other things before and after an instruction.
    let mut factory = InstructionInfoFactory::new();
    let mut used = factory.info(&insn).used_registers().iter();
    used.any(|used| {
        let is_frame = matches!(
            used.register().full_register(),
            Register::RSP | Register::RBP
        );

        // A write on a condition counts: whether it happened is not known.
        let is_written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        is_frame && is_written
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind};
    use unwind_sim_unwind::regs::Reg;

    #[test]
    fn only_instructions_that_change_the_frame_shift_it() {
        let shifted = |code: &[u8], flags: u64| {
            let section = Section {
                kind: SectionKind::Text,
                address: 0,
                data: Bytes::from_vec(code.to_vec()),
            };
            let image = Image::new(ImageParts {
                sections: vec![section],
                text: std::iter::once(0..0x1000).collect(),
                ..ImageParts::default()
            });
            let mut space = AddressSpace::new();
            space.map(Mapping {
                range: 0x1000..0x2000,
                bias: 0x1000,
                image: Some(Arc::new(image)),
                name: String::new(),
            });
            let mut regs = Regs::frame(0x1000, 0x7000, 0x7000);
            regs.set(Reg::Rflags, flags);
            is_shifted(&regs, &space)
        };

        // With bit 3, `PERF_EFLAGS_EXACT` (`arch/x86/include/asm/perf_event.h`).
        const EXACT: u64 = 0x20a;
        // call, ret, push, pop, sub $8,%rsp, mov %rsp,%rbp, leave, syscall's neighbours.
        let changing: [&[u8]; 7] = [
            &[0xe8, 0, 0, 0, 0],
            &[0xc3],
            &[0x53],
            &[0x5b],
            &[0x48, 0x83, 0xec, 8],
            &[0x48, 0x89, 0xe5],
            &[0xc9],
        ];

        for code in changing {
            assert!(shifted(code, EXACT), "{code:x?}");
            assert!(!shifted(code, 0x202), "{code:x?}: not precise");
        }

        // mov (%rsp),%rax; add %rax,%rbx; jmp; cmp %rsp,%rbp; mov %rax,(%rbp)
        let others: [&[u8]; 5] = [
            &[0x48, 0x8b, 4, 0x24],
            &[0x48, 1, 0xc3],
            &[0xeb, 0],
            &[0x48, 0x39, 0xe5],
            &[0x48, 0x89, 0x45, 0],
        ];

        for code in others {
            assert!(!shifted(code, EXACT), "{code:x?}");
        }

        // What cannot be read cannot be excluded.
        assert!(shifted(&[], EXACT) && !shifted(&[], 0x202));
    }
}
