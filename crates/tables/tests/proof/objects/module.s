# A kernel module, as far as the proof reads one: rows as objtool writes them for Linux 6.4 and newer
# (arch/x86/include/asm/orc_types.h), and the sections that say where else code leads.
	.set SP, 5
	.set BP, 4

# One row: the CFA's offset and register; where rbp is saved, from the CFA.
	.macro row offset, reg=SP, rbp=0
99:	.pushsection .orc_unwind_ip, "a"
	.long 99b - .
	.popsection
	.pushsection .orc_unwind, "a"
	.short \offset, \rbp
	.if \rbp
	.byte \reg | 1 << 4
	.else
	.byte \reg
	.endif
	.byte 2
	.popsection
	.endm

	.macro fn name
	.p2align 4
	.type \name, @function
\name:
	.endm
	.macro end name
	.size \name, .-\name
	.endm

# Static branch at `code`, or `target` (include/linux/jump_label.h, struct jump_entry).
	.macro branch code, target
	.pushsection __jump_table, "aw"
	.long \code - ., \target - .
	.quad 0
	.popsection
	.endm

# A fault at `code` goes on at `fixup` (asm/extable.h, struct exception_table_entry).
	.macro fault code, fixup
	.pushsection __ex_table, "a"
	.long \code - ., \fixup - ., 1
	.popsection
	.endm

# struct bug_entry (asm-generic/bug.h).
	.macro bug flags
98:	ud2
	.pushsection __bug_table, "aw"
	.long 98b - ., 0
	.short 1, \flags
	.popsection
	.endm

# struct alt_instr since 6.4 (asm/alternative.h).
	.macro alternative original, original_end, replacement, replacement_end
	.pushsection .altinstructions, "a"
	.long \original - ., \replacement - .
	.long 1
	.byte \original_end - \original, \replacement_end - \replacement
	.popsection
	.endm

	.section .orc_header, "a"
	.byte 0xfe, 0x5d, 0x32, 0xbf, 0x58, 0x1b, 0xd6, 0x3b, 0x2c, 0xa9
	.byte 0xa5, 0xc6, 0x5b, 0xa5, 0xa6, 0x25, 0xea, 0xb3, 0xfe, 0x24

	.text
# --- calls and jumps out of the module ---
fn good_calls
	row 8
	call __fentry__
	sub $8, %rsp
	row 16
	call outside
	mov (%rax), %rax
	call __x86_indirect_thunk_rax
	add $8, %rsp
	row 8
	jmp __x86_return_thunk
end good_calls

fn bad_calls
	row 8
	call __fentry__
	sub $8, %rsp
bad_calls.at.cfa:
	call outside
	row 16
	add $8, %rsp
	row 8
	jmp __x86_return_thunk
end bad_calls

fn good_tail_calls
	row 8
	test %edi, %edi
	jne outside
	test %esi, %esi
	je 1f
	mov (%rdi), %rax
	jmp __x86_indirect_thunk_rax
1:	jmp outside
end good_tail_calls

fn open_jump_with_a_frame
	row 8
	push %rax
	row 16
open_jump_with_a_frame.open.left_table:
	jmp outside
end open_jump_with_a_frame

fn open_indirect_jump_with_a_frame
	row 8
	push %rax
	row 16
open_indirect_jump_with_a_frame.open.indirect_jump:
	jmp __x86_indirect_thunk_rcx
end open_indirect_jump_with_a_frame

# A trampoline of a static call: the bytes behind the jump mark it.
fn good_trampoline
	row 8
	jmp outside
	.byte 0x0f, 0xb9, 0xcc
end good_trampoline

# --- functions that never return ---
fn good_panics
	row 8
good_panics.assume.no_return:
	test %esi, %esi
	je 2f
	push %rbx
	row 16
	test %edi, %edi
	je 1f
	pop %rbx
	row 8
	jmp __x86_return_thunk
1:	row 16
	call panic
	row 8
2:	xor %eax, %eax
	jmp __x86_return_thunk
end good_panics

# What lies behind is dead; a wrong row there is none.
fn open_dead_code
	row 8
	push %rbx
	row 16
	call panic
	add $8, %rsp
