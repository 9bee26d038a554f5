//! A 16550A UART whose other end is the host: output is collected, input is delivered as the
//! receiver has room.
//!
//! Sending takes no time, so the transmitter is always empty; the character timeout has passed as
//! soon as there is a character. Not modelled: baud rate, breaks, parity and framing errors, DMA.
//! Source: National Semiconductor PC16550D datasheet (TL/C/8652).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

/// Bytes that the receiver's FIFO holds.
const FIFO_BYTES: usize = 16;
/// Bytes of output that are held until they are taken.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

const IER_RECEIVED: u8 = 1 << 0;
const IER_TRANSMITTER_EMPTY: u8 = 1 << 1;
const IER_LINE_STATUS: u8 = 1 << 2;
const IER_MODEM_STATUS: u8 = 1 << 3;

const IIR_NONE: u8 = 0x01;
const IIR_MODEM_STATUS: u8 = 0x00;
const IIR_TRANSMITTER_EMPTY: u8 = 0x02;
const IIR_RECEIVED: u8 = 0x04;
const IIR_LINE_STATUS: u8 = 0x06;
const IIR_TIMEOUT: u8 = 0x0c;
const IIR_FIFOS: u8 = 0xc0;

const FCR_ENABLE: u8 = 1 << 0;
const FCR_CLEAR_RECEIVER: u8 = 1 << 1;
/// Bytes in the FIFO at which data is reported, by bits 7 and 6 of FCR.
const TRIGGERS: [usize; 4] = [1, 4, 8, 14];

const LCR_DIVISOR_ACCESS: u8 = 1 << 7;

const MCR_OUT2: u8 = 1 << 3;
const MCR_LOOPBACK: u8 = 1 << 4;
const MCR_BITS: u8 = 0x1f;

/// How often LSR is read in a row by a driver that polls for input. One that sets the UART up, or
/// transmits, reads it once or twice.
const POLLS: u8 = 16;

const LSR_DATA_READY: u8 = 1 << 0;
const LSR_OVERRUN: u8 = 1 << 1;
const LSR_TRANSMITTER_EMPTY: u8 = 1 << 5 | 1 << 6;

const MSR_RING: u8 = 1 << 6;
/// CTS, DSR and DCD: what a connected terminal sets.
const MSR_CONNECTED: u8 = 1 << 4 | 1 << 5 | 1 << 7;

/// The UART.
#[derive(Clone, Debug, Default)]
pub(super) struct Serial {
    ier: u8,
    fcr: u8,
    lcr: u8,
    mcr: u8,
    scratch: u8,
    divisor: [u8; 2],
    overrun: bool,
    /// The lower half of MSR: what changed since it was read.
    modem_changes: u8,
    /// The transmitter became empty, or its interrupt was enabled, since IIR reported it.
    transmitter_empty: bool,
    /// The interrupt was withdrawn for a moment during an access.
    withdrawn: bool,
    /// What was received and not read, each with whether it was typed.
    receiver: VecDeque<(u8, bool)>,
    input: VecDeque<u8>,
    /// Input that waits until somebody listens.
    typed: VecDeque<u8>,
    /// How often LSR was read in a row.
    polls: u8,
    output: Vec<u8>,
    dropped: u64,
}

impl Serial {
    pub(super) fn new() -> Serial {
        Serial {
            divisor: [1, 0],
            ..Serial::default()
        }
    }

    pub(super) fn add_input(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        self.receive();
    }

    /// Input from somebody who types when there is somebody to read it: what is in the receiver while a
    /// driver starts, it throws away.
    pub(super) fn add_typed(&mut self, bytes: &[u8]) {
        self.typed.extend(bytes);
        self.receive();
    }

