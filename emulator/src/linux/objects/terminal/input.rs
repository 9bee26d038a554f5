//! What is typed on a terminal: the line discipline between its master and its readers.
//!
//! Source: Linux 6.12 `drivers/tty/n_tty.c` (`n_tty_receive_char_special`, `eraser`,
//! `canon_copy_from_read_buf`).

use super::output::{BUFFER_MAX, Echo, is_control};
use super::termios::{DISABLED, Termios, cc, iflag, lflag};
use super::{PACKET_FLUSH_READ, PACKET_FLUSH_WRITE, Terminal};
use crate::linux::signals::{SIGINT, SIGQUIT, SIGTSTP};
use std::collections::VecDeque;

/// Size of the buffer, bytes (`N_TTY_BUF_SIZE`).
const SIZE: usize = 4096;

/// What was typed.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    /// What the master has written and the line discipline has not taken yet.
    waiting: VecDeque<u8>,
    /// What can be read, or becomes a line; and whether a byte ends a line.
    bytes: VecDeque<(u8, bool)>,
    /// How many of these belong to lines that can be read.
    lines: usize,
    /// The next character stands for itself (LNEXT).
    is_literal: bool,
    /// What is erased is being shown (`ECHOPRT`).
    is_erasing: bool,
}

impl Input {
    /// Drops everything that was typed (`reset_buffer_flags`).
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.lines, self.is_erasing) = (0, false);
    }

    /// The settings have changed to or from reading by lines.
    pub(super) fn changed(&mut self, by_lines: bool) {
        self.bytes.iter_mut().for_each(|(_, ends)| *ends = false);
        (self.is_erasing, self.is_literal) = (false, false);
        self.lines = 0;
        if by_lines && let Some((_, ends)) = self.bytes.back_mut() {
            *ends = true;
            self.lines = self.bytes.len();
        }
    }

    fn has_line_to_type(&self) -> bool {
        self.bytes.len() > self.lines
    }
}

impl Terminal {
    /// Takes what the master writes, as far as there is room; returns the number of bytes.
    pub(in crate::linux) fn type_bytes(&mut self, bytes: &[u8]) -> usize {
        // The master's own flow is never stopped.
        let room = BUFFER_MAX.saturating_sub(self.input.waiting.len());
        let count = room.min(bytes.len());
        self.input.waiting.extend(&bytes[..count]);
        self.receive();
        count
    }

    /// Whether the master can write.
    pub(in crate::linux) fn can_be_typed(&self) -> bool {
        self.input.waiting.len() < BUFFER_MAX
    }

    /// A byte that a program pretends was typed (`TIOCSTI`).
    pub(in crate::linux) fn pretend(&mut self, byte: u8) {
        self.receive_byte(byte);
        self.process_echo();
    }

    /// Drops what the master wrote and the line discipline has not taken (`tty_buffer_flush`).
    pub(in crate::linux) fn drop_waiting(&mut self) {
        self.input.waiting.clear();
    }

    /// Drops what was typed.
    pub(in crate::linux) fn flush_input(&mut self) {
        self.input.clear();
        self.tell_packet(PACKET_FLUSH_READ, 0);
        self.receive();
    }

    /// Drops what the master can read (`TCFLSH` of the master).
    pub(in crate::linux) fn drop_output(&mut self) {
        self.output.bytes.clear();
    }

    /// Drops what was written and is still on its way to the master.
    pub(in crate::linux) fn flush_output(&mut self) {
        self.output.flush();
        self.tell_packet(PACKET_FLUSH_WRITE, 0);
    }

    /// Lets the line discipline take what the master has written, as far as there is room.
    pub(super) fn receive(&mut self) {
        if self.input.waiting.is_empty() {
            return;
        }
        while !self.input.waiting.is_empty() {
            let room = SIZE - 1 - self.input.bytes.len().min(SIZE - 1);
            if room == 0 {
                // A line that is too long loses its end, but can be ended.
                let overflows = self.termios.has_local(lflag::ICANON) && self.input.lines == 0;
                if !overflows {
                    break;
                }
                if self.input.bytes.len() >= SIZE {
                    self.input.bytes.pop_back();
                }
            }
            if let Some(byte) = self.input.waiting.pop_front() {
                self.receive_byte(byte);
            }
        }
        self.process_echo();
    }

