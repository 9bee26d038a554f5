//! Signals when something can be read: `O_ASYNC`, `F_SETOWN` and the like, for pipes and sockets.
//!
//! Source: Linux 6.12 `fs/fcntl.c` (`f_setown`, `send_sigio`), `net/core/sock.c` (`sk_wake_async`).

use super::signal::signal;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, o};
use crate::linux::handle::HandleKind;
use crate::linux::signals::Info;

const SET_OWNER: u32 = 8;
const GET_OWNER: u32 = 9;
const SET_SIGNAL: u32 = 10;
const GET_SIGNAL: u32 = 11;
const SIGIO: u8 = 29;

/// The number of a pipe's end or a socket.
fn number(open: &Shared) -> Option<u32> {
    match &open.borrow().kind {
        Kind::Object(handle)
            if matches!(handle.sort, HandleKind::Socket | HandleKind::Terminal) =>
        {
            Some(handle.id)
        }
        Kind::Pipe(end) => Some(end.handle.id),
        _ => None,
    }
}

impl Kernel {
    /// `fcntl` with the owner of an open file; `None` for other commands and other files.
    pub(super) fn fcntl_owner(&mut self, open: &Shared, command: u32, arg: u64) -> Option<Answer> {
        let id = number(open)?;
        let owner = self.objects.owner(id);
        Some(match command {
            SET_OWNER => self.set_owner(id, arg as i32),
            GET_OWNER => Ok(owner.target as u64),
            SET_SIGNAL => signal(arg).map(|signal| {
                owner.signal = signal.unwrap_or(0);
                0
            }),
            GET_SIGNAL => Ok(owner.signal.into()),
            _ => return None,
        })
    }

    fn set_owner(&mut self, id: u32, target: i32) -> Answer {
        let wanted = target.unsigned_abs();
        let exists = self.all_processes().any(|process| match target {
            0 => true,
            ..0 => process.group == wanted,
            _ => process.number == wanted,
        });
        if target == i32::MIN {
            return Err(Errno::EINVAL);
        }
        if !exists {
            return Err(Errno::ESRCH);
        }
        self.objects.owner(id).target = target;
        Ok(0)
    }

    /// Sets or clears `O_ASYNC`. False if that is not modelled for the file.
    pub(super) fn set_async(&mut self, open: &Shared, on: bool) -> bool {
        let Some(id) = number(open) else {
            return false;
        };
        self.objects.owner(id).is_async = on;
        let flags = &mut open.borrow_mut().flags;
        *flags = *flags & !o::ASYNC | if on { o::ASYNC } else { 0 };
        true
    }

    /// Sends the signals of what was woken.
    pub(super) fn send_sigio(&mut self) {
        for owner in self.objects.take_signalled() {
            let wanted = owner.target.unsigned_abs();
            let all = self.all_processes().filter(|process| match owner.target {
                ..0 => process.group == wanted,
                _ => process.number == wanted,
            });
            let targets: Vec<u32> = all.map(|process| process.number).collect();
            let signal = if owner.signal == 0 {
                SIGIO
            } else {
                owner.signal
            };
            for target in targets {
                self.send_to(target, None, Info::from_kernel(signal));
            }
        }
    }
}
