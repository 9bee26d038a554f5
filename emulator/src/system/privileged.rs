//! The instructions of the system: those that only ring 0 may execute, and those that do more there.
//!
//! Source: Intel SDM volume 2. Where Intel's and AMD's processors differ, the vendor's.

use super::deliver::Raised;
use super::registers::{cr0, cr4, is_canonical, msr};
use super::{Next, Shadow, System, vector};
use crate::address_space::Refusal;
use crate::flags;
use crate::operands::segment;
use crate::processor::Refused;
use crate::state::reg;
use crate::system::cpuid;
use iced_x86::{Code, Decoder, Instruction, Mnemonic, OpKind, Register};

/// What an instruction did.
pub(super) enum Done {
    /// The next one follows it.
    Next,
    /// It has set rip.
    Jumped,
    /// It has set rip; whether a single step ends here depends on the flags that it has set.
    Switched,
    /// A handler of its own was entered, or one of a fault.
    Entered,
    /// One iteration of it; it goes on.
    Again,
}

/// The result of an instruction.
pub(super) type Outcome = Result<Done, Raised>;

impl System {
    /// Executes the next instruction, at which the machine stopped.
    pub(super) fn execute_privileged(&mut self, shadow: Shadow) -> Next {
        let bytes = self.instruction_bytes();
        let options = self.machine.core.processor.decoder_options();
        let rip = self.machine.core.state.rip;
        let insn = Decoder::with_ip(64, &bytes, rip, options).decode();
        match self.execute(&insn) {
            Ok(done) => {
                // A load of ss behind another one delays nothing.
                if shadow == Shadow::InterruptsAndTraps && self.shadow == shadow {
                    self.shadow = Shadow::Nothing;
                }
                if matches!(done, Done::Next) {
                    self.machine.core.state.rip = rip.wrapping_add(insn.len() as u64);
                }
                if !matches!(done, Done::Again) {
                    self.machine.count();
                }
                // rip is where it goes on after that.
                self.halts = insn.mnemonic() == Mnemonic::Hlt;
                match done {
                    Done::Next | Done::Jumped | Done::Again => Next::Trap,
                    Done::Switched => Next::TrapIfStill,
                    Done::Entered => Next::Handler,
                }
            }
            Err(raised) => {
                self.raise_fault(raised);
                Next::Handler
            }
        }
    }

    fn execute(&mut self, insn: &Instruction) -> Outcome {
        use Mnemonic::*;
        match self.machine.core.processor.gates().refuse(insn) {
            None | Some(Refused::Differs) => {}
            Some(Refused::Invalid) => return Err(Raised::new(vector::INVALID_OPCODE, None)),
            Some(Refused::NotAvailable) => return Err(Raised::new(vector::NOT_AVAILABLE, None)),
            Some(Refused::Privileged) => self.require_ring0()?,
        }
        match insn.mnemonic() {
            Cpuid => self.cpuid(),
            Popf | Popfq => self.popf(insn),
            Int | Int3 | Int1 => {
                let state = &mut self.machine.core.state;
                let start = state.rip;
                state.rip = start.wrapping_add(insn.len() as u64);
                match insn.mnemonic() {
                    Int => self.raise_software(insn.immediate8(), start),
                    Int3 => self.raise_software(vector::BREAKPOINT, start),
                    _ => self.raise_trap(vector::DEBUG, start),
                }
                return Ok(Done::Entered);
            }
            Iretq => return self.return_from_interrupt(8).map(|()| Done::Jumped),
            Iretd => return self.return_from_interrupt(4).map(|()| Done::Jumped),
            Iret => return self.return_from_interrupt(2).map(|()| Done::Jumped),
            Retf => {
                let size = match insn.code() {
                    Code::Retfq | Code::Retfq_imm16 => 8,
                    Code::Retfd | Code::Retfd_imm16 => 4,
                    _ => 2,
                };
                let extra = match insn.op_count() {
                    0 => 0,
                    _ => u64::from(insn.immediate16()),
                };
                return self.return_far(size, extra).map(|()| Done::Jumped);
            }
            Jmp | Call => {
                let size = insn.memory_size().size() - 2;
                return self.transfer_far(insn, size).map(|()| Done::Jumped);
            }
            Sysenter => self.enter_system(),
            Rdtsc | Rdtscp | Rdpid => self.read_time(insn),
            Rdpmc => self.read_counter(),
            Lfs | Lgs | Lss => self.load_pointer(insn),
            Sysretq => {
                self.require_ring0()?;
                return self.leave_syscall().map(|()| Done::Switched);
            }
            In | Out => self.port(insn),
            Insb | Insw | Insd | Outsb | Outsw | Outsd => return self.port_string(insn),
            Cli | Sti => self.interrupts(insn.mnemonic() == Sti),
            Clac | Stac => self.alignment_check(insn.mnemonic() == Stac),
            Mov if insn.op_register(0).is_segment_register() => self.load_segment(insn),
            Pop => self.load_segment(insn),
            Lar | Lsl => self.look_up_segment(insn),
            Verr | Verw => self.verify_segment(insn),
            Sgdt | Sidt | Sldt | Str | Smsw => self.store_table(insn),
            _ => {
                self.require_ring0()?;
                self.execute_ring0(insn)
            }
        }?;
        Ok(Done::Next)
    }

