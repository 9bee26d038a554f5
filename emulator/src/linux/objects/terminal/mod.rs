//! Pseudo-terminals: a master, and a terminal that processes open as `/dev/pts/N`. Not here: which
//! session a terminal controls (`terminals`), the calls (`calls::terminal`).
//!
//! A terminal has no line and no timing: what the master writes is processed at once.
//!
//! Source: Linux 6.12 `drivers/tty/pty.c`, `drivers/tty/n_tty.c`, `drivers/tty/tty_io.c`.

mod input;
mod output;
mod termios;

pub(in crate::linux) use termios::{DISABLED, Form, cc, lflag};

use input::Input;
use output::Output;
use std::collections::BTreeSet;
use termios::{Termios, iflag};

/// What a master in packet mode reads of the terminal (`TIOCPKT_*`).
const PACKET_FLUSH_READ: u8 = 1;
const PACKET_FLUSH_WRITE: u8 = 2;
const PACKET_STOP: u8 = 4;
const PACKET_START: u8 = 8;
const PACKET_NO_STOP: u8 = 0x10;
const PACKET_DO_STOP: u8 = 0x20;
const PACKET_IOCTL: u8 = 0x40;

/// A pseudo-terminal.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Terminal {
    /// The object of the open master; `None` once that is closed, which hangs up the terminal.
    pub(in crate::linux) master: Option<u32>,
    /// The objects of the open files of the terminal.
    pub(in crate::linux) open: BTreeSet<u32>,
    /// Whether it cannot be opened yet (`TIOCSPTLCK`).
    pub(in crate::linux) is_locked: bool,
    /// Whether only a privileged process can open it again (`TIOCEXCL`).
    pub(in crate::linux) is_exclusive: bool,
    /// Whether it was open and no longer is.
    pub(in crate::linux) was_closed: bool,
    /// Whether the master reads packets (`TIOCPKT`).
    pub(in crate::linux) packets: bool,
    /// What the next packet says, besides bytes.
    pub(in crate::linux) status: u8,
    pub(in crate::linux) termios: Termios,
    /// `struct winsize`.
    pub(in crate::linux) size: [u8; 8],
    /// The session that it controls; 0 for none.
    pub(in crate::linux) session: u32,
    /// The process group in the foreground; 0 for none.
    pub(in crate::linux) group: u32,
    /// Whether its output is stopped.
    is_stopped: bool,
    /// Whether a program has stopped it (`TCOOFF`).
    is_held: bool,
    /// When it was last typed on, nanoseconds of real time.
    pub(in crate::linux) typed: u64,
    /// The signals for the foreground that were typed.
    pub(in crate::linux) signals: Vec<u8>,
    input: Input,
    output: Output,
}

impl Terminal {
    /// A terminal whose master will be this object.
    pub(in crate::linux) fn new() -> Terminal {
        Terminal {
            master: None,
            open: BTreeSet::new(),
            is_locked: true,
            is_exclusive: false,
            was_closed: false,
            packets: false,
            status: 0,
            termios: Termios::default(),
            size: [0; 8],
            session: 0,
            group: 0,
            is_stopped: false,
            is_held: false,
            typed: 0,
            signals: Vec::new(),
            input: Input::default(),
            output: Output::default(),
        }
    }

    /// Tells a master in packet mode: sets and clears bits of what it reads.
    fn tell_packet(&mut self, set: u8, clear: u8) {
        if self.packets {
            self.status = self.status & !clear | set;
        }
    }

    /// Stops the output; by a program if `holds`.
    pub(in crate::linux) fn stop_output(&mut self, holds: bool) {
        self.is_held |= holds;
        if !std::mem::replace(&mut self.is_stopped, true) {
            self.tell_packet(PACKET_STOP, PACKET_START);
        }
    }

    /// Starts the output, unless a program has stopped it; `releases` undoes that.
    pub(in crate::linux) fn start_output(&mut self, releases: bool) {
        if releases && !std::mem::take(&mut self.is_held) {
            return;
        }
        if self.is_stopped && !self.is_held {
            self.is_stopped = false;
            self.tell_packet(PACKET_START, PACKET_STOP);
        }
        // `TCOON` leaves the echo to what comes next.
        if !releases {
            self.process_echo();
        }
    }

    /// Changes the settings.
    pub(in crate::linux) fn set_termios(&mut self, new: Termios) {
        let old = std::mem::replace(&mut self.termios, new);
        if self.packets {
            let (before, after) = (old.has_usual_flow(), new.has_usual_flow());
            match (before, after) {
                (false, true) => self.tell_packet(PACKET_DO_STOP, PACKET_NO_STOP),
                (true, false) => self.tell_packet(PACKET_NO_STOP, PACKET_DO_STOP),
                _ => {}
            }
            if (old.local | new.local) & lflag::EXTPROC != 0 {
                self.tell_packet(PACKET_IOCTL, 0);
            }
        }
        if (old.local ^ new.local) & (lflag::ICANON | lflag::EXTPROC) != 0 {
            self.input.changed(new.has_local(lflag::ICANON));
        }
        if old.has_input(iflag::IXON) && !new.has_input(iflag::IXON) {
            self.start_output(false);
        }
        self.receive();
    }

    /// Whether a reader that waits would get something. Without lines and without a time, `poll`
    /// waits for as many bytes as a read does.
    pub(in crate::linux) fn is_readable(&self) -> bool {
        let least = match self.termios.characters[cc::TIME] {
            0 => self.termios.characters[cc::MIN].max(1),
            _ => 1,
        };
        let least = if self.termios.by_lines() { 1 } else { least };
        self.input_len() >= usize::from(least)
    }
}
