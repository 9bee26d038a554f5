//! `siginfo_t`. Source: Linux 6.12 `include/uapi/asm-generic/siginfo.h`.

use super::super::outcome::SignalOrigin;

/// Sent by the kernel.
pub(in crate::linux) const SI_KERNEL: i32 = 0x80;
const SI_TIMER: i32 = -2;
const SI_MESGQ: i32 = -3;

/// A pending signal.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Info {
    pub(in crate::linux) signal: u8,
    /// The `siginfo_t` for a handler.
    pub(in crate::linux) bytes: [u8; 128],
    pub(in crate::linux) why: SignalOrigin,
}

impl Info {
    /// `payload` is what follows si_code and its padding.
    fn new(signal: u8, code: i32, payload: &[u8], why: SignalOrigin) -> Info {
        let mut bytes = [0; 128];
        bytes[0] = signal;
        bytes[8..12].copy_from_slice(&code.to_le_bytes());
        bytes[16..16 + payload.len()].copy_from_slice(payload);
        Info { signal, bytes, why }
    }

    /// A signal for an exception; si_addr is `address`.
    pub(in crate::linux) fn fault(signal: u8, code: i32, address: u64, why: SignalOrigin) -> Info {
        Info::new(signal, code, &address.to_le_bytes(), why)
    }

    /// A signal that the kernel forces.
    pub(in crate::linux) fn forced(signal: u8, why: SignalOrigin) -> Info {
        Info::new(signal, SI_KERNEL, &[], why)
    }

    /// A signal that the kernel sends.
    pub(in crate::linux) fn from_kernel(signal: u8) -> Info {
        Info::new(signal, SI_KERNEL, &[], SignalOrigin::Sent)
    }

    /// A signal that a process sent: `SI_USER`, `SI_TKILL`.
    pub(in crate::linux) fn from_process(signal: u8, code: i32, process: u32, uid: u32) -> Info {
        let sender = u64::from(process) | u64::from(uid) << 32;
        Info::new(signal, code, &sender.to_le_bytes(), SignalOrigin::Sent)
    }

    /// `SIGCHLD` for a child: `si_pid`, `si_uid`, `si_status`.
    pub(in crate::linux) fn of_child(
        signal: u8,
        code: i32,
        child: u32,
        uid: u32,
        status: u32,
    ) -> Info {
        let payload = [child, uid, status].map(u32::to_le_bytes);
        Info::new(signal, code, payload.as_flattened(), SignalOrigin::Sent)
    }

    /// The signal of a timer made by `timer_create`.
    pub(in crate::linux) fn from_timer(signal: u8, number: u32, overruns: u32, value: u64) -> Info {
        let ids = u64::from(number) | u64::from(overruns) << 32;
        let payload = [ids, value].map(u64::to_le_bytes);
        Info::new(signal, SI_TIMER, payload.as_flattened(), SignalOrigin::Sent)
    }

    /// The signal that a message has come: who sent it, and the receiver's value.
    pub(in crate::linux) fn of_message(signal: u8, process: u32, uid: u32, value: u64) -> Info {
        let sender = u64::from(process) | u64::from(uid) << 32;
        let payload = [sender, value].map(u64::to_le_bytes);
        Info::new(signal, SI_MESGQ, payload.as_flattened(), SignalOrigin::Sent)
    }

    /// Whether it is the signal of this timer.
    pub(in crate::linux) fn is_of_timer(&self, number: u32) -> bool {
        let word = |from: usize| std::array::from_fn(|i| self.bytes[from + i]);
        i32::from_le_bytes(word(8)) == SI_TIMER && u32::from_le_bytes(word(16)) == number
    }

    /// Sets `si_overrun`.
    pub(in crate::linux) fn set_overruns(&mut self, overruns: u32) {
        self.bytes[20..24].copy_from_slice(&overruns.to_le_bytes());
    }

    /// A signal with the program's own `siginfo_t`, for `rt_sigqueueinfo`.
    pub(in crate::linux) fn given(signal: u8, bytes: [u8; 128]) -> Info {
        let mut bytes = bytes;
        bytes[..4].copy_from_slice(&u32::from(signal).to_le_bytes());
        Info {
            signal,
            bytes,
            why: SignalOrigin::Sent,
        }
    }
}
