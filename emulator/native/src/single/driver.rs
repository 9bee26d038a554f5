//! The program that the child runs: it loads a state, jumps to the instruction, stores the state,
//! and handles signals. It is never executed in this process: `image.rs` turns it into an ELF file.
//!
//! It uses no memory except what `layout.rs` names, has no thread pointer, and assumes nothing
//! about the registers after an instruction: all its own state is at fixed addresses.

use super::layout::*;
use crate::extended::{AVX_BIT, HEADER, LEGACY_BITS};
use std::arch::global_asm;
use std::mem::offset_of;

// Offsets into the kernel's `struct ucontext` and `siginfo_t` are plain numbers: Linux 6.1,
// arch/x86/include/uapi/asm/sigcontext.h (`struct sigcontext_64` is at offset 40 of the ucontext)
// and include/uapi/asm-generic/siginfo.h.
global_asm!(
    ".pushsection .rodata.unwind_sim_native, \"a\"",
    ".balign 64",
    ".globl unwind_sim_native_start, unwind_sim_native_handler, unwind_sim_native_exit",
    ".globl unwind_sim_native_syscall_end, unwind_sim_native_vzeroupper, unwind_sim_native_end",
    ".hidden unwind_sim_native_start, unwind_sim_native_handler, unwind_sim_native_exit",
    ".hidden unwind_sim_native_syscall_end, unwind_sim_native_vzeroupper, unwind_sim_native_end",
    //
    // The system calls in the table: number, six arguments, whether it may fail.
    "unwind_sim_native_start:",
    "    mov r12, qword ptr [{table}]",
    "20: mov rax, qword ptr [r12]",
    "    cmp rax, -1",
    "    je 30f",
    "    mov rdi, qword ptr [r12 + 8]",
    "    mov rsi, qword ptr [r12 + 16]",
    "    mov rdx, qword ptr [r12 + 24]",
    "    mov r10, qword ptr [r12 + 32]",
    "    mov r8, qword ptr [r12 + 40]",
    "    mov r9, qword ptr [r12 + 48]",
    "    lea rbx, [rip + 22f]",
    "    jmp 28f",
    "22: test rax, rax",
    "    jns 24f",
    "    cmp qword ptr [r12 + 56], 0",
    "    jne 24f",
    "    mov edi, eax", // exit_group(errno)
    "    neg edi",
    "    mov eax, 231",
    "    jmp 28f",
    "24: inc dword ptr [{calls}]",
    "    add r12, 64",
    "    jmp 20b",
    //
    // The only system call that the filter allows. It returns to rbx.
    "28: syscall",
    "unwind_sim_native_syscall_end:",
    "    jmp rbx",
    //
    // Wait for a batch.
    "30: mov esp, {stack}",
    "32: mov edx, dword ptr [{done_count}]",
    "    cmp edx, dword ptr [{request}]",
    "    jne 34f",
    "    mov edi, {request}", // futex(request, FUTEX_WAIT, edx, NULL)
    "    xor esi, esi",
    "    xor r10d, r10d",
    "    mov eax, 202",
    "    lea rbx, [rip + 32b]",
    "    jmp 28b",
    // iretq is serializing: code that another processor wrote can be executed after it.
    "34: mov rax, rsp",
    "    push 0x2b",
    "    push rax",
    "    pushfq",
    "    push 0x33",
    "    lea rcx, [rip + 36f]",
    "    push rcx",
    "    iretq",
    "36: mov qword ptr [{tick}], -1",
    "    mov ecx, dword ptr [{first}]",
    "    jmp 42f",
    //
    // The next case: ecx is its index, rsi its slot.
    "40: mov ecx, dword ptr [{current}]",
    "    inc ecx",
    "42: mov dword ptr [{current}], ecx",
    "    cmp ecx, dword ptr [{end}]",
    "    jae 70f",
    "    lea rsi, [rcx + 2*rcx]",
    "    shl rsi, 6",
    "    add rsi, {slots}",
    "    mov qword ptr [{slot}], rsi",
    "    mov eax, dword ptr [rsi + {flags}]",
    "    test al, {memory}",
    "    jz 44f",
    "    mov rbx, rsi",
    "    mov edx, ecx",
    "    mov esi, ecx",
    "    shl rsi, 10",
    "    add rsi, {windows}",
    "    mov edi, {window}",
    "    test al, {middle}",
    "    jz 43f",
    "    mov edi, {middle_window}",
    "43: mov ecx, {window_words}",
    "    rep movsq",
    "    mov ecx, edx",
    "    mov rsi, rbx",
    "44: test al, {fx}",
    "    jz 46f",
    "    imul rdx, rcx, {area_size}",
    "    test al, {avx}",
    "    jnz 45f",
    "unwind_sim_native_vzeroupper:",
    "    .byte 0x0f, 0x1f, 0x00", // nop, replaced where there is AVX
    "    fxrstor64 [rdx + {fxs}]",
    "    jmp 46f",
    "45: mov rbx, rdx",
    "    mov edi, eax",
    "    mov eax, {components}",
    "    xor edx, edx",
    "    xrstor64 [rbx + {fxs}]",
    "    mov eax, edi",
    "46: test al, {step}",
    "    jnz 48f",
    "    shl rcx, 6",
    "    add rcx, {codes}",
    "    mov qword ptr [{target}], rcx",
    "    push qword ptr [rsi + {rflags}]",
    "    popfq",
    "    .macro unwind_sim_native_load",
    "    mov rax, qword ptr [rsi]",
    "    mov rcx, qword ptr [rsi + 8]",
    "    mov rdx, qword ptr [rsi + 16]",
    "    mov rbx, qword ptr [rsi + 24]",
    "    mov rbp, qword ptr [rsi + 40]",
    "    mov rdi, qword ptr [rsi + 56]",
    "    mov r8, qword ptr [rsi + 64]",
    "    mov r9, qword ptr [rsi + 72]",
    "    mov r10, qword ptr [rsi + 80]",
    "    mov r11, qword ptr [rsi + 88]",
    "    mov r12, qword ptr [rsi + 96]",
    "    mov r13, qword ptr [rsi + 104]",
    "    mov r14, qword ptr [rsi + 112]",
    "    mov r15, qword ptr [rsi + 120]",
    "    .endm",
    "    unwind_sim_native_load",
    "    mov rsp, qword ptr [rsi + 32]",
    "    mov rsi, qword ptr [rsi + 48]",
    "    jmp qword ptr [{target}]",
    "48: push 0x2b",
    "    push qword ptr [rsi + 32]",
    "    push qword ptr [rsi + {rflags}]",
    "    push 0x33",
    "    push qword ptr [rsi + {rip}]",
    "    unwind_sim_native_load",
    "    mov rsi, qword ptr [rsi + 48]",
    "    iretq",
    //
    // After the instruction. Nothing changes the flags before they are saved. AC may be set, so all
    // accesses are aligned.
    "unwind_sim_native_exit:",
    "    mov qword ptr [{rax}], rax",
    "    mov rax, qword ptr [{slot}]",
    "    mov qword ptr [rax + 8], rcx",
    "    mov qword ptr [rax + 16], rdx",
    "    mov qword ptr [rax + 24], rbx",
    "    mov qword ptr [rax + 32], rsp",
    "    mov qword ptr [rax + 40], rbp",
    "    mov qword ptr [rax + 48], rsi",
    "    mov qword ptr [rax + 56], rdi",
    "    mov qword ptr [rax + 64], r8",
    "    mov qword ptr [rax + 72], r9",
    "    mov qword ptr [rax + 80], r10",
    "    mov qword ptr [rax + 88], r11",
    "    mov qword ptr [rax + 96], r12",
    "    mov qword ptr [rax + 104], r13",
    "    mov qword ptr [rax + 112], r14",
    "    mov qword ptr [rax + 120], r15",
    "    mov esp, {stack}",
    "    pushfq",
    "    pop rcx",
    "    mov qword ptr [rax + {rflags}], rcx",
    "    mov rdx, qword ptr [{rax}]",
    "    mov qword ptr [rax], rdx",
    "    mov dword ptr [rax + {kind}], {kind_done}",
    "    cld",
    "    test ecx, 0x44000", // AC, NT
    "    jz 50f",
    "    push 2",
    "    popfq",
    "50: mov ecx, dword ptr [{current}]",
    "    mov edx, dword ptr [rax + {flags}]",
    "    test dl, {fx}",
    "    jz 52f",
    "    imul rsi, rcx, {area_size}",
    "    test dl, {avx}",
    "    jnz 51f",
    "    fxsave64 [rsi + {fxs}]",
    "    jmp 52f",
    "51: mov edi, edx",
    "    mov eax, {components}",
    "    xor edx, edx",
    "    xsave64 [rsi + {fxs}]",
    "    .byte 0xc5, 0xf8, 0x77", // vzeroupper: the SSE code below is slow after AVX
    "    mov edx, edi",
    //
    // ecx is the index, edx the flags. Stores the window, and clears the rest of its page in case
    // something was written there.
    "52: test dl, {memory}",
    "    jz 40b",
    "    mov edi, ecx",
    "    shl rdi, 10",
    "    add rdi, {windows}",
    "    mov esi, {window}",
    "    test dl, {middle}",
    "    jnz 56f",
    "    mov ecx, {window_words}",
    "    rep movsq",
    "    mov edi, {page}",
    "    pxor xmm0, xmm0",
    "    pxor xmm1, xmm1",
    "54: por xmm0, xmmword ptr [rdi]",
    "    por xmm1, xmmword ptr [rdi + 16]",
    "    por xmm0, xmmword ptr [rdi + 32]",
    "    por xmm1, xmmword ptr [rdi + 48]",
    "    add edi, 64",
    "    cmp edi, {window}",
    "    jb 54b",
    "    por xmm0, xmm1",
    "    pxor xmm1, xmm1",
    "    pcmpeqb xmm0, xmm1",
    "    pmovmskb eax, xmm0",
    "    cmp eax, 0xffff",
    "    je 40b",
    "    mov edi, {page}",
    "    mov ecx, {rest_words}",
    "    xor eax, eax",
    "    rep stosq",
    "    jmp 40b",
    "56: mov esi, {middle_window}",
    "    mov ecx, {window_words}",
    "    rep movsq",
    "    mov edi, {middle_pages}",
    "    mov ecx, {middle_words}",
    "    xor eax, eax",
    "    rep stosq",
    "    jmp 40b",
    //
    // A signal: edi is its number, rsi the siginfo, rdx the ucontext. SIGVTALRM is the tick. The
    // kernel has cleared DF, but not AC.
    "unwind_sim_native_handler:",
    "    mov ecx, {kind_signal}",
    "    cmp edi, 26",
    "    jne 62f",
    "    mov rax, qword ptr [rdx + 168]", // rip: ours, or the case's?
    "    sub rax, {driver}",
    "    cmp rax, {driver_size}",
    "    jb 60f",
    "    mov eax, dword ptr [{current}]",
    "    mov ecx, {kind_hung}",
    "    cmp rax, qword ptr [{tick}]",
    "    je 62f",
    "    mov qword ptr [{tick}], rax",
    "60: mov rsp, rdx", // rt_sigreturn
    "    mov eax, 15",
    "    jmp 28b",
    "62: mov rax, qword ptr [{slot}]",
    "    mov dword ptr [rax + {kind}], ecx",
    "    mov dword ptr [rax + {signal}], edi",
    "    mov ecx, dword ptr [rsi + 8]",
    "    mov dword ptr [rax + {code}], ecx",
    "    mov rcx, qword ptr [rsi + 16]",
    "    mov qword ptr [rax + {address}], rcx",
    "    .macro unwind_sim_native_copy from, to",
    "    mov rcx, qword ptr [rdx + \\from]",
    "    mov qword ptr [rax + \\to], rcx",
    "    .endm",
    "    unwind_sim_native_copy 144, 0",
    "    unwind_sim_native_copy 152, 8",
    "    unwind_sim_native_copy 136, 16",
    "    unwind_sim_native_copy 128, 24",
    "    unwind_sim_native_copy 160, 32",
    "    unwind_sim_native_copy 120, 40",
    "    unwind_sim_native_copy 112, 48",
    "    unwind_sim_native_copy 104, 56",
    "    unwind_sim_native_copy 40, 64",
    "    unwind_sim_native_copy 48, 72",
    "    unwind_sim_native_copy 56, 80",
    "    unwind_sim_native_copy 64, 88",
    "    unwind_sim_native_copy 72, 96",
    "    unwind_sim_native_copy 80, 104",
    "    unwind_sim_native_copy 88, 112",
    "    unwind_sim_native_copy 96, 120",
    "    unwind_sim_native_copy 168, {rip}",
    "    unwind_sim_native_copy 176, {rflags}",
    "    unwind_sim_native_copy 192, {error_code}",
    "    unwind_sim_native_copy 200, {trapno}",
    "    mov esp, {stack}",
    "    mov r8d, dword ptr [rax + {flags}]",
    "    push 2",
    "    popfq",
    "    mov eax, dword ptr [{current}]",
    "    test r8b, {fx}",
    "    jz 64f",
    "    mov rsi, qword ptr [rdx + 224]",
    "    imul rdi, rax, {area_size}",
    "    add rdi, {fxs}",
    "    mov ecx, {fx_words}",
    "    rep movsq",
    // The header and the AVX state.
    "    test r8b, {avx}",
    "    jz 64f",
    "    add rsi, {header} - {fx_defined}",
    "    add rdi, {header} - {fx_defined}",
    "    mov ecx, {avx_words}",
    "    rep movsq",
    "64: mov ecx, eax",
    "    mov edx, r8d",
    "    jmp 52b",
    //
    // The batch is done.
    "70: mov eax, dword ptr [{request}]",
    "    mov dword ptr [{done_count}], eax",
    "    mov edi, {done_count}", // futex(done, FUTEX_WAKE, 1)
    "    mov esi, 1",
    "    mov edx, 1",
    "    mov eax, 202",
    "    lea rbx, [rip + 32b]",
    "    jmp 28b",
    "unwind_sim_native_end:",
    ".purgem unwind_sim_native_load",
    ".purgem unwind_sim_native_copy",
    ".popsection",
    table = const DRIVER_DATA,
    calls = const CALLS,
    stack = const DRIVER_STACK_TOP,
    request = const REQUEST,
    done_count = const DONE_COUNT,
    first = const FIRST,
    end = const END,
    current = const CURRENT,
    slot = const SLOT,
    target = const TARGET,
    rax = const RAX,
    tick = const TICK,
    slots = const SHARED + SLOTS_OFFSET as u64,
    fxs = const SHARED + FX_OFFSET as u64,
    windows = const SHARED + WINDOWS_OFFSET as u64,
    codes = const CODE,
    window = const WINDOW,
    window_words = const WINDOW_SIZE / 8,
    page = const WINDOW_PAGE.start,
    rest_words = const (WINDOW - WINDOW_PAGE.start) / 8,
    fx_words = const FX_DEFINED / 8,
    fx_defined = const FX_DEFINED,
    header = const HEADER,
    avx_words = const (AREA_SIZE - HEADER) / 8,
    area_size = const AREA_SIZE,
    components = const LEGACY_BITS | AVX_BIT,
    driver = const DRIVER,
    driver_size = const DRIVER_SIZE,
    fx = const FX,
    avx = const AVX,
    memory = const MEMORY,
    step = const STEP,
    middle = const MIDDLE,
    middle_window = const MIDDLE_WINDOW,
    middle_pages = const MIDDLE_PAGES.start,
    middle_words = const (MIDDLE_PAGES.end - MIDDLE_PAGES.start) / 8,
    kind_done = const DONE,
    kind_signal = const SIGNAL,
    kind_hung = const HUNG,
    rip = const offset_of!(Slot, rip),
    rflags = const offset_of!(Slot, rflags),
    flags = const offset_of!(Slot, flags),
    kind = const offset_of!(Slot, kind),
    signal = const offset_of!(Slot, signal),
    code = const offset_of!(Slot, code),
    trapno = const offset_of!(Slot, trapno),
    error_code = const offset_of!(Slot, error_code),
    address = const offset_of!(Slot, address),
);

