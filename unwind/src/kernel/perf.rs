//! `perf_callchain_kernel` (Linux `arch/x86/events/core.c`): from registers, real or fake, to the
//! addresses of a sample's kernel part.

use super::{Finds, From, Kernel, Kind, State, Unwind};
use crate::memory::Memory;
use crate::reason::Reason;
use crate::start::Start;

/// What a callchain is told of on its way.
#[derive(Debug)]
pub enum Visit<'u, M: ?Sized> {
    /// A state that was passed on the way to the mark.
    Skipped(&'u Unwind<'u, M>),
    /// The sampled ip, stored before the walk.
    Ip(u64),
    /// A state whose return address was stored.
    Stored(&'u Unwind<'u, M>, u64),
    /// A state with which the callchain ends, for lack of a return address.
    Last(&'u Unwind<'u, M>),
}

/// Walks as perf does, from what `start` makes of the sample's registers in some version: from
/// the registers, whose ip comes first; or from the unwinder's own, up to the mark. At most
/// `frames_max` addresses are stored. Returns why it ended.
///
/// # Errors
/// If the registers that it starts from are not known.
pub fn callchain<M: Memory + ?Sized>(
    kind: Kind,
    kernel: Kernel<'_, M>,
    start: &Start,
    frames_max: u32,
    finds: &mut Finds,
    visit: &mut dyn FnMut(Visit<'_, M>),
) -> Result<(State, Reason), Reason> {
    let regs = &start.regs;
    for reg in [crate::regs::Reg::Rip, crate::regs::Reg::Rsp] {
        regs.get(reg).ok_or(Reason::RegistersMissing { reg })?;
    }
    let (from, first_frame, ip) = match start.first_frame {
        None if kernel.task.is_current => (From::Regs(regs), regs.rsp(), Some(regs.rip())),
        None => (From::Inactive, kernel.task.thread_sp, None),
        Some(mark) => (From::Own(regs), mark, start.sampled_ip),
    };
    let mut left = frames_max;
    if let Some(ip) = ip {
        visit(Visit::Ip(ip));
        left = left.saturating_sub(1);
    }
    let mut unwind = Unwind::start(kind, kernel, from, first_frame, finds, &mut |unwind| {
        visit(Visit::Skipped(unwind));
    });
    let limit = Reason::FrameLimit { limit: frames_max };
    while !unwind.state().is_done() {
        match unwind.return_address() {
            None => {
                visit(Visit::Last(&unwind));
                let address = unwind.ip();
                return Ok((*unwind.state(), Reason::NotText { address }));
            }
            Some(_) if left == 0 => return Ok((*unwind.state(), limit)),
            Some(address) => visit(Visit::Stored(&unwind, address)),
        }
        left -= 1;
        unwind.next_frame();
    }
    visit(Visit::Last(&unwind));
    let ended = unwind.ended().map_or(Reason::NotAtRoot, |e| e.reason());
    Ok((*unwind.state(), ended))
}
