//! Two cascaded 8259A interrupt controllers, with the edge/level registers of an EISA chipset.
//!
//! Source: Intel 8259A datasheet (231468-003); ELCR: Intel 82093AA/PIIX datasheets, ports 0x4d0
//! and 0x4d1. Not modelled: the MCS-80/85 mode (ICW4 bit 0 clear), buffered mode.

#[cfg(test)]
mod tests;

/// Input of the master that the slave's output is wired to.
const CASCADE: u8 = 2;
/// Inputs that each controller has.
const INPUTS: u8 = 8;
/// The input whose vector is given when a request has gone before it was acknowledged.
const SPURIOUS: u8 = 7;
/// The inputs that ELCR can make level triggered: not the timer, the keyboard, the cascade (master)
/// nor the clock and the coprocessor (slave).
const LEVEL_INPUTS: [u8; 2] = [0xf8, 0xde];
/// Vector bases that a PC's firmware programs.
const FIRMWARE_BASES: [u8; 2] = [0x08, 0x70];

const ICW1: u8 = 1 << 4;
const ICW1_NEEDS_ICW4: u8 = 1 << 0;
const ICW1_SINGLE: u8 = 1 << 1;
const ICW1_LEVEL: u8 = 1 << 3;
const ICW4_AUTO_EOI: u8 = 1 << 1;
const ICW4_SPECIAL_FULLY_NESTED: u8 = 1 << 4;
const OCW3: u8 = 1 << 3;
const OCW3_POLL: u8 = 1 << 2;

/// Which initialization command word the data port expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expects {
    Mask,
    Icw2,
    Icw3,
    Icw4,
}

/// One 8259A.
#[derive(Clone, Debug)]
struct Pic {
    lines: u8,
    /// Lines that have risen since they were last acknowledged.
    edges: u8,
    in_service: u8,
    mask: u8,
    base: u8,
    /// The input with the lowest priority.
    lowest: u8,
    expects: Expects,
    icw1: u8,
    auto_eoi: bool,
    rotate_on_auto_eoi: bool,
    special_fully_nested: bool,
    special_mask: bool,
    read_in_service: bool,
    poll: bool,
    level_inputs: u8,
}

impl Pic {
    fn new(base: u8) -> Pic {
        Pic {
            lines: 0,
            edges: 0,
            in_service: 0,
            mask: 0xff,
            base,
            lowest: 7,
            expects: Expects::Mask,
            icw1: 0,
            auto_eoi: false,
            rotate_on_auto_eoi: false,
            special_fully_nested: false,
            special_mask: false,
            read_in_service: false,
            poll: false,
            level_inputs: 0,
        }
    }

    fn set_line(&mut self, input: u8, high: bool) {
        let bit = 1 << input;

        if !high {
            // A request must stay until it is acknowledged; otherwise it is gone (datasheet,
            // "Edge and Level Triggered Modes").
            self.lines &= !bit;
            self.edges &= !bit;
        } else if self.lines & bit == 0 {
            self.lines |= bit;
            self.edges |= bit;
        }
    }

    /// The interrupt request register (IRR).
    fn requests(&self) -> u8 {
        let level = if self.icw1 & ICW1_LEVEL != 0 {
            0xff
        } else {
            self.level_inputs
        };
        self.edges | (self.lines & level)
    }

    /// The position of an input in the current order; 0 is the highest priority.
    fn rank(&self, input: u8) -> u8 {
        input.wrapping_sub(self.lowest).wrapping_sub(1) % INPUTS
    }

    fn first(&self, inputs: u8) -> Option<u8> {
        (0..INPUTS)
            .filter(|input| inputs & (1 << input) != 0)
            .min_by_key(|&input| self.rank(input))
    }

    /// The request that the output is asserted for.
    fn pending(&self, cascaded: u8) -> Option<u8> {
        let request = self.first(self.requests() & !self.mask)?;

        let mut blocking = self.in_service;
        if self.special_mask {
            blocking &= !self.mask;
        }
        // The slave can then request again while one of its interrupts is in service.
        if self.special_fully_nested {
            blocking &= !cascaded;
        }

        match self.first(blocking) {
            Some(serviced) if self.rank(serviced) <= self.rank(request) => None,
            _ => Some(request),
        }
    }

    /// Takes the input into service, as an INTA cycle does.
    fn take(&mut self, input: u8) {
        self.edges &= !(1 << input);

        if !self.auto_eoi {
            self.in_service |= 1 << input;
        } else if self.rotate_on_auto_eoi {
            self.lowest = input;
        }
    }

    fn command(&mut self, value: u8) {
        if value & ICW1 != 0 {
            self.initialize(value);
        } else if value & OCW3 != 0 {
            self.operate(value);
        } else {
            self.end_of_interrupt(value);
        }
    }

    fn initialize(&mut self, icw1: u8) {
        *self = Pic {
            lines: self.lines,
            base: self.base,
            level_inputs: self.level_inputs,
            mask: 0,
            icw1,
            expects: Expects::Icw2,
            ..Pic::new(0)
        };
    }