    fn receive_byte(&mut self, byte: u8) {
        let settings = self.termios;
        let mut byte = byte;
        if settings.has_input(iflag::ISTRIP) {
            byte &= 0x7f;
        }
        if settings.has_input(iflag::IUCLC) && settings.has_local(lflag::IEXTEN) {
            byte = byte.to_ascii_lowercase();
        }
        if settings.has_local(lflag::EXTPROC) {
            return self.put(byte, false);
        }
        if std::mem::take(&mut self.input.is_literal) {
            self.receive_ordinary(byte, false)
        } else {
            self.receive_special(byte)
        }
    }

    fn receive_special(&mut self, byte: u8) {
        let settings = self.termios;
        let typed = byte;
        let mut byte = byte;

        // The order is that of `n_tty_receive_char_special` (`drivers/tty/n_tty.c`).
        if settings.has_input(iflag::IXON) {
            match byte {
                _ if settings.is(byte, cc::START) => return self.start_output(false),
                _ if settings.is(byte, cc::STOP) => return self.stop_output(false),
                _ => {}
            }
        }

        if settings.has_local(lflag::ISIG) {
            let signals = [(cc::INTR, SIGINT), (cc::QUIT, SIGQUIT), (cc::SUSP, SIGTSTP)];
            let mut signals = signals.iter();
            if let Some((_, signal)) = signals.find(|(index, _)| settings.is(byte, *index)) {
                return self.receive_signal(*signal, byte);
            }
        }

        // IXANY: any character starts the output again.
        self.start_by_any();
        match byte {
            b'\r' if settings.has_input(iflag::IGNCR) => return,
            b'\r' if settings.has_input(iflag::ICRNL) => byte = b'\n',
            b'\n' if settings.has_input(iflag::INLCR) => byte = b'\r',
            _ => {}
        }

        if settings.has_local(lflag::ICANON) && self.receive_of_line(byte) {
            return;
        }
        self.receive_ordinary(byte, typed == b'\r');
    }

    /// Any character starts the output that was stopped, with `IXANY`.
    fn start_by_any(&mut self) {
        let both = iflag::IXON | iflag::IXANY;
        if self.is_stopped && !self.is_held && self.termios.input & both == both {
            self.start_output(false);
        }
    }

    /// INTR, QUIT or SUSP.
    fn receive_signal(&mut self, signal: u8, byte: u8) {
        self.signals.push(signal);
        if !self.termios.has_local(lflag::NOFLSH) {
            self.output.drop_echo();
            self.flush_output();
            self.input.clear();
            self.tell_packet(PACKET_FLUSH_READ, 0);
        }
        if self.termios.has_input(iflag::IXON) {
            self.start_output(false);
        }
        if self.termios.has_local(lflag::ECHO) {
            self.echo(byte);
        }
    }

    /// A character that is only added. The end of a line is echoed as one if the return key made
    /// it.
    fn receive_ordinary(&mut self, byte: u8, is_return: bool) {
        self.start_by_any();
        if self.termios.has_local(lflag::ECHO) {
            self.finish_erasing();
            if byte == b'\n' && is_return {
                self.add_echo(Echo::Byte(byte));
            } else {
                self.begin_echo();
                self.echo(byte);
            }
        }
        if byte == u8::MAX && self.termios.has_input(iflag::PARMRK) {
            self.put(byte, false);
        }
        self.put(byte, false);
    }

    /// Notes the column of the first character of a line.
    fn begin_echo(&mut self) {
        if !self.input.has_line_to_type() {
            self.add_echo(Echo::Begin);
        }
    }

    fn put(&mut self, byte: u8, ends: bool) {
        self.input.bytes.push_back((byte, ends));
        if ends {
            self.input.lines = self.input.bytes.len();
        }
    }

