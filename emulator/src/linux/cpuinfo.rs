//! The text of `/proc/cpuinfo` (`show_cpuinfo` in arch/x86/kernel/cpu/proc.c, Linux 6.12). What it says
//! is what `cpuid` says.

use crate::isa::cpuid;
use crate::processor::Processor;

/// Leaf, subleaf and register (eax, ebx, ecx, edx) of features, and their bits and names, in the order
/// in which Linux shows them: that of arch/x86/include/asm/cpufeatures.h.
type FeatureWord = (u32, u32, usize, &'static [(u32, &'static str)]);

const EBX: usize = 1;
const ECX: usize = 2;
const EDX: usize = 3;

#[rustfmt::skip]
const FIRST: [FeatureWord; 2] = [
    (1, 0, EDX, &[(0, "fpu"), (4, "tsc"), (8, "cx8"), (15, "cmov"), (19, "clflush"), (23, "mmx"),
        (24, "fxsr"), (25, "sse"), (26, "sse2")]),
    (0x8000_0001, 0, EDX, &[(11, "syscall"), (20, "nx"), (27, "rdtscp"), (29, "lm")]),
];
/// Linux's own flags: the long `nop`, and that there is `cpuid`.
const OWN: &str = " nopl cpuid";
#[rustfmt::skip]
const OTHERS: [FeatureWord; 6] = [
    (1, 0, ECX, &[(0, "pni"), (1, "pclmulqdq"), (9, "ssse3"), (12, "fma"), (13, "cx16"),
        (19, "sse4_1"), (20, "sse4_2"), (22, "movbe"), (23, "popcnt"), (25, "aes"), (26, "xsave"),
        (28, "avx"), (29, "f16c"), (30, "rdrand")]),
    (0x8000_0001, 0, ECX, &[(0, "lahf_lm"), (5, "abm"), (6, "sse4a"), (7, "misalignsse"),
        (8, "3dnowprefetch")]),
    (7, 0, EBX, &[(0, "fsgsbase"), (3, "bmi1"), (5, "avx2"), (8, "bmi2"), (18, "rdseed"),
        (19, "adx"), (23, "clflushopt"), (24, "clwb"), (29, "sha_ni")]),
    (0xd, 1, 0, &[(0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1")]),
    (0x8000_0008, 0, EBX, &[(0, "clzero"), (2, "xsaveerptr")]),
    (7, 0, ECX, &[(8, "gfni"), (9, "vaes"), (10, "vpclmulqdq"), (22, "rdpid")]),
];

fn add(processor: &Processor, words: &[FeatureWord], flags: &mut String) {
    for (leaf, subleaf, register, bits) in words {
        let value = cpuid::leaf(processor, *leaf, *subleaf)[*register];
        for (_, name) in bits.iter().filter(|(bit, _)| value >> bit & 1 != 0) {
            flags.push(' ');
            flags.push_str(name);
        }
    }
}

/// The text for one processor.
pub(super) fn cpuinfo(processor: &Processor) -> String {
    let mut flags = String::new();
    add(processor, &FIRST, &mut flags);
    flags.push_str(OWN);
    add(processor, &OTHERS, &mut flags);

    let leaf = |number| cpuid::leaf(processor, number, 0);
    let [most, ebx, ecx, edx] = leaf(0);
    let text = |words: &[u32]| -> String {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        bytes
            .take_while(|byte| *byte != 0)
            .map(char::from)
            .collect()
    };

    // Leaf 0 has the vendor's name in EBX, EDX, ECX (Intel SDM volume 2, CPUID).
    let vendor = text(&[ebx, edx, ecx]);
    let name = text(&[0x8000_0002, 0x8000_0003, 0x8000_0004].map(leaf).concat());
    let [family, model, stepping] = processor.generation().identity();

    // The second-level cache; the lines of a cache; bits of addresses.
    let cache = leaf(0x8000_0006)[ECX] >> 16;
    // CPUID gives the line's size in units of eight bytes.
    let line = (leaf(1)[EBX] >> 8 & 0xff) * 8;
    let addresses = leaf(0x8000_0008)[0];
    let (physical, linear) = (addresses & 0xff, addresses >> 8 & 0xff);

    // The lines of `show_cpuinfo` (`arch/x86/kernel/cpu/proc.c`), in its order.
    format!(
        "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
         model name\t: {name}\nstepping\t: {stepping}\ncpu MHz\t\t: 1000.000\n\
         cache size\t: {cache} KB\nphysical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\n\
         cpu cores\t: 1\napicid\t\t: 0\ninitial apicid\t: 0\nfpu\t\t: yes\nfpu_exception\t: yes\n\
         cpuid level\t: {most}\nwp\t\t: yes\nflags\t\t:{flags}\nbugs\t\t:\nbogomips\t: 2000.00\n\
         clflush size\t: {line}\ncache_alignment\t: {line}\n\
         address sizes\t: {physical} bits physical, {linear} bits virtual\n\
         power management:\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::cpuinfo;
    use crate::processor::{Feature, Processor};

    /// What Linux would say of each processor leads back to it, with each feature on and off.
    #[test]
    fn the_text_names_the_processor() {
        for text in [
            "v1",
            "v2",
            "v3",
            "v3,intel:skylake",
            "v2,amd:zen",
            "v3,amd",
            "v3,amd:zen5",
        ] {
            let processor: Processor = text.parse().expect("a processor");
            for feature in Feature::all() {
                let mut other = processor;
                other.set(feature, !processor.has(feature));
                let found = Processor::of_cpuinfo(&cpuinfo(&other));
                assert_eq!(found.vendor(), other.vendor());
                let differs = |f: &Feature| other.has(*f) != found.has(*f);
                let differing: Vec<_> = Feature::all().filter(differs).collect();
                // Without XSAVE there is no leaf for its forms.
                let without = !other.has(Feature::Xsave);
                let is_form = |f: &Feature| matches!(f, Feature::Xsaveopt | Feature::Xsavec);
                assert!(
                    differing.iter().all(|f| without && is_form(f)),
                    "{other}: {differing:?}"
                );
            }
            let found = Processor::of_cpuinfo(&cpuinfo(&processor));
            assert_eq!(found.generation(), processor.generation(), "{text}");
        }
    }
}
