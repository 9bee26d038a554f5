//! `insn::classify` compared with objdump on all instructions of the libraries of this process.

use crate::common::tools::is_missing;
use std::collections::BTreeSet;
use std::process::Command;
use unwind_sim_unwind::insn::{Insn, classify};

/// The class that objdump's text implies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ObjdumpClass {
    Call { indirect: bool, len: usize },
    Ret,
    Jump,
    JumpIndirect,
    Far,
    Syscall,
    Push,
    Pop,
    MoveSp,
    Other,
}

const PREFIXES: [&str; 12] = [
    "bnd", "notrack", "data16", "addr32", "cs", "ds", "es", "ss", "rep", "repz", "repnz", "lock",
];

fn said(text: &str, len: usize) -> ObjdumpClass {
    let text = text.split('#').next().unwrap_or(text).trim();

    // Prefixes and REX bytes come first in objdump's text, and comments last.
    let mut words = text
        .split_whitespace()
        .skip_while(|w| PREFIXES.contains(w) || w.starts_with("rex"));
    let (mnemonic, operands) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let indirect = operands.starts_with('*');
    let to_sp = operands.ends_with(",%rsp") || operands.ends_with(",%esp");
    let from_sp = operands.starts_with("%rsp,") || operands.starts_with("%esp,");
    match mnemonic {
        "call" | "callq" => ObjdumpClass::Call { indirect, len },
        "ret" | "retq" => ObjdumpClass::Ret,
        "jmp" | "jmpq" if indirect => ObjdumpClass::JumpIndirect,
        "jmp" | "jmpq" => ObjdumpClass::Jump,
        "lret" | "lretq" | "iret" | "iretq" | "lcall" | "ljmp" => ObjdumpClass::Far,
        "syscall" => ObjdumpClass::Syscall,
        "push" | "pushq" => ObjdumpClass::Push,
        "leave" | "leaveq" => ObjdumpClass::MoveSp,
        "mov" | "movabs" if to_sp => ObjdumpClass::MoveSp,
        "lea" if to_sp && !(operands.contains("(%rsp)") || operands.contains("(%rsp,%riz")) => {
            ObjdumpClass::MoveSp
        }
        "xchg" if to_sp || from_sp => ObjdumpClass::MoveSp,
        "pop" | "popq" if operands == "%rsp" => ObjdumpClass::MoveSp,
        "pop" | "popq" if operands.starts_with("%r") => ObjdumpClass::Pop,
        _ if mnemonic.starts_with("cmov") && to_sp => ObjdumpClass::MoveSp,
        _ => ObjdumpClass::Other,
    }
}

fn agrees(said: ObjdumpClass, insn: Insn) -> bool {
    match (said, insn) {
        (
            ObjdumpClass::Call { indirect, len },
            Insn::Call {
                len: l,
                indirect: i,
            },
        ) => indirect == i && len == usize::from(l),
        (ObjdumpClass::Ret, Insn::Ret)
        | (ObjdumpClass::Jump, Insn::Jump)
        | (ObjdumpClass::JumpIndirect, Insn::JumpIndirect)
        | (ObjdumpClass::Far, Insn::Far)
        | (ObjdumpClass::Syscall, Insn::Syscall)
        | (ObjdumpClass::Push, Insn::Push)
        | (ObjdumpClass::Pop, Insn::Pop)
        | (ObjdumpClass::MoveSp, Insn::MoveSp) => true,
        (ObjdumpClass::Other, insn) => matches!(
            insn,
            Insn::Other
                | Insn::StoreTop
                | Insn::SwapTop
                | Insn::StoreBelow { .. }
                | Insn::StoreFrame
                | Insn::Pushf
                | Insn::Breakpoint
                | Insn::Syscall32
        ),
        _ => false,
    }
}

/// The files that this process maps: the test itself, libc, the dynamic linker.
fn images() -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own mappings");
    let paths = maps.lines().filter(|l| l.contains(" r-xp "));
    let paths = paths.filter_map(|l| l.find('/').map(|at| &l[at..]));
    paths
        .filter(|p| p.contains("/libc.so") || p.contains("/ld-linux") || p.contains("/libm.so"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_instruction_is_classified_as_objdump_says() {
    if is_missing("every_instruction_is_classified_as_objdump_says", "objdump") {
        return;
    }
    let images = images();
    assert!(images.len() >= 2, "{images:?}");
    let mut counts = [0usize; 2];
    for image in images {
        let output = Command::new("objdump")
            .args(["-d", "-w", "--insn-width=16", &image])
            .output()
            .expect("objdump runs");
        assert!(output.status.success());

        // A line has an address, the bytes and the instruction, with tabs between them.
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut columns = line.split('\t');
            let (Some(_), Some(hex), Some(text)) = (columns.next(), columns.next(), columns.next())
            else {
                continue;
            };
            let byte = |h: &str| u8::from_str_radix(h, 16).ok();
            let bytes: Vec<u8> = hex.split_whitespace().map_while(byte).collect();
            if text.contains("(bad)") {
                continue;
            }
            let said = said(text, bytes.len());
            let insn = classify(&bytes);
            assert!(
                agrees(said, insn),
                "{image}: {line}: {said:?}, not {insn:?}"
            );
            counts[0] += 1;
            counts[1] += usize::from(said != ObjdumpClass::Other);
        }
    }
    println!(
        "{} instructions, {} of the classes concerned",
        counts[0], counts[1]
    );

    // Few would mean that objdump's text was not understood.
    assert!(counts[0] > 100_000 && counts[1] > 10_000, "{counts:?}");
}
