//! What functions do between prologue and epilogue.

use super::frame::EmittedFunction;
use super::{DataWord, Lowering};
use crate::programs::asm::{Condition, Label};
use crate::programs::program::{Raise, StackAdjustment, Statement, TransferKind};
use crate::programs::row::{FrameLayout, RAX, RCX, RDI, RSI, RSP};

const SYS_GETPID: u32 = 39;
const SYS_KILL: u32 = 62;
const SIGUSR1: u32 = 10;

impl Lowering<'_> {
    pub(super) fn body(&mut self, current: &mut EmittedFunction<'_>, statements: &[Statement]) {
        for statement in statements {
            self.statement(current, statement);
        }
    }

    fn statement(&mut self, current: &mut EmittedFunction<'_>, statement: &Statement) {
        match statement {
            &Statement::Call { callee, how, times } => {
                // A call that is made only so many times.
                let behind = times.map(|times| self.guard(times));
                self.call(callee, how);

                // After each call the registers must be what they were, or the program ends.
                self.verify(current.function);
                if let Some(behind) = behind {
                    self.asm.bind(behind);
                }
            }
            &Statement::Arguments {
                callee,
                words,
                pops,
            } => {
                self.arguments(callee, words, pops);
                self.verify(current.function);
            }
            &Statement::Loop { callee, times } => {
                // The counter is in memory: a register would have to be saved, and that would be
                // another frame.
                let counter = self.word(DataWord::Number(0));
                self.asm.store_imm_absolute(counter, times.into());
                let again = self.asm.label();
                self.asm.bind(again);
                self.call(callee, TransferKind::Direct);
                self.asm.sub_from_absolute(counter, 1);
                self.asm.jump_if(Condition::Greater, again);
                self.verify(current.function);
            }
            &Statement::Room { bytes, room } => self.room(bytes, room),
            Statement::Thunk => self.thunk(),
            &Statement::Retpoline { callee } => {
                self.needs_retpoline = true;
                self.asm.lea_label(RAX, self.functions[callee]);
                self.asm.call(self.retpoline);
                self.verify(current.function);
            }
            &Statement::Planted {
                callee,
                put,
                how,
                back,
            } => {
                self.planted(callee, put, how, back);
                self.verify(current.function);
            }
            &Statement::Linked {
                callee,
                register,
                pops,
            } => {
                self.linked(current.function, callee, register, pops);
                self.verify(current.function);
            }
            &Statement::Kept { callee, keep } => {
                self.kept(callee, keep);
                self.verify(current.function);
            }
            &Statement::Table { cases } => self.table(cases),
            // The guard lets it return only so many times, as what follows has to be executed as
            // well.
            &Statement::Return { times } => {
                let behind = self.guard(times);
                self.early_return(current);
                self.asm.bind(behind);
            }
            // The body is in the cold section, and is jumped to and back from.
            Statement::Cold { times, body } => {
                let labels = [(); 2].map(|()| self.asm.label());
                let counter = self.word(DataWord::Number((*times).into()));
                self.asm.sub_from_absolute(counter, 1);
                self.asm.jump_if(Condition::NotNegative, labels[0]);
                self.cold(current, labels, body);
                self.asm.bind(labels[1]);
            }
            &Statement::Raise { raise, times } => {
                self.raise(raise, times);
                self.verify(current.function);
            }
            Statement::Filler => self.asm.nop(),
        }
    }

    /// Jumps to the returned label, except for the first `times` times.
    fn guard(&mut self, times: u8) -> Label {
        let behind = self.asm.label();
        let counter = self.word(DataWord::Number(times.into()));
        self.asm.sub_from_absolute(counter, 1);
        self.asm.jump_if(Condition::Negative, behind);
        behind
    }

    fn call(&mut self, callee: usize, how: TransferKind) {
        match how {
            TransferKind::Direct => self.asm.call(self.functions[callee]),
            TransferKind::Register => {
                self.asm.lea_label(RAX, self.functions[callee]);
                self.asm.call_register(RAX);
            }
            TransferKind::Memory => self.asm.call_absolute(self.pointers[callee]),
        }
    }

    fn arguments(&mut self, callee: usize, words: u8, pops: bool) {
        for number in 0..words {
            match number % 3 {
                0 => self.asm.push_imm(number.into()),
                1 => self.asm.push(RAX),
                _ => self.asm.push_absolute(self.pointers[callee]),
            }
        }
        self.call(callee, TransferKind::Direct);
        if pops {
            (0..words).for_each(|_| self.asm.pop(RCX));
        } else {
            self.asm.add_sp(8 * i32::from(words), false);
        }
    }

    fn room(&mut self, bytes: u16, room: StackAdjustment) {
        match room {
            StackAdjustment::Constant => self.asm.sub_imm(RSP, bytes.into()),
            StackAdjustment::Variable => {
                self.asm.mov_imm32(RAX, bytes.into());
                self.asm.sub(RSP, RAX);
            }
            StackAdjustment::Move => {
                self.asm.mov(RAX, RSP);
                self.asm.sub_imm(RAX, bytes.into());
                self.asm.mov(RSP, RAX);
            }
        }
    }

    /// Between the call and the pop there is an additional frame.
    fn thunk(&mut self) {
        let next = self.asm.label();
        self.asm.call(next);
        let (row, depth) = (self.asm.row, self.asm.depth);
        self.asm.row = FrameLayout::ENTRY;
        self.asm.bind(next);
        self.asm.pop(RAX);
        self.asm.row = row;
        self.asm.depth = depth;
    }

    fn table(&mut self, cases: u8) {
        let counter = self.word(DataWord::Number(0));
        let labels: Vec<Label> = (0..cases).map(|_| self.asm.label()).collect();
        let end = self.asm.label();
        let table = labels
            .iter()
            .map(|&label| self.word(DataWord::Address(label)));
        let table = table.reduce(u64::min).unwrap_or(counter);
        self.asm.sub_from_absolute(counter, 1);
        self.asm.and_absolute(counter, i32::from(cases) - 1);
        self.asm.load_absolute(RAX, counter);
        self.asm.jump_table(table);
        for label in labels {
            self.asm.bind(label);
            self.asm.nop();
            self.asm.jump(end);
        }
        self.asm.bind(end);
    }

    /// Clobbers rax, rcx, rdi, rsi, r11.
    pub(super) fn raise(&mut self, raise: Raise, times: u8) {
        let behind = self.guard(times);
        match raise {
            Raise::Load => {
                self.asm.xor32(RAX);
                self.asm.load(RAX, RAX, 0);
            }
            Raise::Divide => {
                self.asm.xor32(RCX);
                self.asm.div(RCX);
            }
            Raise::Kill => {
                self.asm.mov_imm32(RAX, SYS_GETPID);
                self.asm.syscall();
                self.asm.mov(RDI, RAX);
                self.asm.mov_imm32(RSI, SIGUSR1);
                self.asm.mov_imm32(RAX, SYS_KILL);
                self.asm.syscall();
            }
        }
        self.asm.bind(behind);
    }
}