    /// What edits or ends a line. False for a character that does neither.
    fn receive_of_line(&mut self, byte: u8) -> bool {
        let settings = self.termios;
        let is = |index| settings.is(byte, index);
        let is_extended = settings.has_local(lflag::IEXTEN);
        let echoes = settings.has_local(lflag::ECHO);

        if is(cc::ERASE) || is(cc::KILL) || is_extended && is(cc::WERASE) {
            self.erase(byte);
            return true;
        }

        // LNEXT: the next character has no special meaning (termios(3)).
        if is_extended && is(cc::LNEXT) {
            self.input.is_literal = true;
            if echoes {
                self.finish_erasing();
                if settings.has_local(lflag::ECHOCTL) {
                    // The next character is written over the `^`.
                    self.add_echo(Echo::Byte(b'^'));
                    self.add_echo(Echo::Byte(0x08));
                }
            }
            return true;
        }

        // REPRINT shows again what was typed of the line.
        if is_extended && echoes && is(cc::REPRINT) {
            self.finish_erasing();
            self.echo(byte);
            self.add_echo(Echo::Byte(b'\n'));
            let typed = self.input.bytes.range(self.input.lines..);
            let typed: Vec<u8> = typed.map(|(byte, _)| *byte).collect();
            typed.into_iter().for_each(|byte| self.echo(byte));
            return true;
        }

        if byte == b'\n' {
            // ECHONL echoes it even without ECHO (termios(3)).
            if echoes || settings.has_local(lflag::ECHONL) {
                self.add_echo(Echo::Byte(byte));
            }
            self.put(byte, true);
            return true;
        }

        if is(cc::EOF) {
            // EOF ends the line without being a part of it; this byte marks the place.
            self.put(DISABLED, true);
            return true;
        }

        if is(cc::EOL) || is_extended && is(cc::EOL2) {
            if echoes {
                self.begin_echo();
                self.echo(byte);
            }
            // A real 0xff is doubled, because 0xff introduces what PARMRK reports.
            if byte == u8::MAX && settings.has_input(iflag::PARMRK) {
                self.put(byte, false);
            }
            self.put(byte, true);
            return true;
        }

        false
    }

    fn finish_erasing(&mut self) {
        if std::mem::take(&mut self.input.is_erasing) {
            self.add_echo(Echo::Byte(b'/'));
        }
    }

    /// ERASE, WERASE or KILL.
    fn erase(&mut self, by: u8) {
        let settings = self.termios;
        let has = |flag| settings.has_local(flag);

        if !self.input.has_line_to_type() {
            return;
        }

        let is_one = settings.is(by, cc::ERASE);
        let is_word = !is_one && settings.has_local(lflag::IEXTEN) && settings.is(by, cc::WERASE);
        if !is_one && !is_word {
            // Only with all three is a killed line wiped off character by character.
            let shows = has(lflag::ECHOK) && has(lflag::ECHOKE) && has(lflag::ECHOE);
            if !has(lflag::ECHO) || !shows {
                self.input.bytes.truncate(self.input.lines);
            }
            if !has(lflag::ECHO) {
                return;
            }
            if !shows {
                self.finish_erasing();
                self.echo(settings.characters[cc::KILL]);
                if has(lflag::ECHOK) {
                    self.add_echo(Echo::Byte(b'\n'));
                }
                return;
            }
        }

        let mut has_word = false;
        while self.input.has_line_to_type() {
            let Some(erased) = self.last_character() else {
                break;
            };

            let first = erased[0];
            // WERASE takes what is behind the last word, and then the word.
            if is_word {
                // A word has letters, digits and `_` (`eraser`, `drivers/tty/n_tty.c`).
                match first.is_ascii_alphanumeric() || first == b'_' {
                    true => has_word = true,
                    false if has_word => break,
                    false => {}
                }
            }

            self.input
                .bytes
                .truncate(self.input.bytes.len() - erased.len());
            if has(lflag::ECHO) {
                self.echo_erased(&erased, is_one);
            }

            if is_one {
                break;
            }
        }

        // Nothing is left to erase: what ECHOPRT prints ends here.
        if !self.input.has_line_to_type() && has(lflag::ECHO) {
            self.finish_erasing();
        }
    }

