//! The entry point, the program's end, and code shared by functions.

use super::{DataWord, Lowering, OWN_STACK, OWN_STACK_SIZE, nonce};
use crate::programs::asm::{Condition, Label};
use crate::programs::row::{FrameLayout, RAX, RDI, RDX, RSI, RSP, SAVED, Slot};

const SYS_RT_SIGACTION: u32 = 13;
const SYS_RT_SIGRETURN: u32 = 15;
const SYS_EXIT: u32 = 60;
const SYS_SIGALTSTACK: u32 = 131;
const SIGFPE: u32 = 8;
const SIGUSR1: u32 = 10;
const SIGSEGV: u32 = 11;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_NODEFER: u64 = 0x4000_0000;
/// Seed of the entry point's nonces.
const TASTE: u64 = 0x5eed;

impl Lowering<'_> {
    /// The root: sets nonces in all callee-saved registers, calls the first function, checks the
    /// nonces, and ends.
    pub(super) fn start(&mut self, entry: Label) {
        self.begin("_start", entry);

        // An undefined return address says that nobody called the root.
        self.asm.row.ra = Slot::Undefined;
        self.signals();
        for (index, register) in SAVED.into_iter().enumerate() {
            self.asm.mov_imm64(register, nonce(TASTE, index as u8));
        }

        self.asm.call(self.functions[0]);
        for (index, register) in SAVED.into_iter().enumerate() {
            self.check(register, nonce(TASTE, index as u8));
        }

        if self.program.finish == 0 {
            self.exit(0);
            return;
        }

        // The call is the last instruction, so the return address lies after the function.
        let mut next = self.asm.label();
        self.asm.call(next);
        for number in 1..=self.program.finish {
            let label = next;
            next = self.asm.label();
            self.begin(&format!("finish{number}"), label);

            // With and without a word below the return address.
            if number % 2 == 0 {
                self.asm.push(RAX);
            }
            if number == self.program.finish {
                self.exit(0);
            } else {
                self.asm.call(next);
            }
        }
    }

    fn signals(&mut self) {
        let Some(handlers) = self.program.handlers else {
            return;
        };
        let mut flags = SA_SIGINFO | SA_RESTORER | SA_NODEFER;
        if handlers.own_stack {
            flags |= SA_ONSTACK;
            // `stack_t`: address, flags, size.
            let stack = self.word(DataWord::Number(OWN_STACK - OWN_STACK_SIZE));
            self.word(DataWord::Number(0));
            self.word(DataWord::Number(OWN_STACK_SIZE));
            self.asm.lea_absolute(RDI, stack);
            self.asm.xor32(RSI);
            self.asm.mov_imm32(RAX, SYS_SIGALTSTACK);
            self.asm.syscall();
        }

        for (signal, handler) in [
            (SIGSEGV, handlers.fault),
            (SIGFPE, handlers.fault),
            (SIGUSR1, handlers.sent),
        ] {
            // struct kernel_sigaction: handler, flags, restorer, mask.
            let action = self.word(DataWord::Address(self.functions[handler]));
            self.word(DataWord::Number(flags));
            self.word(DataWord::Address(self.restorer));
            self.word(DataWord::Number(0));

            self.asm.mov_imm32(RDI, signal);
            self.asm.lea_absolute(RSI, action);
            self.asm.xor32(RDX);
            // The size of a mask in bytes; the kernel accepts no other (`kernel/signal.c`).
            self.asm.mov_imm32(10, 8);
            self.asm.mov_imm32(RAX, SYS_RT_SIGACTION);
            self.asm.syscall();
        }
    }

    fn exit(&mut self, status: u32) {
        self.asm.mov_imm32(RDI, status);
        self.asm.mov_imm32(RAX, SYS_EXIT);
        self.asm.syscall();
        self.asm.ud2();
    }

    /// Checks that a register holds `value`. Clobbers rax.
    pub(super) fn check(&mut self, register: u8, value: u64) {
        self.asm.mov_imm64(RAX, value);
        self.asm.cmp(register, RAX);
        self.asm.jump_if(Condition::NotEqual, self.fail);
    }

    /// Code shared by functions.
    pub(super) fn helpers(&mut self) {
        self.begin("fail", self.fail);
        self.asm.row.ra = Slot::Undefined;
        self.exit(1);
        if self.needs_retpoline {
            self.retpoline_thunk();
        }
        // Unwinders look up the handler's return address - 1.
        let before = self.asm.label();
        self.begin("restorer", before);
        self.asm.chunk().signal = true;
        self.asm.row = FrameLayout::RESTORER;
        self.asm.nop();
        self.asm.bind(self.restorer);
        self.asm.mov_imm32(RAX, SYS_RT_SIGRETURN);
        self.asm.syscall();
    }

    /// Jumps to the address in rax by a `ret` (Linux `arch/x86/lib/retpoline.S`).
    fn retpoline_thunk(&mut self) {
        self.begin("retpoline", self.retpoline);
        let [capture, over] = [(); 2].map(|()| self.asm.label());
        self.asm.call(over);
        self.asm.bind(capture);
        self.asm.pause();
        self.asm.jump(capture);
        self.asm.bind(over);
        self.asm.store(RSP, 0, RAX);
        // This `ret` goes to an address that nothing called from.
        self.asm.row.ra = Slot::Code(capture);
        self.asm.ret();
    }
}