open_dead_code.open.unreached:
	jmp __x86_return_thunk
end open_dead_code

# A return like others: the function keeps its rows. Its caller's rows say nothing of rbx.
fn good_that_changes_rbx
	row 8
	xor %ebx, %ebx
	jmp __x86_return_thunk
end good_that_changes_rbx

fn good_that_calls_it
	row 8
	push %rax
	row 16
	call good_that_changes_rbx
	pop %rax
	row 8
	jmp __x86_return_thunk
end good_that_calls_it

# They say something of rbp.
fn bad_that_changes_rbp
	row 8
	xor %ebp, %ebp
bad_that_changes_rbp.at.rbp:
	jmp __x86_return_thunk
end bad_that_changes_rbp

fn open_that_loses_rbp
	row 8
	push %rax
	row 16
	call bad_that_changes_rbp
open_that_loses_rbp.open.callee:
	pop %rax
	row 8
	jmp __x86_return_thunk
end open_that_loses_rbp

fn open_that_calls_one_that_loses_rbp
	row 8
	call open_that_loses_rbp
open_that_calls_one_that_loses_rbp.open.callee:
	jmp __x86_return_thunk
end open_that_calls_one_that_loses_rbp

# There is no red zone: an interrupt overwrites what lies below rsp.
fn open_slot_below_rsp
	row 8
	push %rbp
	row 16, SP, -16
	mov %edi, %ebp
	pop %rbp
open_slot_below_rsp.open.red_zone:
	row 8, SP, -16
	jmp __x86_return_thunk
end open_slot_below_rsp

fn open_behind_a_function_that_returns
	row 8
	push %rbx
	row 16
	call outside
	pop %rbx
	row 8
	jmp __x86_return_thunk
open_behind_a_function_that_returns.open.unreached:
	xor %eax, %eax
	jmp __x86_return_thunk
end open_behind_a_function_that_returns

# --- static branches ---
fn good_static_branch
	row 8
good_static_branch.assume.kernel_edges:
	push %rbp
	row 16, SP, -16
1:	.byte 0x0f, 0x1f, 0x44, 0, 0
	branch 1b, 2f
	pop %rbp
	row 8
	jmp __x86_return_thunk
2:	row 16, SP, -16
	call outside
	pop %rbp
	row 8
	jmp __x86_return_thunk
end good_static_branch

fn bad_static_branch
	row 8
	push %rax
	row 16
1:	.byte 0x0f, 0x1f, 0x44, 0, 0
	branch 1b, 2f
	pop %rax
	row 8
	jmp __x86_return_thunk
2:
bad_static_branch.at.cfa:
	pop %rax
	jmp __x86_return_thunk
end bad_static_branch

# The file has the jump; the nop is what it may become.
fn bad_behind_static_jump
	row 8
	push %rax
	row 16
1:	jmp 2f
	branch 1b, 2f
	row 24
bad_behind_static_jump.at.cfa:
	call outside
2:	row 16
	pop %rax
	row 8
	jmp __x86_return_thunk
end bad_behind_static_jump

# --- faults ---
fn good_fault
	row 8
good_fault.assume.kernel_edges:
	push %rax
	row 16
1:	mov (%rdi), %rdi
	fault 1b, 2f
	pop %rax
	row 8
	jmp __x86_return_thunk
2:	row 16
	pop %rax
	row 8
	jmp __x86_return_thunk
end good_fault

fn bad_fault
	row 8
	push %rax
	row 16
1:	mov (%rdi), %rdi
	fault 1b, 2f
	pop %rax
	row 8
	jmp __x86_return_thunk
2:
bad_fault.at.cfa:
	pop %rax
	jmp __x86_return_thunk
end bad_fault

# --- warnings and bugs ---
fn good_warning
	row 8
good_warning.assume.kernel_edges:
	push %rax
	row 16
	bug 1
	pop %rax
	row 8
	jmp __x86_return_thunk
end good_warning

fn bad_warning
	row 8
	push %rax
	row 16
	bug 1
	row 24
bad_warning.at.cfa:
	pop %rax
	row 8
	jmp __x86_return_thunk
end bad_warning

fn open_bug
	row 8
	push %rax
	row 16
	bug 0
