//! What a terminal writes to its master: the processing of output, and echo.
//!
//! Source: Linux 6.12 `drivers/tty/n_tty.c` (`do_output_char`, `__process_echoes`).

use super::Terminal;
use super::termios::{iflag, lflag, oflag};

/// Bytes that the master's line discipline holds.
const READ_MAX: usize = 4095;
/// Bytes on their way to it, in each direction.
pub(super) const BUFFER_MAX: usize = 8192;
/// Echo that waits at most, in steps; what is older is dropped.
const ECHO_MAX: usize = 4096;

/// A step of echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Echo {
    /// A byte, which is processed as output is.
    Byte(u8),
    /// A control character as `^X`.
    Control(u8),
    /// A byte that is not processed.
    Plain(u8),
    /// The line begins in this column.
    Begin,
    /// The last byte took no column.
    Back,
    /// Goes back over a tab: the columns before it, and whether they follow another tab.
    Tab(usize, bool),
}

/// What a terminal writes to its master.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    /// What the master can read.
    pub(super) bytes: std::collections::VecDeque<u8>,
    /// Echo that waits for room, or for the output to be started.
    echo: std::collections::VecDeque<Echo>,
    /// The column of the cursor, from 0.
    column: usize,
    /// The column in which the line begins that is typed.
    line_column: usize,
}

/// Whether a byte is a control character (`iscntrl`).
pub(super) fn is_control(byte: u8) -> bool {
    byte.is_ascii_control()
}

impl Output {
    /// Drops what the master's line discipline does not hold yet.
    pub(super) fn flush(&mut self) {
        self.bytes.truncate(READ_MAX);
    }

    pub(super) fn drop_echo(&mut self) {
        self.echo.clear();
    }
}

impl Terminal {
    /// The number of bytes for which there is room.
    pub(in crate::linux) fn room(&self) -> usize {
        if self.is_stopped {
            0
        } else {
            (READ_MAX + BUFFER_MAX).saturating_sub(self.output.bytes.len())
        }
    }

    /// Whether a program that writes may continue (`n_tty_poll`).
    pub(in crate::linux) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Takes what the master reads, at most the bytes that its line discipline holds. Echo that waited
    /// for room is not written before something else is typed or written.
    pub(in crate::linux) fn take_output(&mut self, most: usize) -> Vec<u8> {
        let count = most.min(READ_MAX).min(self.output.bytes.len());
        self.output.bytes.drain(..count).collect()
    }

    /// The number of bytes that the master can read.
    pub(in crate::linux) fn output_len(&self) -> usize {
        self.output.bytes.len().min(READ_MAX)
    }

    /// Puts a byte where the master reads (`TIOCSTI` of the master).
    pub(in crate::linux) fn put_output(&mut self, byte: u8) {
        self.output.bytes.push_back(byte);
    }

    /// Writes what a program writes, as far as there is room; returns the number of bytes.
    pub(in crate::linux) fn write(&mut self, bytes: &[u8]) -> usize {
        self.process_echo();
        if self.termios.output & oflag::OPOST == 0 {
            let count = bytes.len().min(self.room());
            self.output.bytes.extend(&bytes[..count]);
            return count;
        }
        let written = bytes.iter().take_while(|&&byte| self.process(byte));
        written.count()
    }

    /// Writes a byte with the processing of output. False if there is no room.
    fn process(&mut self, byte: u8) -> bool {
        let flags = self.termios.output;
        let is_on = |flag| flags & flag != 0;
        let room = self.room();
        let out = &mut self.output;
        let mut byte = byte;

        if room == 0 {
            return false;
        }

        match byte {
            b'\n' => {
                // ONLRET: LF does what CR does, too.
                if is_on(oflag::ONLRET) {
                    out.column = 0;
                }
                if is_on(oflag::ONLCR) {
                    // CR and LF are written together or not at all.
                    if room < 2 {
                        return false;
                    }
                    out.column = 0;
                    out.bytes.push_back(b'\r');
                }
                out.line_column = out.column;
            }
            // ONOCR: no CR in the first column.
            b'\r' if is_on(oflag::ONOCR) && out.column == 0 => return true,
            b'\r' if is_on(oflag::OCRNL) => {
                byte = b'\n';
                if is_on(oflag::ONLRET) {
                    (out.column, out.line_column) = (0, 0);
                }
            }
            b'\r' => (out.column, out.line_column) = (0, 0),
            b'\t' => {
                let spaces = 8 - out.column % 8;
                // XTABS: spaces instead of a tab.
                if flags & oflag::XTABS == oflag::XTABS {
                    if room < spaces {
                        return false;
                    }
                    out.column += spaces;
                    out.bytes.extend(std::iter::repeat_n(b' ', spaces));
                    return true;
                }
                out.column += spaces;
            }
            0x08 => out.column = out.column.saturating_sub(1),
            _ if is_control(byte) => {}
            _ => {
                if is_on(oflag::OLCUC) {
                    byte = byte.to_ascii_uppercase();
                }

                // Only the first byte of a UTF-8 sequence takes a column.
                let continues = self.termios.has_input(iflag::IUTF8) && byte & 0xc0 == 0x80;
                out.column += usize::from(!continues);
            }
        }

        out.bytes.push_back(byte);
        true
    }

    /// Echoes a character that was typed.
    pub(super) fn echo(&mut self, byte: u8) {
        let shows = self.termios.has_local(lflag::ECHOCTL) && is_control(byte) && byte != b'\t';
        self.add_echo(if shows {
            Echo::Control(byte)
        } else if byte == u8::MAX {
            // Linux' echo has this byte for itself.
            Echo::Plain(byte)
        } else {
            Echo::Byte(byte)
        });
    }

    pub(super) fn add_echo(&mut self, echo: Echo) {
        if self.output.echo.len() >= ECHO_MAX {
            self.output.echo.pop_front();
        }
        self.output.echo.push_back(echo);
    }

    /// Writes the echo that waits, as far as there is room.
    pub(super) fn process_echo(&mut self) {
        while let Some(&echo) = self.output.echo.front() {
            let room = self.room();
            let out = &mut self.output;

            let is_done = match echo {
                // `ECHO_OP_SET_CANON_COL`.
                Echo::Begin => {
                    out.line_column = out.column;
                    true
                }
                // `ECHO_OP_MOVE_BACK_COL`.
                Echo::Back => {
                    out.column = out.column.saturating_sub(1);
                    true
                }
                Echo::Control(byte) if room >= 2 => {
                    out.bytes.extend([b'^', byte ^ 0o100]);
                    out.column += 2;
                    true
                }
                Echo::Plain(byte) if room >= 1 => {
                    out.bytes.push_back(byte);
                    out.column += 1;
                    true
                }
                // `ECHO_OP_ERASE_TAB`.
                Echo::Tab(columns, follows) => {
                    // Tab stops are eight columns apart.
                    let before = columns + if follows { 0 } else { out.line_column };
                    let back = 8 - before % 8;
                    let fits = room >= back;
                    if fits {
                        out.bytes.extend(std::iter::repeat_n(0x08, back));
                        out.column = out.column.saturating_sub(back);
                    }
                    fits
                }
                Echo::Byte(byte) if self.termios.output & oflag::OPOST != 0 => self.process(byte),
                Echo::Byte(byte) if room >= 1 => {
                    out.bytes.push_back(byte);
                    true
                }
                Echo::Byte(_) | Echo::Control(_) | Echo::Plain(_) => false,
            };

            // The rest waits until the master has read.
            if !is_done {
                return;
            }
            self.output.echo.pop_front();
        }
    }
}
