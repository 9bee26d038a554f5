//! Readers that are stricter than the specification: Linux and libsframe.
//!
//! A profile never reads a row differently from [`Table::rows`]; it only rejects rows. So rows
//! compiled for one profile serve them all.

use super::fde::Fde;
use super::header::{FLAG_FDE_SORTED, FLAG_FUNC_START_PCREL, Malformed, Version};
use super::read::Table;
use super::row::{SframeRow, Track};
use crate::address::Lookup;
use crate::reason::Reason;
use crate::regs::Reg;
use crate::rule::{Base, Rule, Value};
use core::ops::Range;

/// The reader to model.
///
/// At the first error other than "not found", Linux drops a whole table for the rest of the
/// process's life. Which samples come after that error is chance. Here every lookup is judged as if
/// it were the first, so that results depend neither on the order of samples nor on threads.
/// [`Profile::KernelV3Validate`] drops a table as a whole and for good, because it reads all of it
/// before the first lookup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// The specification, every version. Return addresses are looked up unadjusted.
    #[default]
    Spec,
    /// Like [`Profile::Spec`], but return addresses are looked up at ra - 1.
    CallSite,
    /// Linux with the V3 reader ("unwind_user/sframe", V3 series with flexible FDEs).
    KernelV3,
    /// The same with `CONFIG_SFRAME_VALIDATION`: the whole table is checked before it is used.
    KernelV3Validate,
    /// libsframe of binutils 2.47.
    Libsframe,
}