    /// Whether a driver waits for input, by interrupts or by polling.
    fn is_listening(&self) -> bool {
        let interrupts = self.ier & IER_RECEIVED != 0 && self.mcr & MCR_OUT2 != 0;
        interrupts || self.polls >= POLLS
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Bytes of output that were lost since nobody took the ones before them.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The level of the interrupt line. OUT2 connects it on a PC; loopback disconnects OUT2.
    pub(super) fn interrupt(&self) -> bool {
        self.mcr & (MCR_OUT2 | MCR_LOOPBACK) == MCR_OUT2 && self.cause() != IIR_NONE
    }

    /// Whether the line was low for a moment since the last call.
    pub(super) fn take_withdrawn(&mut self) -> bool {
        std::mem::take(&mut self.withdrawn)
    }

    /// Reads register 0 to 7.
    pub(super) fn read(&mut self, register: u16) -> u8 {
        let divisor = self.lcr & LCR_DIVISOR_ACCESS != 0;
        // Reading what was received goes on with polling, and is not asked for itself.
        if register != 0 && register != 5 {
            self.polls = 0;
        }

        match register {
            0 | 1 if divisor => self.divisor[usize::from(register)],
            0 => {
                let byte = self.receiver.pop_front().map_or(0, |(byte, _)| byte);
                self.receive();
                byte
            }
            1 => self.ier,
            2 => self.identify(),
            3 => self.lcr,
            4 => self.mcr,
            5 => self.line_status(),
            6 => {
                let changes = std::mem::take(&mut self.modem_changes);
                self.modem_status() | changes
            }
            _ => self.scratch,
        }
    }

    /// Writes register 0 to 7.
    pub(super) fn write(&mut self, register: u16, value: u8) {
        let divisor = self.lcr & LCR_DIVISOR_ACCESS != 0;
        self.polls = 0;

        match register {
            0 | 1 if divisor => self.divisor[usize::from(register)] = value,
            0 => self.transmit(value),
            1 => self.enable(value),
            2 => self.control_fifo(value),
            3 => self.lcr = value,
            4 => self.control_modem(value),
            // LSR and MSR are for factory tests.
            5 | 6 => {}
            _ => self.scratch = value,
        }
    }

    /// The cause with the highest priority, as IIR gives it.
    fn cause(&self) -> u8 {
        let enabled = |bit| self.ier & bit != 0;

        if enabled(IER_LINE_STATUS) && self.overrun {
            IIR_LINE_STATUS
        } else if enabled(IER_RECEIVED) && self.receiver.len() >= self.trigger() {
            IIR_RECEIVED
        } else if enabled(IER_RECEIVED) && !self.receiver.is_empty() {
            IIR_TIMEOUT
        } else if enabled(IER_TRANSMITTER_EMPTY) && self.transmitter_empty {
            IIR_TRANSMITTER_EMPTY
        } else if enabled(IER_MODEM_STATUS) && self.modem_changes != 0 {
            IIR_MODEM_STATUS
        } else {
            IIR_NONE
        }
    }

    fn identify(&mut self) -> u8 {
        let cause = self.cause();
        // Being reported ends this cause; the others end by what the driver then does.
        if cause == IIR_TRANSMITTER_EMPTY {
            self.transmitter_empty = false;
        }

        if self.has_fifos() {
            cause | IIR_FIFOS
        } else {
            cause
        }
    }

    fn line_status(&mut self) -> u8 {
        self.polls = self.polls.saturating_add(1);
        self.receive();
        let mut status = LSR_TRANSMITTER_EMPTY;
        if !self.receiver.is_empty() {
            status |= LSR_DATA_READY;
        }
        if std::mem::take(&mut self.overrun) {
            status |= LSR_OVERRUN;
        }
        status
    }

    /// The upper half of MSR; in loopback these are the outputs RTS, DTR, OUT1 and OUT2.
    fn modem_status(&self) -> u8 {
        if self.mcr & MCR_LOOPBACK == 0 {
            return MSR_CONNECTED;
        }

        let [dtr, rts, out1, out2] = [0, 1, 2, 3].map(|bit| (self.mcr >> bit) & 1);
        rts << 4 | dtr << 5 | out1 << 6 | out2 << 7
    }

    fn enable(&mut self, value: u8) {
        if value & !self.ier & IER_TRANSMITTER_EMPTY != 0 {
            self.transmitter_empty = true;
        }
        self.ier = value & 0x0f;
        self.receive();
    }

    fn transmit(&mut self, value: u8) {
        // The transmitter is full until the byte has left it, which ends this cause for a moment.
        self.transmitter_empty = false;
        self.withdrawn |= self.cause() == IIR_NONE;
        self.transmitter_empty = true;

        if self.mcr & MCR_LOOPBACK != 0 {
            self.loop_back(value);
        } else if self.output.len() < OUTPUT_BYTES_MAX {
            self.output.push(value);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    fn loop_back(&mut self, value: u8) {
        if self.receiver.len() < self.capacity() {
            self.receiver.push_back((value, false));
            return;
        }

        self.overrun = true;
        // Without FIFO the new character replaces the one that nobody read.
        if !self.has_fifos() {
            self.receiver.clear();
            self.receiver.push_back((value, false));
        }
    }

    fn control_fifo(&mut self, value: u8) {
        // Both FIFOs are emptied when they are switched on or off.
        if (value ^ self.fcr) & FCR_ENABLE != 0 || value & FCR_CLEAR_RECEIVER != 0 {
            // `serial8250_do_set_termios` of Linux 6.12 does so after it has enabled interrupts. Who
            // types sees what is missing, and types it again.
            let received = std::mem::take(&mut self.receiver).into_iter().rev();
            let typed = received.filter(|(_, is_typed)| *is_typed);
            typed.for_each(|(byte, _)| self.typed.push_front(byte));
        }
        // The other bits can only be written with this one.
        self.fcr = if value & FCR_ENABLE != 0 { value } else { 0 };
        self.receive();
    }

    fn control_modem(&mut self, value: u8) {
        let before = self.modem_status();
        self.mcr = value & MCR_BITS;
        let after = self.modem_status();

        // The ring indicator reports only its end.
        let mut changes = before ^ after;
        if after & MSR_RING != 0 {
            changes &= !MSR_RING;
        }
        self.modem_changes |= changes >> 4;
        self.receive();
    }

    fn has_fifos(&self) -> bool {
        self.fcr & FCR_ENABLE != 0
    }

    fn capacity(&self) -> usize {
        if self.has_fifos() { FIFO_BYTES } else { 1 }
    }

    fn trigger(&self) -> usize {
        if self.has_fifos() {
            TRIGGERS[usize::from(self.fcr >> 6)]
        } else {
            1
        }
    }

    /// Takes input for which there is room; in loopback the receiver is not connected.
    fn receive(&mut self) {
        if self.mcr & MCR_LOOPBACK != 0 {
            return;
        }

        while self.receiver.len() < self.capacity() {
            let mut received = self.input.pop_front().map(|byte| (byte, false));
            if received.is_none() && self.is_listening() {
                received = self.typed.pop_front().map(|byte| (byte, true));
            }
            match received {
                Some(received) => self.receiver.push_back(received),
                None => return,
            }
        }
    }
}