    /// An instruction that only ring 0 may execute.
    fn execute_ring0(&mut self, insn: &Instruction) -> Result<(), Raised> {
        use Mnemonic::*;
        match insn.mnemonic() {
            Hlt | Invd | Wbinvd => Ok(()),
            Mov => self.move_control(insn),
            Rdmsr => self.read_msr(),
            Wrmsr => self.write_msr(),
            Swapgs => {
                let state = &mut self.machine.core.state;
                let base = state.gpr(reg::GS);
                state.set_gpr(reg::GS, self.registers.kept(msr::KERNEL_GS_BASE));
                self.registers.set_kept(msr::KERNEL_GS_BASE, base);
                Ok(())
            }
            Invlpg => {
                let address = self.address(insn, 0);
                self.machine.core.memory.forget_translation(address);
                Ok(())
            }
            Lgdt | Lidt => {
                let table = self.load_table(insn)?;
                match insn.mnemonic() {
                    Lgdt => self.registers.gdt = table,
                    _ => self.registers.idt = table,
                }
                Ok(())
            }
            Lldt => self.load_local_table(insn),
            Ltr => self.load_task(insn),
            Clts => {
                self.registers.cr0 &= !cr0::TS;
                self.set_controls();
                Ok(())
            }
            Lmsw => {
                let value = self.operand(insn, 0, 2)?;
                // PE cannot be cleared.
                let kept = self.registers.cr0 & !0b1110;
                self.registers.cr0 = kept | value & 0b1111;
                self.set_controls();
                Ok(())
            }
            Xsetbv => {
                let state = &self.machine.core.state;
                let value = state.gpr(reg::RDX) << 32 | state.gpr(reg::RAX) & 0xffff_ffff;
                let number = state.gpr(reg::RCX) as u32;
                // The machine has all components that exist enabled, or none that another one could be.
                match number == 0 && value == self.machine.core.processor.xcr0() {
                    true => Ok(()),
                    false => Err(Raised::general()),
                }
            }
            _ => {
                self.end_unmodelled("an instruction of ring 0");
                Ok(())
            }
        }
    }

    /// `sysenter`, which is modelled only where it is not enabled.
    fn enter_system(&mut self) -> Result<(), Raised> {
        if self.registers.kept(msr::SYSENTER_CS) & !3 == 0 {
            return Err(Raised::general());
        }
        self.end_unmodelled("sysenter");
        Ok(())
    }

    /// `rdtsc`, `rdtscp` and `rdpid`, where they are not as in user mode.
    fn read_time(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let time = self.now().wrapping_add(self.registers.tsc_offset);
        let number = self.registers.kept(msr::TSC_AUX);
        let state = &mut self.machine.core.state;
        if insn.mnemonic() == Mnemonic::Rdpid {
            state.set_gpr(insn.op_register(0).number(), number);
            return Ok(());
        }
        state.set::<32>(reg::RAX as u8, time);
        state.set::<32>(reg::RDX as u8, time >> 32);
        if insn.mnemonic() == Mnemonic::Rdtscp {
            state.set_gpr(reg::RCX, number);
        }
        Ok(())
    }

