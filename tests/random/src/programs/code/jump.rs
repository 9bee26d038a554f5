//! Calls with a return address that no call instruction makes, or that moves.

use super::{DataWord, Lowering, nonce};
use crate::programs::asm::Label;
use crate::programs::program::{
    Function, ReturnAddressPush, ReturnAddressSave, ReturnSite, Statement, TransferKind,
};
use crate::programs::row::{Cfa, FrameLayout, Gpr, RAX, RCX, RDX, RSP, SAVED, Slot};

/// Holds a return address until it is on the stack. No function pushes this register.
const R11: Gpr = 11;
/// The number of unreachable instructions between a jump and a return address that is farther away
/// than padding.
const FAR: usize = 5;

/// Code that is jumped to, or called, with the address of a function in rax.
#[derive(Default)]
pub(super) struct IndirectTargets {
    /// Returns by a register: by its number, and whether it pops the address again.
    linked: Vec<((Gpr, bool), Label)>,
    kept: Vec<(ReturnAddressSave, Label)>,
}

/// The register of a [`Statement::Linked`].
fn register(function: &Function, index: Option<u8>) -> Gpr {
    let saved = index.and_then(|at| function.saves.get(usize::from(at)));
    saved.map_or(RCX, |&saved| SAVED[usize::from(saved)])
}

