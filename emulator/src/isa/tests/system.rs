//! Information about the processor, segments, and privileged instructions.

use super::*;
use crate::processor::{Level, Processor, Vendor};

/// eax, ebx, ecx and edx of a leaf of the default processor.
fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    cpuid_of(Processor::default(), leaf, subleaf)
}

fn cpuid_of(processor: Processor, leaf: u32, subleaf: u32) -> [u32; 4] {
    let mut machine = machine(&[0x0f, 0xa2]);
    machine.core.set_processor(processor);
    machine.core.state.set_gpr(reg::RAX, leaf.into());
    machine.core.state.set_gpr(reg::RCX, subleaf.into());
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    [reg::RAX, reg::RBX, reg::RCX, reg::RDX].map(|number| machine.core.state.gpr(number) as u32)
}

/// The requirements of the levels in the x86-64 psABI, table 3.1.
#[test]
fn a_level_has_its_features_and_no_more() {
    let bits = |bits: &[u32]| bits.iter().fold(0, |all, bit| all | 1 << bit);
    for level in Level::ALL {
        let processor = Processor::of_level(level, Vendor::Intel);
        let cpuid = |leaf| cpuid_of(processor, leaf, 0);
        let (v2, v3) = (level >= Level::V2, level >= Level::V3);
        let only = |has: bool, numbers: &[u32]| if has { bits(numbers) } else { 0 };

        let [signature, _, ecx, edx] = cpuid(1);
        assert_eq!(signature >> 8 & 0xf, 6);
        // FPU, CX8, CMOV, FXSR, MMX, SSE, SSE2
        let all = bits(&[0, 8, 15, 24, 23, 25, 26]);
        assert_eq!(edx & all, all);
        // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT, XSAVE and OSXSAVE
        let second = &[0, 9, 13, 19, 20, 23, 26, 27];
        // FMA, MOVBE, AVX, F16C
        let third = &[12, 22, 28, 29];
        assert_eq!(ecx, only(v2, second) | only(v3, third), "{processor}");

        let [_, _, ecx, edx] = cpuid(0x8000_0001);
        // LAHF; LZCNT; SYSCALL, 64-bit mode
        assert_eq!(ecx & bits(&[0, 5]), only(v2, &[0]) | only(v3, &[5]));
        assert_eq!(edx & bits(&[11, 29]), bits(&[11, 29]));
        // FSGSBASE; BMI1, AVX2, BMI2. No AVX-512.
        let [_, ebx, ecx, edx] = cpuid(7);
        let none = bits(&[6, 13]);
        assert_eq!(ebx & !none, only(v2, &[0]) | only(v3, &[3, 5, 8]));
        assert_eq!([ecx, edx], [0, 0]);
        // The size of the XSAVE area, and XCR0.
        let [eax, ebx, ecx, _] = cpuid(0xd);
        let expected = match (v2, v3) {
            (false, _) => [0, 0, 0],
            (true, false) => [3, 576, 576],
            (true, true) => [7, 832, 832],
        };
        assert_eq!([eax, ebx, ecx], expected);
    }

    assert_eq!(Processor::default().level(), Level::V3);
}

#[test]
fn names_and_caches() {
    let [_, ebx, ecx, edx] = cpuid(0, 0);
    // The name is in ebx, edx, ecx, in this order.
    let vendor: Vec<u8> = [ebx, edx, ecx]
        .iter()
        .flat_map(|r| r.to_le_bytes())
        .collect();
    assert_eq!(vendor, b"GenuineIntel");

    let leaves = 0x8000_0002..=0x8000_0004;
    let brand: Vec<u8> = leaves
        .flat_map(|leaf| cpuid(leaf, 0))
        .flat_map(u32::to_le_bytes)
        .collect();
    assert!(brand.starts_with(b"unwind-sim x86-64-v3\0"));

    let mut sizes = Vec::new();
    for subleaf in 0.. {
        let [eax, ebx, ecx, _] = cpuid(4, subleaf);
        // Type 0: there are no more caches.
        if eax & 31 == 0 {
            break;
        }

        // All are stored less 1 (SDM volume 2, CPUID).
        let (ways, partitions, line) =
            ((ebx >> 22) + 1, (ebx >> 12 & 0x3ff) + 1, (ebx & 0xfff) + 1);
        sizes.push((eax >> 5 & 7, ways * partitions * line * (ecx + 1)));
    }

    let expected = [(1, 32 << 10), (1, 32 << 10), (2, 256 << 10), (3, 8 << 20)];
    assert_eq!(sizes, expected);

    // A leaf that does not exist.
    assert_eq!(cpuid(0x4000_0000, 0), [0; 4]);
}

#[test]
fn time_is_instructions() {
    // nop; nop; rdtscp
    let mut machine = machine(&[0x90, 0x90, 0x0f, 0x01, 0xf9]);
    for number in [reg::RAX, reg::RCX, reg::RDX] {
        machine.core.state.set_gpr(number, u64::MAX);
    }
    for _ in 0..3 {
        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    }
    let core = &machine.core.state;
    assert_eq!((core.gpr(reg::RAX), core.gpr(reg::RDX)), (2, 0));
    assert_eq!(core.gpr(reg::RCX), 0);
}

