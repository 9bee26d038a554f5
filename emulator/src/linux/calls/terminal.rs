//! Opening, reading and writing pseudo-terminals. Not here: `ioctl` (`terminal_control`).
//!
//! Source: Linux 6.12 `drivers/tty/tty_io.c` (`tty_open`, `iterate_tty_write`),
//! `drivers/tty/n_tty.c` (`n_tty_read`, `n_tty_write`, `n_tty_poll`), `drivers/tty/pty.c`.

use super::transfer::rest;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Files, Kind, ResolvedPath, Shared, TerminalFile, o, terminal_path};
use crate::linux::handle::{Handle, HandleKind, ev};
use crate::linux::objects::TerminalEnd;
use crate::linux::objects::terminal::{Terminal, cc, lflag};
use crate::linux::signals::{SIGTTIN, SIGTTOU};
use crate::linux::threads::WaitCondition;

/// `O_NOCTTY`.
const NOCTTY: u32 = 0o400;
/// Bytes that are written at once (`iterate_tty_write`).
const CHUNK: usize = 2048;
/// The unit of `VTIME`, nanoseconds.
const TENTH: u64 = 100_000_000;

impl Kernel {
    /// The number of an open terminal or master, and which it is.
    pub(super) fn terminal_of(&self, open: &Shared) -> Option<TerminalEnd> {
        match &open.borrow().kind {
            Kind::Object(handle) if handle.sort == HandleKind::Terminal => {
                self.objects.terminal_end(handle.id)
            }
            _ => None,
        }
    }

    /// A terminal that exists.
    ///
    /// # Errors
    /// `EIO` if its master is closed.
    pub(super) fn terminal_mut(&mut self, number: u32) -> Answer<&mut Terminal> {
        let terminal = self.objects.terminal_mut(number);
        let is_up = |terminal: &&mut Terminal| terminal.master.is_some();
        terminal.filter(is_up).ok_or(Errno::EIO)
    }

    /// Opens what a path names, if it is a terminal; `None` otherwise.
    pub(super) fn open_terminal_file(
        &mut self,
        resolved: &ResolvedPath,
        flags: u32,
    ) -> Option<Answer<Shared>> {
        let file = Files::terminal_file(resolved).filter(|_| flags & o::PATH == 0)?;
        Some(self.open_terminal(file, resolved, flags))
    }

    fn open_terminal(
        &mut self,
        file: TerminalFile,
        resolved: &ResolvedPath,
        flags: u32,
    ) -> Answer<Shared> {
        self.files.may_open(resolved, flags)?;

        let (handle, controls) = match file {
            TerminalFile::New => {
                self.may_add_objects(1)?;
                let (number, handle) = self.objects.add_terminal();
                self.files.add_terminal(number);
                (handle, None)
            }
            TerminalFile::Own => {
                let number = self.process.terminal.ok_or(Errno::ENXIO)?;
                (self.open_again(number)?, None)
            }
            TerminalFile::Number(number) => (self.open_again(number)?, Some(number)),
        };

        // `tty_open_proc_set_tty`: a session leader without a terminal takes the first one that it
        // opens for reading.
        if let Some(number) = controls.filter(|_| flags & NOCTTY == 0) {
            let is_free = self.terminal_mut(number)?.session == 0;
            let may_read = flags & o::ACCMODE != o::WRONLY;
            if self.leads_session() && self.process.terminal.is_none() && is_free && may_read {
                self.control(number);
            }
        }

        let open = Files::description(Kind::Object(handle), flags, &resolved.path);
        Ok(open.shared())
    }

    /// Opens a terminal once more.
    fn open_again(&mut self, number: u32) -> Answer<Handle> {
        let is_capable = self.files.own.identity.is_capable();
        let terminal = self.terminal_mut(number)?;
        if terminal.is_locked {
            return Err(Errno::EIO);
        }
        if terminal.is_exclusive && !is_capable {
            return Err(Errno::EBUSY);
        }
        self.may_add_objects(1)?;
        Ok(self.objects.open_terminal(number))
    }

    /// `TIOCGPTPEER`: opens the terminal of a master.
    pub(super) fn open_peer(&mut self, number: u32, flags: u32) -> Answer {
        let path = terminal_path(number);
        let resolved = self.files.find_known(&path, false)?;
        let file = TerminalFile::Number(number);
        let kept = flags & (o::ACCMODE | o::NONBLOCK | NOCTTY);
        let open = self.open_terminal(file, &resolved, kept)?;
        // It was not opened by `open`.
        open.borrow_mut().flags &= !o::LARGEFILE;
        self.add_open(open, flags.into())
    }

    pub(super) fn read_terminal(
        &mut self,
        open: &Shared,
        end: TerminalEnd,
        vectors: &[(u64, u64)],
        most: u64,
    ) -> Answer {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let bytes = if end.is_master {
            self.read_master(open, end.number, most)?
        } else {
            self.read_slave(open, end.number, most)?
        };
        self.scatter(vectors, &bytes)
    }

    fn read_master(&mut self, open: &Shared, number: u32, most: usize) -> Answer<Vec<u8>> {
        let terminal = self.terminal_mut(number)?;
        if most == 0 {
            return Ok(Vec::new());
        }
        if terminal.packets && terminal.status != 0 {
            return Ok(vec![std::mem::take(&mut terminal.status)]);
        }
        if terminal.output_len() == 0 {
            if terminal.was_closed {
                return Err(Errno::EIO);
            }
            self.wait_for_object(open)?;
        }
        let terminal = self.terminal_mut(number)?;
        let mut bytes = Vec::new();
        if terminal.packets {
            bytes.push(0);
        }
        bytes.extend(terminal.take_output(most - bytes.len()));
        self.objects.wake_terminal(number, false, ev::WRITABLE);
        Ok(bytes)
    }