    /// `rdpmc`.
    fn read_counter(&mut self) -> Result<(), Raised> {
        if self.registers.cr4 & cr4::PCE == 0 {
            self.require_ring0()?;
        }
        let number = self.machine.core.state.gpr(reg::RCX) as u32;
        let counters = self.registers.counters.as_deref();
        let value = counters.and_then(|counters| counters.counter(number));
        let value = value.ok_or_else(Raised::general)?;
        let state = &mut self.machine.core.state;
        state.set::<32>(reg::RAX as u8, value);
        state.set::<32>(reg::RDX as u8, value >> 32);
        Ok(())
    }

    pub(super) fn require_ring0(&self) -> Result<(), Raised> {
        match self.privilege() {
            0 => Ok(()),
            _ => Err(Raised::general()),
        }
    }

    /// The address of the memory operand, `by` bytes on.
    pub(super) fn address(&self, insn: &Instruction, by: u64) -> u64 {
        let core = &self.machine.core;
        let value = |register: Register| match register {
            Register::None | Register::RIP | Register::EIP => 0,
            register => core.state.gpr(register.number()),
        };
        let base = value(insn.memory_base());
        let index = value(insn.memory_index()).wrapping_mul(insn.memory_index_scale().into());
        let mut address = base
            .wrapping_add(index)
            .wrapping_add(insn.memory_displacement64())
            .wrapping_add(by);
        if insn.memory_base().size() == 4 || insn.memory_index().size() == 4 {
            address &= 0xffff_ffff;
        }
        address.wrapping_add(core.state.gpr(segment(insn)))
    }

    /// Loads bytes, zero-extended, with the rights of the running code.
    pub(super) fn load(&mut self, address: u64, size: usize) -> Result<u64, Raised> {
        let core = &mut self.machine.core;
        let loaded = match size {
            1 => core.load::<8>(address),
            2 => core.load::<16>(address),
            4 => core.load::<32>(address),
            _ => core.load::<64>(address),
        };
        loaded.ok_or_else(|| self.refused_access())
    }

    pub(super) fn store(&mut self, address: u64, value: u64, size: usize) -> Result<(), Raised> {
        // Twice, if instructions were decoded there.
        for _ in 0..2 {
            let core = &mut self.machine.core;
            let stored = match size {
                1 => core.store::<8>(address, value),
                2 => core.store::<16>(address, value),
                4 => core.store::<32>(address, value),
                _ => core.store::<64>(address, value),
            };
            if stored.is_some() {
                core.memory.set_code_writable(false);
                return Ok(());
            }
            core.memory.set_code_writable(true);
            match core.memory.take_refusal() {
                Some(Refusal::Code(_)) => {}
                refusal => {
                    core.memory.set_code_writable(false);
                    return Err(self.refusal(refusal));
                }
            }
        }
        Err(Raised::general())
    }

    /// The exception of the access that was refused last.
    pub(super) fn refused_access(&mut self) -> Raised {
        let refusal = self.machine.core.memory.take_refusal();
        self.refusal(refusal)
    }

    fn refusal(&self, refusal: Option<Refusal>) -> Raised {
        match refusal {
            Some(Refusal::Fault(fault)) => self.memory_fault(fault),
            _ => Raised::general(),
        }
    }

    /// Whether the next instruction uses the stack for its memory operand, so that an address which is
    /// not canonical raises #SS.
    pub(super) fn uses_stack(&self) -> bool {
        let bytes = self.instruction_bytes();
        let insn = Decoder::new(64, &bytes, 0).decode();
        insn.is_stack_instruction()
            || insn.segment_prefix() == Register::None
                && matches!(insn.memory_base(), Register::RSP | Register::RBP)
    }

    /// A register or memory operand of this size, zero-extended.
    pub(super) fn operand(
        &mut self,
        insn: &Instruction,
        number: u32,
        size: usize,
    ) -> Result<u64, Raised> {
        match insn.op_kind(number) {
            OpKind::Memory => {
                let address = self.address(insn, 0);
                self.load(address, size)
            }
            _ => {
                let name = insn.op_register(number);
                let value = if name.is_segment_register() {
                    self.machine.core.state.segments[name.number()].into()
                } else {
                    self.machine.core.state.gpr(name.number())
                };
                Ok(match size {
                    2 => value & 0xffff,
                    4 => value & 0xffff_ffff,
                    _ => value,
                })
            }
        }
    }