impl Lowering<'_> {
    /// The code that the program's statements need. It comes before the functions, so that they jump
    /// backwards: never over data that a register may point to.
    pub(super) fn links(&mut self) {
        for (function, statement) in self.program.statements() {
            match *statement {
                Statement::Linked {
                    register: index,
                    pops,
                    ..
                } => {
                    self.link((register(function, index), pops));
                }
                Statement::Kept { keep, .. } => self.keeper(keep),
                _ => {}
            }
        }
    }

    fn link(&mut self, kind: (Gpr, bool)) -> Label {
        // Each kind is written once, and shared by all that use it.
        if let Some((_, label)) = self.links.linked.iter().find(|(known, _)| *known == kind) {
            return *label;
        }
        let label = self.asm.label();
        self.links.linked.push((kind, label));

        let (register, pops) = kind;
        self.begin(&format!("linked{}", self.links.linked.len()), label);

        // Entered by a jump: the return address is in a register, and the CFA is rsp itself.
        self.asm.row = FrameLayout {
            cfa: Cfa::Offset(RSP, 0),
            ra: Slot::Register(register),
            ..FrameLayout::ENTRY
        };
        self.asm.depth = 0;

        // A callee keeps this register, so the address can stay in it.
        if SAVED.contains(&register) {
            self.asm.call_register(RAX);
            self.asm.jump_register(register);
            return label;
        }
        self.asm.push(register);
        self.asm.row.ra = Slot::At(-8);
        self.asm.call_register(RAX);
        if pops {
            self.asm.pop(RDX);
            self.asm.row.ra = Slot::Register(RDX);
            self.asm.jump_register(RDX);
        } else {
            self.asm.ret()
        }
        label
    }

    fn keeper(&mut self, keep: ReturnAddressSave) {
        // Each way is written once, and shared by all that use it.
        if self.links.kept.iter().any(|(known, _)| *known == keep) {
            return;
        }
        let next = (keep == ReturnAddressSave::Leave).then(|| self.link((RCX, false)));
        let label = self.asm.label();
        self.links.kept.push((keep, label));
        self.begin(&format!("kept{}", self.links.kept.len()), label);

        match keep {
            ReturnAddressSave::Memory => {
                let word = self.word(DataWord::Number(0));
                self.asm.pop_absolute(word);
                self.asm.add_sp(-8, false);
            }
            ReturnAddressSave::Push | ReturnAddressSave::Jump => {
                self.asm.pop(RCX);

                // While the return address is in no memory, the row has to say where it is.
                self.asm.row.ra = Slot::Register(RCX);
                if keep == ReturnAddressSave::Jump {
                    let over = self.asm.label();
                    self.asm.jump(over);
                    self.asm.bind(over);
                }
                self.asm.push(RCX);
            }
            ReturnAddressSave::Swap => {
                self.asm.exchange(RSP, RCX);
                self.asm.row.ra = Slot::Register(RCX);
                self.asm.exchange(RSP, RCX);
            }
            ReturnAddressSave::Read => {
                self.asm.load(RCX, RSP, 0);
                self.asm.add_sp(8, false);
                self.asm.row.ra = Slot::Register(RCX);
                self.asm.push(RCX);
            }
            // Here the address stays in the register, and the next function returns by it.
            ReturnAddressSave::Leave => {
                self.asm.pop(RCX);
                self.asm.row.ra = Slot::Register(RCX);
                if let Some(next) = next {
                    self.asm.lea_label(RDX, next);
                }
                self.asm.jump_register(RDX);
                return;
            }
        }

        // Whichever way it went, the return address is at rsp again.
        self.asm.row = FrameLayout::ENTRY;
        self.asm.jump_register(RAX);
    }

    /// Calls `callee` by code that moves the return address.
    pub(super) fn kept(&mut self, callee: usize, keep: ReturnAddressSave) {
        let found = self.links.kept.iter().find(|(known, _)| *known == keep);
        let Some(&(_, label)) = found else { return };
        self.asm.lea_label(RAX, self.functions[callee]);
        self.asm.call(label);
    }

    /// Jumps, with a return address in a register, to code that calls `callee`.
    pub(super) fn linked(
        &mut self,
        function: &Function,
        callee: usize,
        index: Option<u8>,
        pops: bool,
    ) {
        let link = register(function, index);
        let code = self.link((link, pops));
        let back = self.asm.label();
        self.asm.lea_label(RAX, self.functions[callee]);
        self.asm.lea_label(link, back);
        self.asm.jump(code);
        self.asm.bind(back);
        let saved = index.and_then(|at| function.saves.get(usize::from(at)));
        match saved {
            Some(&saved) => self.asm.mov_imm64(link, nonce(function.taste, saved)),
            None => self.asm.nop(),
        }
    }

    /// Puts a return address on the stack, and jumps to `callee`.
    pub(super) fn planted(
        &mut self,
        callee: usize,
        put: ReturnAddressPush,
        how: Option<TransferKind>,
        place: ReturnSite,
    ) {
        let [back, start, end] = [(); 3].map(|()| self.asm.label());
        if place == ReturnSite::Before {
            self.asm.jump(start);
            self.asm.bind(back);
            self.asm.jump(end);
            self.asm.bind(start);
        }

        // Before the address is put there.
        let (row, depth) = (self.asm.row, self.asm.depth);
        self.put(put, back);
        match how {
            Some(TransferKind::Direct) => self.asm.jump(self.functions[callee]),
            Some(TransferKind::Register) => {
                self.asm.lea_label(RAX, self.functions[callee]);
                self.asm.jump_register(RAX);
            }
            Some(TransferKind::Memory) => self.asm.jump_absolute(self.pointers[callee]),
            None => {
                self.asm.push_address(self.functions[callee]);
                self.asm.ret();
            }
        }

        // The callee takes the address. An unwinder looks it up less 1, so that padding has to come
        // before it, as the jump's own row has the address on the stack.
        (self.asm.row, self.asm.depth) = (row, depth);
        match place {
            ReturnSite::Near => {
                self.asm.nop();
                self.asm.bind(back);
            }
            ReturnSite::Far => {
                for _ in 0..FAR {
                    self.asm.mov_imm64(RAX, 0);
                }
                self.asm.bind(back);
            }
            ReturnSite::Before => self.asm.bind(end),
        }
        self.asm.nop();
    }

    fn put(&mut self, put: ReturnAddressPush, back: Label) {
        if put == ReturnAddressPush::Immediate {
            return self.asm.push_address(back);
        }
        self.asm.lea_label(R11, back);
        match put {
            ReturnAddressPush::Push | ReturnAddressPush::Immediate => self.asm.push(R11),
            ReturnAddressPush::Store => {
                self.asm.add_sp(-8, false);
                self.asm.store(RSP, 0, R11);
            }
            ReturnAddressPush::Below => {
                self.asm.store(RSP, -8, R11);
                self.asm.add_sp(-8, true);
            }
            ReturnAddressPush::Swap => {
                self.asm.add_sp(-8, false);
                self.asm.exchange(RSP, R11);
            }
        }
    }
}
