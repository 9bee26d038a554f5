//! Registers of an x86-64 thread, with a mask of the known ones.

use core::fmt;

/// `X86_EFLAGS_FIXED`: bit 1 of rflags, which the processor always sets. Registers whose flags
/// lack it were not taken from hardware: `perf_arch_fetch_caller_regs` writes flags = 0
/// (Linux `arch/x86/include/asm/perf_event.h`, `perf_hw_regs` since 5.2).
pub const X86_EFLAGS_FIXED: u64 = 1 << 1;

/// A register, numbered as in the x86-64 psABI's DWARF register table (figure 3.36);
/// 16 is the return-address column. `Rflags` and `Cs` are 17 and 18, not the psABI's 49 and 51.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Reg {
    Rax = 0,
    Rdx = 1,
    Rcx = 2,
    Rbx = 3,
    Rsi = 4,
    Rdi = 5,
    Rbp = 6,
    Rsp = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
    R12 = 12,
    R13 = 13,
    R14 = 14,
    R15 = 15,
    Rip = 16,
    Rflags = 17,
    Cs = 18,
}

/// Number of registers in [`Regs`].
pub const REG_COUNT: usize = 19;
/// The index of rbp in [`Reg::CALLEE_SAVED`].
#[cfg(feature = "truth")]
pub(crate) const SAVED_RBP: usize = 1;

impl Reg {
    /// All registers, in DWARF order.
    pub const ALL: [Reg; REG_COUNT] = [
        Reg::Rax,
        Reg::Rdx,
        Reg::Rcx,
        Reg::Rbx,
        Reg::Rsi,
        Reg::Rdi,
        Reg::Rbp,
        Reg::Rsp,
        Reg::R8,
        Reg::R9,
        Reg::R10,
        Reg::R11,
        Reg::R12,
        Reg::R13,
        Reg::R14,
        Reg::R15,
        Reg::Rip,
        Reg::Rflags,
        Reg::Cs,
    ];

    /// The general registers in the order of their encoding in instructions (Intel SDM volume 2,
    /// table 2-2), which differs from the DWARF order.
    pub const BY_NUMBER: [Reg; 16] = [
        Reg::Rax,
        Reg::Rcx,
        Reg::Rdx,
        Reg::Rbx,
        Reg::Rsp,
        Reg::Rbp,
        Reg::Rsi,
        Reg::Rdi,
        Reg::R8,
        Reg::R9,
        Reg::R10,
        Reg::R11,
        Reg::R12,
        Reg::R13,
        Reg::R14,
        Reg::R15,
    ];

    /// The registers that a function must preserve, apart from rsp, in the order used by
    /// [`crate::rule::Rule`] (psABI, figure 3.4).
    pub const CALLEE_SAVED: [Reg; 6] = [Reg::Rbx, Reg::Rbp, Reg::R12, Reg::R13, Reg::R14, Reg::R15];

    /// The general register or return-address column with this DWARF number (0 to 16).
    pub const fn from_dwarf(number: u16) -> Option<Reg> {
        if number <= 16 {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    /// The lower-case name, as assemblers write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reg::Rax => "rax",
            Reg::Rdx => "rdx",
            Reg::Rcx => "rcx",
            Reg::Rbx => "rbx",
            Reg::Rsi => "rsi",
            Reg::Rdi => "rdi",
            Reg::Rbp => "rbp",
            Reg::Rsp => "rsp",
            Reg::R8 => "r8",
            Reg::R9 => "r9",
            Reg::R10 => "r10",
            Reg::R11 => "r11",
            Reg::R12 => "r12",
            Reg::R13 => "r13",
            Reg::R14 => "r14",
            Reg::R15 => "r15",
            Reg::Rip => "rip",
            Reg::Rflags => "rflags",
            Reg::Cs => "cs",
        }
    }

    /// The register with this name.
    pub fn from_name(name: &str) -> Option<Reg> {
        Self::ALL.into_iter().find(|r| r.as_str() == name)
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of registers: bit n stands for `Reg` n.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegMask(pub u32);

impl RegMask {
    /// No register.
    pub const NONE: RegMask = RegMask(0);
    /// Every register of [`Regs`].
    pub const ALL: RegMask = RegMask((1 << REG_COUNT) - 1);
    /// The registers that frame-pointer, ORC and SFrame unwinders carry from frame to frame.
    pub const FRAME: RegMask = RegMask::of(&[Reg::Rip, Reg::Rsp, Reg::Rbp]);
    /// The registers that a DWARF unwinder carries: ip, sp and all callee-saved registers.
    pub const CALLEE_SAVED: RegMask = RegMask::of(&[
        Reg::Rip,
        Reg::Rsp,
        Reg::Rbp,
        Reg::Rbx,
        Reg::R12,
        Reg::R13,
        Reg::R14,
        Reg::R15,
    ]);

    /// The set of these registers.
    pub const fn of(regs: &[Reg]) -> RegMask {
        let mut bits = 0;
        let mut i = 0;
        while i < regs.len() {
            bits |= 1 << regs[i] as u32;
            i += 1;
        }
        RegMask(bits)
    }

    /// Whether `reg` is in the set.
    pub const fn contains(self, reg: Reg) -> bool {
        self.0 & (1 << reg as u32) != 0
    }

    /// The set with `reg`.
    #[must_use]
    pub const fn with(self, reg: Reg) -> RegMask {
        RegMask(self.0 | 1 << reg as u32)
    }

    /// The set without `reg`.
    #[must_use]
    pub const fn without(self, reg: Reg) -> RegMask {
        RegMask(self.0 & !(1 << reg as u32))
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn and(self, other: RegMask) -> RegMask {
        RegMask(self.0 & other.0)
    }

    /// The registers of the set, in DWARF order.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        Reg::ALL.into_iter().filter(move |&r| self.contains(r))
    }
}

impl fmt::Debug for RegMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Reg::as_str)).finish()
    }
}

