//! The machine behind the stub at a stop: the selected processor, its registers, and memory.
//!
//! With page table isolation (PTI), entry code briefly runs on the user-space page tables, which
//! lack almost all of the kernel. Memory is then read through the kernel's page tables, which are
//! in the page before (Linux `arch/x86/include/asm/pgtable.h`, `kernel_to_user_pgdp`).

use crate::kernel::KernelMachine;
use std::time::Duration;
use unwind_sim_host::gdb::{Client, ClientOptions, GdbError, OtherThreads, Registers, Stop};
use unwind_sim_recordings::kernel::{PTI_USER, PageFault, PageTables};
use unwind_sim_unwind::regs::{Reg, Regs};

/// Address of the interrupt descriptor table for every processor and with any page tables: the
/// first page of `cpu_entry_area` (Linux `arch/x86/include/asm/pgtable_areas.h`).
pub(super) const IDT: u64 = 0xffff_fe00_0000_0000;
/// Bit of cr4: five-level page tables.
const CR4_LA57: u64 = 1 << 12;
const PAGE: u64 = 4096;
/// Maximum number of attempts at a step while other processors stop instead.
const STEPS_MAX: usize = 64;

pub(super) struct Machine {
    client: Client,
    thread: String,
    /// Registers at this stop, once read.
    registers: Option<Registers>,
    /// The kernel's page tables, once needed at this stop.
    tables: Option<PageTables>,
}

impl Machine {
    pub(super) fn connect(stub: &str) -> Result<Machine, GdbError> {
        let client = Client::connect(stub, ClientOptions::default())?;
        let thread = client.first_stop().thread.clone();
        Ok(Machine {
            client,
            thread,
            registers: None,
            tables: None,
        })
    }

    /// The selected processor: the one that stopped, unless another was chosen.
    pub(super) fn thread(&self) -> &str {
        &self.thread
    }

    pub(super) fn registers(&mut self) -> Result<Registers, GdbError> {
        if let Some(registers) = &self.registers {
            return Ok(registers.clone());
        }
        let registers = self.client.registers()?;
        self.registers = Some(registers.clone());
        Ok(registers)
    }

    /// Selects another processor.
    pub(super) fn choose(&mut self, thread: &str) -> Result<(), GdbError> {
        if thread != self.thread {
            self.client.select(thread)?;
            thread.clone_into(&mut self.thread);
            (self.registers, self.tables) = (None, None);
        }
        Ok(())
    }

    /// Executes one instruction on the selected processor, which stays selected.
    pub(super) fn step(&mut self, others: OtherThreads) -> Result<(), GdbError> {
        let before = self.registers()?;
        let thread = self.thread.clone();
        for _ in 0..STEPS_MAX {
            let stop = self.client.step(&thread, others);
            self.stopped(stop)?;
            // Another processor may have been about to stop at a breakpoint that was removed.
            if self.thread == thread {
                break;
            }
            self.choose(&thread)?;
            if self.registers()? != before {
                break;
            }
        }
        Ok(())
    }

    /// Runs all processors, or only the selected one, until one stops, and selects that one.
    pub(super) fn resume(&mut self, others: OtherThreads, most: Duration) -> Result<(), GdbError> {
        let stop = self.client.resume(&self.thread, others, most);
        self.stopped(stop)
    }

    fn stopped(&mut self, stop: Result<Stop, GdbError>) -> Result<(), GdbError> {
        (self.registers, self.tables) = (None, None);
        let thread = stop?.thread;
        if thread.is_empty() {
            Ok(())
        } else {
            self.choose(&thread)
        }
    }

    pub(super) fn set_breakpoint(&mut self, address: u64) -> Result<(), GdbError> {
        self.client.set_breakpoint(address)
    }

    pub(super) fn clear_breakpoint(&mut self, address: u64) -> Result<(), GdbError> {
        self.client.clear_breakpoint(address)
    }

    pub(super) fn accept(&mut self, packet: &str) -> Result<(), GdbError> {
        self.client.accept(packet)
    }

