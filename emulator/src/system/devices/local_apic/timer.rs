//! The APIC's timer: one-shot, periodic and TSC-deadline mode. Its clock is the crystal's.

use crate::system::devices::{CRYSTAL, TICKS_PER_SECOND};

/// Ticks of the TSC for each of the crystal.
const TICKS: u64 = TICKS_PER_SECOND / CRYSTAL as u64;

/// The divide configuration register has these bits.
const DIVIDE_BITS: u32 = 0b1011;

/// What the timer does, by bits 18 and 17 of its entry in the local vector table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    OneShot,
    Periodic,
    TscDeadline,
}

impl Mode {
    pub(super) fn of(entry: u32) -> Mode {
        match (entry >> 17) & 3 {
            1 => Mode::Periodic,
            2 => Mode::TscDeadline,
            // 3 is reserved.
            _ => Mode::OneShot,
        }
    }
}

/// The timer; the count is computed from the time of its expiry.
#[derive(Clone, Debug, Default)]
pub(super) struct Timer {
    initial: u32,
    divide: u32,
    expires: Option<u64>,
}

impl Timer {
    pub(super) fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Ticks for each count.
    fn divisor(&self) -> u64 {
        // Bits 3, 1 and 0: 0 divides by 2, 6 by 128, 7 by 1.
        let code = (self.divide & 3) | ((self.divide >> 1) & 4);
        TICKS << ((code + 1) & 7)
    }

    fn period(&self) -> u64 {
        u64::from(self.initial) * self.divisor()
    }

    /// Whether the timer has expired; a periodic one is started again.
    pub(super) fn expire(&mut self, now: u64, mode: Mode) -> bool {
        let Some(expired) = self.expires.filter(|&time| time <= now) else {
            return false;
        };

        self.expires = match self.period() {
            // Expiries that nobody saw are one interrupt.
            period @ 1.. if mode == Mode::Periodic => {
                let periods = (now - expired) / period + 1;
                periods
                    .checked_mul(period)
                    .and_then(|ticks| expired.checked_add(ticks))
            }
            _ => None,
        };
        true
    }

    pub(super) fn initial(&self) -> u32 {
        self.initial
    }

    pub(super) fn set_initial(&mut self, value: u32, now: u64) {
        self.initial = value;
        self.expires = if value == 0 {
            None
        } else {
            now.checked_add(self.period())
        };
    }

    pub(super) fn current(&self, now: u64) -> u32 {
        let remaining = self.expires.map_or(0, |time| time.saturating_sub(now));
        u32::try_from(remaining.div_ceil(self.divisor())).unwrap_or(u32::MAX)
    }

    pub(super) fn divide(&self) -> u32 {
        self.divide
    }

    /// Sets the divide configuration; a running count continues at the new rate.
    pub(super) fn set_divide(&mut self, value: u32, mode: Mode, now: u64) {
        let count = self.current(now);
        self.divide = value & DIVIDE_BITS;

        if self.expires.is_some() && mode != Mode::TscDeadline {
            self.expires = now.checked_add(u64::from(count) * self.divisor());
        }
    }

    /// IA32_TSC_DEADLINE: 0 if the timer is not armed.
    pub(super) fn deadline(&self) -> u64 {
        self.expires.unwrap_or(0)
    }

    pub(super) fn set_deadline(&mut self, value: u64) {
        self.expires = (value != 0).then_some(value);
    }

    /// Stops the timer, as a change between counting and deadlines does.
    pub(super) fn disarm(&mut self) {
        self.initial = 0;
        self.expires = None;
    }
}
