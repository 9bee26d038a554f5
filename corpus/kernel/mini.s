# A kernel in small: what Linux's entry code, its stacks and its tracing do to a stack, and nothing
# else. It runs in user mode, at low addresses, under whoever plays the processor's part: who delivers
# an interrupt pushes ss, rsp, rflags, cs and rip, on the stack that the hardware would take, and who
# meets an iretq takes them back.
#
# With FP defined every function keeps a frame pointer, and the entry code encodes one in rbp, as a
# CONFIG_FRAME_POINTER kernel does. The ORC rows are those that objtool writes, in the layout of
# Linux 6.4 to 7.0.

# A row from here on: what the CFA counts from and by how much, the same of the caller's rbp, the type,
# and whether the frame was interrupted.
.macro ORC sp_reg, sp_offset, type, bp_reg=0, bp_offset=0, signal=0
99:
.pushsection .orc_unwind_ip, "a", @progbits
.long 99b - .
.popsection
.pushsection .orc_unwind, "a", @progbits
.short \sp_offset, \bp_offset, \sp_reg | \bp_reg << 4 | \type << 8 | \signal << 11
.popsection
.endm

.set SP, 5
.set BP, 4
.set SP_INDIRECT, 9
.set PREV_SP, 1
.set CALL, 2
.set REGS, 3
.set PARTIAL, 4

.macro UNDEFINED
ORC 0, 0, 0
.endm
# A call frame with its CFA so many bytes above rsp.
.macro FRAME bytes
ORC SP, \bytes, CALL
.endm
# The same, with the caller's rbp saved below the return address.
.macro SAVED bytes
ORC SP, \bytes, CALL, PREV_SP, -16
.endm
.macro FRAME_BP
ORC BP, 16, CALL, PREV_SP, -16
.endm

# A function, which needs so many bytes besides the registers that it saves.
.macro FUNCTION name
.globl \name
.type \name, @function
\name:
FRAME 8
.endm
.macro ENTER bytes=0
.ifdef FP
push %rbp
SAVED 16
mov %rsp, %rbp
FRAME_BP
push %rbx
.if \bytes
sub $\bytes, %rsp
.endif
.else
push %rbx
FRAME 16
.if \bytes
sub $\bytes, %rsp
FRAME 16 + \bytes
.endif
.endif
.endm
.macro LEAVE bytes=0
.ifdef FP
.if \bytes
add $\bytes, %rsp
.endif
pop %rbx
pop %rbp
FRAME 8
.else
.if \bytes
add $\bytes, %rsp
FRAME 16
.endif
pop %rbx
FRAME 8
.endif
ret
.endm
# Calls the next function from a frame of its own.
.macro CALLS callee, bytes=0
ENTER \bytes
call \callee
LEAVE \bytes
.endm

# struct pt_regs without the hardware's part, on which so many bytes lie already.
.macro PUSH_REGS type, at=8
.set AT, \at
.irp reg, rdi, rsi, rdx, rcx, rax, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15
push %\reg
.set AT, AT + 8
.ifc \type, partial
ORC SP, AT, PARTIAL, signal=1
.endif
.endr
ORC SP, 0, REGS, signal=1
.ifdef FP
lea 1(%rsp), %rbp
.endif
.endm
.macro POP_REGS
.set AT, 0x80
.irp reg, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
pop %\reg
.set AT, AT - 8
ORC SP, AT, PARTIAL, signal=1
.endr
.endm

.bss
.globl task_top, irq_top, user_sp
task_top: .quad 0
irq_top: .quad 0
user_sp: .quad 0

.text
.globl _stext, _etext, __entry_text_start, __entry_text_end
_stext:
__entry_text_start:

# From user space, by syscall: rcx and r11 hold its rip and rflags.
.globl entry_SYSCALL_64, entry_SYSCALL_64_after_hwframe, entry_end
entry_SYSCALL_64:
UNDEFINED
mov %rsp, user_sp(%rip)
mov task_top(%rip), %rsp
push $0x2b
push user_sp(%rip)
push %r11
push $0x33
push %rcx
entry_SYSCALL_64_after_hwframe:
push %rax
PUSH_REGS whole
.ifdef FP
# A system call encodes no frame pointer.
xor %ebp, %ebp
.endif
mov %rsp, %rdi
call do_syscall_64
nop
entry_end:
hlt