open_bug.open.unreached:
	pop %rax
	row 8
	jmp __x86_return_thunk
end open_bug

# --- alternatives ---
fn good_alternative
	row 8
good_alternative.assume.kernel_edges:
1:	jmp 2f
	row 16
	nop
	row 8
2:	jmp __x86_return_thunk
	alternative 1b, 2b, 3f, 4f
	.pushsection .altinstr_replacement, "ax"
3:	.byte 0xff, 0xf0	# push %rax
	pop %rax
4:
	.popsection
end good_alternative

fn bad_alternative
	row 8
1:	nop
bad_alternative.at.cfa:
	nop
2:	jmp __x86_return_thunk
	alternative 1b, 2b, 3f, 4f
	.pushsection .altinstr_replacement, "ax"
3:	push %rax
	pop %rax
4:
	.popsection
end bad_alternative

# The code that is replaced has another frame there.
fn bad_alternative_with_another_frame
	row 8
1:	nop
	row 16
bad_alternative_with_another_frame.at.cfa:
	nop
	row 8
2:	jmp __x86_return_thunk
	alternative 1b, 2b, 3f, 4f
	.pushsection .altinstr_replacement, "ax"
3:	push %rax
	pop %rax
4:
	.popsection
end bad_alternative_with_another_frame

# A return stack is filled: the call only pushes.
fn good_filled_return_stack
	row 8
1:	jmp 2f
	.rept 4
	nop
	.endr
	row 16
	.rept 4
	nop
	.endr
	row 8
2:	jmp __x86_return_thunk
	alternative 1b, 2b, 3f, 4f
	.pushsection .altinstr_replacement, "ax"
3:	call 5f
	int3
5:	add $8, %rsp
4:
	.popsection
end good_filled_return_stack

fn bad_filled_return_stack
	row 8
1:	jmp 2f
	.rept 4
	nop
	.endr
bad_filled_return_stack.at.cfa:
	.rept 4
	nop
	.endr
2:	jmp __x86_return_thunk
	alternative 1b, 2b, 3f, 4f
	.pushsection .altinstr_replacement, "ax"
3:	call 5f
	int3
5:	add $8, %rsp
4:
	.popsection
end bad_filled_return_stack

# Only the replacement leads to the code behind.
fn bad_behind_alternative
	row 8
	push %rax
	row 16
1:	jmp 2f
	nop
	nop
	nop
6:	row 24
bad_behind_alternative.at.cfa:
	call outside
2:	row 16
	pop %rax
	row 8
	jmp __x86_return_thunk
	alternative 1b, 6b, 3f, 4f
	.pushsection .altinstr_replacement, "ax"
3:	call outside
4:
	.popsection
end bad_behind_alternative

# --- tests of features of the processor, far away ---
fn bad_behind_feature_test
	row 8
	push %rax
	row 16
	jmp 6f
1:	pop %rax
	row 8
	jmp __x86_return_thunk
2:
bad_behind_feature_test.at.cfa:
	pop %rax
	jmp __x86_return_thunk
end bad_behind_feature_test
	.pushsection .altinstr_aux, "ax"
6:	testb $1, 16
	jnz 1b
	jmp 2b
	.popsection

# --- cold parts ---
fn good_hot
	row 8
	push %rax
	row 16
	test %edi, %edi
	jne part_of_good_hot.cold
	pop %rax
	row 8
	jmp __x86_return_thunk
end good_hot

fn good_hot_of_bad_cold
	row 8
	push %rax
	row 16
	test %edi, %edi
	jne part_of_good_hot_of_bad_cold.cold
	pop %rax
	row 8
	jmp __x86_return_thunk
end good_hot_of_bad_cold

	.section .text.unlikely, "ax"
fn part_of_good_hot.cold
	.set good_cold, part_of_good_hot.cold
	row 16
	call panic
end part_of_good_hot.cold

fn part_of_good_hot_of_bad_cold.cold
	.set bad_cold, part_of_good_hot_of_bad_cold.cold
	.set bad_cold.at.cfa, part_of_good_hot_of_bad_cold.cold
	row 8
	call panic
end part_of_good_hot_of_bad_cold.cold
	.section .note.GNU-stack,"",@progbits