/// Register values. A register that is not in the mask has no value and reads as `None`.
#[derive(Clone, Copy)]
pub struct Regs {
    values: [u64; REG_COUNT],
    known: RegMask,
}

impl Regs {
    /// No register known.
    pub const UNKNOWN: Regs = Regs {
        values: [0; REG_COUNT],
        known: RegMask::NONE,
    };

    /// The three registers that every unwinder starts from.
    pub const fn frame(rip: u64, rsp: u64, rbp: u64) -> Regs {
        let mut values = [0; REG_COUNT];
        values[Reg::Rip as usize] = rip;
        values[Reg::Rsp as usize] = rsp;
        values[Reg::Rbp as usize] = rbp;
        Regs {
            values,
            known: RegMask::FRAME,
        }
    }

    /// The value of `reg`, if it is known.
    #[inline]
    pub const fn get(&self, reg: Reg) -> Option<u64> {
        if self.known.contains(reg) {
            Some(self.values[reg as usize])
        } else {
            None
        }
    }

    /// The value of `reg`, or 0 where it is not known.
    #[inline]
    pub const fn get_or_zero(&self, reg: Reg) -> u64 {
        if self.known.contains(reg) {
            self.values[reg as usize]
        } else {
            0
        }
    }

    /// Sets `reg` and marks it as known.
    #[inline]
    pub const fn set(&mut self, reg: Reg, value: u64) {
        self.values[reg as usize] = value;
        self.known.0 |= 1 << reg as u32;
    }

    /// Marks `reg` as unknown.
    #[inline]
    pub const fn forget(&mut self, reg: Reg) {
        self.values[reg as usize] = 0;
        self.known.0 &= !(1 << reg as u32);
    }

    /// Marks everything outside `mask` as unknown. Cheaper than [`Regs::restricted`], because it
    /// leaves the now invisible values in place.
    #[inline]
    pub(crate) const fn keep(&mut self, mask: RegMask) {
        self.known = self.known.and(mask);
    }

    /// The known registers.
    #[inline]
    pub const fn known(&self) -> RegMask {
        self.known
    }

    /// A copy in which nothing outside `mask` is known.
    #[must_use]
    pub fn restricted(&self, mask: RegMask) -> Regs {
        let mut out = *self;
        for reg in self.known.iter().filter(|&r| !mask.contains(r)) {
            out.forget(reg);
        }
        out
    }

    /// rip, or 0 if unknown.
    #[inline]
    pub const fn rip(&self) -> u64 {
        self.get_or_zero(Reg::Rip)
    }

    /// rsp, or 0 if unknown.
    #[inline]
    pub const fn rsp(&self) -> u64 {
        self.get_or_zero(Reg::Rsp)
    }

    /// Whether these registers were taken from hardware. Registers without flags count as hardware,
    /// because perf.data and core files of user space do not record the flags.
    pub const fn is_hardware(&self) -> bool {
        match self.get(Reg::Rflags) {
            Some(flags) => flags & X86_EFLAGS_FIXED != 0,
            None => true,
        }
    }
}

impl Regs {
    /// The bit of the flags with which Linux marks the registers of a precise sample
    /// (`PERF_EFLAGS_EXACT`, `arch/x86/include/asm/perf_event.h`); the processor never sets it.
    pub const EXACT_IP: u64 = 1 << 3;

    /// Whether rip is the instruction that caused the sample, and the other registers are those of
    /// after it.
    pub const fn is_exact_ip(&self) -> bool {
        match self.get(Reg::Rflags) {
            Some(flags) => flags & Self::EXACT_IP != 0,
            None => false,
        }
    }

    /// Marks the registers of a precise sample.
    pub const fn set_exact_ip(&mut self) {
        let flags = match self.get(Reg::Rflags) {
            Some(flags) => flags,
            None => X86_EFLAGS_FIXED,
        };
        self.set(Reg::Rflags, flags | Self::EXACT_IP);
    }
}

/// Equal if the same registers are known and have the same values.
impl PartialEq for Regs {
    fn eq(&self, other: &Regs) -> bool {
        self.known == other.known && self.known.iter().all(|r| self.get(r) == other.get(r))
    }
}

impl Eq for Regs {}

impl Default for Regs {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl fmt::Debug for Regs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for reg in self.known.iter() {
            map.entry(
                &reg.as_str(),
                &format_args!("{:#x}", self.values[reg as usize]),
            );
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests;
