//! What the walk asks of an unwind table: [`Finder`], a table's reader under a profile.

use crate::address::Lookup;
use crate::cache::{Cache, RowId};
use crate::image::{AddressSpace, Mapping};
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::rule::Rule;

/// Finds the rule for an address: a table's reader under a profile.
pub trait Finder: Send + Sync {
    /// The name, as on the command line: `dwarf`, `sframe:kernel-v3`.
    fn name(&self) -> &str;

    /// At which address a return address is looked up.
    fn lookup(&self) -> Lookup {
        Lookup::InsideCall
    }

    /// The registers carried from frame to frame.
    fn carries(&self) -> RegMask;

    /// The row for `svma`, which lies in `mapping`'s text; compiled into `cache` if need be.
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason>;

    /// The row for an address that lies in no text at all, for an unwinder that goes on there, as
    /// libdw does. `None` ends the walk.
    fn find_outside(&self, _cache: &mut Cache) -> Option<Result<RowId, Reason>> {
        None
    }

    /// Asked for a rule where [`Finder::find`] fails, and where the rule found fails.
    fn fallback(&self) -> Option<&dyn Finder> {
        None
    }

    /// As a fallback: is it also asked where a rule fails? libdw's is not.
    fn serves_failures(&self) -> bool {
        true
    }

    /// Can the table that speaks for `address` mark a root? A walk by one that cannot has to end
    /// otherwise, however right it is.
    fn marks_roots(&self, _space: &AddressSpace, _address: u64, _cache: &mut Cache) -> bool {
        true
    }

    /// May this rule be used here? A profile may accept some only in the topmost frame. Only
    /// asked if [`Finder::fast`] is false or the rule is not a common one.
    fn permits(&self, _rule: &Rule, _topmost: bool) -> Result<(), Reason> {
        Ok(())
    }

    /// Is a frame with this sp (the CFA of its callee) to be skipped under `first_frame`? ORC's
    /// test, which DWARF and SFrame share (Linux `arch/x86/kernel/unwind_orc.c`,
    /// `__unwind_start`).
    fn skips(&self, sp: u64, first_frame: u64) -> bool {
        sp <= first_frame
    }

    /// May common rules take the fast path, which does not ask `permits`?
    fn fast(&self) -> bool {
        true
    }
}
