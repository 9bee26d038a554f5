//! `ioctl` of pseudo-terminals.
//!
//! Source: Linux 6.12 `drivers/tty/tty_io.c` (`tty_ioctl`), `drivers/tty/tty_ioctl.c`
//! (`n_tty_ioctl_helper`, `tty_mode_ioctl`), `drivers/tty/tty_jobctrl.c`, `drivers/tty/pty.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Shared, terminal_device};
use crate::linux::handle::ev;
use crate::linux::objects::TerminalEnd;
use crate::linux::objects::terminal::{DISABLED, Form, cc};
use crate::linux::process::Process;
use crate::linux::signals::{SIGINT, SIGQUIT, SIGTSTP, SIGTTOU, SIGWINCH};

/// The settings that a command gets or sets, and in which form.
fn settings(command: u32) -> Option<(Form, u32)> {
    Some(match command {
        0x5401..=0x5404 => (Form::Termios, command - 0x5401),
        0x5405..=0x5408 => (Form::Termio, command - 0x5405),
        0x802c_542a => (Form::Termios2, 0),
        0x402c_542b..=0x402c_542d => (Form::Termios2, command - 0x402c_542a),
        _ => return None,
    })
}

impl Kernel {
    /// Answers an `ioctl` of a terminal or its master.
    pub(super) fn terminal_ioctl(
        &mut self,
        open: &Shared,
        end: TerminalEnd,
        command: u32,
        arg: u64,
    ) -> Answer {
        const TIOCSPGRP: u32 = 0x5410;
        let TerminalEnd { number, is_master } = end;

        if self.terminal_mut(number).is_err() {
            return Err(match command {
                TIOCSPGRP => Errno::ENOTTY,
                _ => Errno::EIO,
            });
        }

        if let Some((form, which)) = settings(command) {
            return self.settings(number, form, which, arg);
        }
        if is_master && let Some(answer) = self.master_ioctl(number, command, arg) {
            return answer;
        }
        if let Some(answer) = self.job_ioctl(open, end, command, arg) {
            return answer;
        }

        // `tty_ioctl` checks the foreground (`tty_check_change`) before it looks at the argument.
        let flow = match command {
            // TCSBRK, TIOCSETD, TCSBRKP, TIOCSBRK, TIOCCBRK.
            0x5409 | 0x5423 | 0x5425 | 0x5427 | 0x5428 => {
                self.check_end(end)?;
                None
            }
            // TCXONC, TCFLSH.
            0x540a | 0x540b => {
                self.check_end(end)?;
                Some(command == 0x540b)
            }
            _ => None,
        };

        if let Some(flushes) = flow {
            return if flushes {
                self.flush_terminal(end, arg as u32)
            } else {
                self.flow_of_terminal(end, arg as u32)
            };
        }

        let terminal = self.terminal_mut(number)?;
        match command {
            // There is no line that could have a break, and nothing waits to be sent.
            0x5409 | 0x5425 | 0x5427 | 0x5428 => Ok(0),
            // TIOCEXCL, TIOCNXCL, of which the master has its own.
            0x540c | 0x540d if is_master => Ok(0),
            0x540c | 0x540d => {
                terminal.is_exclusive = command == 0x540c;
                Ok(0)
            }
            // TIOCGEXCL
            0x8004_5440 => {
                let is_exclusive = terminal.is_exclusive && !is_master;
                self.put_u32(arg, is_exclusive.into()).map(|()| 0)
            }
            // TIOCOUTQ
            0x5411 => self.put_u32(arg, 0).map(|()| 0),
            // TIOCSTI
            0x5412 => {
                // Input for another terminal than one's own needs CAP_SYS_ADMIN.
                let is_own = self.process.terminal == Some(number) && !is_master;
                if !is_own && !self.files.own.identity.is_capable() {
                    return Err(Errno::EPERM);
                }

                let [byte] = self.bytes(arg)?;
                let terminal = self.terminal_mut(number)?;
                if is_master {
                    terminal.put_output(byte)
                } else {
                    terminal.pretend(byte)
                }

                self.after_typing(number);
                Ok(0)
            }
            // TIOCGWINSZ
            0x5413 => {
                let size = terminal.size;
                self.put(arg, &size).map(|()| 0)
            }
            // TIOCSWINSZ
            0x5414 => {
                let size = self.bytes(arg)?;
                let terminal = self.terminal_mut(number)?;
                let group = terminal.group;
                // Only a real change is a SIGWINCH (`tty_do_resize`).
                if std::mem::replace(&mut terminal.size, size) != size {
                    self.signal_group(group, SIGWINCH);
                }
                Ok(0)
            }
            // TIOCGSOFTCAR
            0x5419 => {
                let is_local = terminal.termios.is_local();
                self.put_u32(arg, is_local.into()).map(|()| 0)
            }
            // FIONREAD
            0x541b => {
                let count = if is_master {
                    terminal.output_len()
                } else {
                    terminal.input_count()
                };
                self.put_u32(arg, count as u32).map(|()| 0)
            }
            // TIOCGETD, TIOCSETD: the one line discipline.
            0x5424 => self.put_u32(arg, 0).map(|()| 0),
            0x5423 => match self.u32_at(arg)? {
                0 => Ok(0),
                _ => self.not_modelled("line disciplines other than N_TTY", Errno::EINVAL),
            },
            // TIOCGDEV
            0x8004_5432 => self
                .put_u32(arg, terminal_device(number) as u32)
                .map(|()| 0),
            // TIOCGPTPEER, of a terminal that is not a master.
            0x5441 => Err(Errno::EIO),
            // TIOCVHANGUP, TIOCCONS, TIOCGLCKTRMIOS, TIOCSLCKTRMIOS, TIOCSSOFTCAR.
            0x5437 | 0x541d | 0x5456 | 0x5457 | 0x541a => {
                self.not_modelled("an ioctl of terminals", Errno::ENOTTY)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Stops a process of the background that changes its terminal.
    fn check_end(&mut self, end: TerminalEnd) -> Answer<()> {
        if end.is_master {
            Ok(())
        } else {
            self.check_foreground(end.number, SIGTTOU)
        }
    }

    /// Gets the settings (0), or sets them: at once, after the output, or also dropping input (3).
    fn settings(&mut self, number: u32, form: Form, which: u32, arg: u64) -> Answer {
        const FLUSHES: u32 = 3;
        if which == 0 {
            let bytes = self.terminal_mut(number)?.termios.bytes(form);
            return self.put(arg, &bytes).map(|()| 0);
        }
        self.check_foreground(number, SIGTTOU)?;
        let mut bytes = vec![0; form.size()];
        self.get(arg, &mut bytes)?;
        let terminal = self.terminal_mut(number)?;
        if which == FLUSHES {
            terminal.flush_input();
        }
        let new = terminal.termios.with(form, &bytes);
        terminal.set_termios(new);
        self.after_typing(number);
        self.objects.wake_terminal(number, false, ev::WRITABLE);
        Ok(0)
    }

    fn flush_terminal(&mut self, end: TerminalEnd, which: u32) -> Answer {
        const INPUT: u32 = 0;
        const OUTPUT: u32 = 1;
        const BOTH: u32 = 2;
        let terminal = self.terminal_mut(end.number)?;

        if which > BOTH {
            return Err(Errno::EINVAL);
        }
        // The input of a master is the output of the terminal.
        if which != OUTPUT {
            if end.is_master {
                terminal.drop_output()
            } else {
                terminal.drop_waiting();
                terminal.flush_input();
            }
        }

        if which != INPUT {
            if end.is_master {
                terminal.drop_waiting()
            } else {
                terminal.flush_output()
            }
        }

        // Both sides may have waited for room.
        self.after_typing(end.number);
        self.objects.wake_terminal(end.number, false, ev::WRITABLE);
        self.objects.wake_terminal(end.number, true, ev::WRITABLE);
        Ok(0)
    }

    fn flow_of_terminal(&mut self, end: TerminalEnd, which: u32) -> Answer {
        if which > 3 {
            return Err(Errno::EINVAL);
        }
        if end.is_master {
            return self.not_modelled("stopping what the master writes", Errno::EINVAL);
        }
        let terminal = self.terminal_mut(end.number)?;
        let [start, stop] = [cc::START, cc::STOP].map(|index| terminal.termios.characters[index]);
        match which {
            // TCOOFF, TCOON.
            0 => terminal.stop_output(true),
            1 => terminal.start_output(true),
            // TCIOFF, TCION: sends the character to the master.
            2 if stop != DISABLED => terminal.put_output(stop),
            3 if start != DISABLED => terminal.put_output(start),
            _ => {}
        }
        self.after_typing(end.number);
        self.objects.wake_terminal(end.number, false, ev::WRITABLE);
        Ok(0)
    }

    /// What only a master has.
    fn master_ioctl(&mut self, number: u32, command: u32, arg: u64) -> Option<Answer> {
        let flag = match command {
            // TIOCSPTLCK, TIOCPKT.
            0x4004_5431 | 0x5420 => match self.u32_at(arg) {
                Ok(word) => word != 0,
                Err(error) => return Some(Err(error)),
            },
            _ => false,
        };

        let terminal = match self.terminal_mut(number) {
            Ok(terminal) => terminal,
            Err(error) => return Some(Err(error)),
        };

        let value = match command {
            0x4004_5431 => {
                terminal.is_locked = flag;
                return Some(Ok(0));
            }
            0x5420 => {
                // What changed before packet mode was on is not shown (`pty_set_pktmode`).
                if flag && !terminal.packets {
                    terminal.status = 0;
                }
                terminal.packets = flag;
                return Some(Ok(0));
            }
            // TIOCSIG
            0x4004_5436 => {
                let group = terminal.group;
                let signal = arg as u32 as u8;
                let is_one = matches!(signal, SIGINT | SIGQUIT | SIGTSTP) && arg as u32 <= 64;
                if is_one {
                    self.signal_group(group, signal);
                }
                return Some(is_one.then_some(0).ok_or(Errno::EINVAL));
            }
            // TIOCGPTPEER
            0x5441 => return Some(self.open_peer(number, arg as u32)),
            // TIOCGPTN, TIOCGPKT, TIOCGPTLCK.
            0x8004_5430 => number,
            0x8004_5438 => terminal.packets.into(),
            0x8004_5439 => terminal.is_locked.into(),
            _ => return None,
        };

        Some(self.put_u32(arg, value).map(|()| 0))
    }

    /// Sessions and the foreground.
    fn job_ioctl(
        &mut self,
        open: &Shared,
        end: TerminalEnd,
        command: u32,
        arg: u64,
    ) -> Option<Answer> {
        let TerminalEnd { number, is_master } = end;
        let is_own = self.process.terminal == Some(number);

        let (session, group) = match self.objects.terminal(number) {
            Some(terminal) => (terminal.session, terminal.group),
            None => return Some(Err(Errno::EIO)),
        };

        Some(match command {
            // TIOCSCTTY
            0x540e => {
                let may_read = open.borrow().can_read();
                self.take_control(number, session, may_read, arg)
            }
            // TIOCNOTTY
            0x5422 if is_own && !is_master => {
                self.leave_terminal(false);
                self.process.terminal = None;
                Ok(0)
            }
            0x5422 => Err(Errno::ENOTTY),
            // TIOCGPGRP, TIOCGSID.
            0x540f | 0x5429 if !is_master && !is_own => Err(Errno::ENOTTY),
            0x540f => self.put_u32(arg, group).map(|()| 0),
            0x5429 if session == 0 => Err(Errno::ENOTTY),
            0x5429 => self.put_u32(arg, session).map(|()| 0),
            // TIOCSPGRP
            0x5410 => self.set_foreground(number, session, arg),
            _ => return None,
        })
    }

    fn take_control(&mut self, number: u32, session: u32, may_read: bool, arg: u64) -> Answer {
        let is_capable = self.files.own.identity.is_capable();
        if self.leads_session() && self.process.session == session {
            return Ok(0);
        }
        if !self.leads_session() || self.process.terminal.is_some() {
            return Err(Errno::EPERM);
        }
        if session != 0 {
            if arg != 1 || !is_capable {
                return Err(Errno::EPERM);
            }
            self.clear_session(session);
        }
        if !may_read && !is_capable {
            return Err(Errno::EPERM);
        }
        self.control(number);
        Ok(0)
    }

    fn set_foreground(&mut self, number: u32, session: u32, arg: u64) -> Answer {
        match self.check_foreground(number, SIGTTOU) {
            // `tiocspgrp` gives an orphaned group another error than `tty_check_change` does.
            Err(Errno::EIO) => return Err(Errno::ENOTTY),
            checked => checked?,
        }

        let group = self.u32_at(arg)?;
        if group.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }

        let own = self.process.session;
        if self.process.terminal != Some(number) || session != own {
            return Err(Errno::ENOTTY);
        }

        let session_of = |is_it: &dyn Fn(&Process) -> bool| {
            let mut all = self.all_processes();
            all.find(|process| is_it(process))
                .map(|process| process.session)
        };

        let found = session_of(&|process| process.group == group)
            .or_else(|| session_of(&|process| process.number == group));
        // Zombies are still in their groups.
        let ended = self.system.ended.iter();
        let mut ended = ended.filter(|ended| ended.group == group || ended.number == group);
        let found = found.or_else(|| ended.next().map(|ended| ended.session));
        // The foreground is a group of the session (tcsetpgrp(3)).
        if found.ok_or(Errno::ESRCH)? != own {
            return Err(Errno::EPERM);
        }

        self.terminal_mut(number)?.group = group;
        Ok(0)
    }
}
