// A small interpreter in memory without a file. It calls as HotSpot's does: it pushes the address at
// which it continues and jumps; the method takes the address off the stack, puts its locals there,
// and pushes the address again. Adapters move it, too: into compiled code, which returns, and from
// compiled code back into the interpreter, by a store. As V8's code does, `drop` removes its
// arguments, `leaver` reads its return address before it does so, `fewer` calls a function with fewer
// arguments as its last action, and `more` one with one argument more. `builder` replaces its frame
// by two others, as HotSpot does when it goes back from compiled code to the interpreter; `popper` does
// so as V8: it pops its frame into memory, and returns to the last of several pushed addresses.
// `raise` writes the address of a handler over its return address.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef long native(long n);
long code(long n, native *callback);
extern char code_end[];
// n in %rbx, the callback in %r12; a method's argument is above its return address.
asm(".text\n.globl code\ncode:\n"
    " push %rbp\n mov %rsp,%rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n"
    " mov %rsi,%r12\n"
    " push %rdi\n lea 1f(%rip),%rax\n push %rax\n lea method(%rip),%rcx\n jmp *%rcx\n"
    "1: add $8,%rsp\n"
    " push $3\n push $4\n call drop\n"
    " push $5\n push $6\n push $7\n call fewer\n"
    " push $8\n lea more(%rip),%rcx\n call *%rcx\n"
    " push $9\n push $9\n call leaver\n"
    " call builder\n call popper\n"
    " call raise\n hlt\n handler:"
    " pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
    "method:\n"
    " mov 8(%rsp),%rdi\n lea 8(%rsp),%r13\n"
    " pop %rax\n push $0\n push $0\n push %rax\n push %rbp\n mov %rsp,%rbp\n push %r13\n"
    " mov %rdi,%rbx\n"
    " lea -1(%rdi),%rdi\n push %rdi\n"
    " lea 2f(%rip),%rax\n push %rax\n"
    " test $1,%bl\n lea method(%rip),%rcx\n lea into(%rip),%rdx\n cmovz %rdx,%rcx\n"
    " cmp $0,%rdi\n lea last(%rip),%rdx\n cmovle %rdx,%rcx\n jmp *%rcx\n"
    "2: mov -8(%rbp),%r13\n inc %rax\n"
    " mov %r13,%r14\n leave\n pop %rsi\n mov %r14,%rsp\n jmp *%rsi\n"
    // From the interpreter into compiled code, the argument in %rdi.
    "into: mov 8(%rsp),%rdi\n pop %rax\n sub $24,%rsp\n and $-16,%rsp\n push %rax\n"
    " lea compiled(%rip),%rcx\n jmp *%rcx\n"
    "compiled: push %rbp\n mov %rsp,%rbp\n push %rdi\n push %rdi\n call outof\n leave\n ret\n"
    // From compiled code into the interpreter.
    "outof: lea 8(%rsp),%r13\n pop %rax\n sub $32,%rsp\n mov %rdi,8(%rsp)\n mov %rax,(%rsp)\n"
    " lea method(%rip),%rcx\n jmp *%rcx\n"
    // Calls the callback on an aligned stack.
    "last: push %rbp\n mov %rsp,%rbp\n and $-16,%rsp\n call *%r12\n leave\n ret\n"
    "drop: pop %rcx\n mov $2,%edx\n lea (%rsp,%rdx,8),%rsp\n push %rcx\n ret\n"
    "fewer: push %rbp\n mov %rsp,%rbp\n push %rax\n mov 8(%rbp),%r10\n mov %r10,24(%rbp)\n leave\n"
    " add $16,%rsp\n jmp one\n"
    "one: push %rbp\n mov %rsp,%rbp\n push %rax\n mov $1,%edi\n and $-16,%rsp\n call *%r12\n"
    " mov -8(%rbp),%rax\n leave\n ret $8\n"
    "more: push (%rsp)\n mov %rax,8(%rsp)\n lea two(%rip),%rcx\n jmp *%rcx\n"
    "two: push %rbp\n mov %rsp,%rbp\n push %rax\n mov $2,%edi\n and $-16,%rsp\n call *%r12\n"
    " mov 16(%rbp),%rax\n leave\n ret $16\n"
    "leaver: push %rbp\n mov %rsp,%rbp\n lea 8(%rbp),%rdx\n mov 8(%rbp),%rcx\n mov (%rbp),%rbp\n"
    " lea 24(%rdx),%rsp\n push %rcx\n ret\n"
    "builder: push %rax\n mov 8(%rsp),%rcx\n add $16,%rsp\n push %rcx\n push %rbp\n mov %rsp,%rbp\n"
    " push %rax\n push %rax\n lea 3f(%rip),%rcx\n push %rcx\n push %rbp\n mov %rsp,%rbp\n"
    " mov $3,%edi\n and $-16,%rsp\n call *%r12\n leave\n ret\n"
    "3: pop %rax\n pop %rax\n leave\n ret\n"
    "popper: push %rbp\n mov %rsp,%rbp\n push %rax\n lea code_end(%rip),%rdx\n"
    " pop (%rdx)\n pop 8(%rdx)\n pop 16(%rdx)\n"
    " mov %rsp,%r13\n and $-16,%rsp\n mov $4,%edi\n call *%r12\n mov %r13,%rsp\n"
    " lea code_end(%rip),%rdx\n push 16(%rdx)\n push 8(%rdx)\n mov %rsp,%rbp\n push $0\n"
    " lea 4f(%rip),%rcx\n push %rcx\n push %rbp\n lea 5f(%rip),%rcx\n push %rcx\n"
    " lea 6f(%rip),%rcx\n push %rcx\n push $1\n push $2\n pop %rcx\n pop %rcx\n ret\n"
    "6: mov %rsp,%r14\n and $-16,%rsp\n mov $5,%edi\n call *%r12\n mov %r14,%rsp\n ret\n"
    "5: pop %rbp\n ret\n"
    "4: pop %rcx\n pop %rbp\n mov code_end(%rip),%rax\n ret\n"
    "raise: push %rbp\n mov %rsp,%rbp\n lea handler(%rip),%rcx\n mov %rcx,8(%rbp)\n leave\n ret\n"
    "code_end:\n");

__attribute__((noinline)) static long callback(long n) {
  volatile char text[32];
  snprintf((char *)text, sizeof text, "%ld", n);
  return text[0] - '0';
}

int main(void) {
  size_t size = code_end - (char *)code;
  char *memory = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(memory, (char *)code, size);
  long sum = 0;
  for (long n = 1; n < 20; n++) sum += ((long (*)(long, native *))memory)(n, callback);
  printf("%ld\n", sum);
  return 0;
}