/// The maximum number of data words in a row accepted by libsframe 2.47.
const LIBSFRAME_WORDS_MAX: usize = 6;

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 5] = [
        Profile::Spec,
        Profile::CallSite,
        Profile::KernelV3,
        Profile::KernelV3Validate,
        Profile::Libsframe,
    ];

    /// The stable name, as used on the command line after `sframe:`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Profile::Spec => "spec",
            Profile::CallSite => "callsite",
            Profile::KernelV3 => "kernel-v3",
            Profile::KernelV3Validate => "kernel-v3-validate",
            Profile::Libsframe => "libsframe",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            Profile::Spec => "the SFrame specification, V1 to V3; looks up ra itself",
            Profile::CallSite => "the specification, but looks up ra - 1",
            Profile::KernelV3 => "Linux's V3 reader: strict, register rules in the top frame only",
            Profile::KernelV3Validate => "Linux's V3 reader with CONFIG_SFRAME_VALIDATION",
            Profile::Libsframe => "libsframe 2.47: V2 and V3, sorted tables only",
        }
    }

    /// The profile with this name.
    pub fn from_name(name: &str) -> Option<Profile> {
        Self::ALL.into_iter().find(|p| p.as_str() == name)
    }

    /// The unwinder's name with this profile: `sframe`, `sframe:kernel-v3`.
    pub const fn unwinder(self) -> &'static str {
        match self {
            Profile::Spec => "sframe",
            Profile::CallSite => "sframe:callsite",
            Profile::KernelV3 => "sframe:kernel-v3",
            Profile::KernelV3Validate => "sframe:kernel-v3-validate",
            Profile::Libsframe => "sframe:libsframe",
        }
    }

    /// The address at which return addresses are looked up.
    pub const fn lookup(self) -> Lookup {
        match self {
            Profile::CallSite => Lookup::InsideCall,
            _ => Lookup::AtReturn,
        }
    }

    const fn is_kernel(self) -> bool {
        matches!(self, Profile::KernelV3 | Profile::KernelV3Validate)
    }

    /// Checks whether the reader accepts this section at all.
    pub fn check_table(self, table: &Table<'_>) -> Result<(), Malformed> {
        let h = table.header();
        let refuse = |offset, what| Err(Malformed::new(offset, what));

        match self {
            // By the specification, all that could be parsed is acceptable.
            Profile::Spec | Profile::CallSite => Ok(()),
            Profile::Libsframe => match h.version {
                Version::V1 => refuse(2, "libsframe 2.47 reads V2 and V3 only"),
                _ if !h.has(FLAG_FDE_SORTED) => refuse(3, "libsframe reads sorted tables only"),
                _ if h.fdes > h.fres => refuse(20, "the FREs lie before the FDEs"),
                _ => Ok(()),
            },
            Profile::KernelV3 | Profile::KernelV3Validate => {
                if h.version != Version::V3 {
                    return refuse(2, "Linux reads V3 only");
                }
                // Linux searches in the section itself, without sorting anything.
                if !h.has(FLAG_FDE_SORTED) || !h.has(FLAG_FUNC_START_PCREL) {
                    return refuse(3, "Linux needs a sorted table with PC-relative starts");
                }
                if h.auxhdr_len != 0 {
                    return refuse(7, "Linux does not accept an auxiliary header");
                }
                if h.num_fdes == 0 || h.num_fres == 0 {
                    return refuse(8, "Linux rejects a table without functions or rows");
                }
                if h.fres < h.fdes_end() {
                    return refuse(24, "the FREs overlap the FDEs");
                }
                Ok(())
            }
        }
    }

    /// Checks whether the reader accepts `fde` and its rows up to the one at `offset` (from the
    /// start of the function or block). `text` contains the executable ranges (svma).
    pub fn check_rows(
        self,
        table: &Table<'_>,
        fde: &Fde,
        offset: u64,
        text: &[Range<u64>],
    ) -> Result<(), Malformed> {
        if self.is_kernel() {
            check_kernel_fde(fde, text)?;
        }

        // The other readers check rows before they use them, and refuse the whole lookup for one of
        // them.
        if matches!(self, Profile::Spec | Profile::CallSite) {
            return Ok(());
        }

        // By the specification, such a V3 function is the outermost frame.
        if fde.num_fres == 0 {
            let what = "this reader does not accept an FDE without rows";
            return Err(Malformed::new(fde.offset, what));
        }

        // The rows of a PCMASK FDE describe one block, which repeats.
        let limit = fde.rep_size.map_or(fde.size, u32::from);
        let mut last = None;
        for fre in table.fres(fde) {
            let fre = fre?;

            // Readers stop at the first row behind the address, so damage further on is not seen.
            if u64::from(fre.start) > offset {
                break;
            }

            let refuse = |what| Err(Malformed::new(fre.offset, what));

            if self.is_kernel() {
                if fre.start >= limit {
                    return refuse("Linux rejects a row that starts past the end of its function");
                }
                if last.is_some_and(|last| fre.start <= last) {
                    return refuse("row starts do not increase");
                }
                last = Some(fre.start);

                // Decoding fails on words that are left over or missing.
                let row = SframeRow::decode(table.header(), fde, &fre)?;
                // A padding word at the end has no purpose.
                if fde.flex && ends_in_padding(row) {
                    return refuse("a flexible row ends in a padding word");
                }
            } else if fre.count() > LIBSFRAME_WORDS_MAX {
                return refuse("libsframe accepts at most 6 data words");
            }
        }

        Ok(())
    }

    /// Checks the whole table as `CONFIG_SFRAME_VALIDATION` does before its first use. Other
    /// profiles accept everything.
    pub fn validate(self, table: &Table<'_>, text: &[Range<u64>]) -> Result<(), Malformed> {
        if self != Profile::KernelV3Validate {
            return Ok(());
        }
        let mut last = None;
        for fde in table.fdes() {
            let fde = fde?;
            if last.is_some_and(|last| fde.start <= last) {
                return Err(Malformed::new(
                    fde.offset,
                    "function starts do not increase",
                ));
            }
            last = Some(fde.start);
            check_kernel_fde(&fde, text)?;
            if fde.num_fres != 0 {
                self.check_rows(table, &fde, u64::MAX, text)?;
            }
        }
        Ok(())
    }

    /// Whether the reader applies this rule in a frame below the topmost. Linux accepts rules based
    /// on a register (except a CFA based on rsp or rbp) only in the topmost frame. So `*(rbp+0)` as
    /// rbp's rule, which every function with a realigned frame has, ends its walks.
    pub fn permits(self, rule: &Rule, topmost: bool) -> Result<(), Reason> {
        if !self.is_kernel() || topmost {
            return Ok(());
        }
        let cfa = rule.cfa.base_reg();
        let cfa = cfa.filter(|r| !matches!(r, Reg::Rsp | Reg::Rbp));
        match cfa
            .or(rule.ra.base_reg())
            .or(rule.saved(Reg::Rbp).base_reg())
        {
            Some(reg) => Err(Reason::RegisterNotCarried { reg }),
            None => Ok(()),
        }
    }

    /// Checks that the CFA is a multiple of 8, as Linux requires. rsp and rbp are so aligned
    /// wherever a return address can be, so this depends on the CFA's offset. `at` returns the
    /// offset of the row in its section.
    pub fn check_cfa(self, rule: &Rule, at: impl FnOnce() -> u64) -> Result<(), Malformed> {
        let Value::Offset {
            base: Base::Reg(Reg::Rsp | Reg::Rbp),
            offset: cfa,
        } = rule.cfa
        else {
            return Ok(());
        };
        if self.is_kernel() && cfa % 8 != 0 {
            return Err(Malformed::new(at(), "the CFA is not aligned to 8"));
        }
        Ok(())
    }
}

fn check_kernel_fde(fde: &Fde, text: &[Range<u64>]) -> Result<(), Malformed> {
    let end = fde.start.checked_add(fde.size.into());
    let inside = |r: &Range<u64>| r.start <= fde.start && end.is_some_and(|end| end <= r.end);
    if !text.iter().any(inside) {
        return Err(Malformed::new(
            fde.offset,
            "the function lies outside the text",
        ));
    }
    if fde.num_fres > fde.size {
        return Err(Malformed::new(
            fde.offset,
            "more rows than the function has bytes",
        ));
    }
    Ok(())
}

const fn ends_in_padding(row: SframeRow) -> bool {
    match row {
        SframeRow::RaUndefined => false,
        SframeRow::Tracked { ra, fp, .. } => {
            matches!(fp, Track::Padded) || matches!((ra, fp), (Track::Padded, Track::Absent))
        }
    }
}

#[cfg(test)]
mod tests;
