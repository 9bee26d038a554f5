//! Chains that perf recorded with frame pointers, written here, of a program whose functions have
//! frame pointers or not as a test wants.

use super::{CHAINS, lines};
use crate::cli::ends_with;
use object::{Object as _, ObjectSymbol as _};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use unwind_sim_perf_data::callchain::PERF_CONTEXT_USER;
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, Writer};
use unwind_sim_perf_data::{Mmap, MmapIdentity, misc, sample_type as st};

/// `framed` has a frame pointer, `bare` and `_start` have none.
const SOURCE: &str = "
.globl framed, bare, _start
.type framed, @function
.type bare, @function
.type _start, @function
framed: .cfi_startproc
push %rbp
.cfi_def_cfa_offset 16
.cfi_offset %rbp, -16
mov %rsp, %rbp
.cfi_def_cfa_register %rbp
.fill 4, 1, 0x90
call *%rax
.fill 16, 1, 0x90
pop %rbp
.cfi_def_cfa %rsp, 8
ret
.cfi_endproc
.size framed, . - framed
bare: .cfi_startproc
.fill 8, 1, 0x90
call *%rax
.fill 16, 1, 0x90
ret
.cfi_endproc
.size bare, . - bare
_start: .cfi_startproc
.fill 8, 1, 0x90
call *%rax
.fill 16, 1, 0x90
ret
.cfi_endproc
.size _start, . - _start
";
/// Where the program is mapped.
const BASE: u64 = 0x5555_0000_0000;

/// The complaint about a chain of these functions, innermost first.
fn complaint(functions: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("p.s"), folder.path().join("p"));
    std::fs::write(&source, SOURCE).expect("a source");
    let mut cc = Command::new("cc");
    // No library: each function of the program is one that the test has written.
    cc.args(["-nostdlib", "-static", "-Wl,-Ttext=0x401000", "-o"]);
    assert!(
        cc.arg(&program)
            .arg(&source)
            .status()
            .expect("cc is installed")
            .success()
    );

    let file = std::fs::read(&program).expect("the program");
    let elf: object::read::elf::ElfFile64<'_> =
        object::read::elf::ElfFile64::parse(&*file).expect("ELF");
    let code = elf.elf_program_headers().iter();
    let code = code.map(|h| {
        (
            h.p_flags.get(elf.endian()),
            h.p_vaddr.get(elf.endian()),
            h.p_offset.get(elf.endian()),
        )
    });
    // Bit 0 of `p_flags` is `PF_X`.
    let code = code.into_iter().find(|h| h.0.0 & 1 != 0).expect("code");

    let address = |(index, name): (usize, &&str)| {
        let symbol = elf
            .symbols()
            .find(|s| s.name() == Ok(name))
            .expect("a function");
        // Behind the prologue; of a caller, behind its call.
        let skip = if index == 0 { 8 } else { 10 };
        BASE + symbol.address() - code.1 + skip
    };

    // perf marks which part of a chain the addresses behind it belong to.
    let chain: Vec<u64> = std::iter::once(PERF_CONTEXT_USER)
        .chain(functions.iter().enumerate().map(address))
        .collect();

    let recording = folder.path().join("perf.data");
    std::fs::write(&recording, recorded(&program, code.2, &chain)).expect("a recording");
    let recording = recording.to_str().expect("text").to_owned();
    lines(&["doctor", &recording]).swap_remove(0)
}

fn recorded(program: &Path, file_offset: u64, chain: &[u64]) -> Vec<u8> {
    let event = EventSpec {
        sample_type: st::IP | st::TID | st::TIME | st::CALLCHAIN,
        ..EventSpec::software("cpu-clock", 0)
    };

    let mut writer = Writer::new(vec![event]);

    // The mapping is at time 1, before the sample.
    let id = |time| Id {
        pid: 7,
        tid: 7,
        time,
        ..Id::default()
    };

    // One page at a fixed address, which the chain's addresses are within.
    let mmap = Mmap {
        pid: 7,
        tid: 7,
        address: BASE,
        length: 4096,
        file_offset,
        identity: MmapIdentity::Inode {
            major: 0,
            minor: 0,
            inode: 1,
            generation: 0,
        },
        // PROT_READ and PROT_EXEC, MAP_PRIVATE.
        protection: 5,
        flags: 2,
        path: program.as_os_str().as_encoded_bytes(),
    };
    let mapped = Body::Mmap {
        mmap,
        cpumode: misc::CPUMODE_USER,
    };
    writer.record(&mapped, &id(1)).expect("a record");

    let sample = Body::Sample(SampleData {
        // The first entry is the context.
        ip: chain[1],
        callchain: chain,
        ..SampleData::default()
    });
    writer.record(&sample, &id(2)).expect("a record");
    writer.finish()
}

#[test]
fn only_the_caller_of_the_innermost_function_is_missing() {
    const ONLY: &str = "their callers are missing, up to the first with one";
    let leaf = complaint(&["bare", "framed", "framed", "_start"]);
    assert_eq!(leaf["kind"], "no-frame-pointer", "{leaf}");
    assert!(
        leaf["advice"].as_str().expect("text").contains(ONLY),
        "{leaf}"
    );
    let more = complaint(&["bare", "framed", "bare", "framed", "_start"]);
    assert_eq!(more["kind"], "no-frame-pointer", "{more}");
    assert!(
        !more["advice"].as_str().expect("text").contains(ONLY),
        "{more}"
    );
}

#[test]
fn a_chain_of_127_addresses_was_cut() {
    let framed = |count| complaint(&vec!["framed"; count]);
    assert_eq!(framed(127)["kind"], "chain-cut");
    assert_eq!(framed(126)["kind"], "other");
}

/// Where there are chains alone, each complaint has the command that prints one of its chains.
#[test]
fn each_complaint_about_chains_has_a_command() {
    let text = ends_with(1, &["doctor", CHAINS]);
    let complaints = text.matches("          do: ").count();
    let commands: Vec<Vec<&str>> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("unwind-sim "))
        .map(|line| line.split(' ').collect())
        .collect();
    assert!(complaints > 0 && commands.len() == complaints, "{text}");
    for command in commands {
        let shown = ends_with(0, &command);
        // One sample: a line of its own, its addresses, an empty line.
        let heads = shown
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('\t'));
        assert_eq!(heads.count(), 1, "{command:?}\n{shown}");
    }
}