#[test]
fn selectors() {
    let ones = u64::MAX;

    // mov %ss, %eax; %ax; %cs, %rax
    for (code, value) in [
        (&[0x8c, 0xd0][..], 0x2b),
        (&[0x66, 0x8c, 0xd0], 0xffff_ffff_ffff_002b),
        (&[0x48, 0x8c, 0xc8], 0x33),
    ] {
        let (exit, machine) = run(code, &[(reg::RAX, ones)]);
        assert_eq!(
            (exit, machine.core.state.gpr(reg::RAX)),
            (Exit::Limit, value)
        );
    }

    // mov %eax, %ds and mov %eax, %ss, as a processor does with Linux's descriptors.
    let general = Exit::Exception(Exception::GeneralProtection);
    for (selector, ds, ss) in [
        (0, Exit::Limit, general),
        (3, Exit::Limit, general),
        (0x23, Exit::Limit, general),
        (0x28, Exit::Limit, general),
        (0x2b, Exit::Limit, Exit::Limit),
        (0x33, Exit::Limit, general),
        (0x7b, Exit::Limit, general),
        (0x10, general, general),
        (0x1b, general, general),
        (0x2f, general, general),
        (0x38, general, general),
        (0x43, general, general),
        (0x63, general, general),
    ] {
        let registers = [(reg::RAX, selector)];
        assert_eq!(run(&[0x8e, 0xd8], &registers).0, ds, "{selector:x}");
        assert_eq!(run(&[0x8e, 0xd0], &registers).0, ss, "{selector:x}");
    }

    // mov %eax, %cs
    let invalid = Exit::Exception(Exception::InvalidOpcode);
    assert_eq!(run(&[0x8e, 0xc8], &[]).0, invalid);

    // mov %eax, %fs; push %fs; popw %gs
    let mut machine = machine(&[0x8e, 0xe0, 0x0f, 0xa0, 0x66, 0x0f, 0xa9]);
    machine.core.state.set_gpr(reg::RAX, 0x2b);
    machine.core.state.set_gpr(reg::FS, 0x1000);
    machine.core.state.set_gpr(reg::RSP, DATA + 8);
    assert_eq!(machine.run(3, &mut ()), Exit::Limit);
    assert_eq!(machine.core.state.gpr(reg::FS), 0);
    assert_eq!(machine.core.state.gpr(reg::RSP), DATA + 2);
    assert_eq!(bytes(&machine, DATA), 0x2b_u64.to_le_bytes());
}

#[test]
fn bases_of_fs_and_gs() {
    // wrfsbase %rax; rdfsbase %ecx
    let mut machine = machine(&[0xf3, 0x48, 0x0f, 0xae, 0xd0, 0xf3, 0x0f, 0xae, 0xc1]);
    machine.core.state.set_gpr(reg::RAX, 0x7abc_1234_5678);
    assert_eq!(machine.run(2, &mut ()), Exit::Limit);
    assert_eq!(machine.core.state.gpr(reg::FS), 0x7abc_1234_5678);
    assert_eq!(machine.core.state.gpr(reg::RCX), 0x1234_5678);
    // wrgsbase %rax
    let (exit, machine) = run(&[0xf3, 0x48, 0x0f, 0xae, 0xd8], &[(reg::RAX, 1 << 47)]);
    assert_eq!(exit, Exit::Exception(Exception::GeneralProtection));
    assert_eq!(machine.core.state.gpr(reg::GS), 0);
}

#[test]
fn the_kernels_own() {
    let general = Exit::Exception(Exception::GeneralProtection);

    for code in [
        &[0xe4, 1][..],      // in
        &[0xf3, 0x6e],       // rep outsb
        &[0xfa],             // cli
        &[0xfb],             // sti
        &[0x0f, 0x20, 0xc0], // mov %cr0, %rax
        &[0x0f, 0x21, 0xc0], // mov %dr0, %rax
        &[0x0f, 0x30],       // wrmsr
        &[0x0f, 0x33],       // rdpmc
        &[0x0f, 0x01, 0xf8], // swapgs
        &[0x48, 0x0f, 0x07], // sysretq
    ] {
        let (exit, machine) = run(code, &[]);
        assert_eq!((exit, machine.core.state.rip), (general, CODE), "{code:x?}");
    }

    // clac, which is invalid in user mode
    let invalid = Exit::Exception(Exception::InvalidOpcode);
    assert_eq!(run(&[0x0f, 0x01, 0xca], &[]).0, invalid);

    // rdsspq, a no-op without shadow stacks; incsspq; wrssq %rax, (%rax)
    let (exit, machine) = run(&[0xf3, 0x48, 0x0f, 0x1e, 0xc8], &[(reg::RAX, 7)]);
    assert_eq!((exit, machine.core.state.gpr(reg::RAX)), (Exit::Limit, 7));
    assert_eq!(run(&[0xf3, 0x48, 0x0f, 0xae, 0xe8], &[]).0, invalid);
    assert_eq!(run(&[0x48, 0x0f, 0x38, 0xf6, 0x00], &[]).0, invalid);
}

#[test]
fn cache_lines_that_are_not_there() {
    // clflush (%rax), prefetcht0 (%rax)
    let registers = [(reg::RAX, END)];
    let exit = fault(END, Access::Read, FaultKind::Unmapped);
    assert_eq!(run(&[0x0f, 0xae, 0x38], &registers).0, exit);
    assert_eq!(run(&[0x0f, 0x18, 0x08], &registers).0, Exit::Limit);
}
