//! One counter of the 8254: counting, latches, the order of bytes.

/// Which bytes of the counter are accessed (control word, bits 5 and 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    Low,
    High,
    LowThenHigh,
}

/// A count that is loaded at the end of the period that runs (modes 2 and 3).
#[derive(Clone, Copy, Debug)]
struct NextPeriod {
    count: u64,
    at: u64,
}

/// One counter. Times are in clocks of the timer.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    mode: u8,
    bytes: Bytes,
    bcd: bool,
    gate: bool,
    /// Counts from here, 1 to 65536, if `loaded`.
    count: u64,
    loaded: bool,
    /// When the first period began.
    start: u64,
    /// The output rose at `start`: a period ended there.
    risen_at_start: bool,
    /// Clocks that were counted when the gate stopped the counter.
    stopped: Option<u64>,
    /// Modes 1 and 5: the gate has started the counter.
    triggered: bool,
    next: Option<NextPeriod>,
    /// The low byte of a count of which the high byte was not yet written.
    low: Option<u8>,
    /// The next byte to read is the high one.
    read_high: bool,
    latched: Option<u16>,
    latched_status: Option<u8>,
}

impl Channel {
    pub(super) fn new(gate: bool) -> Channel {
        Channel {
            mode: 0,
            bytes: Bytes::LowThenHigh,
            bcd: false,
            gate,
            count: 1,
            loaded: false,
            start: 0,
            risen_at_start: false,
            stopped: None,
            triggered: false,
            next: None,
            low: None,
            read_high: false,
            latched: None,
            latched_status: None,
        }
    }

    /// A control word for this counter; it stops until a count is written.
    pub(super) fn control(&mut self, value: u8) {
        let mode = (value >> 1) & 7;

        *self = Channel {
            // 6 and 7 are 2 and 3: the upper bit is not decoded.
            mode: if mode > 5 { mode - 4 } else { mode },
            bytes: match (value >> 4) & 3 {
                1 => Bytes::Low,
                2 => Bytes::High,
                _ => Bytes::LowThenHigh,
            },
            bcd: value & 1 != 0,
            ..Channel::new(self.gate)
        };
    }

    pub(super) fn write(&mut self, value: u8, clock: u64) {
        let value16 = match self.bytes {
            Bytes::Low => u16::from(value),
            Bytes::High => u16::from(value) << 8,
            Bytes::LowThenHigh => match self.low.take() {
                Some(low) => u16::from_le_bytes([low, value]),
                None => {
                    self.low = Some(value);
                    // In mode 0 the first byte stops the counter and clears the output.
                    if self.mode == 0 {
                        self.loaded = false;
                    }
                    return;
                }
            },
        };

        let count = if self.bcd {
            decode_bcd(value16)
        } else {
            u64::from(value16)
        };
        self.load(if count == 0 { self.modulus() } else { count }, clock);
    }

    fn load(&mut self, count: u64, clock: u64) {
        self.settle(clock);
        let period = self.count;

        match self.mode {
            // The running period, or the running pulse, is finished with the old count.
            2 | 3 if self.loaded && self.gate => {
                let periods = clock.saturating_sub(self.start) / period + 1;
                let at = self.start.saturating_add(periods.saturating_mul(period));
                self.next = Some(NextPeriod { count, at });
            }
            1 | 5 if self.loaded && self.triggered => {
                self.next = Some(NextPeriod {
                    count,
                    at: u64::MAX,
                });
            }
            _ => {
                self.count = count;
                self.loaded = true;
                // The count is transferred at the next clock.
                self.start = clock.saturating_add(1);
                self.risen_at_start = false;
                self.stopped = (!self.gate && !matches!(self.mode, 1 | 5)).then_some(0);
            }
        }
    }

    /// Begins the period of a count that was written while another one ran.
    fn settle(&mut self, clock: u64) {
        if let Some(next) = self.next.take_if(|next| next.at <= clock) {
            self.count = next.count;
            self.start = next.at;
            self.risen_at_start = true;
        }
    }

    pub(super) fn set_gate(&mut self, high: bool, clock: u64) {
        if high == self.gate {
            return;
        }
        self.settle(clock);
        self.gate = high;

        match (self.mode, high) {
            (0 | 4, false) => self.stopped = Some(self.elapsed(clock)),
            (0 | 4, true) => {
                if let Some(elapsed) = self.stopped.take() {
                    self.start = clock.saturating_sub(elapsed);
                }
            }
            // The output goes high at once; the gate's rise starts a new period.
            (2 | 3, false) => self.stopped = Some(0),
            (_, false) => {}
            (_, true) => {
                if let Some(next) = self.next.take() {
                    self.count = next.count;
                }
                self.triggered = true;
                self.stopped = None;
                self.risen_at_start = false;
                self.start = clock.saturating_add(1);
            }
        }
    }

    fn modulus(&self) -> u64 {
        if self.bcd { 10_000 } else { 0x1_0000 }
    }

