//! The local APIC of the only processor: vectors, priorities, the local vector table, self IPIs.
//!
//! There is no bus: interrupts for other processors go nowhere. Version 0x14, six entries in the
//! local vector table, no CMCI, no suppression of EOI broadcasts. Not modelled: focus processor,
//! lowest priority arbitration, SMI, INIT and start-up IPIs (ignored).
//! Source: Intel SDM volume 3, chapter "Advanced programmable interrupt controller (APIC)".

mod base;
mod ipi;
mod registers;
#[cfg(test)]
mod tests;
mod timer;
mod vectors;

use timer::{Mode, Timer};
use vectors::Vectors;

/// Interrupts with a smaller vector are errors: these are the processor's exceptions.
const VECTOR_MIN: u8 = 16;

/// Indices into the local vector table, in the order of its registers.
const TIMER: usize = 0;
const PERFORMANCE: usize = 2;
const LINT0: usize = 3;
const LINT1: usize = 4;
const ERROR: usize = 5;
const ENTRIES: usize = 6;

/// Fields of an entry of the local vector table.
const MASKED: u32 = 1 << 16;
const REMOTE_IRR: u32 = 1 << 14;
const LEVEL: u32 = 1 << 15;
const DELIVERY: u32 = 7 << 8;
const DELIVERY_FIXED: u32 = 0;
const DELIVERY_NMI: u32 = 4 << 8;
const DELIVERY_EXTINT: u32 = 7 << 8;

/// The enable bit of the spurious-interrupt vector register.
const SOFTWARE_ENABLE: u32 = 1 << 8;
/// SVR after reset.
const SVR_RESET: u32 = 0xff;

/// Bits of the error status register.
const SEND_ILLEGAL_VECTOR: u32 = 1 << 5;
const RECEIVE_ILLEGAL_VECTOR: u32 = 1 << 6;
const ILLEGAL_REGISTER: u32 = 1 << 7;

/// The local APIC.
#[derive(Clone, Debug)]
pub(super) struct LocalApic {
    /// IA32_APIC_BASE.
    base: u64,
    task_priority: u8,
    logical_destination: u32,
    destination_format: u32,
    spurious: u32,
    in_service: Vectors,
    trigger_mode: Vectors,
    requests: Vectors,
    /// The error status register as it is read.
    errors: u32,
    /// Errors since the error status register was written.
    new_errors: u32,
    command: u64,
    entries: [u32; ENTRIES],
    timer: Timer,
    nmi: bool,
    /// The level of LINT0.
    lint0: bool,
}

impl LocalApic {
    /// The APIC of the bootstrap processor after a reset.
    pub(super) fn new() -> LocalApic {
        LocalApic {
            base: base::RESET,
            task_priority: 0,
            logical_destination: 0,
            destination_format: u32::MAX,
            spurious: SVR_RESET,
            in_service: Vectors::default(),
            trigger_mode: Vectors::default(),
            requests: Vectors::default(),
            errors: 0,
            new_errors: 0,
            command: 0,
            entries: [MASKED; ENTRIES],
            timer: Timer::default(),
            nmi: false,
            lint0: false,
        }
    }

    /// Enables it as firmware does: LINT0 is the 8259, LINT1 the NMI.
    pub(super) fn enable(&mut self) {
        self.spurious |= SOFTWARE_ENABLE;
        self.entries[LINT0] = DELIVERY_EXTINT;
        self.entries[LINT1] = DELIVERY_NMI;
    }

    fn software_enabled(&self) -> bool {
        self.spurious & SOFTWARE_ENABLE != 0
    }

    /// Expires the timer.
    pub(super) fn update(&mut self, now: u64) {
        if self.timer.expire(now, self.timer_mode()) {
            self.deliver(TIMER);
        }
    }

