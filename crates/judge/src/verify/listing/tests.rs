//! Tests of the instructions shown around a finding, and of the shape of code.

use super::*;
use crate::verify::fixture::{BIAS, CODE, START, finding, image, results as results_of};
use iced_x86::Register;

/// A mapping of code that starts with a function of `symbol` bytes.
fn mapping(text: &[u8], symbol: Option<u64>) -> Mapping {
    let function = symbol.map(|size| ("function", START..START + size));
    image("", BIAS, text, function.as_slice())
}

/// Results of a run that executed the instructions at these addresses of the image.
fn results(mapping: &Mapping, executed: &[u64]) -> Results {
    results_of(std::slice::from_ref(mapping), executed)
}

fn instruction(svma: u64) -> CodeAddress {
    CodeAddress::Instruction(svma + BIAS)
}

fn behind(svma: u64) -> CodeAddress {
    CodeAddress::Return(svma + BIAS)
}

/// The shown addresses, in the image, and the marked one.
fn shown(symbol: Option<u64>, executed: &[u64], pc: CodeAddress) -> (Vec<u64>, Option<u64>) {
    let mapping = mapping(&CODE, symbol);
    let results = results(&mapping, executed);
    let mut text = String::new();
    listing(&mut text, &results, &finding(pc));

    let (mut all, mut marked) = (Vec::new(), None);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_marked = words[0] == ">";
        let address = u64::from_str_radix(words[usize::from(is_marked)], 16);
        let svma = address.expect("an address") - BIAS;

        all.push(svma);
        if is_marked {
            assert_eq!(marked.replace(svma), None, "one is marked");
            // It is underlined from its first character to its last.
            let below = lines.next().expect("what points at it");
            let start = below.find('^').expect("what points at it");
            assert_eq!(below.trim_start().trim_matches('^'), "");
            assert_eq!(below.len(), line.len());
            assert_eq!(
                line[..start].trim_end(),
                format!("      > {address:>12x}", address = svma + BIAS)
            );
        }
    }

    (all, marked)
}

#[test]
fn two_instructions_before_and_behind_are_shown() {
    let function = Some(13);
    let at = |svma| shown(function, &[], instruction(svma));
    let middle = vec![0x1001, 0x1004, 0x1009, 0x100b, 0x100c];
    assert_eq!(at(0x1009), (middle.clone(), Some(0x1009)));
    let first = vec![0x1000, 0x1001, 0x1004];
    assert_eq!(at(0x1000), (first, Some(0x1000)));
    let last = vec![0x1009, 0x100b, 0x100c];
    assert_eq!(at(0x100c), (last, Some(0x100c)));
    assert_eq!(at(0x2000), (vec![], None), "no code");
    // After a call it is the call.
    assert_eq!(shown(function, &[], behind(0x100b)), (middle, Some(0x1009)));
}

#[test]
fn without_a_start_executed_instructions_lead_the_way_back() {
    let executed = [0x1000, 0x1001, 0x1004, 0x1009];
    let middle = vec![0x1001, 0x1004, 0x1009, 0x100b, 0x100c];
    let at = |executed: &[u64], pc| shown(None, executed, pc);
    let found = at(&executed, instruction(0x1009));
    assert_eq!(found, (middle.clone(), Some(0x1009)));
    assert_eq!(at(&executed, behind(0x100b)), (middle, Some(0x1009)));
    // As far as consecutive instructions were executed.
    let known = vec![0x1004, 0x1009, 0x100b, 0x100c];
    let found = at(&[0x1000, 0x1004], instruction(0x1009));
    assert_eq!(found, (known, Some(0x1009)));
    let alone = vec![0x1009, 0x100b, 0x100c];
    let found = at(&[0x1000, 0x1001], instruction(0x1009));
    assert_eq!(found, (alone.clone(), Some(0x1009)));
    // Nothing is known, but the bytes before are a call.
    assert_eq!(at(&[], behind(0x100b)), (alone, Some(0x1009)));
    let near = vec![0x1004, 0x1009, 0x100b];
    assert_eq!(at(&[], behind(0x1009)), (near, Some(0x1004)));
    // No call ends here.
    assert_eq!(at(&[], behind(0x1004)), (vec![], None));
    assert_eq!(at(&executed, behind(0x1004)), (vec![], None));
}

