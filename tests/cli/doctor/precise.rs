//! A perf.data with a precise sample at a call, as PEBS gives it, written here.

use super::lines_with;
use object::{Object as _, ObjectSymbol as _};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, StackCopy, Writer};
use unwind_sim_perf_data::{Mmap, MmapIdentity, misc, regs, sample_type as st};

const SOURCE: &str = "
.globl leaf, mid, _start
.type leaf, @function
.type mid, @function
.type _start, @function
leaf: .cfi_startproc
ret
.cfi_endproc
.size leaf, . - leaf
mid: .cfi_startproc
sub $24, %rsp
.cfi_def_cfa_offset 32
.globl thecall
thecall: call leaf
.globl behind
behind: add $24, %rsp
.cfi_def_cfa_offset 8
ret
.cfi_endproc
.size mid, . - mid
_start: .cfi_startproc
.cfi_undefined %rip
call mid
.globl last
last: hlt
.cfi_endproc
.size _start, . - _start
";
const BASE: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7ffe_0000_1000;

/// What the doctor says of a sample at `ip`, with the registers of `leaf`'s first instruction.
fn doctor(ip: &str, misc: u16, status: i32) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("p.s"), folder.path().join("p"));
    std::fs::write(&source, SOURCE).expect("a source");
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-Wl,-Ttext=0x401000", "-o"]);
    let built = cc.arg(&program).arg(&source).status();
    assert!(built.expect("cc is installed").success());

    let file = std::fs::read(&program).expect("the program");
    let elf: object::read::elf::ElfFile64<'_> =
        object::read::elf::ElfFile64::parse(&*file).expect("ELF");
    let mut headers = elf.elf_program_headers().iter();

    // The executable segment: what a recording maps (elf(5)).
    let code = headers.find(|h| h.p_flags.get(elf.endian()).0 & 1 != 0);
    let code = code.expect("code");
    let (start, offset) = (
        code.p_vaddr.get(elf.endian()),
        code.p_offset.get(elf.endian()),
    );

    // Symbols are relative to where the segment is mapped in the recording.
    let address = |name: &str| {
        let symbol = elf.symbols().find(|s| s.name() == Ok(name));
        BASE + symbol.expect("a symbol").address() - start
    };

    // `leaf` has a return address at rsp, and its caller one four words above.
    let stack = [address("behind"), 1, 2, 3, address("last")];
    let bytes = recorded(&program, offset, address(ip), misc, &stack);
    let recording = folder.path().join("perf.data");
    std::fs::write(&recording, bytes).expect("a recording");
    let recording = recording.to_str().expect("text").to_owned();
    lines_with(status, &["doctor", "--unwinder", "dwarf", &recording])
}

fn recorded(program: &Path, file_offset: u64, ip: u64, misc: u16, stack: &[u64]) -> Vec<u8> {
    let numbers = [
        regs::PERF_REG_X86_BP,
        regs::PERF_REG_X86_SP,
        regs::PERF_REG_X86_IP,
    ];
    let event = EventSpec {
        sample_type: st::IP | st::TID | st::TIME | st::REGS_USER | st::STACK_USER,
        // The registers that a frame-pointer or a DWARF walk needs.
        sample_regs_user: numbers.iter().map(|number| 1 << number).sum(),
        sample_stack_user: 512,
        ..EventSpec::software("cycles", 0)
    };

    let mut writer = Writer::new(vec![event]);

    // The mapping is at time 1, before the sample.
    let id = |time| Id {
        pid: 7,
        tid: 7,
        time,
        ..Id::default()
    };

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

    let mut bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();

    // perf copies a fixed size, whatever is on the stack.
    bytes.resize(512, 0);
    let sample = Body::Sample(SampleData {
        // With the flag for an exact address, or without.
        misc: misc::CPUMODE_USER | misc,
        ip,
        // rbp, rsp and rip, by the numbers of their bits.
        user_regs: &[0, STACK, ip],
        user_stack: StackCopy {
            bytes: &bytes,
            size: 512,
        },
        ..SampleData::default()
    });

    writer.record(&sample, &id(2)).expect("a record");
    writer.finish()
}

#[test]
fn the_row_of_a_precise_samples_call_is_not_to_blame() {
    let precise = doctor("thecall", misc::EXACT_IP, 1);
    assert_eq!(precise[0]["kind"], "precise-sample", "{precise:?}");
    assert_eq!(precise[0]["code"], "US304", "{precise:?}");
    let advice = precise[0]["advice"].as_str().expect("text");
    assert!(
        advice.starts_with("nothing is wrong with a table"),
        "{advice}"
    );
    // Without the mark nothing says that the registers belong elsewhere.
    let other = doctor("thecall", 0, 1);
    assert_ne!(other[0]["kind"], "precise-sample", "{other:?}");
    // A sample whose registers fit is whole, marked or not.
    for misc in [0, misc::EXACT_IP] {
        let whole = doctor("leaf", misc, 0);
        assert!(whole.iter().all(|line| line["kind"].is_null()), "{whole:?}");
    }
}
