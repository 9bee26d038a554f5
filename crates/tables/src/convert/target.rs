//! The formats that a table can be converted to, and their names.

use unwind_sim_unwind::orc::{Encoding, Layout};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe::Version;

/// A format that can be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// `.sframe` of this version.
    Sframe(Version),
    /// ORC in this encoding.
    Orc(Encoding),
    /// `.eh_frame` and `.eh_frame_hdr`.
    EhFrame,
}

impl Target {
    /// All of them; ORC once for each meaning of its entries.
    pub const ALL: [Target; 9] = [
        Target::Sframe(Version::V1),
        Target::Sframe(Version::V2),
        Target::Sframe(Version::V3),
        Target::Orc(Encoding::ALL[0]),
        Target::Orc(Encoding::ALL[1]),
        Target::Orc(Encoding::ALL[2]),
        Target::Orc(Encoding::ALL[3]),
        Target::Orc(Encoding::ALL[4]),
        Target::EhFrame,
    ];

    /// The stable name; an ORC encoding is named after the first kernel that used it.
    pub fn as_str(self) -> &'static str {
        match self {
            Target::Sframe(Version::V1) => "sframe-v1",
            Target::Sframe(Version::V2) => "sframe-v2",
            Target::Sframe(Version::V3) => "sframe-v3",
            Target::Orc(encoding) => match encoding.as_str() {
                "4.14" => "orc:4.14",
                "5.12" => "orc:5.12",
                "6.3" => "orc:6.3",
                "6.4" => "orc:6.4",
                _ => "orc:7.1",
            },
            Target::EhFrame => "eh_frame",
        }
    }

    /// The format with this name; `orc` alone is that of Linux 6.4 to 7.0.
    pub fn from_name(name: &str) -> Option<Target> {
        if name == "orc" {
            return Some(Target::Orc(Encoding::since_5_12(Layout::V6_4)));
        }
        Self::ALL.into_iter().find(|target| target.as_str() == name)
    }

    /// The kind of table.
    pub const fn kind(self) -> TableKind {
        match self {
            Target::Sframe(_) => TableKind::Sframe,
            Target::Orc(_) => TableKind::Orc,
            Target::EhFrame => TableKind::EhFrame,
        }
    }
}
