//! Determines the encoding of a kernel's or module's ORC entries.

use super::error::KernelErrorKind;
use unwind_sim_unwind::image::{ImageParts, SectionKind};
use unwind_sim_unwind::orc::{self, Encoding, Layout, SpIndirect, Table};

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
/// If its sections are inconsistent.
pub(super) fn encoding(
    parts: &ImageParts,
    version: Option<&str>,
    told: Option<Layout>,
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
    if let Some(layout) = told {
        return encoding(layout, EncodingSource::Told);
    }
    let header = section(SectionKind::OrcHeader);
    if let Some(layout) = header.and_then(|h| Layout::from_hash(&h.data)) {
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