# An interrupt, on the stack at hand; its handler runs on the interrupts' stack.
.globl asm_sysvec_timer
asm_sysvec_timer:
ORC SP, 0, PARTIAL, signal=1
push $-1
ORC SP, 8, PARTIAL, signal=1
PUSH_REGS partial
mov %rsp, %rdi
call sysvec_timer
POP_REGS
add $8, %rsp
ORC SP, 0, PARTIAL, signal=1
.globl interrupt_return
interrupt_return:
iretq

# An NMI, on a stack of its own.
.globl asm_exc_nmi
asm_exc_nmi:
ORC SP, 0, PARTIAL, signal=1
push $-1
ORC SP, 8, PARTIAL, signal=1
PUSH_REGS partial
mov %rsp, %rdi
call exc_nmi
POP_REGS
add $8, %rsp
ORC SP, 0, PARTIAL, signal=1
.globl nmi_return
nmi_return:
iretq
int3
UNDEFINED
__entry_text_end:

FUNCTION sysvec_timer
.ifdef FP
push %rbp
SAVED 16
mov %rsp, %rbp
FRAME_BP
push %rbx
mov irq_top(%rip), %rbx
mov %rsp, (%rbx)
mov %rbx, %rsp
call __sysvec_timer
pop %rsp
pop %rbx
pop %rbp
FRAME 8
.else
push %rbx
FRAME 16
mov irq_top(%rip), %rbx
mov %rsp, (%rbx)
mov %rbx, %rsp
ORC SP_INDIRECT, 16, CALL
call __sysvec_timer
pop %rsp
FRAME 16
pop %rbx
FRAME 8
.endif
ret

FUNCTION __sysvec_timer
CALLS hrtimer_interrupt, 16
FUNCTION hrtimer_interrupt
ENTER
.globl in_interrupt
in_interrupt:
nop
LEAVE

FUNCTION exc_nmi
ENTER 8
.globl in_nmi
in_nmi:
nop
LEAVE 8

FUNCTION do_syscall_64
ENTER
lea __x64_sys_poll(%rip), %rax
call __x86_indirect_thunk_rax
LEAVE

# The retpoline: the call is there for its return address, which is then replaced.
FUNCTION __x86_indirect_thunk_rax
call 1f
FRAME 16
2: pause
jmp 2b
1: mov %rax, (%rsp)
FRAME 8
ret
int3

FUNCTION __x64_sys_poll
CALLS do_sys_poll, 24
FUNCTION do_sys_poll
ENTER 64
call perf_poll
call cond_resched
LEAVE 64
FUNCTION perf_poll
CALLS __pollwait
FUNCTION __pollwait
CALLS __get_free_pages, 40
FUNCTION __get_free_pages
CALLS __alloc_pages_nodemask, 8
FUNCTION __alloc_pages_nodemask
ENTER 96
call perf_trace_mm_page_alloc
LEAVE 96
# A tail call.
FUNCTION cond_resched
jmp rcu_note
FUNCTION rcu_note
nop
ret

# The tracing machinery. The function that makes the fake registers keeps a frame pointer in every
# kernel, because of __builtin_frame_address(0).
FUNCTION perf_trace_mm_page_alloc
push %rbp
SAVED 16
mov %rsp, %rbp
FRAME_BP
push %rbx
sub $56, %rsp
.globl fetch_caller_regs
fetch_caller_regs:
call perf_tp_event
add $56, %rsp
pop %rbx
pop %rbp
FRAME 8
ret
FUNCTION perf_tp_event
CALLS perf_callchain_kernel, 16
FUNCTION perf_callchain_kernel
CALLS __unwind_start, 120
FUNCTION __unwind_start
push %rbp
SAVED 16
.ifdef FP
mov %rsp, %rbp
FRAME_BP
push %rbx
.else
mov %rdi, %rbp
push %rbx
ORC SP, 24, CALL, PREV_SP, -16
.endif
# What the unwinder takes for its own ip is the address behind this.
lea 0(%rip), %rcx
.globl unwinding
unwinding:
nop
pop %rbx
.ifndef FP
SAVED 16
.endif
pop %rbp
FRAME 8
ret
int3
UNDEFINED
# A symbol behind the last byte would be none of the code's.
_etext:
int3