    fn elapsed(&self, clock: u64) -> u64 {
        self.stopped
            .unwrap_or_else(|| clock.saturating_sub(self.start))
    }

    fn counts(&self) -> bool {
        self.loaded && (self.triggered || !matches!(self.mode, 1 | 5))
    }

    pub(super) fn output(&mut self, clock: u64) -> bool {
        self.settle(clock);
        if !self.counts() {
            return self.mode != 0;
        }

        let elapsed = self.elapsed(clock);
        match self.mode {
            0 | 1 => elapsed >= self.count,
            2 => elapsed % self.count != self.count - 1 || self.count == 1,
            3 => elapsed % self.count < self.count.div_ceil(2),
            _ => elapsed != self.count,
        }
    }

    fn counter(&mut self, clock: u64) -> u16 {
        self.settle(clock);
        if !self.loaded {
            return 0;
        }

        let elapsed = if self.counts() {
            self.elapsed(clock)
        } else {
            0
        };
        let count = match self.mode {
            2 => self.count - elapsed % self.count,
            3 => {
                // Counts by two, once for each half of the period.
                let high = self.count.div_ceil(2);
                let position = elapsed % self.count;
                let in_half = if position < high {
                    position
                } else {
                    position - high
                };
                (self.count & !1).saturating_sub(2 * in_half)
            }
            _ => {
                let modulus = self.modulus();
                (self.count + modulus - elapsed % modulus) % modulus
            }
        };

        let count = count % self.modulus();
        if self.bcd {
            encode_bcd(count)
        } else {
            count as u16
        }
    }

    pub(super) fn latch_count(&mut self, clock: u64) {
        if self.latched.is_none() {
            self.latched = Some(self.counter(clock));
        }
    }

    pub(super) fn latch_status(&mut self, clock: u64) {
        if self.latched_status.is_some() {
            return;
        }

        let output = self.output(clock);
        // A count was written that is not yet in the counter.
        let null = !self.loaded || self.next.is_some() || clock < self.start;
        let bytes = match self.bytes {
            Bytes::Low => 1,
            Bytes::High => 2,
            Bytes::LowThenHigh => 3,
        };
        self.latched_status = Some(
            u8::from(output) << 7
                | u8::from(null) << 6
                | bytes << 4
                | self.mode << 1
                | u8::from(self.bcd),
        );
    }

    pub(super) fn read(&mut self, clock: u64) -> u8 {
        if let Some(status) = self.latched_status.take() {
            return status;
        }

        let [low, high] = match self.latched {
            Some(latched) => latched,
            None => self.counter(clock),
        }
        .to_le_bytes();

        match self.bytes {
            Bytes::LowThenHigh if !self.read_high => {
                self.read_high = true;
                low
            }
            Bytes::Low => {
                self.latched = None;
                low
            }
            Bytes::High | Bytes::LowThenHigh => {
                self.latched = None;
                self.read_high = false;
                high
            }
        }
    }

    /// Clocks from the load to the first rise of the output; for modes 2 and 3 the period.
    fn rises_after(&self) -> u64 {
        match self.mode {
            4 | 5 => self.count + 1,
            _ => self.count,
        }
    }

    /// When the output last rose by counting, at `clock` at the latest.
    pub(super) fn last_rise(&mut self, clock: u64) -> Option<u64> {
        self.settle(clock);
        if !self.counts() || self.stopped.is_some() {
            return None;
        }

        let elapsed = clock.checked_sub(self.start)?;
        let first = self.rises_after();
        match self.mode {
            2 | 3 if elapsed >= first => Some(self.start + elapsed / first * first),
            2 | 3 => self.risen_at_start.then_some(self.start),
            _ => (elapsed >= first).then(|| self.start + first),
        }
    }

    /// When the output rises next by counting, after `clock`.
    pub(super) fn next_rise(&self, clock: u64) -> Option<u64> {
        if !self.counts() || self.stopped.is_some() {
            return None;
        }

        if self.risen_at_start && self.start > clock {
            return Some(self.start);
        }

        let first = self.rises_after();
        let periods = match self.mode {
            2 | 3 => clock.saturating_sub(self.start) / first + 1,
            _ => 1,
        };
        let rise = match self.next {
            Some(next) if next.at > clock && matches!(self.mode, 2 | 3) => next.at,
            _ => self.start.saturating_add(periods.saturating_mul(first)),
        };
        (rise > clock).then_some(rise)
    }
}

fn decode_bcd(value: u16) -> u64 {
    (0..4).rev().fold(0, |sum, digit| {
        sum * 10 + u64::from((value >> (4 * digit)) & 15)
    })
}

fn encode_bcd(mut value: u64) -> u16 {
    let mut digits = 0;
    for digit in 0..4 {
        digits |= ((value % 10) as u16) << (4 * digit);
        value /= 10;
    }
    digits
}
