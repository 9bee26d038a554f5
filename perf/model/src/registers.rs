//! The registers of a sample.
//!
//! An interrupt has the interrupted registers. A tracepoint and a software event have none, and
//! `perf_arch_fetch_caller_regs` (`arch/x86/include/asm/perf_event.h`) makes some up.

use super::stack::Pointers;

/// The registers that a stack walk starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rip.
    pub ip: u64,
    /// rsp.
    pub sp: u64,
    /// rbp.
    pub bp: u64,
    /// cs; `user_mode()` tests it.
    pub cs: u64,
    /// rflags. Bit 1 is always set in registers of the processor, which distinguishes them from
    /// made-up ones (`perf_hw_regs`, Linux 5.2).
    pub flags: u64,
}

/// How a kernel makes up registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FakeRegs {
    /// Up to Linux 5.1 without frame pointers: rbp is the tracing function's own frame. The
    /// unwinder mistakes it for the caller's and finds one frame.
    V5_1,
    /// Up to Linux 5.1 with frame pointers: rbp is the caller's.
    V5_1FramePointer,
    /// From Linux 5.2 on (d15d356887e7): rsp is the tracing function's frame. rbp is not set: 0.
    #[default]
    V5_2,
}

impl FakeRegs {
    /// The name in scenarios.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V5_1 => "v5.1",
            Self::V5_1FramePointer => "v5.1-frame-pointer",
            Self::V5_2 => "v5.2",
        }
    }

    /// The variant with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = [Self::V5_1, Self::V5_1FramePointer, Self::V5_2].into_iter();
        all.find(|regs| regs.as_str() == name)
    }

    /// The made-up registers for a caller at `ip`.
    pub(super) const fn registers(self, ip: u64) -> Registers {
        let (sp, bp) = match self {
            Self::V5_1 => (LIVE_SP, FRAME),
            Self::V5_1FramePointer => (LIVE_SP, CALLERS_FRAME),
            Self::V5_2 => (FRAME, 0),
        };
        Registers {
            ip,
            sp,
            bp,
            cs: KERNEL_CS,
            flags: 0,
        }
    }
}

/// `__KERNEL_CS`
const KERNEL_CS: u64 = 0x10;
/// `__USER_CS`
const USER_CS: u64 = 0x33;
/// Interrupts enabled, and bit 1, which is always set.
const FLAGS: u64 = 0x202;
/// `__builtin_frame_address(0)` in a tracing function of the model.
const FRAME: u64 = 0xffff_c900_0010_3e00;
/// rsp in that function.
const LIVE_SP: u64 = FRAME - 0x48;
/// The frame of its caller.
const CALLERS_FRAME: u64 = FRAME + 0x60;

/// Registers of user code.
pub(super) const fn of_user(ip: u64, Pointers { sp, bp }: Pointers) -> Registers {
    Registers {
        ip,
        sp,
        bp,
        cs: USER_CS,
        flags: FLAGS,
    }
}

/// Registers of the kernel, as an interrupt finds them.
pub(super) const fn of_kernel(ip: u64) -> Registers {
    Registers {
        ip,
        sp: FRAME + 0x10,
        bp: CALLERS_FRAME,
        cs: KERNEL_CS,
        flags: FLAGS,
    }
}
