//! Descriptors of segments and gates, and the task state segment.
//!
//! Source: Intel SDM volume 3, "segment descriptors", "64-bit TSS".

use super::deliver::Raised;
use super::registers::is_canonical;
use super::{System, vector};
use crate::address_space::Fault;

/// What a selector means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Descriptor {
    bits: u64,
}

/// The requested privilege level of a selector.
pub(super) const RPL: u16 = 3;
/// The bit of a segment's descriptor that says that its selector was loaded.
const ACCESSED: u64 = 1 << 40;
/// The bit of a selector that means the local table.
const LOCAL: u16 = 4;

impl Descriptor {
    pub(super) fn base(self) -> u64 {
        self.bits >> 16 & 0xff_ffff | self.bits >> 56 << 24
    }

    pub(super) fn limit(self) -> u32 {
        let limit = (self.bits & 0xffff | self.bits >> 32 & 0xf_0000) as u32;
        // In pages, if G is set.
        if self.bits >> 55 & 1 != 0 {
            limit << 12 | 0xfff
        } else {
            limit
        }
    }

    pub(super) fn kind(self) -> u8 {
        (self.bits >> 40 & 0xf) as u8
    }

    /// Whether it is a code or data segment.
    pub(super) fn is_segment(self) -> bool {
        self.bits >> 44 & 1 != 0
    }

    pub(super) fn is_code(self) -> bool {
        self.is_segment() && self.kind() & 8 != 0
    }

    pub(super) fn is_conforming(self) -> bool {
        self.kind() & 4 != 0
    }

    /// For data: can be written. For code: can be read.
    pub(super) fn has_second_right(self) -> bool {
        self.kind() & 2 != 0
    }

    pub(super) fn privilege(self) -> u8 {
        (self.bits >> 45 & 3) as u8
    }

    pub(super) fn is_present(self) -> bool {
        self.bits >> 47 & 1 != 0
    }

    /// Whether code of the segment is 64-bit code.
    pub(super) fn is_long(self) -> bool {
        self.bits >> 53 & 1 != 0
    }

    /// What `lar` gives.
    pub(super) fn access_rights(self) -> u32 {
        (self.bits >> 32) as u32 & 0x00ff_ff00
    }
}

/// A gate of the interrupt descriptor table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gate {
    pub(super) target: u64,
    pub(super) selector: u16,
    /// The number of the stack in the task state segment, or 0.
    pub(super) stack: u8,
    pub(super) privilege: u8,
    pub(super) is_present: bool,
    /// Whether IF is cleared.
    pub(super) masks: bool,
}

/// Types of 64-bit gates.
const INTERRUPT_GATE: u64 = 14;
const TRAP_GATE: u64 = 15;

/// The offset of the stack of ring 0 in the task state segment, bytes.
const RSP0: u64 = 4;
/// The offset of the first of the seven stacks for interrupts.
const IST: u64 = 36;
/// The offset of the field that says where the permissions for ports begin.
const IO_MAP: u64 = 102;

impl System {
    /// The descriptor of a selector that is not null.
    pub(super) fn descriptor(&mut self, selector: u16) -> Result<Descriptor, Raised> {
        let (base, limit) = if selector & LOCAL == 0 {
            let table = self.registers.gdt;
            (table.base, u32::from(table.limit))
        } else {
            let table = self.registers.ldt;
            (
                table.base,
                if table.selector & !RPL == 0 {
                    0
                } else {
                    table.limit
                },
            )
        };
        let at = u32::from(selector & !(RPL | LOCAL));
        if at + 7 > limit {
            return Err(Raised::selector(vector::GENERAL_PROTECTION, selector));
        }
        let bits = self.load_system(base.wrapping_add(at.into()))?;
        Ok(Descriptor { bits })
    }

