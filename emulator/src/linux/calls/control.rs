//! `prctl`, `membarrier`, and the keys of memory protection.
//!
//! Source: Linux 6.12 `kernel/sys.c`, `kernel/sched/membarrier.c`, `security/commoncap.c`,
//! `mm/mprotect.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::identity::TIMER_SLACK;

impl Kernel {
    pub(super) fn sys_prctl(&mut self, [option, arg, third, fourth, fifth, _]: [u64; 6]) -> Answer {
        /// Linux 6.12 knows the options up to this one, some only on other architectures.
        const OPTIONS_MAX: u32 = 75;
        /// Options outside of that range: `PR_SET_VMA` and `PR_SET_PTRACER`, which not every Linux
        /// has, and `PR_GET_AUXV`.
        const OPTIONAL: [u32; 2] = [0x5356_4d41, 0x5961_6d61];
        const AUXV: u32 = 0x4155_5856;
        const CAPABILITIES: u64 = 41;

        let rest = [third, fourth, fifth] != [0; 3];
        let set = &mut self.process.settings;

        match option as u32 {
            // PR_SET_PDEATHSIG, PR_GET_PDEATHSIG.
            1 if arg > 64 => return Err(Errno::EINVAL),
            1 => set.death_signal = arg as u8,
            2 => {
                let signal = set.death_signal.into();
                self.put_u32(arg, signal)?;
            }
            // PR_GET_DUMPABLE, PR_SET_DUMPABLE.
            3 => return Ok(set.dumpable.into()),
            // Only the kernel sets 2, `SUID_DUMP_ROOT`.
            4 if arg > 1 => return Err(Errno::EINVAL),
            4 => set.dumpable = arg as u8,
            // PR_SET_NAME, PR_GET_NAME.
            15 => self.process.thread.name = self.name_at(arg, 15)?,
            16 => {
                let mut name = self.process.thread.name.clone();
                name.resize(16, 0);
                self.put(arg, &name)?;
            }
            // PR_GET_KEEPCAPS, PR_SET_KEEPCAPS.
            7 => return Ok(self.files.own.identity.capabilities.keeps.into()),
            8 if arg > 1 => return Err(Errno::EINVAL),
            8 => self.files.own.identity.capabilities.keeps = arg == 1,
            // PR_GET_SECUREBITS: SECBIT_KEEP_CAPS.
            27 if self.files.own.identity.capabilities.keeps => return Ok(1 << 4),
            27 => {}
            // PR_GET_SECCOMP, PR_SET_SECCOMP.
            21 if self.process.thread.filters.is_empty() => {}
            21 => return Ok(2),
            // Strict mode ignores the third argument (`prctl_set_seccomp`).
            22 if arg == 1 => return self.sys_seccomp(0, 0, 0),
            22 if arg == 2 => return self.sys_seccomp(1, 0, third),
            22 => return Err(Errno::EINVAL),
            // PR_CAPBSET_READ.
            23 if arg >= CAPABILITIES => return Err(Errno::EINVAL),
            // Nothing is ever dropped from the bounding set.
            23 => return Ok(1),
            // PR_GET_TSC: PR_TSC_ENABLE.
            25 => self.put_u32(arg, 1)?,
            // PR_SET_TIMERSLACK, PR_GET_TIMERSLACK.
            29 if arg == 0 => set.timer_slack = TIMER_SLACK,
            29 => set.timer_slack = arg,
            30 => return Ok(set.timer_slack),
            // PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS.
            38 if arg != 1 || rest => return Err(Errno::EINVAL),
            38 => set.no_new_privileges = true,
            39 if arg != 0 || rest => return Err(Errno::EINVAL),
            39 => return Ok(set.no_new_privileges.into()),
            // PR_SET_THP_DISABLE, PR_GET_THP_DISABLE.
            41 if rest => return Err(Errno::EINVAL),
            41 => set.no_huge_pages = arg != 0,
            42 if arg != 0 || rest => return Err(Errno::EINVAL),
            42 => return Ok(set.no_huge_pages.into()),
            // PR_CAP_AMBIENT: PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_CLEAR_ALL.
            47 if arg == 1 && third < CAPABILITIES && [fourth, fifth] == [0; 2] => {}
            47 if arg == 4 && !rest => {}
            option if OPTIONAL.contains(&option) => return Err(Errno::EINVAL),
            // What Linux would answer is not known here, unlike for numbers that no kernel has.
            option if option <= OPTIONS_MAX || option == AUXV => {
                return self.not_modelled("prctl with this option", Errno::EINVAL);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    /// There is one processor, so memory is always as all threads see it.
    pub(super) fn sys_membarrier(&mut self, command: u64, flags: u64, _cpu: u64) -> Answer {
        const QUERY: u32 = 0;
        const GLOBAL: u32 = 1;
        const GLOBAL_EXPEDITED: u32 = 2;
        /// Each command for private memory, and the one that registers for it.
        const PRIVATE: [(u32, u32); 3] = [(8, 16), (32, 64), (128, 256)];
        const REGISTER_GLOBAL: u32 = 4;
        const GET_REGISTRATIONS: u32 = 512;
        const ALL: u64 = 0x3ff;
        // `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ`.
        const RSEQ: u32 = 128;
        const FLAG_CPU: u32 = 1;

        let (command, flags) = (command as u32, flags as u32);
        // Only the command for restartable sequences has a flag, `MEMBARRIER_CMD_FLAG_CPU`.
        if flags != 0 && !(command == RSEQ && flags == FLAG_CPU) {
            return Err(Errno::EINVAL);
        }

        let registered = &mut self.process.settings.barriers;
        match command {
            QUERY => return Ok(ALL),
            GLOBAL | GLOBAL_EXPEDITED => {}
            REGISTER_GLOBAL => *registered |= REGISTER_GLOBAL,
            GET_REGISTRATIONS => return Ok((*registered).into()),
            command => {
                let mut pairs = PRIVATE.iter();
                let pair =
                    pairs.find(|(private, register)| [*private, *register].contains(&command));
                match pair {
                    Some((_, register)) if command == *register => {
                        // What synchronizes more includes the rest.
                        *registered |= register | PRIVATE[0].1;
                    }
                    // A process must register before it uses an expedited command (membarrier(2)).
                    Some((_, register)) if *registered & register == 0 => return Err(Errno::EPERM),
                    Some(_) => {}
                    None => return Err(Errno::EINVAL),
                }
            }
        }
        Ok(0)
    }

    /// The processor has no protection keys (`ENOSPC`).
    pub(super) fn sys_pkey_alloc(&self, flags: u64, rights: u64) -> Answer {
        if flags != 0 || rights & !3 != 0 {
            Err(Errno::EINVAL)
        } else {
            Err(Errno::ENOSPC)
        }
    }

    /// `pkey_mprotect`: without a key, it is `mprotect`.
    pub(super) fn sys_pkey_mprotect(&mut self, at: u64, size: u64, prot: u64, key: u64) -> Answer {
        match key as i32 {
            -1 => self.sys_mprotect(at, size, prot),
            _ => Err(Errno::EINVAL),
        }
    }
}