    /// When the timer interrupts.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        if self.entries[TIMER] & MASKED != 0 {
            return None;
        }
        self.timer.expires().map(|time| time.max(now))
    }

    fn timer_mode(&self) -> Mode {
        Mode::of(self.entries[TIMER])
    }

    /// Delivers the interrupt of an entry of the local vector table.
    fn deliver(&mut self, entry: usize) {
        let value = self.entries[entry];
        if value & MASKED != 0 {
            return;
        }

        match value & DELIVERY {
            DELIVERY_FIXED => self.accept(value as u8, false),
            DELIVERY_NMI => self.nmi = true,
            // SMI and INIT are not modelled; ExtINT is the level of LINT0.
            _ => {}
        }
    }

    /// Accepts a fixed interrupt.
    fn accept(&mut self, vector: u8, level: bool) {
        if vector < VECTOR_MIN {
            self.error(RECEIVE_ILLEGAL_VECTOR);
        } else if self.software_enabled() {
            self.requests.set(vector, true);
            self.trigger_mode.set(vector, level);
        }
    }

    fn error(&mut self, error: u32) {
        self.new_errors |= error;

        let entry = self.entries[ERROR];
        let vector = entry as u8;
        if entry & MASKED == 0 && self.software_enabled() {
            // An illegal vector here must not lead to further errors.
            if vector < VECTOR_MIN {
                self.new_errors |= RECEIVE_ILLEGAL_VECTOR;
            } else {
                self.requests.set(vector, true);
                self.trigger_mode.set(vector, false);
            }
        }
    }

    /// Sets the level of LINT0, which the 8259's output is wired to.
    pub(super) fn set_lint0(&mut self, high: bool) {
        let risen = high && !self.lint0;
        self.lint0 = high;

        let entry = self.entries[LINT0];
        if entry & DELIVERY == DELIVERY_FIXED && entry & LEVEL != 0 {
            self.deliver_lint0_level();
        } else if risen && self.is_enabled() {
            self.deliver(LINT0);
        }
    }

    /// A level-triggered LINT0 is delivered once until its end of interrupt.
    fn deliver_lint0_level(&mut self) {
        let entry = self.entries[LINT0];
        if self.lint0 && entry & (MASKED | REMOTE_IRR) == 0 && self.is_enabled() {
            self.entries[LINT0] |= REMOTE_IRR;
            self.accept(entry as u8, true);
        }
    }

    /// Whether the 8259 interrupts the processor: LINT0 is asserted and passes it on as ExtINT.
    ///
    /// With the APIC disabled LINT0 is the processor's INTR pin. Before software has enabled the
    /// APIC it is so as well: firmware would have programmed LINT0 as ExtINT ("virtual wire").
    pub(super) fn external_interrupt(&self) -> bool {
        let virtual_wire = self.entries[LINT0] & (MASKED | DELIVERY) == DELIVERY_EXTINT;
        self.lint0 && (!self.is_enabled() || !self.software_enabled() || virtual_wire)
    }

    /// The processor priority register.
    fn processor_priority(&self) -> u8 {
        let serviced = self.in_service.highest().unwrap_or(0) & 0xf0;
        if self.task_priority & 0xf0 >= serviced {
            self.task_priority
        } else {
            serviced
        }
    }

    /// The vector that interrupts the processor.
    fn pending(&self) -> Option<u8> {
        let vector = self.requests.highest()?;
        let above = vector & 0xf0 > self.processor_priority() & 0xf0;
        (above && self.is_enabled()).then_some(vector)
    }

    pub(super) fn interrupt(&self) -> bool {
        self.pending().is_some()
    }

    /// Takes the pending vector into service.
    pub(super) fn acknowledge(&mut self) -> Option<u8> {
        let vector = self.pending()?;
        self.requests.set(vector, false);
        self.in_service.set(vector, true);
        Some(vector)
    }

    /// The vector for an interrupt that was gone when it was acknowledged.
    pub(super) fn spurious_vector(&self) -> u8 {
        self.spurious as u8
    }

    fn end_of_interrupt(&mut self) {
        let Some(vector) = self.in_service.highest() else {
            return;
        };
        self.in_service.set(vector, false);

        // The broadcast of a level-triggered vector's end has no I/O APIC to go to.
        if self.trigger_mode.get(vector) && self.entries[LINT0] as u8 == vector {
            self.entries[LINT0] &= !REMOTE_IRR;
            self.deliver_lint0_level();
        }
    }

    /// CR8.
    pub(super) fn task_priority(&self) -> u64 {
        u64::from(self.task_priority >> 4)
    }

    pub(super) fn set_task_priority(&mut self, value: u64) {
        self.task_priority = (value as u8 & 0xf) << 4;
    }

    pub(super) fn take_nmi(&mut self) -> bool {
        std::mem::take(&mut self.nmi)
    }

    pub(super) fn inject_nmi(&mut self) {
        self.nmi = true;
    }

    /// A performance counter has overflowed. The entry is masked by its delivery.
    pub(super) fn performance_interrupt(&mut self) {
        self.deliver(PERFORMANCE);
        self.entries[PERFORMANCE] |= MASKED;
    }
}