    fn read_slave(&mut self, open: &Shared, number: u32, most: usize) -> Answer<Vec<u8>> {
        // The terminal is gone: the end of the file.
        if self.terminal_mut(number).is_err() {
            return Ok(Vec::new());
        }

        self.check_foreground(number, SIGTTIN)?;
        if most == 0 {
            return Ok(Vec::new());
        }

        let terminal = self.terminal_mut(number)?;

        // Line by line a read waits for a whole line, else for as many bytes as are wanted.
        let is_line = terminal.termios.by_lines();
        if is_line {
            if terminal.input_len() == 0 {
                self.wait_for_object(open)?;
            }
        } else {
            self.wait_for_bytes(open, number, most)?;
        }

        let terminal = self.terminal_mut(number)?;
        let bytes = if is_line {
            terminal.take_line(most)
        } else {
            terminal.take_input(most)
        };

        // What was waiting for room may be a signal.
        self.after_typing(number);
        self.objects.wake_terminal(number, true, ev::WRITABLE);
        Ok(bytes)
    }

    /// Waits for as many bytes as `VMIN` and `VTIME` say.
    fn wait_for_bytes(&mut self, open: &Shared, number: u32, most: usize) -> Answer<()> {
        let begun = self.wait_begun();
        let now = self.clock.real();

        let terminal = self.terminal_mut(number)?;
        let [least, time] = [cc::MIN, cc::TIME].map(|index| terminal.termios.characters[index]);
        let (there, typed) = (terminal.input_len(), terminal.typed);
        let time = u64::from(time) * TENTH;

        if there >= usize::from(least.max(1)).min(most) {
            return Ok(());
        }

        // termios(3): without VMIN, VTIME limits the whole call; with it, the gap between two
        // bytes.
        let until = match (least, time) {
            (0, time) => Some(begun.saturating_add(time)),
            // Between two bytes.
            (_, 1..) if there > 0 => Some(begun.max(typed).saturating_add(time)),
            _ => None,
        };

        if until.is_some_and(|until| until <= now) {
            return Ok(());
        }

        if open.borrow().flags & o::NONBLOCK != 0 {
            return match there {
                0 => Err(Errno::EAGAIN),
                _ => Ok(()),
            };
        }

        // Each byte that comes may move the end of the wait.
        self.set_wait_end(until);
        match self.wait_until(until, WaitCondition::Change)? {
            // Interrupted by a signal.
            true if there == 0 => Err(Errno::ERESTARTSYS),
            _ => Ok(()),
        }
    }

    pub(super) fn write_terminal(
        &mut self,
        open: &Shared,
        end: TerminalEnd,
        vectors: &[(u64, u64)],
    ) -> Answer {
        let number = end.number;
        let mut done = self.transferred();

        let terminal = self.terminal_mut(number)?;
        // TOSTOP stops processes of the background that write.
        if !end.is_master && terminal.termios.has_local(lflag::TOSTOP) && done == 0 {
            self.check_foreground(number, SIGTTOU)?;
        }

        loop {
            let bytes = match self.gather(&rest(vectors, done), CHUNK) {
                Ok(bytes) if bytes.is_empty() => return Ok(done),
                Ok(bytes) => bytes,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            };

            // It may hang up while this waits.
            let Ok(terminal) = self.terminal_mut(number) else {
                return if done == 0 { Err(Errno::EIO) } else { Ok(done) };
            };
            let written = if end.is_master {
                terminal.type_bytes(&bytes)
            } else {
                terminal.write(&bytes)
            };

            done += written as u64;
            if end.is_master {
                self.after_typing(number)
            } else {
                self.objects.wake_terminal(number, true, ev::READABLE)
            }

            // The rest must wait for room.
            if written < bytes.len() {
                match self.wait_for_object(open) {
                    Err(Errno::WAITS) => {
                        self.note_transferred(done);
                        return Err(Errno::WAITS);
                    }
                    Err(error) if done == 0 => return Err(error),
                    _ => return Ok(done),
                }
            }
        }
    }

    /// The events of an open terminal or master.
    pub(super) fn terminal_events(&self, end: TerminalEnd) -> u32 {
        let Some(terminal) = self.objects.terminal(end.number) else {
            return 0;
        };

        if !end.is_master {
            // Without a master, reads give the end of the file, and writes an error: neither waits.
            if terminal.master.is_none() {
                return ev::READABLE | ev::WRITABLE | ev::ERR | ev::HUP;
            }
            let readable = if terminal.is_readable() {
                ev::READABLE
            } else {
                0
            };
            return readable | if terminal.has_room() { ev::WRITABLE } else { 0 };
        }

        let mut events = 0;
        if terminal.output_len() > 0 {
            events |= ev::READABLE;
        }

        // Packet mode shows changes of state as exceptional events (ioctl_tty(2)).
        if terminal.packets && terminal.status != 0 {
            events |= ev::PRI | ev::READABLE;
        }

        // The master sees that nobody has the terminal open any more.
        if terminal.was_closed {
            events |= ev::HUP;
        }

        events
            | if terminal.can_be_typed() {
                ev::WRITABLE
            } else {
                0
            }
    }
}
