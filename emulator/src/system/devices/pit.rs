//! The 8254 interval timer: channels 0 (IRQ 0), 1 and 2 (speaker; its gate is bit 0 of port 0x61).
//!
//! A channel stores when its count was loaded; counter and output are computed from the time.
//! Source: Intel 8254 datasheet (231164-005).

mod channel;
#[cfg(test)]
mod tests;

use super::ticks::TICKS_PER_SECOND;
use channel::Channel;

/// The input clock of a PC's timer.
const CLOCKS_PER_SECOND: u64 = 1_193_182;
/// The channel number in a control word that means read-back.
const READ_BACK: u8 = 3;
/// What firmware programs channel 0 with: mode 3, both bytes; the count is 65536.
const FIRMWARE_CONTROL: u8 = 0x36;

/// Clocks of the timer that have passed at `now`.
fn clock(now: u64) -> u64 {
    (u128::from(now) * u128::from(CLOCKS_PER_SECOND) / u128::from(TICKS_PER_SECOND)) as u64
}

/// The first time at which `clock` clocks have passed.
fn time(clock: u64) -> u64 {
    let ticks =
        (u128::from(clock) * u128::from(TICKS_PER_SECOND)).div_ceil(u128::from(CLOCKS_PER_SECOND));
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// The timer.
#[derive(Clone, Debug)]
pub(super) struct Pit {
    channels: [Channel; 3],
    /// Until which clock rising edges of channel 0 were reported.
    reported: u64,
}

impl Pit {
    pub(super) fn new() -> Pit {
        let mut channels = [Channel::new(true), Channel::new(true), Channel::new(false)];
        channels[0].control(FIRMWARE_CONTROL);
        channels[0].write(0, 0);
        channels[0].write(0, 0);
        Pit {
            channels,
            reported: 0,
        }
    }

    /// Reads the register: 0 to 2 are the channels, 3 cannot be read.
    pub(super) fn read(&mut self, register: u16, now: u64) -> u8 {
        match self.channels.get_mut(usize::from(register)) {
            Some(channel) => channel.read(clock(now)),
            None => 0xff,
        }
    }

    /// Writes the register: 0 to 2 are the channels, 3 is the control word.
    pub(super) fn write(&mut self, register: u16, value: u8, now: u64) {
        let clock = clock(now);

        if let Some(channel) = self.channels.get_mut(usize::from(register)) {
            channel.write(value, clock);
            return;
        }

        let selected = value >> 6;
        if selected == READ_BACK {
            self.read_back(value, clock);
        } else if value & 0x30 == 0 {
            self.channels[usize::from(selected)].latch_count(clock);
        } else {
            self.channels[usize::from(selected)].control(value);
        }
    }

    /// The read-back command; bits 5 and 4 are active when clear.
    fn read_back(&mut self, value: u8, clock: u64) {
        for (number, channel) in self.channels.iter_mut().enumerate() {
            if value & (2 << number) == 0 {
                continue;
            }
            if value & (1 << 5) == 0 {
                channel.latch_count(clock);
            }
            if value & (1 << 4) == 0 {
                channel.latch_status(clock);
            }
        }
    }

    /// Sets the gate of channel 2.
    pub(super) fn set_gate(&mut self, high: bool, now: u64) {
        self.channels[2].set_gate(high, clock(now));
    }

    /// The output of channel 2.
    pub(super) fn speaker(&mut self, now: u64) -> bool {
        self.channels[2].output(clock(now))
    }

    /// Whether the output of channel 0 has risen since the last call, and its level.
    pub(super) fn interrupt(&mut self, now: u64) -> (bool, bool) {
        let clock = clock(now);
        let level = self.channels[0].output(clock);
        let risen = self.channels[0]
            .last_rise(clock)
            .is_some_and(|rise| rise > self.reported);

        self.reported = self.reported.max(clock);
        (risen, level)
    }

    /// When the output of channel 0 rises.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        let rise = self.channels[0].next_rise(self.reported)?;
        Some(time(rise).max(now))
    }
}
