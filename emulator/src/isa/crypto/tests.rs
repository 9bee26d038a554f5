//! Instructions compared with a processor's recorded results.

use crate::address_space::{AddressSpace, Permissions};
use crate::core::Core;
use crate::machine::{Exit, Machine};
use crate::state::reg;
use crate::stop::Exception;

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const PROCESSOR: &str = "v3,amd,+aes,+pclmulqdq,+vaes,+vpclmulqdq,+sha,+gfni,+sse4a";

fn machine(processor: &str, code: &[u8]) -> Machine {
    let mut memory = AddressSpace::default();
    for (start, permissions) in [
        (CODE, Permissions::READ_EXECUTE),
        (DATA, Permissions::READ_WRITE),
    ] {
        let page = start..start + 0x1000;
        memory.map(page, permissions).expect("a whole page");
    }
    memory.poke(CODE, code).expect("it is mapped");
    let mut core = Core::with_processor(memory, processor.parse().expect("a processor"));
    core.state.rip = CODE;
    Machine::new(core)
}

fn bytes(text: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal");
    (0..text.len() / 2).map(byte).collect()
}

/// A ymm register from its highest digit on.
fn ymm(text: &str) -> [u128; 2] {
    let half = |text| u128::from_str_radix(text, 16).expect("hexadecimal");
    [half(&text[32..]), half(&text[..32])]
}

/// The same instruction with (%rcx) as its last source, and the number of that source.
fn in_memory(code: &[u8], text: &str) -> (Vec<u8>, usize) {
    let mut code = code.to_vec();
    let modrm = code.len() - if text.contains('$') { 2 } else { 1 };
    let source = usize::from(code[modrm] & 7);
    code[modrm] = code[modrm] & 0x38 | 1;
    (code, source)
}

#[test]
fn instructions_do_what_a_processor_did() {
    let mut lines = 0;
    for line in include_str!("tests.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let fields: Vec<&str> = line.split(" | ").collect();
        let [code, before, after, text] = fields[..] else {
            panic!("four fields: {line}");
        };

        let before: Vec<[u128; 2]> = before.split(' ').map(ymm).collect();
        // xmm0 is an operand of `sha256rnds2`, so another register gets its result.
        let first = if text.starts_with("sha256rnds2") {
            2
        } else {
            0
        };

        let run = |code: &[u8], source: Option<usize>| {
            let mut machine = machine(PROCESSOR, code);
            for (number, value) in before.iter().enumerate() {
                machine.core.state.vectors.set_ymm(number, *value);
            }
            if let Some(source) = source {
                // It must not come from the register.
                machine.core.state.set_gpr(reg::RCX, DATA);
                let [low, high] = before[source].map(u128::to_le_bytes);
                let bytes = [low, high].concat();
                machine
                    .core
                    .memory
                    .poke(DATA, &bytes)
                    .expect("it is mapped");
            }
            assert_eq!(machine.run(1, &mut ()), Exit::Limit, "{line}");
            machine.core.state.vectors.ymm(first)
        };

        // Once with registers, once with the source in memory.
        let code = bytes(code);
        assert_eq!(run(&code, None), ymm(after), "{line}");

        // These two have no form with a memory operand.
        if !text.contains("extrq") && !text.contains("insertq") {
            let (code, source) = in_memory(&code, text);
            assert_eq!(run(&code, Some(source)), ymm(after), "{line} in memory");
        }
        lines += 1;
    }

    assert!(lines > 80);
}

/// Operands in memory: VEX does not require alignment. Without it, SHA on AMD's processors does not
/// either.
#[test]
fn alignment() {
    let refused = Exit::Exception(Exception::GeneralProtection);
    for (code, intel, amd) in [
        (&[0x66, 0x0f, 0x38, 0xdc, 0x01][..], refused, refused), // aesenc (%rcx), %xmm0
        (&[0x0f, 0x38, 0xc9, 0x01], refused, Exit::Limit),       // sha1msg1
        (&[0x0f, 0x38, 0xcb, 0x01], refused, Exit::Limit),       // sha256rnds2
        (&[0xc4, 0xe2, 0x79, 0xdc, 0x01], Exit::Limit, Exit::Limit), // vaesenc
        (&[0xc4, 0xe2, 0x7d, 0xdc, 0x01], Exit::Limit, Exit::Limit),
    ] {
        for (text, exit) in [("intel", intel), ("amd", amd)] {
            let processor = format!("v3,{text},+aes,+vaes,+sha");
            let mut machine = machine(&processor, code);
            machine.core.state.set_gpr(reg::RCX, DATA + 1);
            assert_eq!(machine.run(1, &mut ()), exit, "{processor} {code:x?}");
        }
    }
}

#[test]
fn features_that_are_off() {
    let invalid = Exit::Exception(Exception::InvalidOpcode);

    for (names, code) in [
        ("aes", &[0x66, 0x0f, 0x38, 0xdc, 0xc1][..]),
        ("pclmulqdq", &[0x66, 0x0f, 0x3a, 0x44, 0xc1, 0]),
        ("sha", &[0x0f, 0x38, 0xc9, 0xc1]),
        ("gfni", &[0x66, 0x0f, 0x38, 0xcf, 0xc1]),
        ("sse4a", &[0x66, 0x0f, 0x79, 0xc1]),
        ("aes avx", &[0xc4, 0xe2, 0x71, 0xdc, 0xc2]),
        ("vaes avx", &[0xc4, 0xe2, 0x75, 0xdc, 0xc2]),
        ("vpclmulqdq avx", &[0xc4, 0xe3, 0x75, 0x44, 0xc2, 0]),
        ("gfni avx", &[0xc4, 0xe2, 0x75, 0xcf, 0xc2]),
        ("bmi1", &[0xc4, 0xe2, 0xf0, 0xf2, 0xc3]),
        ("bmi2", &[0xc4, 0xe2, 0xf3, 0xf5, 0xc3]),
        ("adx", &[0x66, 0x0f, 0x38, 0xf6, 0xc3]),
        ("rdrand", &[0x0f, 0xc7, 0xf0]),
        ("rdseed", &[0x0f, 0xc7, 0xf8]),
        ("rdpid", &[0xf3, 0x0f, 0xc7, 0xf8]),
    ] {
        // On a processor that has neither by itself.
        let all: String = names.split(' ').map(|name| format!(",+{name}")).collect();

        assert_eq!(
            machine(&format!("v2{all}"), code).run(1, &mut ()),
            Exit::Limit,
            "{names}"
        );

        // Instructions of two features need both.
        for name in names.split(' ') {
            let text = format!("v2{all},-{name}");
            assert_eq!(machine(&text, code).run(1, &mut ()), invalid, "{text}");
        }
    }
}
