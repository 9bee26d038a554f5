//! The truth of a capture of single-stepped instructions: a shadow stack built from its steps.
//!
//! The contents of the stack before the first step are unknown. Calls, interrupts and entries from
//! then on are known, until a step is missing.

use super::json::{Object, Problem, UNPACKED_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;
use unwind_sim_unwind::image::Image;
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, Insn, classify};
use unwind_sim_unwind::kernel::{StackInfo, StackType, UserBoundary, is_user_cs};
use unwind_sim_unwind::memory::{Memory, Regions};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::truth::shadow::{IretFrame, LeftUserSpace, ObservedState, Shadow};
use unwind_sim_unwind::truth::{Cpu, Truth};

/// The trampolines that tracers make functions return to.
const TRAMPOLINES: [&str; 4] = [
    "return_to_handler",
    "arch_rethook_trampoline",
    "__kretprobe_trampoline",
    "kretprobe_trampoline",
];
/// The entry point of system calls.
const SYSCALL_ENTRY: &str = "entry_SYSCALL_64";
/// Size of the interrupt frame that the processor pushes, bytes.
const IRET_FRAME_LEN: u64 = 40;
/// Maximum number of pieces of code kept.
const PIECES_MAX: usize = 4096;

/// The stepped code: from the capture, or else from the image, which lacks the kernel's own patches
/// at boot.
#[derive(Debug, Default)]
struct Stepped {
    pieces: BTreeMap<u64, Vec<u8>>,
    image: Option<Arc<Image>>,
    bias: u64,
}

impl Stepped {
    fn class(&self, rip: u64) -> Insn {
        let piece = self.pieces.range(..=rip).next_back();
        let held = piece.and_then(|(at, bytes)| {
            let offset = usize::try_from(rip - at).ok()?;
            bytes.get(offset..).filter(|bytes| !bytes.is_empty())
        });
        match (held, &self.image) {
            (Some(bytes), _) => classify(&bytes[..bytes.len().min(INSN_BYTES_MAX)]),
            (None, Some(image)) => {
                classify(image.text_bytes(rip.wrapping_sub(self.bias), INSN_BYTES_MAX))
            }
            (None, None) => Insn::Other,
        }
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        let symbols = self.image.as_ref()?.symbols();
        let found = symbols.iter().find(|s| s.name == name)?;
        Some(found.address.wrapping_add(self.bias))
    }
}

/// The shadow stack, and the state that it needs.
#[derive(Debug)]
pub(super) struct Steps {
    code: Stepped,
    syscall_entry: Option<u64>,
    shadow: Shadow,
    before: Before,
    /// The number of the previous step.
    number: Option<u64>,
}

/// The state before a step.
#[derive(Clone, Copy, Debug)]
enum Before {
    Unseen,
    User,
    Kernel(ObservedState),
}

impl Steps {
    /// None yet.
    pub(super) fn unseen() -> Steps {
        Steps {
            code: Stepped::default(),
            syscall_entry: None,
            shadow: Shadow::new(Vec::new()),
            before: Before::Unseen,
            number: None,
        }
    }

    /// Reads the `code` of a capture of the kernel `image`, whose KASLR offset is `bias`.
    pub(super) fn new(
        root: &Object<'_>,
        image: Option<Arc<Image>>,
        bias: u64,
    ) -> Result<Steps, Problem> {
        let mut code = Stepped {
            pieces: BTreeMap::new(),
            image,
            bias,
        };

        let mut room = UNPACKED_MAX;
        for piece in root.memories("code")? {
            // The number of pieces is from the file, and each unpacks to more than it has there.
            if code.pieces.len() == PIECES_MAX {
                return Err(root.problem("code", "more than 4096 pieces"));
            }
            let (at, bytes) = piece?;
            room = room
                .checked_sub(bytes.len())
                .ok_or_else(|| root.problem("code", "more than 64 MiB of memory"))?;
            code.pieces.insert(at, bytes);
        }

        // Where the return addresses that tracers took are given back.
        let trampolines = TRAMPOLINES.iter().filter_map(|name| code.symbol(name));
        let shadow = Shadow::new(trampolines.collect());

        Ok(Steps {
            syscall_entry: code.symbol(SYSCALL_ENTRY),
            code,
            shadow,
            ..Steps::unseen()
        })
    }

    /// A step in user space.
    pub(super) fn user(&mut self, number: Option<u64>) {
        self.number = number;
        self.before = Before::User;
        self.shadow.root(None);
    }

