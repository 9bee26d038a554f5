//! A difference between the machine and the processor, and its display.

use std::fmt;
use unwind_sim_emulator_native::Extended;
use unwind_sim_emulator_native::stepper::Cpu;

const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// Maximum number of bytes of memory shown.
const SHOWN: usize = 64;
/// Flags and their bit numbers.
const FLAGS: [(&str, u32); 9] = [
    ("CF", 0),
    ("PF", 2),
    ("AF", 4),
    ("ZF", 6),
    ("SF", 7),
    ("TF", 8),
    ("DF", 10),
    ("OF", 11),
    ("AC", 18),
];

/// The state of one side after an instruction.
#[derive(Clone, Debug)]
pub struct Side {
    /// General registers, flags, segment bases.
    pub cpu: Cpu,
    /// x87, SSE and AVX registers, if they were compared.
    pub fx: Option<Extended>,
    /// How the instruction ended.
    pub ended: String,
}

/// A range of memory that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Its address.
    pub address: u64,
    /// The machine's bytes.
    pub machine: Vec<u8>,
    /// The processor's bytes.
    pub cpu: Vec<u8>,
}

impl Memory {
    /// The part that differs, with some context; `None` if nothing differs.
    pub(super) fn of(address: u64, machine: &[u8], cpu: &[u8]) -> Option<Memory> {
        let first = machine.iter().zip(cpu).position(|(a, b)| a != b)?;
        let short = machine.len() <= SHOWN;
        let start = if short { 0 } else { first & !7 };
        let end = machine.len().min(start + SHOWN);
        Some(Memory {
            address: address + start as u64,
            machine: machine[start..end].to_vec(),
            cpu: cpu[start..end].to_vec(),
        })
    }
}

/// The first difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Number of instructions before this one.
    pub number: u64,
    /// The instruction's address.
    pub rip: u64,
    /// The instruction's bytes.
    pub bytes: Vec<u8>,
    /// The disassembled instruction.
    pub insn: String,
    /// The registers before.
    pub before: Cpu,
    /// The machine's state after it.
    pub machine: Side,
    /// The processor's state after it.
    pub processor: Side,
    /// Memory that differs after it.
    pub memory: Vec<Memory>,
    /// Whether it was found by comparing all memory: an earlier instruction caused it.
    pub late: bool,
}

impl Difference {
    /// How the instruction ended, and the registers that differ: a name, and the value of each
    /// side.
    pub fn values(&self) -> Vec<(String, String, String)> {
        let (machine, cpu) = (&self.machine, &self.processor);
        let ended = (machine.ended.clone(), cpu.ended.clone());
        let mut values = vec![("ended".to_owned(), ended.0, ended.1)];
        let mut registers: Vec<(&str, u64, u64)> = vec![("rip", machine.cpu.rip, cpu.cpu.rip)];
        let gprs = NAMES.iter().zip(machine.cpu.gpr).zip(cpu.cpu.gpr);
        registers.extend(gprs.map(|((name, a), b)| (*name, a, b)));
        let bases = ["fs base", "gs base"].into_iter().zip(machine.cpu.bases);
        registers.extend(bases.zip(cpu.cpu.bases).map(|((name, a), b)| (name, a, b)));
        let differ = registers.into_iter().filter(|(_, a, b)| a != b);
        values
            .extend(differ.map(|(name, a, b)| (name.into(), format!("{a:#x}"), format!("{b:#x}"))));
        let (a, b) = (machine.cpu.rflags, cpu.cpu.rflags);
        if a != b {
            values.push(("rflags".into(), flags(a), flags(b)));
        }
        if let (Some(a), Some(b)) = (&machine.fx, &cpu.fx) {
            values.extend(fx_values(a, b));
        }
        values
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.bytes.iter().map(|b| format!("{b:02x}")).collect();
        let (number, rip, insn) = (self.number, self.rip, &self.insn);

        if self.late {
            // A comparison of all memory finds a difference some time after its cause.
            let cause = "memory differs already before it, due to an earlier instruction";
            writeln!(f, "instruction {number} at {rip:#x}: {cause}")?;
        } else {
            let bytes = bytes.join(" ");
            writeln!(f, "instruction {number} at {rip:#x}: {insn}  ({bytes})")?;
        }

        writeln!(f, "{:9}{:>34}  {:>34}", "", "machine", "processor")?;
        for (name, machine, cpu) in self.values() {
            row(f, &name, &machine, &cpu)?;
        }

        for memory in &self.memory {
            writeln!(f, "memory at {:#x}", memory.address)?;
            writeln!(f, "  machine    {}", hex(&memory.machine))?;
            writeln!(f, "  processor  {}", hex(&memory.cpu))?;
        }

        writeln!(f, "before it")?;
        for (names, values) in NAMES.chunks(4).zip(self.before.gpr.chunks(4)) {
            for (name, value) in names.iter().zip(values) {
                write!(f, "  {name:>3} {value:016x}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "  rflags {}", flags(self.before.rflags))
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, machine: &str, cpu: &str) -> fmt::Result {
    writeln!(f, "{name:9}{machine:>34}  {cpu:>34}")
}

fn flags(rflags: u64) -> String {
    let set = FLAGS.iter().filter(|(_, bit)| rflags >> bit & 1 != 0);
    let names: Vec<&str> = set.map(|(name, _)| *name).collect();
    format!("{rflags:#x} {}", names.join(" "))
}

fn hex(bytes: &[u8]) -> String {
    let words = bytes.chunks(8);
    let words = words.map(|w| w.iter().map(|b| format!("{b:02x}")).collect::<String>());
    words.collect::<Vec<_>>().join(" ")
}

/// The registers that differ: of a vector, the xmm register, and the upper half under the name of the
/// ymm register.
fn fx_values(a: &Extended, b: &Extended) -> Vec<(String, String, String)> {
    let mut fields = vec![
        ("fcw".to_owned(), 0, 2),
        ("fsw".to_owned(), 2, 2),
        ("ftw".to_owned(), 4, 1),
        ("mxcsr".to_owned(), 24, 4),
    ];

    // The offsets are those of the area of `fxsave` (SDM volume 1).
    fields.extend((0..8).map(|i| (format!("st({i})"), 32 + 16 * i, 10)));
    fields.extend((0..16).map(|i| (format!("xmm{i}"), 160 + 16 * i, 16)));

    // Little-endian bytes, as one number.
    let number = |bytes: &[u8]| {
        let digits = bytes.iter().rev().map(|b| format!("{b:02x}"));
        digits.collect::<String>()
    };

    let mut values = Vec::new();
    for (name, at, size) in fields {
        let (a, b) = (&a.legacy[at..at + size], &b.legacy[at..at + size]);
        if a != b {
            values.push((name, number(a), number(b)));
        }
    }

    for (number, (a, b)) in a.upper.iter().zip(b.upper).enumerate() {
        if *a != b {
            // The colon stands before the lower half, which is listed under the name of the xmm
            // register.
            let half = |value: u128| format!("{value:032x}:");
            values.push((format!("ymm{number}"), half(*a), half(b)));
        }
    }

    values
}