    /// The last character of the line, which may have several bytes. `None` for a part of one.
    fn last_character(&self) -> Option<Vec<u8>> {
        let typed = self.input.bytes.range(self.input.lines..).rev();
        let mut character = Vec::new();
        for (byte, _) in typed {
            character.insert(0, *byte);
            if !continues(&self.termios, *byte) {
                return Some(character);
            }
        }
        None
    }

    fn echo_erased(&mut self, erased: &[u8], is_one: bool) {
        const OVER: [u8; 3] = [0x08, b' ', 0x08];
        let settings = self.termios;
        let has = |flag| settings.has_local(flag);

        let first = erased[0];

        // ECHOPRT prints what is erased between a backslash and a slash (termios(3)).
        if has(lflag::ECHOPRT) {
            if !std::mem::replace(&mut self.input.is_erasing, true) {
                self.add_echo(Echo::Byte(b'\\'));
            }
            self.echo(first);
            for &byte in &erased[1..] {
                self.add_echo(Echo::Byte(byte));
                self.add_echo(Echo::Back);
            }
        } else if is_one && !has(lflag::ECHOE) {
            self.echo(settings.characters[cc::ERASE]);
        } else if first == b'\t' {
            // How far the cursor moves back depends on where the tab began.
            let (mut columns, mut follows) = (0, false);
            for &(byte, _) in self.input.bytes.range(self.input.lines..).rev() {
                match byte {
                    b'\t' => {
                        follows = true;
                        break;
                    }
                    _ if is_control(byte) => columns += if has(lflag::ECHOCTL) { 2 } else { 0 },
                    _ => columns += usize::from(!continues(&settings, byte)),
                }
            }
            self.add_echo(Echo::Tab(columns, follows));
        } else {
            // A control character is shown as two, `^X`, or not at all.
            let shown = match is_control(first) {
                true if has(lflag::ECHOCTL) => 2,
                true => 0,
                false => 1,
            };

            let all = std::iter::repeat_n(OVER, shown).flatten();
            all.for_each(|byte| self.add_echo(Echo::Byte(byte)));
        }
    }

    /// The number of bytes that can be read at once.
    pub(in crate::linux) fn input_len(&self) -> usize {
        if self.termios.by_lines() {
            self.input.lines
        } else {
            self.input.bytes.len()
        }
    }

    /// What `FIONREAD` says: without the characters that end a file.
    pub(in crate::linux) fn input_count(&self) -> usize {
        let readable = self.input.bytes.iter().take(self.input_len());
        let by_lines = self.termios.by_lines();
        let is_shown = |(byte, ends): &&(u8, bool)| !(by_lines && *ends && *byte == DISABLED);
        readable.filter(is_shown).count()
    }

    /// Takes a line, or the part of it that fits.
    pub(in crate::linux) fn take_line(&mut self, most: usize) -> Vec<u8> {
        let readable = self.input.lines.min(most.saturating_add(1));
        let mut all = self.input.bytes.iter().take(readable);
        let end = all.position(|(_, ends)| *ends);
        let (given, taken) = match end {
            // The end of a file is not read, but taken.
            Some(end) if self.input.bytes[end].0 == DISABLED => (end, end + 1),
            Some(end) => (most.min(end + 1), most.min(end + 1)),
            None => (most.min(readable), most.min(readable)),
        };
        let mut line: Vec<u8> = self.take(taken);
        line.truncate(given);
        line
    }

    /// Takes what was typed, without regard to lines.
    pub(in crate::linux) fn take_input(&mut self, most: usize) -> Vec<u8> {
        let count = most.min(self.input.bytes.len());
        self.take(count)
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken = self.input.bytes.drain(..count).map(|(byte, _)| byte);
        let taken = taken.collect();
        self.input.lines = self.input.lines.saturating_sub(count);
        self.receive();
        taken
    }
}

/// Whether a byte continues a character of UTF-8, if the terminal uses that.
fn continues(settings: &Termios, byte: u8) -> bool {
    settings.has_input(iflag::IUTF8) && byte & 0xc0 == 0x80
}