    /// A step in the kernel. Returns the true chain as far as it is known, and the registers at the
    /// exit from user space.
    pub(super) fn kernel(
        &mut self,
        number: Option<u64>,
        regs: &Regs,
        stacks: &[StackInfo],
        memory: &Regions<'_>,
    ) -> (Truth, Option<UserBoundary>) {
        let at = seen(regs);
        let processor = stacks.iter().filter(|s| s.kind != StackType::Task);
        self.shadow
            .set_processor(processor.map(StackInfo::range).collect());

        // A shadow stack cannot be continued across steps that were not captured.
        let follows = match (self.number, number) {
            (Some(before), Some(now)) => before.checked_add(1) == Some(now),
            (None, None) => true,
            _ => false,
        };
        if !follows {
            self.before = Before::Unseen;
        }
        self.number = number;

        let own = stacks.iter().find(|s| s.kind == StackType::Task);
        // The entry from user space saves the registers at the top of the stack (`task_pt_regs`).
        let pt_regs = own.and_then(|s| s.end.checked_sub(unwind_sim_unwind::pt_regs::PT_REGS_LEN));
        match self.before {
            Before::Kernel(before) => self.step(&before, &at, stacks, pt_regs, memory),
            // The shadow stack starts again, at best with an entry into the kernel.
            Before::Unseen | Before::User => {
                self.shadow.lost();
                self.enter(&at, regs, stacks, pt_regs, memory);
            }
        }

        self.before = Before::Kernel(at);
        let truth = self.shadow.truth(&at.cpu);
        // Only a complete chain leads to user space.
        let boundary = self.shadow.boundary().filter(|_| truth.is_complete());
        (truth, boundary)
    }

    /// Handles the first instruction seen, or the first after user space, which may be an entry.
    fn enter(
        &mut self,
        at: &ObservedState,
        regs: &Regs,
        stacks: &[StackInfo],
        pt_regs: Option<u64>,
        memory: &Regions<'_>,
    ) {
        if self.syscall_entry == Some(at.cpu.rip) {
            // SYSCALL leaves the user's rip in rcx and does not change rsp (Intel SDM volume 2).
            let boundary = regs.get(Reg::Rcx).map(|ip| UserBoundary {
                ip,
                sp: at.cpu.rsp,
                pushed_at: None,
            });
            return self
                .shadow
                .root(boundary.map(|b| LeftUserSpace::new(b, pt_regs)));
        }

        if let Before::User = self.before {
            // The processor was in user space, so the location identifies the frame that it pushed.
            match pushed(at, None, stacks, memory) {
                Some((slot, frame)) if is_user_cs(frame.cs) => {
                    self.shadow.interrupted(at, slot, frame, pt_regs);
                }
                _ => self.shadow.root(None),
            }
        }
    }

    fn step(
        &mut self,
        before: &ObservedState,
        at: &ObservedState,
        stacks: &[StackInfo],
        pt_regs: Option<u64>,
        memory: &Regions<'_>,
    ) {
        let mut word = |address: u64| memory.read_u64(address).ok();
        let insn = self.code.class(before.cpu.rip);
        let transfers = matches!(insn, Insn::Jump | Insn::JumpIndirect | Insn::Call { .. });
        let delivered = pushed(at, Some(before), stacks, memory).filter(|_| !transfers);
        let Some((slot, frame)) = delivered else {
            return self.shadow.step(insn, before, at, &mut word);
        };
        if frame.rip != before.cpu.rip {
            // The instruction was executed before the interrupt arrived.
            let mut between = *before;
            (between.cpu.rip, between.cpu.rsp) = (frame.rip, frame.rsp);
            between.cs = frame.cs;
            self.shadow.step(insn, before, &between, &mut word);
        }
        self.shadow.interrupted(at, slot, frame, pt_regs);
    }
}

fn seen(regs: &Regs) -> ObservedState {
    ObservedState {
        cpu: Cpu {
            rip: regs.get_or_zero(Reg::Rip),
            rsp: regs.get_or_zero(Reg::Rsp),
            saved: Reg::CALLEE_SAVED.map(|reg| regs.get_or_zero(reg)),
        },
        cs: regs.get_or_zero(Reg::Cs),
    }
}

/// The frame that the processor pushed, if it is about to execute the first instruction of a
/// handler: one that returns to `before`, directly below its rsp or at the end of a processor
/// stack. Without `before`, one that returns to user space.
fn pushed(
    at: &ObservedState,
    before: Option<&ObservedState>,
    stacks: &[StackInfo],
    memory: &Regions<'_>,
) -> Option<(u64, IretFrame)> {
    // Without or with an error code below it.
    [at.cpu.rsp, at.cpu.rsp.wrapping_add(8)]
        .into_iter()
        .find_map(|slot| {
            let word = |n: u64| memory.read_u64(slot.wrapping_add(8 * n)).ok();

            let frame = IretFrame {
                rip: word(0)?,
                cs: word(1)?,
                rsp: word(3)?,
            };
            let end = slot.wrapping_add(IRET_FRAME_LEN);

            // The processor starts such a stack at its end.
            let on_own_stack = stacks
                .iter()
                .any(|s| s.kind != StackType::Task && s.end == end);

            let is_back = match before {
                None => is_user_cs(frame.cs) && on_own_stack,
                Some(before) => {
                    let near = |a: u64, b: u64| a.wrapping_sub(b).wrapping_add(NEAR) <= 2 * NEAR;
                    // In 64-bit mode the processor aligns rsp to 16 bytes before it pushes (Intel
                    // SDM volume 3, "64-Bit Mode Stack Frame").
                    let below = end == frame.rsp & !15;
                    frame.cs == before.cs
                        && near(frame.rsp, before.cpu.rsp)
                        && near(frame.rip, before.cpu.rip)
                        && (below || on_own_stack)
                        && at.cpu.rip != frame.rip
                        && at.cpu.rsp != before.cpu.rsp
                }
            };
            is_back.then_some((slot, frame))
        })
}

/// Maximum change of rip, and of rsp, by an instruction that does not transfer control, bytes.
const NEAR: u64 = 64;
