//! The identity of a process for permissions, and other properties that it may set and get.
//!
//! A process has all capabilities or none: user 0 has them while the effective user is 0, and those for
//! files while the file-system user is, unless it has given them up (`capset`) or keeps them without user
//! 0 (`PR_SET_KEEPCAPS`).
//!
//! Source: Linux 6.12 `kernel/sys.c`, `security/commoncap.c`.

use super::errno::{Answer, Errno};
use std::rc::Rc;

/// "Do not change", in place of a user or a group.
pub(super) const KEEP: u32 = u32::MAX;

/// The users, or the groups, of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ids {
    pub(super) real: u32,
    pub(super) effective: u32,
    pub(super) saved: u32,
    /// The file-system user or group.
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
        if id == KEEP {
            return Err(Errno::EINVAL);
        } else if capable {
            *self = Ids::all(id)
        } else if id == self.real || id == self.saved {
            (self.effective, self.file) = (id, id);
        } else {
            return Err(Errno::EPERM);
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

    /// `setfsuid`, which returns the old value whether it is changed or not.
    pub(super) fn set_file(&mut self, id: u32, capable: bool) -> u32 {
        let old = self.file;
        if id != KEEP && (capable || id == old || self.has(id)) {
            self.file = id;
        }
        old
    }
}

/// The capabilities of a process: of each set all or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Capabilities {
    pub(super) permitted: bool,
    pub(super) effective: bool,
    /// The effective ones for files.
    pub(super) files: bool,
    /// `PR_SET_KEEPCAPS`: it keeps the permitted ones without a user 0.
    pub(super) keeps: bool,
}

/// The identity of a process.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) user: Ids,
    pub(super) group: Ids,
    /// Supplementary groups.
    pub(super) groups: Rc<[u32]>,
    pub(super) capabilities: Capabilities,
}

impl Identity {
    pub(super) fn new(uid: u32, gid: u32) -> Identity {
        Identity {
            user: Ids::all(uid),
            group: Ids::all(gid),
            groups: Rc::from([]),
            capabilities: Capabilities {
                permitted: uid == 0,
                effective: uid == 0,
                files: uid == 0,
                keeps: false,
            },
        }
    }

    /// Whether it has the superuser's capabilities, except those for files.
    pub(super) fn is_capable(&self) -> bool {
        self.capabilities.effective
    }

    /// Whether its permitted capabilities are all; else it has none.
    pub(super) fn permits_all(&self) -> bool {
        self.capabilities.permitted
    }

    /// Whether it bypasses file permissions.
    pub(super) fn is_capable_with_files(&self) -> bool {
        self.capabilities.files
    }

    /// Whether it is in this group, for file permissions.
    pub(super) fn is_in(&self, group: u32) -> bool {
        group == self.group.file || self.groups.contains(&group)
    }

    /// The identity that `access` checks: the real one.
    pub(super) fn as_real(&self) -> Identity {
        let mut real = self.clone();
        real.user.file = real.user.real;
        real.group.file = real.group.real;
        real.capabilities.files = real.user.real == 0 && real.capabilities.permitted;
        real
    }

    /// Applies a change of the users to the capabilities (`cap_task_fix_setuid`).
    pub(super) fn users_changed(&mut self, old: Ids) {
        let (new, capabilities) = (self.user, &mut self.capabilities);
        if old.has(0) && !new.has(0) && !capabilities.keeps {
            capabilities.permitted = false;
        }
        match (old.effective == 0, new.effective == 0) {
            (true, false) => capabilities.effective = false,
            (false, true) => capabilities.effective = capabilities.permitted,
            _ => {}
        }
        capabilities.effective &= capabilities.permitted;
        if (old.effective == 0) != (new.effective == 0) || !capabilities.effective {
            capabilities.files = capabilities.effective;
        }
    }

    /// Applies `setfsuid` to the capabilities for files.
    pub(super) fn file_user_changed(&mut self, old: u32) {
        match (old == 0, self.user.file == 0) {
            (true, false) => self.capabilities.files = false,
            (false, true) => self.capabilities.files = self.capabilities.permitted,
            _ => {}
        }
    }

    /// Applies `execve`.
    pub(super) fn exec(&mut self) {
        for ids in [&mut self.user, &mut self.group] {
            (ids.saved, ids.file) = (ids.effective, ids.effective);
        }
        let is_root = self.user.effective == 0;
        self.capabilities = Capabilities {
            permitted: is_root || self.user.real == 0,
            effective: is_root,
            files: is_root,
            keeps: false,
        };
    }
}

/// Properties that a process set with `prctl` and the like, most of which change nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    /// `PR_SET_PDEATHSIG`: sent to it when its parent ends.
    pub(super) death_signal: u8,
    pub(super) dumpable: u8,
    /// `PR_SET_TIMERSLACK`, nanoseconds.
    pub(super) timer_slack: u64,
    pub(super) no_new_privileges: bool,
    pub(super) personality: u32,
    /// `PR_SET_THP_DISABLE`.
    pub(super) no_huge_pages: bool,
    /// The commands of `membarrier` that it has registered for.
    pub(super) barriers: u32,
}

/// Default for the timer slack, nanoseconds.
pub(super) const TIMER_SLACK: u64 = 50_000;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            death_signal: 0,
            dumpable: 1,
            timer_slack: TIMER_SLACK,
            no_new_privileges: false,
            personality: 0,
            no_huge_pages: false,
            barriers: 0,
        }
    }
}
