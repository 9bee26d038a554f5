//! What the walk needs from an unwind table: [`Finder`].

use crate::address::Lookup;
use crate::cache::{Cache, RowId};
use crate::image::{AddressSpace, Mapping};
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::rule::Rule;

/// Finds the rule for an address. An implementation is a table reader with a profile.
///
/// A finder of your own is an [`Unwinder`](crate::Unwinder): the walk, its limits and its reasons come with
/// it. This one is for generated code in which every function reserves 32 bytes and saves nothing:
///
/// ```
/// use unwind_sim_unwind::cache::{NewRow, RowId, UnitKey};
/// use unwind_sim_unwind::finder::Finder;
/// use unwind_sim_unwind::regs::RegMask;
/// use unwind_sim_unwind::row::TableKind;
/// use unwind_sim_unwind::rule::{Rule, Value};
/// use unwind_sim_unwind::{AddressSpace, Cache, Mapping, MemoryCopy, Reason, Reg, Regs};
/// use unwind_sim_unwind::{Stack, Start, Unwinder as _};
///
/// struct Generated;
///
/// impl Finder for Generated {
///     fn name(&self) -> &str {
///         "generated"
///     }
///
///     fn carries(&self) -> RegMask {
///         RegMask::FRAME
///     }
///
///     fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
///         if mapping.name != "//anon" {
///             return Err(Reason::NoTable { pc: svma });
///         }
///
///         // A row is compiled once. With a table, `offset` would be that of the function in it.
///         let (table, image) = (TableKind::FramePointer, None);
///         let key = UnitKey { table, image, offset: 0, block: 0 };
///         let unit = match cache.unit(&key) {
///             Some(unit) => unit?,
///             None => {
///                 let rule = Rule::call(Value::reg(Reg::Rsp, 40));
///                 let row = NewRow { start: 0, offset: 0, rule };
///                 cache.add_unit(key, 0..u64::MAX, [row], None)
///             }
///         };
///         cache.find_row(unit, svma)
///     }
/// }
///
/// // Two frames of 32 bytes, each below a return address.
/// let words: [u64; 10] = [0, 0, 0, 0, 0x10_0200, 0, 0, 0, 0, 0x10_0300];
/// let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
/// let memory = MemoryCopy::new(0x7000, &bytes);
/// let mut space = AddressSpace::new();
/// space.map(Mapping { range: 0x10_0000..0x11_0000, bias: 0, image: None, name: "//anon".into() });
///
/// let start = Start::from_regs(Regs::frame(0x10_0100, 0x7000, 0));
/// let chain = Generated.walk(&Stack::new(&start, &space, &memory), &mut Cache::new());
/// let pcs: Vec<u64> = chain.frames.iter().map(|frame| frame.pc.value()).collect();
/// assert_eq!(pcs, [0x10_0100, 0x10_0200, 0x10_0300]);
/// // The next word lies behind the copy.
/// assert_eq!(chain.end.reason.code().as_str(), "US202");
/// ```
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
