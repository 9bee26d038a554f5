//! The real-time clock MC146818 and its memory, ports 0x70 and 0x71; its interrupt is IRQ 8.
//!
//! The clock starts at a given date and follows the virtual time. Daylight saving and the square
//! wave output are not modelled. Source: Motorola MC146818 datasheet (ADI 1018).

mod calendar;
#[cfg(test)]
mod tests;

use super::ticks::TICKS_PER_SECOND;
use calendar::Date;

const REGISTERS: usize = 128;

const SECONDS: u8 = 0x00;
const SECONDS_ALARM: u8 = 0x01;
const MINUTES: u8 = 0x02;
const MINUTES_ALARM: u8 = 0x03;
const HOURS: u8 = 0x04;
const HOURS_ALARM: u8 = 0x05;
const DAY_OF_WEEK: u8 = 0x06;
const DAY: u8 = 0x07;
const MONTH: u8 = 0x08;
const YEAR: u8 = 0x09;
const REGISTER_A: u8 = 0x0a;
const REGISTER_B: u8 = 0x0b;
const REGISTER_C: u8 = 0x0c;
const REGISTER_D: u8 = 0x0d;
/// Where most firmware has the century; not a register of the MC146818.
const CENTURY: u8 = 0x32;

const A_UPDATE_IN_PROGRESS: u8 = 1 << 7;
/// The 32768 Hz crystal and 1024 interrupts per second, as firmware sets it.
const A_FIRMWARE: u8 = 0x26;
const B_SET: u8 = 1 << 7;
const B_BINARY: u8 = 1 << 2;
const B_24_HOURS: u8 = 1 << 1;
/// The interrupts, at the same bits in the registers B and C.
const PERIODIC: u8 = 1 << 6;
const ALARM: u8 = 1 << 5;
const UPDATE_ENDED: u8 = 1 << 4;
const C_INTERRUPT: u8 = 1 << 7;
const D_VALID: u8 = 1 << 7;
const PM: u8 = 1 << 7;
/// Alarm values from here on match always.
const ALARM_ANY: u8 = 0xc0;

/// How long before the clock changes an update is announced, in ticks.
const UPDATE_TICKS: u64 = 244_000;
/// The crystal.
const CRYSTAL_HZ: u64 = 32_768;
const SECONDS_PER_DAY: u64 = 86_400;

/// The clock.
#[derive(Clone, Debug)]
pub(super) struct Cmos {
    selected: u8,
    /// Memory, control registers and alarms; the clock's registers only while it is being set.
    memory: [u8; REGISTERS],
    /// Seconds since 1970 at the time `since`.
    seconds: u64,
    since: u64,
    flags: u8,
    /// Until when the flags are right.
    checked: u64,
}

impl Cmos {
    pub(super) fn new(seconds_since_1970: u64) -> Cmos {
        let mut memory = [0; REGISTERS];
        memory[usize::from(REGISTER_A)] = A_FIRMWARE;
        memory[usize::from(REGISTER_B)] = B_24_HOURS;
        Cmos {
            selected: 0,
            memory,
            seconds: seconds_since_1970,
            since: 0,
            flags: 0,
            checked: 0,
        }
    }

    pub(super) fn select(&mut self, value: u8) {
        // Bit 7 masks NMIs on a PC; they have their own input here.
        self.selected = value & 0x7f;
    }

    /// Reads the selected register.
    pub(super) fn read(&mut self, now: u64) -> u8 {
        self.update(now);

        match self.selected {
            REGISTER_A => self.register(REGISTER_A) | self.update_in_progress(now),
            REGISTER_C => {
                let enabled = self.interrupt();
                std::mem::take(&mut self.flags) | if enabled { C_INTERRUPT } else { 0 }
            }
            REGISTER_D => D_VALID,
            register if is_clock(register) && !self.is_set() => {
                self.encode(register, &self.date(now))
            }
            register => self.register(register),
        }
    }

    /// Writes the selected register.
    pub(super) fn write(&mut self, value: u8, now: u64) {
        self.update(now);

        match self.selected {
            REGISTER_A => self.memory[usize::from(REGISTER_A)] = value & !A_UPDATE_IN_PROGRESS,
            REGISTER_B => self.write_b(value, now),
            REGISTER_C | REGISTER_D => {}
            register if is_clock(register) && !self.is_set() => {
                self.freeze(now);
                self.memory[usize::from(register)] = value;
                self.restart(now);
            }
            register => self.memory[usize::from(register)] = value,
        }
    }

    /// The level of the interrupt line.
    pub(super) fn interrupt(&self) -> bool {
        let enabled = self.register(REGISTER_B);
        self.flags & enabled & (PERIODIC | ALARM | UPDATE_ENDED) != 0
    }

    /// Sets the flags for what has happened until `now`.
    pub(super) fn update(&mut self, now: u64) {
        let before = self.checked;
        self.checked = now.max(before);

        if self
            .period()
            .is_some_and(|period| pulses(now, period) > pulses(before, period))
        {
            self.flags |= PERIODIC;
        }

        if self.is_set() {
            return;
        }
        let (old, new) = (self.seconds_at(before), self.seconds_at(now));
        if new > old {
            self.flags |= UPDATE_ENDED;

            // The alarm is a time of day, so one day has them all.
            let days = (new - old).min(SECONDS_PER_DAY);
            if (0..days).any(|back| self.is_alarm(new - back)) {
                self.flags |= ALARM;
            }
        }
    }

    /// When an enabled interrupt can occur.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        let enabled = self.register(REGISTER_B);