#[test]
fn a_start_at_most_64_kib_before_leads_there() {
    let text = vec![0x90; 0x1_0010];
    let mapping = mapping(&text, Some(0x2_0000));
    let results = results(&mapping, &[]);
    let finding = finding(instruction(START));
    let code = Code {
        shown: None,
        results: &results,
        finding: &finding,
        mapping: &mapping,
        image: mapping.image.as_ref().expect("an image"),
    };
    let anchors = |svma| code.anchors(svma).collect::<Vec<_>>();
    assert_eq!(anchors(START), [START]);
    assert_eq!(anchors(START + 0x1_0000), [START]);
    assert_eq!(anchors(START + 0x1_0001), [0; 0]);
    assert_eq!(code.up_to(START + 5).len(), 5);
}

fn decoded(bytes: &[u8]) -> Instruction {
    Decoder::with_ip(64, bytes, START, DecoderOptions::NONE).decode()
}

#[test]
fn near_calls_direct_or_not_are_calls() {
    for call in [&[0xe8, 0, 0, 0, 0][..], &[0xff, 0xd0], &[0xff, 0x10]] {
        assert!(is_call(&decoded(call)), "{call:x?}");
    }
    for other in [&[0xe9, 0, 0, 0, 0][..], &[0xff, 0xe0], &[0xc3], &[0x90]] {
        assert!(!is_call(&decoded(other)), "{other:x?}");
    }
}

#[test]
fn a_shape_has_registers_and_kinds_and_no_constants() {
    // mov rax, [rbx+rcx*4+8]
    let load = decoded(&[0x48, 0x8b, 0x44, 0x8b, 8]);
    let place = (Register::RBX as u64) << 32 | Register::RCX as u64;
    let expected = [load.code() as u64, Register::RAX as u64, place];
    assert_eq!(shape_of(&load), expected);
    // add eax, 5 and add eax, 6
    let (five, six) = (decoded(&[0x83, 0xc0, 5]), decoded(&[0x83, 0xc0, 6]));
    let constant = 1 << 63 | OpKind::Immediate8to32 as u64;
    let expected = [five.code() as u64, Register::EAX as u64, constant];
    assert_eq!(shape_of(&five), expected);
    assert_eq!(shape_of(&five), shape_of(&six));
}

#[test]
fn the_shape_of_a_finding_is_that_of_four_instructions() {
    let mapping = mapping(&CODE, Some(13));
    let results = results(&mapping, &[]);
    let found = shape(&results, &finding(instruction(START)));
    let parts = [&CODE[..], &CODE[1..], &CODE[4..], &CODE[9..]];
    let expected: Vec<_> = parts.iter().flat_map(|b| shape_of(&decoded(b))).collect();
    assert_eq!(found, Some(expected));
    assert_eq!(shape(&results, &finding(instruction(0x9000))), None);
}

/// Four instructions of maximum length: nops with address and segment prefixes.
#[test]
fn long_instructions_are_shown_and_have_their_shape_too() {
    const LONG: [u8; 15] = [
        0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0,
    ];
    let mapping = mapping(&LONG.repeat(6), Some(90));
    let results = results(&mapping, &[]);
    let at = finding(instruction(START + 15));
    let mut text = String::new();
    listing(&mut text, &results, &at);
    // One before, and two after.
    assert_eq!(text.lines().count(), 4 + 1, "{text}");
    let expected = shape_of(&decoded(&LONG)).repeat(4);
    assert_eq!(shape(&results, &at), Some(expected));
}

#[test]
fn addresses_in_instructions_are_those_of_the_process() {
    let code = [
        0xe8, 0x10, 0, 0, 0, // call
        0x74, 0xf9, // je to the start
        0x48, 0x8d, 0x3d, 0xab, 0, 0, 0, // lea
    ];
    let mapping = mapping(&code, Some(14));
    let results = results(&mapping, &[]);
    let mut text = String::new();
    listing(&mut text, &results, &finding(instruction(START + 5)));
    let lines = text.lines().map(|line| line.split_whitespace().skip(1));
    let lines: Vec<String> = lines.map(|l| l.collect::<Vec<_>>().join(" ")).collect();
    let [call, branch, _, load] = &lines[..] else {
        panic!("{text}");
    };
    assert_eq!(call, "call 0x101015");
    assert_eq!(branch, "101005 je 0x101000");
    assert_eq!(load, "lea 0xab(%rip),%rdi");
}