    /// The upper half of the base of a system segment, whose descriptor has 16 bytes.
    pub(super) fn upper_base(&mut self, selector: u16) -> Result<u64, Raised> {
        let at = u64::from(selector & !(RPL | LOCAL)) + 8;
        if at + 7 > u64::from(self.registers.gdt.limit) {
            return Err(Raised::selector(vector::GENERAL_PROTECTION, selector));
        }
        let base = self.registers.gdt.base;
        let bits = self.load_system(base.wrapping_add(at))?;
        // Where the type of another descriptor is, there must be none.
        let is_other = bits >> 40 & 0x1f != 0;
        let upper = bits << 32;
        if is_other || !is_canonical(upper) {
            return Err(Raised::selector(vector::GENERAL_PROTECTION, selector));
        }
        Ok(upper)
    }

    /// Marks a code or data segment as accessed, unless it is already.
    pub(super) fn mark_accessed(&mut self, selector: u16, it: Descriptor) -> Result<(), Raised> {
        if it.bits & ACCESSED != 0 {
            return Ok(());
        }
        let base = if selector & LOCAL == 0 {
            self.registers.gdt.base
        } else {
            self.registers.ldt.base
        };
        let at = base.wrapping_add((selector & !(RPL | LOCAL)).into());
        let bits = it.bits | ACCESSED;
        let memory = &mut self.machine.core.memory;
        let stored = memory.store_implicit(at, &bits.to_le_bytes());
        stored.map_err(|fault| self.page_fault(fault, true))
    }

    /// Marks the task state segment as busy.
    pub(super) fn set_busy(&mut self, selector: u16) -> Result<(), Raised> {
        let at = self
            .registers
            .gdt
            .base
            .wrapping_add(u64::from(selector & !RPL));
        let bits = self.load_system(at)? | 1 << 41;
        let memory = &mut self.machine.core.memory;
        let stored = memory.store_implicit(at, &bits.to_le_bytes());
        stored.map_err(|fault| self.page_fault(fault, true))
    }

    /// A gate; `error` is that of a fault about it.
    pub(super) fn gate(&mut self, vector: u8, error: u32) -> Result<Gate, Raised> {
        let at = u64::from(vector) * 16;
        let refused = Raised::new(vector::GENERAL_PROTECTION, Some(error));
        if at + 15 > u64::from(self.registers.idt.limit) {
            return Err(refused);
        }
        let at = self.registers.idt.base.wrapping_add(at);
        let (low, high) = (self.load_system(at)?, self.load_system(at.wrapping_add(8))?);
        let kind = low >> 40 & 0x1f;
        if !matches!(kind, INTERRUPT_GATE | TRAP_GATE) {
            return Err(refused);
        }
        Ok(Gate {
            target: low & 0xffff | low >> 32 & 0xffff_0000 | high << 32,
            selector: (low >> 16) as u16,
            stack: (low >> 32 & 7) as u8,
            privilege: (low >> 45 & 3) as u8,
            is_present: low >> 47 & 1 != 0,
            masks: kind == INTERRUPT_GATE,
        })
    }

    /// The stack for ring 0 (number 0), or one of those for interrupts.
    pub(super) fn task_stack(&mut self, number: u8) -> Result<u64, Raised> {
        let offset = match number {
            0 => RSP0,
            _ => IST + 8 * u64::from(number - 1),
        };
        let task = self.registers.task;
        if offset + 7 > task.limit.into() {
            return Err(Raised::selector(vector::INVALID_TASK, task.selector));
        }
        self.load_system(task.base.wrapping_add(offset))
    }

    /// Whether the task state segment lets user mode access these ports.
    pub(super) fn may_use_ports(&mut self, port: u16, count: u16) -> Result<bool, Raised> {
        let task = self.registers.task;
        if IO_MAP + 1 > task.limit.into() {
            return Ok(false);
        }
        let map = self.load_system(task.base.wrapping_add(IO_MAP))? & 0xffff;
        let at = map + u64::from(port / 8);
        if at + 1 > task.limit.into() {
            return Ok(false);
        }
        let bits = self.load_system(task.base.wrapping_add(at))? & 0xffff;
        let wanted = ((1 << count) - 1) << (port % 8);
        Ok(bits & wanted == 0)
    }

    /// A word of a table of the system.
    pub(super) fn load_system(&mut self, address: u64) -> Result<u64, Raised> {
        let loaded = self.machine.core.memory.load_implicit(address);
        loaded.map_err(|fault: Fault| self.page_fault(fault, true))
    }
}