    /// OCW3.
    fn operate(&mut self, value: u8) {
        match (value >> 5) & 3 {
            2 => self.special_mask = false,
            3 => self.special_mask = true,
            _ => {}
        }

        self.poll = value & OCW3_POLL != 0;
        match value & 3 {
            2 => self.read_in_service = false,
            3 => self.read_in_service = true,
            _ => {}
        }
    }

    /// OCW2: end of interrupt and rotation of priorities.
    fn end_of_interrupt(&mut self, value: u8) {
        let [rotate, specific, eoi] = [7, 6, 5].map(|bit| value & (1 << bit) != 0);

        if !specific && !eoi {
            self.rotate_on_auto_eoi = rotate;
            return;
        }

        let input = if specific {
            value & 7
        } else {
            // In special mask mode a masked interrupt has to be ended by its number.
            let hidden = if self.special_mask { self.mask } else { 0 };
            match self.first(self.in_service & !hidden) {
                Some(input) => input,
                None => return,
            }
        };

        if eoi {
            self.in_service &= !(1 << input);
        }
        if rotate {
            self.lowest = input;
        }
    }

    fn data(&mut self, value: u8) {
        self.expects = match self.expects {
            Expects::Mask => {
                self.mask = value;
                Expects::Mask
            }
            Expects::Icw2 => {
                self.base = value & 0xf8;
                if self.icw1 & ICW1_SINGLE == 0 {
                    Expects::Icw3
                } else {
                    self.after_icw3()
                }
            }
            // How they are cascaded is wired.
            Expects::Icw3 => self.after_icw3(),
            Expects::Icw4 => {
                self.auto_eoi = value & ICW4_AUTO_EOI != 0;
                self.special_fully_nested = value & ICW4_SPECIAL_FULLY_NESTED != 0;
                Expects::Mask
            }
        };
    }

    fn after_icw3(&self) -> Expects {
        if self.icw1 & ICW1_NEEDS_ICW4 != 0 {
            Expects::Icw4
        } else {
            Expects::Mask
        }
    }

    /// What a poll reads: bit 7 and the input if there is a request, which is then in service.
    fn poll(&mut self, cascaded: u8) -> u8 {
        self.poll = false;

        match self.pending(cascaded) {
            Some(input) => {
                self.take(input);
                0x80 | input
            }
            None => 0,
        }
    }

    fn read_command(&self) -> u8 {
        if self.read_in_service {
            self.in_service
        } else {
            self.requests()
        }
    }
}

/// The master and the slave.
#[derive(Clone, Debug)]
pub(super) struct Pics {
    master: Pic,
    slave: Pic,
}

impl Pics {
    /// As firmware leaves them: initialized, all inputs masked.
    pub(super) fn new() -> Pics {
        Pics {
            master: Pic::new(FIRMWARE_BASES[0]),
            slave: Pic::new(FIRMWARE_BASES[1]),
        }
    }

    /// Sets the level of the line IRQ `irq` (0 to 15; 2 is the cascade and cannot be set).
    pub(super) fn set_line(&mut self, irq: u8, high: bool) {
        match irq {
            CASCADE => {}
            0..8 => self.master.set_line(irq, high),
            8..16 => self.slave.set_line(irq - INPUTS, high),
            _ => {}
        }
        self.cascade();
    }

    fn cascade(&mut self) {
        self.master
            .set_line(CASCADE, self.slave.pending(0).is_some());
    }

    /// The level of the master's INT output.
    pub(super) fn output(&self) -> bool {
        self.master.pending(1 << CASCADE).is_some()
    }

    /// The INTA cycles: takes the first request into service and gives its vector.
    pub(super) fn acknowledge(&mut self) -> u8 {
        let Some(input) = self.master.pending(1 << CASCADE) else {
            return self.master.base | SPURIOUS;
        };
        self.master.take(input);

        if input != CASCADE {
            return self.master.base | input;
        }

        let request = self.slave.pending(0);
        if let Some(input) = request {
            self.slave.take(input);
        }

        // INT falls during the cycle, so that a further request is an edge for the master.
        self.master.set_line(CASCADE, false);
        self.cascade();
        self.slave.base | request.unwrap_or(SPURIOUS)
    }

    pub(super) fn read(&mut self, port: u16) -> u8 {
        let value = match port {
            0x20 | 0x21 if self.master.poll => self.master.poll(1 << CASCADE),
            0xa0 | 0xa1 if self.slave.poll => self.slave.poll(0),
            0x20 => self.master.read_command(),
            0x21 => self.master.mask,
            0xa0 => self.slave.read_command(),
            0xa1 => self.slave.mask,
            0x4d0 => self.master.level_inputs,
            0x4d1 => self.slave.level_inputs,
            _ => 0xff,
        };

        self.cascade();
        value
    }

    pub(super) fn write(&mut self, port: u16, value: u8) {
        match port {
            0x20 => self.master.command(value),
            0x21 => self.master.data(value),
            0xa0 => self.slave.command(value),
            0xa1 => self.slave.data(value),
            0x4d0 => self.master.level_inputs = value & LEVEL_INPUTS[0],
            0x4d1 => self.slave.level_inputs = value & LEVEL_INPUTS[1],
            _ => {}
        }
        self.cascade();
    }
}
