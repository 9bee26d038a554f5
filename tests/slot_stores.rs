//! `verify` and stores into slots that are later returned through: each is reported with the
//! instruction that stored.

use std::process::Command;
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Outcome, ProcessOptions};
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, Request, Run, SlotStore};
use unwind_sim_unwind::regs::Reg;

/// The instructions `at_NAME` store into slots. No others do: `local` and `below` store next to
/// slots.
const PROGRAM: &str = "
        .macro  function name
        .globl  \\name
        .type   \\name, @function
\\name:  .cfi_startproc
        .endm
        .macro  end
        .cfi_endproc
        .endm
        .macro  site name
        .globl  at_\\name
at_\\name:
        .endm

        function barrier
        site    barrier
        lock orq $0, (%rsp)
        ret
        end

        function retpoline
        call    1f
2:      pause
        jmp     2b
1:      lea     landed(%rip), %rax
        site    retpoline
        mov     %rax, (%rsp)
        ret
        end
landed: ret

        function put_back
        mov     (%rsp), %rax
        site    away
        movq    $0, (%rsp)
        site    back
        mov     %rax, (%rsp)
        ret
        end

        # Four registers, and two words, are where rdi points to.
        function pointer
        movq    $7, 8(%rdi)
        site    pointer
        movl    $7, 16(%rdi)
        site    string
        mov     $7, %eax
        mov     $1, %ecx
        add     $24, %rdi
        rep stosq
        site    string_behind
        site    kernel
        mov     $228, %eax
        mov     $1, %edi
        lea     -16(%rdx), %rsi
        syscall
        site    kernel_behind
        ret
        end

        function saves
        push    %r13
        .cfi_def_cfa_offset 16
        .cfi_offset %r13, -16
        push    %r12
        .cfi_def_cfa_offset 24
        .cfi_offset %r12, -24
        push    %rbp
        .cfi_def_cfa_offset 32
        .cfi_offset %rbp, -32
        push    %rbx
        .cfi_def_cfa_offset 40
        .cfi_offset %rbx, -40
        sub     $16, %rsp
        .cfi_def_cfa_offset 56
        movq    $1, (%rsp)
        mov     %rsp, %rdi
        lea     48(%rsp), %rdx
        call    pointer
        site    own
        movq    $9, 16(%rsp)
        add     $16, %rsp
        .cfi_def_cfa_offset 40
        pop     %rbx
        .cfi_def_cfa_offset 32
        .cfi_restore %rbx
        pop     %rbp
        .cfi_def_cfa_offset 24
        .cfi_restore %rbp
        pop     %r12
        .cfi_def_cfa_offset 16
        .cfi_restore %r12
        pop     %r13
        .cfi_def_cfa_offset 8
        .cfi_restore %r13
        ret
        end

        function _start
        .cfi_undefined rip
        mov     $0x10, %ebx
        mov     $0x11, %ebp
        mov     $0x12, %r12d
        mov     $0x13, %r13d
        call    barrier
        call    retpoline
        call    put_back
        call    saves
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        end
";

fn run() -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("p.s"), folder.path().join("p"));
    std::fs::write(&source, PROGRAM).expect("written");
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-no-pie", "-o"]);
    cc.arg(&program).arg(&source);
    assert!(cc.status().expect("cc runs").success());

    // Each finding is kept, so that every store has its own.
    let request = Request {
        engines: &[spec::engine("dwarf").expect("a known unwinder")],
        setting: Setting::default(),
        elide: true,
        each: true,
        tables_from: None,
        // Far more than the program has, so that one that hangs ends.
        instructions_max: 10_000,
        timeout: None,
    };
    let program = RunningProgram {
        path: program.as_os_str().as_encoded_bytes().to_vec(),
        options: ProcessOptions {
            args: vec![b"p".to_vec()],
            ..ProcessOptions::default()
        },
    };

    let run = verify::run(program, &request, &mut |_| {}).expect("it can be started");
    // Only a run to its end has made all of the stores.
    assert_eq!(run.end, End::Outcome(Outcome::Exited(0)));
    run
}

#[test]
fn each_store_is_told_of_by_its_instruction() {
    let run = run();

    let symbol = |name: &str| {
        let images = run.space.mappings().iter().filter_map(|m| m.image.as_ref());
        let mut symbols = images.flat_map(|i| i.symbols());
        let symbol = symbols.find(|s| s.name == name);
        symbol.unwrap_or_else(|| panic!("no {name}")).address
    };

    let all = &run.results.stores.all;
    // Register, changed, same, returned by, restored.
    type StoredSlot = (Reg, u64, u64, u64, u64);
    let told = |range: std::ops::Range<u64>| -> Vec<StoredSlot> {
        let here = all.iter().filter(|s| range.contains(&s.writer.address));
        let told = |s: &SlotStore| (s.slot.reg(), s.count, s.same, s.taken, s.restored);
        here.map(told).collect()
    };

    // A store of one instruction has a label at it; what runs longer has a second behind it.
    let at = |name: &str| {
        let start = symbol(&format!("at_{name}"));
        told(start..start + 1)
    };

    assert_eq!(at("barrier"), [(Reg::Rip, 0, 1, 0, 0)]);
    assert_eq!(at("retpoline"), [(Reg::Rip, 1, 0, 1, 0)]);
    assert_eq!(at("away"), [(Reg::Rip, 1, 0, 0, 1)]);
    assert_eq!(at("back"), []);
    assert_eq!(at("pointer"), [(Reg::Rbx, 1, 0, 0, 0)]);

    let string = told(symbol("at_string")..symbol("at_string_behind"));
    assert_eq!(string, [(Reg::Rbp, 1, 0, 0, 0)]);

    let kernel = symbol("at_kernel")..symbol("at_kernel_behind");
    let registers = [(Reg::R12, 1, 0, 0, 0), (Reg::R13, 1, 0, 0, 0)];
    assert_eq!(told(kernel.clone()), registers);

    // What the kernel stores is told of with the system call.
    let by_kernel = |s: &&SlotStore| kernel.contains(&s.writer.address);
    let calls = all.iter().filter(by_kernel).map(|s| s.writer.call);
    assert!({ calls }.all(|call| call == Some("clock_gettime")));

    // At that point rbx is no longer in its slot.
    assert_eq!(at("own"), []);
    assert_eq!(all.len(), 7, "{all:#?}");

    let pointer = all.iter().find(|s| s.slot.reg() == Reg::Rbx);
    let pointer = pointer.expect("as above");
    assert_eq!((pointer.old, pointer.new), (0x10, 7));

    let saves = symbol("saves")..symbol("_start");
    assert!(saves.contains(&pointer.owner), "{:#x}", pointer.owner);
}
