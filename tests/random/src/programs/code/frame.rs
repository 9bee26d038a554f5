//! Prologues and epilogues.

use super::{FAULT_LEN, Lowering, nonce};
use crate::programs::asm::{Label, Section};
use crate::programs::program::{End, Frame, Function, SignalPoint, Statement, TransferKind};
use crate::programs::row::{Cfa, R10, RAX, RBP, RBP_SAVED, RDX, RSP, SAVED, Slot};

/// Offset of the interrupted rip in the ucontext, the handler's third argument: `gregs[REG_RIP]`.
const UCONTEXT_RIP: i32 = 168;
/// Scratch registers that hold callee-saved ones.
const KEEPERS: [u8; 2] = [8, 9];

/// The function being emitted.
pub(super) struct EmittedFunction<'a> {
    pub(super) function: &'a Function,
    pub(super) at: usize,
    /// Number of parts in the cold section so far.
    cold: usize,
    /// Number of instructions in the prologue and last epilogue so far that changed the layout.
    step: u8,
    /// Whether to raise signals between them.
    points: bool,
}

impl EmittedFunction<'_> {
    fn prefers(&self, bit: u32) -> bool {
        self.function.taste >> bit & 1 != 0
    }

    fn size(&self) -> i32 {
        self.function.locals.into()
    }

    /// Bytes that [`Frame::Moves`] and [`Frame::Enter`] allocate.
    fn room(&self) -> i32 {
        self.size() + 8 * self.function.saves.len() as i32
    }
}