const _: () = assert!(size_of::<Slot>() == 3 << 6 && WINDOW_SIZE == 1 << 10);

// SAFETY: labels in the assembly above; only their addresses are used.
unsafe extern "C" {
    static unwind_sim_native_start: u8;
    static unwind_sim_native_handler: u8;
    static unwind_sim_native_exit: u8;
    static unwind_sim_native_syscall_end: u8;
    static unwind_sim_native_vzeroupper: u8;
    static unwind_sim_native_end: u8;
}

const VZEROUPPER: [u8; 3] = [0xc5, 0xf8, 0x77];

/// The distance of a label from the first one.
fn offset(label: *const u8) -> usize {
    label.addr() - (&raw const unwind_sim_native_start).addr()
}

/// Addresses in the driver, in the child.
pub(super) struct DriverAddresses {
    /// Where execution continues after an instruction.
    pub(super) exit: u64,
    /// The handler of all signals.
    pub(super) handler: u64,
    /// The address after the only `syscall`.
    pub(super) syscall_end: u64,
}

pub(super) fn sites() -> DriverAddresses {
    let address = |label| DRIVER + offset(label) as u64;
    DriverAddresses {
        exit: address(&raw const unwind_sim_native_exit),
        handler: address(&raw const unwind_sim_native_handler),
        syscall_end: address(&raw const unwind_sim_native_syscall_end),
    }
}

/// The driver's machine code, starting with the child's entry point.
pub(super) fn code() -> Vec<u8> {
    let length = offset(&raw const unwind_sim_native_end);
    // SAFETY: the text between the first and the last label is constant data of this length.
    let text = unsafe { std::slice::from_raw_parts(&raw const unwind_sim_native_start, length) };
    let mut code = text.to_vec();
    if std::arch::is_x86_feature_detected!("avx") {
        let at = offset(&raw const unwind_sim_native_vzeroupper);
        code[at..at + VZEROUPPER.len()].copy_from_slice(&VZEROUPPER);
    }
    code
}
