//! Determines the encoding of a kernel's or module's ORC entries.

use super::error::KernelErrorKind;
use unwind_sim_unwind::image::{ImageParts, SectionKind};
use unwind_sim_unwind::orc::{self, Encoding, Layout, SpIndirect, Table};

/// A layout of ORC entries that the user names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToldLayout {
    /// The bit layout.
    pub layout: Layout,
    /// What `ORC_REG_SP_INDIRECT` means; `None` if the kernel's version decides.
    pub sp_indirect: Option<SpIndirect>,
}

impl ToldLayout {
    /// The names of all layouts: those of [`Encoding::ALL`], which `inspect` shows.
    pub const NAMES: [&'static str; Encoding::ALL.len()] = {
        let mut names = [""; Encoding::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Encoding::ALL[at].as_str();
            at += 1;
        }
        names
    };

    /// The name that was given.
    pub const fn as_str(self) -> &'static str {
        match self.sp_indirect {
            Some(sp_indirect) => Encoding {
                layout: self.layout,
                sp_indirect,
            }
            .as_str(),
            None => self.layout.as_str(),
        }
    }

    /// The encoding, if no kernel's version says what `ORC_REG_SP_INDIRECT` means.
    pub fn encoding(self) -> Encoding {
        let named = Encoding::ALL.into_iter();
        let mut named = named.filter(|encoding| encoding.as_str() == self.as_str());
        named
            .next()
            .unwrap_or_else(|| Encoding::since_5_12(self.layout))
    }

    /// The layout of this name. 5.12 has the bits of 4.14 and another `ORC_REG_SP_INDIRECT`; of all
    /// others the kernel's version tells what that means.
    pub fn from_name(name: &str) -> Option<ToldLayout> {
        let found = Encoding::ALL.into_iter().find(|e| e.as_str() == name)?;
        let is_plain = Layout::from_name(name).is_some();
        Some(ToldLayout {
            layout: found.layout,
            sp_indirect: (!is_plain).then_some(found.sp_indirect),
        })
    }
}

/// How the encoding of a table was determined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodingSource {
    /// The user specified it.
    Told,
    /// The hash in `.orc_header`.
    Header,
    /// By the kernel's version; all entries are valid in its encoding.
    Version,
    /// By the entries: this encoding fits them best.
    Entries,
}

impl EncodingSource {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            EncodingSource::Told => "as told",
            EncodingSource::Header => "by .orc_header",
            EncodingSource::Version => "by the kernel's version",
            EncodingSource::Entries => "by its entries",
        }
    }
}

/// The encoding of the ORC table in `parts`; `None` if there is no table or no encoding fits.
///
/// # Errors
/// If its sections are inconsistent, or are those of another layout than the user named.
pub(super) fn encoding(
    parts: &ImageParts,
    version: Option<&str>,
    told: Option<&ToldLayout>,
) -> Result<Option<(Encoding, EncodingSource)>, KernelErrorKind> {
    let section = |kind| parts.sections.iter().find(|s| s.kind == kind);
    let (Some(entries), Some(ips)) = (
        section(SectionKind::OrcUnwind),
        section(SectionKind::OrcUnwindIp),
    ) else {
        return Ok(None);
    };

    let table = Table::new(&entries.data, &ips.data, ips.address).map_err(KernelErrorKind::Orc)?;
    let by_version = version.and_then(Encoding::from_kernel_version);
    // The table does not tell what SP_INDIRECT means.
    let sp_indirect = by_version.map_or(SpIndirect::LoadThenAdd, |e| e.sp_indirect);

    let encoding = |layout, source| {
        let encoding = Encoding {
            layout,
            sp_indirect,
        };
        Ok(Some((encoding, source)))
    };

    let header = section(SectionKind::OrcHeader);
    // `.orc_header` has a hash of the entry's layout (`scripts/orc_hash.sh`).
    let by_header = header.and_then(|h| Layout::from_hash(&h.data));

    // What the user says must at least fit.
    if let Some(told) = told {
        if let Some(fits) = orc::other_than(&table, header, told.layout) {
            let told = told.as_str();
            return Err(KernelErrorKind::OrcLayout { told, fits });
        }
        let encoding = Encoding {
            layout: told.layout,
            sp_indirect: told.sp_indirect.unwrap_or(sp_indirect),
        };
        return Ok(Some((encoding, EncodingSource::Told)));
    }

    if let Some(layout) = by_header {
        return encoding(layout, EncodingSource::Header);
    }
    // A distribution may have backported a later layout.
    if let Some(by_version) = by_version
        && table.is_valid(by_version.layout)
    {
        return encoding(by_version.layout, EncodingSource::Version);
    }

    match orc::by_entries(&table) {
        Some(layout) => encoding(layout, EncodingSource::Entries),
        None => Ok(None),
    }
}