impl Lowering<'_> {
    pub(super) fn function(&mut self, at: usize) {
        let program = self.program;
        let function = &program.functions[at];
        let label = self.functions[at];
        self.begin(&format!("f{at}"), label);
        let mut current = EmittedFunction {
            function,
            at,
            cold: 0,
            step: 0,
            points: true,
        };

        if current.prefers(0) {
            self.asm.endbr64();
        }

        self.prologue(&mut current);
        // Otherwise the same instruction would fault again when the handler returns.
        if self.program.handlers.is_some_and(|h| h.fault == at) {
            self.asm.add_to_memory(RDX, UCONTEXT_RIP, FAULT_LEN);
        }

        self.fill(function);
        // The nonces that the saved registers got are checked behind the body: so a callee that
        // does not restore one is noticed.
        self.body(&mut current, &function.body);
        self.verify(function);
        current.points = true;
        self.epilogue(&mut current);

        match function.end {
            End::Return => self.asm.ret(),
            End::Tail { callee, how } => self.tail(callee, how),
            End::PushAndReturn { callee } => {
                // The push overwrites the slot of a saved register.
                self.asm.row.saved = [Slot::Same; 6];
                self.asm.push_address(self.functions[callee]);
                self.asm.ret();
            }
        }
    }

    fn tail(&mut self, callee: usize, how: TransferKind) {
        match how {
            TransferKind::Direct => self.asm.jump(self.functions[callee]),
            TransferKind::Register => {
                self.asm.lea_label(RAX, self.functions[callee]);
                self.asm.jump_register(RAX);
            }
            TransferKind::Memory => self.asm.jump_absolute(self.pointers[callee]),
        }
    }

    /// Loads nonces into the registers that the function may use.
    fn fill(&mut self, function: &Function) {
        for &index in &function.saves {
            let value = nonce(function.taste, index);
            self.asm.mov_imm64(SAVED[usize::from(index)], value);
        }
    }

    /// Checks that the nonces are still there.
    pub(super) fn verify(&mut self, function: &Function) {
        for &index in &function.saves {
            self.check(SAVED[usize::from(index)], nonce(function.taste, index));
        }
    }

    /// Called before the layout changes.
    fn step(&mut self, current: &mut EmittedFunction<'_>) {
        let points = current.function.points.iter();
        let here: Vec<SignalPoint> = points
            .filter(|p| current.points && p.step == current.step)
            .copied()
            .collect();
        current.step += 1;
        for point in here {
            // An unwinder does not have the interrupted frame's scratch registers.
            let base = match self.asm.row.cfa {
                Cfa::Offset(base, _) | Cfa::Load(base, _) => base,
            };
            if matches!(base, RSP | RBP) {
                self.raise(point.raise, point.times);
            }
        }
    }

    fn push_saves(&mut self, current: &mut EmittedFunction<'_>) {
        for &index in &current.function.saves {
            self.step(current);
            self.asm.push(SAVED[usize::from(index)]);
            let slot = Slot::At(-self.asm.depth);
            self.asm.saved(index.into(), slot);
        }
    }

    fn pop_saves(&mut self, current: &mut EmittedFunction<'_>) {
        for &index in current.function.saves.iter().rev() {
            self.step(current);
            self.asm.pop(SAVED[usize::from(index)]);
            self.restored(current, index.into());
        }
    }

    fn restored(&mut self, current: &EmittedFunction<'_>, index: usize) {
        if current.function.restores {
            self.asm.saved(index, Slot::Same);
        }
    }

    fn push_frame_pointer(&mut self, current: &mut EmittedFunction<'_>) {
        self.step(current);
        self.asm.push(RBP);
        let slot = Slot::At(-self.asm.depth);
        self.asm.saved(RBP_SAVED, slot);
        self.step(current);
        self.asm.mov(RBP, RSP);
        self.asm.row.cfa = Cfa::Offset(RBP, self.asm.depth);
    }

    fn lower_by(&mut self, current: &mut EmittedFunction<'_>, bytes: i32) {
        if bytes == 0 {
            return;
        }
        self.step(current);
        if bytes == 8 && current.prefers(1) {
            self.asm.push(RAX);
        } else {
            self.asm.add_sp(-bytes, current.prefers(2));
        }
    }

    fn raise_by(&mut self, current: &mut EmittedFunction<'_>, bytes: i32) {
        if bytes == 0 {
            return;
        }
        self.step(current);
        if bytes == 8 && current.prefers(1) {
            self.asm.pop(RDX);
        } else {
            self.asm.add_sp(bytes, current.prefers(2));
        }
    }

    fn prologue(&mut self, current: &mut EmittedFunction<'_>) {
        match current.function.frame {
            Frame::Pushes => {
                self.push_saves(current);
                self.lower_by(current, current.size());
            }
            // Room for all at once; then each register is stored without moving rsp.
            Frame::Moves => {
                self.lower_by(current, current.room());
                for (number, &index) in current.function.saves.iter().enumerate() {
                    let offset = current.size() + 8 * number as i32;
                    self.step(current);
                    self.asm.store(RSP, offset, SAVED[usize::from(index)]);
                    let slot = Slot::At(offset - self.asm.depth);
                    self.asm.saved(index.into(), slot);
                }
            }
            Frame::FramePointer => {
                self.push_frame_pointer(current);
                self.push_saves(current);
                self.lower_by(current, current.size());
            }
            Frame::Enter => {
                self.step(current);
                self.asm.enter(current.room() as u16);
                // `enter` has pushed rbp and copied rsp to it, so the CFA is 16 above rbp.
                self.asm.depth = 16 + current.room();
                self.asm.row.cfa = Cfa::Offset(RBP, 16);
                self.asm.saved(RBP_SAVED, Slot::At(-16));
                for (number, &index) in current.function.saves.iter().enumerate() {
                    let offset = -8 * (number as i32 + 1);
                    self.step(current);
                    self.asm.store(RBP, offset, SAVED[usize::from(index)]);
                    self.asm.saved(index.into(), Slot::At(offset - 16));
                }
            }
            Frame::Realigned(alignment) => {
                self.push_frame_pointer(current);
                self.push_saves(current);
                self.step(current);

                // The CFA depends on rbp by now, so rsp may move by any amount.
                self.asm.and_imm(RSP, -i32::from(alignment));
                self.lower_by(current, current.size());
            }
            Frame::RealignedByR10(alignment) => self.realign_by_r10(current, alignment),
            Frame::Scratch(base) => {
                // The CFA: rsp plus the return address.
                self.asm.lea(base, RSP, 8);
                // rsp may be aligned next, so this register holds the CFA until the epilogue.
                self.asm.row.cfa = Cfa::Offset(base, 0);
                if current.prefers(3) {
                    self.asm.and_imm(RSP, -64);
                }
                self.asm.add_sp(-current.room().max(8), current.prefers(2));
                for (number, &index) in current.function.saves.iter().enumerate() {
                    let offset = -8 * (number as i32 + 2);
                    self.asm.store(base, offset, SAVED[usize::from(index)]);
                    self.asm.saved(index.into(), Slot::At(offset));
                }
            }
            // Saved in other registers, not in memory.
            Frame::Registers => {
                for (&index, keeper) in current.function.saves.iter().zip(KEEPERS) {
                    self.asm.mov(keeper, SAVED[usize::from(index)]);
                    self.asm.saved(index.into(), Slot::Register(keeper));
                }
            }
        }
    }

    /// As gcc realigns: `lea 8(%rsp), %r10; and; push -8(%r10); push %rbp; mov %rsp, %rbp`.
    fn realign_by_r10(&mut self, current: &mut EmittedFunction<'_>, alignment: u8) {
        self.step(current);
        self.asm.lea(R10, RSP, 8);
        self.asm.row.cfa = Cfa::Offset(R10, 0);
        self.asm.and_imm(RSP, -i32::from(alignment));
        self.asm.push_at(R10, -8);
        self.asm.push(RBP);
        self.asm.mov(RBP, RSP);
        self.asm.saved(RBP_SAVED, Slot::Load(RBP, 0));
        let mut offset = 0;
        for &index in &current.function.saves {
            self.asm.push(SAVED[usize::from(index)]);
            offset -= 8;
            self.asm.saved(index.into(), Slot::Load(RBP, offset));
        }
        self.asm.push(R10);
        self.asm.row.cfa = Cfa::Load(RBP, offset - 8);
        self.lower_by(current, current.size());
    }

    /// Everything before the instruction that ends the function. Afterwards the layout is that of
    /// the entry, except for slots of registers that rows still name.
    fn epilogue(&mut self, current: &mut EmittedFunction<'_>) {
        let saves = &current.function.saves;
        match current.function.frame {
            // rsp goes up past the locals first, then each `pop` moves the CFA's offset by 8.
            Frame::Pushes => {
                self.raise_by(current, current.size());
                self.pop_saves(current);
            }
            // The saves are above the locals, and loaded without moving rsp.
            Frame::Moves => {
                for (number, &index) in saves.iter().enumerate() {
                    let offset = current.size() + 8 * number as i32;
                    self.step(current);
                    self.asm.load(SAVED[usize::from(index)], RSP, offset);
                    self.restored(current, index.into());
                }
                self.raise_by(current, current.room());
            }
            Frame::FramePointer | Frame::Realigned(_) if saves.is_empty() => {
                self.step(current);
                self.leave(current);
            }
            Frame::FramePointer | Frame::Realigned(_) => {
                self.step(current);
                let below = 8 * saves.len() as i32;

                // To the saves, which are right below the saved rbp, wherever rsp is.
                self.asm.lea(RSP, RBP, -below);
                self.asm.depth = 16 + below;
                self.pop_saves(current);
                self.step(current);
                self.asm.pop(RBP);
                self.asm.row.cfa = Cfa::Offset(RSP, 8);

                // From here on rbp is the caller's.
                self.restored(current, RBP_SAVED);
            }
            Frame::Enter => {
                for (number, &index) in saves.iter().enumerate() {
                    self.step(current);
                    let offset = -8 * (number as i32 + 1);
                    self.asm.load(SAVED[usize::from(index)], RBP, offset);
                    self.restored(current, index.into());
                }
                self.step(current);
                self.leave(current);
            }
            Frame::RealignedByR10(_) => {
                // As GCC does it: r10 has the CFA, and is saved behind the other registers.
                let last = -8 * (saves.len() as i32 + 1);
                self.step(current);
                self.asm.load(R10, RBP, last);
                self.asm.row.cfa = Cfa::Offset(R10, 0);
                for (number, &index) in saves.iter().enumerate() {
                    let offset = -8 * (number as i32 + 1);
                    self.asm.load(SAVED[usize::from(index)], RBP, offset);
                    self.asm.saved(index.into(), Slot::Same);
                }
                self.asm.leave();
                self.asm.saved(RBP_SAVED, Slot::Same);
                // r10 is the CFA, and the return address lies just below it.
                self.asm.lea(RSP, R10, -8);
                self.asm.depth = 8;
                self.asm.row.cfa = Cfa::Offset(RSP, 8);
            }
            Frame::Scratch(base) => {
                for (number, &index) in saves.iter().enumerate() {
                    let offset = -8 * (number as i32 + 2);
                    self.asm.load(SAVED[usize::from(index)], base, offset);
                    self.restored(current, index.into());
                }
                self.asm.lea(RSP, base, -8);
                self.asm.depth = 8;
                self.asm.row.cfa = Cfa::Offset(RSP, 8);
            }
            // Saved in other registers, so no memory is read.
            Frame::Registers => {
                for (&index, keeper) in saves.iter().zip(KEEPERS) {
                    self.asm.mov(SAVED[usize::from(index)], keeper);
                    self.asm.saved(index.into(), Slot::Same);
                }
            }
        }

        self.step(current);
    }

    fn leave(&mut self, current: &mut EmittedFunction<'_>) {
        if current.prefers(4) {
            self.asm.mov(RSP, RBP);
            self.asm.depth = 16;
            self.asm.pop(RBP);
        } else {
            self.asm.leave();
        }
        self.asm.depth = 8;
        self.asm.row.cfa = Cfa::Offset(RSP, 8);
        self.restored(current, RBP_SAVED);
    }

    /// Returns in the middle; after it, the layout is as before.
    pub(super) fn early_return(&mut self, current: &mut EmittedFunction<'_>) {
        let (row, depth) = (self.asm.row, self.asm.depth);
        let step = current.step;
        current.points = false;
        self.epilogue(current);
        self.asm.ret();
        current.points = true;
        current.step = step;
        self.asm.row = row;
        self.asm.depth = depth;
    }

    /// Emits a part of the function in the cold section, starting with the current layout.
    pub(super) fn cold(
        &mut self,
        current: &mut EmittedFunction<'_>,
        [label, back]: [Label; 2],
        body: &[Statement],
    ) {
        let (row, depth) = (self.asm.row, self.asm.depth);
        current.cold += 1;
        let name = format!("f{}.cold.{}", current.at, current.cold);
        let hot = self.asm.begin(&name, Section::Cold, label);
        self.asm.nop();
        self.body(current, body);
        self.asm.jump(back);
        self.asm.resume(hot);
        self.asm.row = row;
        self.asm.depth = depth;
    }
}
