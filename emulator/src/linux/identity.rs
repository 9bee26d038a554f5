//! Who a process is, for permissions, and what else it may set of itself and read again.
//!
//! Capabilities are those of user 0 and no others: all while the effective user is 0, those over
//! files while the user for files is.
//!
//! Source: Linux 6.12 `kernel/sys.c`, `security/commoncap.c`.

use super::errno::{Answer, Errno};
use std::rc::Rc;

/// "Leave it as it is" in place of a user or a group.
pub(super) const KEEP: u32 = u32::MAX;

/// Users, or groups, of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ids {
    pub(super) real: u32,
    pub(super) effective: u32,
    pub(super) saved: u32,
    /// The one whose files they are.
    pub(super) file: u32,
}

impl Ids {
    fn all(id: u32) -> Ids {
        Ids {
            real: id,
            effective: id,
            saved: id,
            file: id,
        }
    }

    fn has(&self, id: u32) -> bool {
        [self.real, self.effective, self.saved].contains(&id)
    }

    /// `setuid`.
    pub(super) fn set(&mut self, id: u32, capable: bool) -> Answer {
        match () {
            () if id == KEEP => return Err(Errno::EINVAL),
            () if capable => *self = Ids::all(id),
            () if id == self.real || id == self.saved => {
                (self.effective, self.file) = (id, id);
            }
            () => return Err(Errno::EPERM),
        }
        Ok(0)
    }

    /// `setreuid`.
    pub(super) fn set_two(&mut self, real: u32, effective: u32, capable: bool) -> Answer {
        let old = *self;
        let may_real = real == KEEP || real == old.real || real == old.effective;
        let may_effective = effective == KEEP || old.has(effective);
        let may = capable || may_real && may_effective;
        if !may {
            return Err(Errno::EPERM);
        }
        if real != KEEP {
            self.real = real;
        }
        if effective != KEEP {
            self.effective = effective;
        }
        if real != KEEP || effective != KEEP && effective != old.real {
            self.saved = self.effective;
        }
        self.file = self.effective;
        Ok(0)
    }

    /// `setresuid`: real, effective, saved.
    pub(super) fn set_three(&mut self, new: [u32; 3], capable: bool) -> Answer {
        let may = |&id: &u32| id == KEEP || self.has(id);
        if !capable && !new.iter().all(may) {
            return Err(Errno::EPERM);
        }
        let Ids {
            real,
            effective,
            saved,
            ..
        } = self;
        for (id, new) in [real, effective, saved].into_iter().zip(new) {
            if new != KEEP {
                *id = new;
            }
        }
        self.file = self.effective;
        Ok(0)
    }

    /// `setfsuid`, which tells what it was, whether it is set or not.
    pub(super) fn set_file(&mut self, id: u32, capable: bool) -> u32 {
        let old = self.file;
        if id != KEEP && (capable || id == old || self.has(id)) {
            self.file = id;
        }
        old
    }
}

/// Who a process is.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) user: Ids,
    pub(super) group: Ids,
    /// Supplementary groups.
    pub(super) groups: Rc<[u32]>,
}

impl Identity {
    pub(super) fn new(uid: u32, gid: u32) -> Identity {
        Identity {
            user: Ids::all(uid),
            group: Ids::all(gid),
            groups: Rc::from([]),
        }
    }

    /// May it become others, and all that the superuser may but with files?
    pub(super) fn is_capable(&self) -> bool {
        self.user.effective == 0
    }

    /// Do permissions of files not concern it?
    pub(super) fn is_capable_with_files(&self) -> bool {
        self.user.file == 0
    }

    /// Is it in this group, when files are concerned?
    pub(super) fn is_in(&self, group: u32) -> bool {
        group == self.group.file || self.groups.contains(&group)
    }

    /// The one for which `access` asks: the real one.
    pub(super) fn as_real(&self) -> Identity {
        let mut real = self.clone();
        real.user.file = real.user.real;
        real.group.file = real.group.real;
        real
    }

    /// What `execve` does.
    pub(super) fn exec(&mut self) {
        for ids in [&mut self.user, &mut self.group] {
            (ids.saved, ids.file) = (ids.effective, ids.effective);
        }
    }
}

/// What a process set of itself by `prctl` and the like. Nothing else depends on it here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    /// `PR_SET_PDEATHSIG`; its parent does not die.
    pub(super) death_signal: u8,
    pub(super) dumpable: u8,
    /// `PR_SET_TIMERSLACK`, nanoseconds.
    pub(super) timer_slack: u64,
    pub(super) no_new_privileges: bool,
    pub(super) personality: u32,
    /// -20 to 19.
    pub(super) nice: i32,
    /// `ioprio_set`.
    pub(super) io_priority: u32,
}

/// What a thread sleeps too long at most, unless it says otherwise.
pub(super) const TIMER_SLACK: u64 = 50_000;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            death_signal: 0,
            dumpable: 1,
            timer_slack: TIMER_SLACK,
            no_new_privileges: false,
            personality: 0,
            nice: 0,
            io_priority: 0,
        }
    }
}
