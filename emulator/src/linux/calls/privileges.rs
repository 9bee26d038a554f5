//! Capabilities: all of them, or none.
//!
//! Source: Linux 6.12 `kernel/capability.c`, `security/commoncap.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};

/// The versions of `struct __user_cap_header_struct`, and the number of words of each set.
const VERSIONS: [(u32, u64); 3] = [(0x1998_0330, 1), (0x2007_1026, 2), (0x2008_0522, 2)];
/// All capabilities (`CAP_LAST_CAP` is 40).
const CAPABILITIES: u64 = (1 << 41) - 1;

impl Kernel {
    /// The words of each set that a header asks for, and the process. `None` for a question that is
    /// answered by the version alone.
    fn capability_header(&mut self, header: u64, data: u64) -> Answer<Option<(u64, u32)>> {
        let version = self.u32_at(header)?;
        let words = VERSIONS.iter().find(|(known, _)| *known == version);
        let Some((_, words)) = words else {
            self.put_u32(header, VERSIONS[2].0)?;
            return if data == 0 {
                Ok(None)
            } else {
                Err(Errno::EINVAL)
            };
        };
        Ok(Some((*words, self.u32_at(header.wrapping_add(4))?)))
    }

    /// The effective and permitted capabilities of a process.
    fn capabilities(&self, process: u32) -> [u64; 2] {
        let has = self.identity_of(process).capabilities;
        let all = |has| if has { CAPABILITIES } else { 0 };
        [all(has.effective), all(has.permitted)]
    }

    pub(super) fn sys_capget(&mut self, header: u64, data: u64) -> Answer {
        let Some((words, number)) = self.capability_header(header, data)? else {
            return Ok(0);
        };
        if number.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        let process = self.task_of(number.into())?.process;
        let [effective, permitted] = self.capabilities(process);
        if data == 0 {
            return Ok(0);
        }
        for word in 0..words {
            let at = data.wrapping_add(12 * word);
            let sets = [effective, permitted, 0].map(|set| (set >> (32 * word)) as u32);
            self.put(at, sets.map(u32::to_le_bytes).as_flattened())?;
        }
        Ok(0)
    }

    pub(super) fn sys_capset(&mut self, header: u64, data: u64) -> Answer {
        let Some((words, number)) = self.capability_header(header, data)? else {
            return Err(Errno::EINVAL);
        };

        // `struct __user_cap_data_struct`: effective, permitted, inheritable. The second one has
        // the upper halves.
        let mut new = [0; 3];
        for word in 0..words {
            for (set, index) in new.iter_mut().zip(0..) {
                let at = data.wrapping_add(12 * word + 4 * index);
                *set |= u64::from(self.u32_at(at)?) << (32 * word);
            }
        }

        // A thread sets only its own capabilities (`kernel/capability.c`).
        if number != 0 && number != self.process.thread.number {
            return Err(Errno::EPERM);
        }

        let [effective, permitted, inheritable] = new.map(|set| set & CAPABILITIES);
        let [old_effective, old_permitted] = self.capabilities(self.process.number);
        // `cap_capset`: permitted ones can only be given up, and effective ones must be permitted.
        let takes_more = permitted & !old_permitted != 0 || effective & !permitted != 0;
        if takes_more || inheritable & !old_permitted != 0 {
            return Err(Errno::EPERM);
        }

        let is_whole = |set: u64| set == 0 || set == CAPABILITIES;
        if !is_whole(effective) || !is_whole(permitted) || inheritable != 0 {
            return self.not_modelled("single capabilities", Errno::EPERM);
        }

        let has = &mut self.files.own.identity.capabilities;
        (has.effective, has.permitted) = (effective != 0, permitted != 0);
        if effective != old_effective {
            has.files = has.effective;
        }
        Ok(0)
    }
}
