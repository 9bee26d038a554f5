//! Policies for memory of several nodes, of which the machine has one.
//!
//! Source: Linux 6.12 `mm/mempolicy.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};

impl Kernel {
    /// Every thread and every mapping has the default policy.
    pub(super) fn sys_get_mempolicy(&mut self, args: [u64; 6]) -> Answer {
        const NODE: u32 = 1;
        const ADDRESS: u32 = 2;
        const MEMS_ALLOWED: u32 = 4;
        const PAGE_BITS: u64 = 8 * 4096;
        let [policy, mask, bits, at, flags, _] = args;
        let flags = flags as u32;
        if mask != 0 && bits == 0 || flags & !(NODE | ADDRESS | MEMS_ALLOWED) != 0 {
            return Err(Errno::EINVAL);
        }
        let nodes = match flags {
            MEMS_ALLOWED => 1,
            flags if flags & MEMS_ALLOWED != 0 => return Err(Errno::EINVAL),
            flags if flags & ADDRESS != 0 => {
                self.bytes::<1>(at)?;
                0
            }
            _ if at != 0 || flags & NODE != 0 => return Err(Errno::EINVAL),
            _ => 0,
        };
        if policy != 0 {
            // MPOL_DEFAULT, or node 0.
            self.put_u32(policy, 0)?;
        }
        if mask != 0 {
            if bits > PAGE_BITS {
                return Err(Errno::EINVAL);
            }
            // The number of bits is one too large, as `maxnode` always is.
            let words = (bits - 1).div_ceil(64) as usize;
            let mut out = vec![0; words];
            if let Some(first) = out.first_mut() {
                *first = nodes;
            }
            self.put_words(mask, &out)?;
        }
        Ok(0)
    }
}