    fn cpuid(&mut self) -> Result<(), Raised> {
        let core = &mut self.machine.core;
        let ask = |number| core.state.gpr(number) as u32;
        let (leaf, subleaf) = (ask(reg::RAX), ask(reg::RCX));
        let answer = cpuid::leaf(&core.processor, &self.registers, leaf, subleaf);
        if leaf == 1 && self.registers.microcode != 0 {
            let revision = u64::from(self.registers.microcode) << 32;
            self.registers.set_kept(msr::BIOS_SIGN_ID, revision);
        }
        for (number, value) in [reg::RAX, reg::RBX, reg::RCX, reg::RDX]
            .into_iter()
            .zip(answer)
        {
            core.state.set_gpr(number, value.into());
        }
        Ok(())
    }

    fn popf(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let rsp = self.machine.core.state.gpr(reg::RSP);
        let size = if insn.code() == Code::Popfw { 2 } else { 8 };
        let value = self.load(rsp, size)?;
        let mut mask = flags::USER;
        if self.privilege() == 0 {
            mask |= flags::IOPL;
        }
        if self.may_change_interrupts() {
            mask |= flags::IF;
        }
        if size == 2 {
            mask &= 0xffff;
        }
        let state = &mut self.machine.core.state;
        let flags = state.rflags() & !(mask | flags::RF) | value & mask;
        state.set_all_flags(flags);
        state.set_gpr(reg::RSP, rsp.wrapping_add(size as u64));
        self.mode_changed();
        Ok(())
    }

    fn interrupts(&mut self, on: bool) -> Result<(), Raised> {
        if !self.may_change_interrupts() {
            return Err(Raised::general());
        }
        let state = &mut self.machine.core.state;
        if on && state.other_flags & flags::IF == 0 {
            self.shadow = Shadow::Interrupts;
        }
        state.other_flags &= !flags::IF;
        if on {
            state.other_flags |= flags::IF;
        }
        Ok(())
    }

    fn alignment_check(&mut self, on: bool) -> Result<(), Raised> {
        if self.privilege() != 0 {
            return Err(Raised::new(vector::INVALID_OPCODE, None));
        }
        let state = &mut self.machine.core.state;
        state.other_flags &= !flags::AC;
        if on {
            state.other_flags |= flags::AC;
        }
        self.mode_changed();
        Ok(())
    }

    fn read_msr(&mut self) -> Result<(), Raised> {
        let number = self.machine.core.state.gpr(reg::RCX) as u32;
        let now = self.now();
        let value = match number {
            msr::FS_BASE => Some(self.machine.core.state.gpr(reg::FS)),
            msr::GS_BASE => Some(self.machine.core.state.gpr(reg::GS)),
            _ => {
                let paging = self.machine.core.memory.paging();
                let devices = paging.map(|paging| &mut paging.devices);
                devices.and_then(|devices| self.registers.read(number, devices, now))
            }
        };
        let value = value.ok_or_else(Raised::general)?;
        let state = &mut self.machine.core.state;
        state.set::<32>(reg::RAX as u8, value);
        state.set::<32>(reg::RDX as u8, value >> 32);
        Ok(())
    }

    fn write_msr(&mut self) -> Result<(), Raised> {
        let state = &mut self.machine.core.state;
        let number = state.gpr(reg::RCX) as u32;
        let value = state.gpr(reg::RDX) << 32 | state.gpr(reg::RAX) & 0xffff_ffff;
        let base = match number {
            msr::FS_BASE => Some(reg::FS),
            msr::GS_BASE => Some(reg::GS),
            _ => None,
        };
        if let Some(base) = base {
            if !is_canonical(value) {
                return Err(Raised::general());
            }
            state.set_gpr(base, value);
            return Ok(());
        }
        let now = self.now();
        let paging = self.machine.core.memory.paging();
        let devices = paging.map(|paging| &mut paging.devices);
        let written = devices.and_then(|devices| self.registers.write(number, value, devices, now));
        written.ok_or_else(Raised::general)?;
        if matches!(number, msr::EFER | msr::TSC | msr::TSC_AUX) {
            self.set_controls();
        }
        Ok(())
    }
}