    /// The bits of `Qqemu.sstep` with which QEMU blocks interrupts and timers while stepping;
    /// `None` for other stubs. QEMU answers `ENABLE=1,NOIRQ=2,NOTIMER=4`.
    pub(super) fn step_bits(&mut self) -> Option<u64> {
        let answer = self.client.query("qqemu.sstepbits").ok()?;
        let answer = String::from_utf8(answer).ok()?;
        let bit = |name: &str| {
            let mut words = answer.split(',').filter_map(|word| word.split_once('='));
            let (_, bit) = words.find(|(word, _)| *word == name)?;
            u64::from_str_radix(bit, 16).ok()
        };
        Some(bit("ENABLE")? | bit("NOIRQ")? | bit("NOTIMER")?)
    }

    pub(super) fn detach(self) -> Result<(), GdbError> {
        self.client.detach()
    }

    fn read_memory(&mut self, address: u64, len: usize) -> Result<Vec<u8>, GdbError> {
        let refused = match self.client.read(address, len) {
            Err(error @ GdbError::Refused { .. }) => error,
            other => return other,
        };
        // The kernel's page tables were in use already: the refusal stands.
        let Some(tables) = self.kernel_tables()? else {
            return Err(refused);
        };
        let mut out = Vec::new();
        while out.len() < len {
            let here = address.wrapping_add(out.len() as u64);
            let Some(physical) = self.translate(tables, here)? else {
                return Err(refused);
            };
            let part = (len - out.len()).min((PAGE - here % PAGE) as usize);
            out.extend(self.client.read_physical(physical, part)?);
        }
        Ok(out)
    }

    /// The kernel's page tables, if those of user space are in use. Verified by the interrupt
    /// descriptor table, which both map to the same address.
    fn kernel_tables(&mut self) -> Result<Option<PageTables>, GdbError> {
        if self.tables.is_some() {
            return Ok(self.tables);
        }
        let registers = self.registers()?;
        let (Some(cr3), Some(cr4)) = (registers.get("cr3"), registers.get("cr4")) else {
            return Ok(None);
        };
        if cr3 & PTI_USER == 0 {
            return Ok(None);
        }
        let levels = if cr4 & CR4_LA57 == 0 { 4 } else { 5 };
        let user = PageTables { root: cr3, levels };
        let root = cr3 & !PTI_USER;
        let kernel = PageTables { root, levels };
        let place = self.translate(user, IDT)?;
        if place.is_some() && place == self.translate(kernel, IDT)? {
            self.tables = Some(kernel);
        }
        Ok(self.tables)
    }

    fn translate(&mut self, tables: PageTables, address: u64) -> Result<Option<u64>, GdbError> {
        let client = &mut self.client;
        let mut entry = |at: u64| {
            let bytes = client.read_physical(at, 8)?;
            Ok(bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)))
        };
        match tables.translate(address, &mut entry) {
            Ok(physical) => Ok(Some(physical)),
            // The stub cannot read physical memory, or there is none.
            Err(PageFault::NoEntry(_, error)) if !matches!(error, GdbError::Refused { .. }) => {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }
}

impl KernelMachine for Machine {
    type Error = GdbError;

    fn register(&mut self, name: &str) -> Result<Option<u64>, GdbError> {
        Ok(self.registers()?.get(name))
    }

    fn processor_number(&self) -> usize {
        // QEMU counts threads from 1; a stub that names processes writes `p01.02`.
        let number = self.thread.rsplit('.').next().unwrap_or_default();
        usize::from_str_radix(number, 16).unwrap_or(1).max(1) - 1
    }

    fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>, GdbError> {
        self.read_memory(address, len)
    }
}

/// Converts the stub's registers to ours.
pub(crate) fn regs(registers: &Registers) -> Regs {
    let mut regs = Regs::UNKNOWN;
    for reg in Reg::ALL {
        let name = match reg {
            Reg::Rflags => "eflags",
            other => other.as_str(),
        };
        if let Some(value) = registers.get(name) {
            regs.set(reg, value);
        }
    }
    regs
}