        let periodic = self
            .period()
            .filter(|_| enabled & PERIODIC != 0)
            .map(|period| {
                let crystal = u128::from(pulses(self.checked, period) + 1) * u128::from(period);
                let ticks = crystal * u128::from(TICKS_PER_SECOND);
                u64::try_from(ticks.div_ceil(u128::from(CRYSTAL_HZ))).unwrap_or(u64::MAX)
            });
        let second = (enabled & (ALARM | UPDATE_ENDED) != 0 && !self.is_set()).then(|| {
            let into = self.checked.saturating_sub(self.since) % TICKS_PER_SECOND;
            self.checked.saturating_add(TICKS_PER_SECOND - into)
        });
        periodic
            .into_iter()
            .chain(second)
            .min()
            .map(|time| time.max(now))
    }

    fn register(&self, register: u8) -> u8 {
        self.memory[usize::from(register) % REGISTERS]
    }

    fn is_set(&self) -> bool {
        self.register(REGISTER_B) & B_SET != 0
    }

    fn seconds_at(&self, now: u64) -> u64 {
        self.seconds
            .saturating_add(now.saturating_sub(self.since) / TICKS_PER_SECOND)
    }

    fn date(&self, now: u64) -> Date {
        Date::of_seconds(self.seconds_at(now))
    }

    fn update_in_progress(&self, now: u64) -> u8 {
        let into = now.saturating_sub(self.since) % TICKS_PER_SECOND;
        let soon = TICKS_PER_SECOND - into <= UPDATE_TICKS && !self.is_set();
        if soon { A_UPDATE_IN_PROGRESS } else { 0 }
    }

    /// Crystal periods for each periodic interrupt.
    fn period(&self) -> Option<u64> {
        match self.register(REGISTER_A) & 0x0f {
            0 => None,
            // With this crystal 1 and 2 are the rates of 8 and 9.
            rate @ (1 | 2) => Some(1 << (rate + 6)),
            rate => Some(1 << (rate - 1)),
        }
    }

    fn write_b(&mut self, value: u8, now: u64) {
        let before = self.is_set();
        let setting = value & B_SET != 0;

        // The date is encoded as the register was, and decoded as it is now.
        if setting && !before {
            self.freeze(now);
        }
        self.memory[usize::from(REGISTER_B)] = value;
        if before && !setting {
            self.restart(now);
        }
    }

    /// Writes the date into the clock's registers.
    fn freeze(&mut self, now: u64) {
        let date = self.date(now);
        for register in (0..REGISTERS as u8).filter(|&register| is_clock(register)) {
            self.memory[usize::from(register)] = self.encode(register, &date);
        }
    }

    /// Continues from the date in the clock's registers.
    fn restart(&mut self, now: u64) {
        let value = |register| u64::from(self.decode(self.register(register)));

        let date = Date {
            year: value(CENTURY) * 100 + value(YEAR),
            month: value(MONTH),
            day: value(DAY),
            hour: u64::from(self.decode_hour(self.register(HOURS))),
            minute: value(MINUTES),
            second: value(SECONDS),
        };
        self.seconds = date.seconds();
        self.since = now;
        self.checked = self.checked.max(now);
    }

    fn encode(&self, register: u8, date: &Date) -> u8 {
        let number = match register {
            SECONDS => date.second,
            MINUTES => date.minute,
            HOURS => return self.encode_hour(date.hour as u8),
            DAY_OF_WEEK => date.day_of_week(),
            DAY => date.day,
            MONTH => date.month,
            YEAR => date.year % 100,
            _ => date.year / 100 % 100,
        };
        self.encode_number(number as u8)
    }

    fn encode_number(&self, number: u8) -> u8 {
        let binary = self.register(REGISTER_B) & B_BINARY != 0;
        if binary {
            number
        } else {
            ((number / 10) << 4) | (number % 10)
        }
    }

    fn encode_hour(&self, hour: u8) -> u8 {
        if self.register(REGISTER_B) & B_24_HOURS != 0 {
            return self.encode_number(hour);
        }

        let pm = if hour >= 12 { PM } else { 0 };
        self.encode_number((hour + 11) % 12 + 1) | pm
    }

    fn decode(&self, value: u8) -> u8 {
        let binary = self.register(REGISTER_B) & B_BINARY != 0;
        if binary {
            value
        } else {
            (value >> 4) * 10 + (value & 15)
        }
    }

    fn decode_hour(&self, value: u8) -> u8 {
        if self.register(REGISTER_B) & B_24_HOURS != 0 {
            return self.decode(value);
        }

        let pm = if value & PM != 0 { 12 } else { 0 };
        self.decode(value & !PM) % 12 + pm
    }

    fn is_alarm(&self, seconds: u64) -> bool {
        let matches = |register, number| {
            let alarm = self.register(register);
            alarm >= ALARM_ANY || u64::from(self.decode(alarm)) == number
        };
        let hour = self.register(HOURS_ALARM);

        matches(SECONDS_ALARM, seconds % 60)
            && matches(MINUTES_ALARM, seconds / 60 % 60)
            && (hour >= ALARM_ANY || u64::from(self.decode_hour(hour)) == seconds / 3600 % 24)
    }
}

/// Whether the register is one of the date or the time.
fn is_clock(register: u8) -> bool {
    matches!(
        register,
        SECONDS | MINUTES | HOURS | DAY_OF_WEEK..=YEAR | CENTURY
    )
}

/// Periodic interrupts until `now`.
fn pulses(now: u64, period: u64) -> u64 {
    (u128::from(now) * u128::from(CRYSTAL_HZ) / u128::from(TICKS_PER_SECOND)) as u64 / period
}
