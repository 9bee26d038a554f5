//! What the walk needs from an unwind table: [`Finder`].

use crate::address::Lookup;
use crate::cache::{Cache, RowId};
use crate::image::{AddressSpace, Mapping};
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::rule::Rule;

/// Finds the rule for an address. An implementation is a table reader with a profile.
pub trait Finder: Send + Sync {
    /// The name used on the command line: `dwarf`, `sframe:kernel-v3`.
    fn name(&self) -> &str;

    /// The address at which return addresses are looked up.
    fn lookup(&self) -> Lookup {
        Lookup::InsideCall
    }

    /// The registers carried from frame to frame.
    fn carries(&self) -> RegMask;

    /// The row for `svma`, which lies in `mapping`'s text. Compiles it into `cache` if necessary.
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason>;

    /// The row for an address outside any text, for an unwinder that continues there, as libdw
    /// does. `None` ends the walk.
    fn find_outside(&self, _cache: &mut Cache) -> Option<Result<RowId, Reason>> {
        None
    }

    /// The finder to try where [`Finder::find`] fails or the rule found fails.
    fn fallback(&self) -> Option<&dyn Finder> {
        None
    }

    /// As a fallback: whether it is also used where the first finder's rule fails. libdw's is not.
    fn serves_failures(&self) -> bool {
        true
    }

    /// Whether the table that covers `address` can mark a root. A walk with a table that cannot
    /// ends in some other way, even if all of its frames are right.
    fn marks_roots(&self, _space: &AddressSpace, _address: u64, _cache: &mut Cache) -> bool {
        true
    }

    /// Whether this rule may be used here. A profile may accept some rules only in the topmost
    /// frame. Called only if [`Finder::fast`] is false or the rule is not a common one.
    fn permits(&self, _rule: &Rule, _topmost: bool) -> Result<(), Reason> {
        Ok(())
    }

    /// Whether to skip a frame with this sp (the CFA of its callee) under `first_frame`. This is
    /// ORC's test, which DWARF and SFrame share (Linux `arch/x86/kernel/unwind_orc.c`,
    /// `__unwind_start`).
    fn skips(&self, sp: u64, first_frame: u64) -> bool {
        sp <= first_frame
    }

    /// Whether common rules may take the fast path, which does not call `permits`.
    fn fast(&self) -> bool {
        true
    }
}
