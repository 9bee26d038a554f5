//! Feature sections: properties of the machine and the recording.
//!
//! Layouts: `tools/perf/util/header.c` (Linux 7.2). Sections are parsed on demand.

use super::error::PerfError;
use super::le::{self, Cursor};
use super::walk::misc;

/// Numbers of feature sections (`enum perf_header_feature`).
#[allow(missing_docs, reason = "the names are those of perf's header")]
pub mod feature {
    pub const TRACING_DATA: u8 = 1;
    pub const BUILD_ID: u8 = 2;
    pub const HOSTNAME: u8 = 3;
    pub const OSRELEASE: u8 = 4;
    pub const VERSION: u8 = 5;
    pub const ARCH: u8 = 6;
    pub const NRCPUS: u8 = 7;
    pub const CPUDESC: u8 = 8;
    pub const CPUID: u8 = 9;
    pub const TOTAL_MEM: u8 = 10;
    pub const CMDLINE: u8 = 11;
    pub const EVENT_DESC: u8 = 12;
    pub const AUXTRACE: u8 = 18;
    pub const SAMPLE_TIME: u8 = 21;
    pub const CLOCKID: u8 = 23;
    pub const COMPRESSED: u8 = 27;
    pub const CPU_PMU_CAPS: u8 = 28;
    pub const CLOCK_DATA: u8 = 29;
}

/// The same moment on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// `clockid` of the times in samples.
    pub clock_id: i32,
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
    /// Nanoseconds of that clock.
    pub clock_ns: u64,
}

/// The build ID of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildId<'a> {
    /// -1 for files of the host, otherwise the guest's process.
    pub pid: i32,
    /// Is it a kernel image or module (cpumode of the record)?
    pub kernel: bool,
    /// The build ID, at most 20 bytes; shorter ones written by old tools end in zeros.
    pub id: &'a [u8],
    /// Path, or a name in brackets.
    pub path: &'a [u8],
}

impl<'a> BuildId<'a> {
    /// Reads `pid`, 24 bytes of build ID, and the path.
    pub(crate) fn parse(misc_word: u16, body: &'a [u8], offset: u64) -> Result<Self, PerfError> {
        let mut c = Cursor::new(body, offset + 8, "build id");
        let pid = c.i32()?;
        let id = c.take(24)?;
        let has_size = misc_word & misc::BUILD_ID_SIZE != 0;
        let size = if has_size {
            usize::from(id[20]).min(20)
        } else {
            20
        };
        let cpumode = misc_word & misc::CPUMODE_MASK;
        Ok(Self {
            pid,
            kernel: matches!(cpumode, misc::CPUMODE_KERNEL | misc::CPUMODE_GUEST_KERNEL),
            id: &id[..size],
            path: le::until_nul(c.rest()),
        })
    }
}

/// A name and its value.
pub type NamedValue<'a> = (&'a [u8], &'a [u8]);

/// Parameters of compressed recordings (`HEADER_COMPRESSED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// Compression type; 1 is zstd.
    pub kind: u32,
    /// Requested level.
    pub level: u32,
    /// Achieved ratio.
    pub ratio: u32,
    /// Size of a ring buffer, bytes; the maximum that a compressed record unpacks to.
    pub mmap_len: u32,
}

/// An event described by `HEADER_EVENT_DESC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDesc<'a> {
    /// Its attribute, as in the file.
    pub attr: &'a [u8],
    /// The event's name as the recorder wrote it.
    pub name: &'a [u8],
    /// IDs of the event.
    pub ids: Vec<u64>,
}

/// The feature sections of a file.
#[derive(Clone, Debug, Default)]
pub struct Features<'a> {
    /// (number, file offset, bytes), in file order.
    sections: Vec<(u8, u64, &'a [u8])>,
}

impl<'a> Features<'a> {
    pub(crate) fn push(&mut self, number: u8, offset: u64, bytes: &'a [u8]) {
        self.sections.push((number, offset, bytes));
    }

    /// Numbers of the existing sections, in file order.
    pub fn numbers(&self) -> impl Iterator<Item = u8> + '_ {
        self.sections.iter().map(|section| section.0)
    }

    /// The bytes of section `number`.
    pub fn section(&self, number: u8) -> Option<&'a [u8]> {
        self.cursor(number).map(|cursor| cursor.rest())
    }

    fn cursor(&self, number: u8) -> Option<Cursor<'a>> {
        let section = self
            .sections
            .iter()
            .rev()
            .find(|section| section.0 == number)?;
        Some(Cursor::new(section.2, section.1, "feature section"))
    }

    fn read<T>(
        &self,
        number: u8,
        read: impl FnOnce(&mut Cursor<'a>) -> Result<T, PerfError>,
    ) -> Result<Option<T>, PerfError> {
        self.cursor(number)
            .map(|mut cursor| read(&mut cursor))
            .transpose()
    }

    /// A section that consists of one string: [`feature::HOSTNAME`], [`feature::OSRELEASE`],
    /// [`feature::VERSION`], [`feature::ARCH`], [`feature::CPUDESC`], [`feature::CPUID`].
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn string(&self, number: u8) -> Result<Option<&'a [u8]>, PerfError> {
        self.read(number, string)
    }

    /// The recording command, one entry for each argument.
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn command_line(&self) -> Result<Option<Vec<&'a [u8]>>, PerfError> {
        self.read(feature::CMDLINE, |c| {
            let count = c.u32()?;
            (0..count).map(|_| string(c)).collect()
        })
    }

    /// Number of CPUs (configured, online).
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn cpus(&self) -> Result<Option<(u32, u32)>, PerfError> {
        self.read(feature::NRCPUS, |c| Ok((c.u32()?, c.u32()?)))
    }

    /// Times of the first and the last sample, nanoseconds.
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn sample_time(&self) -> Result<Option<(u64, u64)>, PerfError> {
        self.read(feature::SAMPLE_TIME, |c| Ok((c.u64()?, c.u64()?)))
    }

    /// A time of the event clock, and the wall clock's at that moment (`perf record -k`).
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn clock_data(&self) -> Result<Option<ClockData>, PerfError> {
        self.read(feature::CLOCK_DATA, |c| {
            let _version = c.u32()?;
            let clock_id = c.u32()?.cast_signed();
            let (wall_ns, clock_ns) = (c.u64()?, c.u64()?);
            Ok(ClockData {
                clock_id,
                wall_ns,
                clock_ns,
            })
        })
    }

    /// Parameters of compression.
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn compression(&self) -> Result<Option<Compression>, PerfError> {
        self.read(feature::COMPRESSED, |c| {
            let _version = c.u32()?;
            let (kind, level, ratio, mmap_len) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
            Ok(Compression {
                kind,
                level,
                ratio,
                mmap_len,
            })
        })
    }

    /// Number of entries in a ring of branch records: `branches` of [`Features::cpu_pmu_caps`].
    pub fn branch_records(&self) -> Option<u32> {
        let caps = self.cpu_pmu_caps().ok()??;
        let (_, depth) = caps.into_iter().find(|(name, _)| *name == b"branches")?;
        std::str::from_utf8(depth).ok()?.parse().ok()
    }

    /// Capabilities of the core PMU as (name, value), for example `branches` = `32`.
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn cpu_pmu_caps(&self) -> Result<Option<Vec<NamedValue<'a>>>, PerfError> {
        self.read(feature::CPU_PMU_CAPS, |c| {
            let count = c.u32()?;
            (0..count).map(|_| Ok((string(c)?, string(c)?))).collect()
        })
    }

    /// Names and IDs of the events.
    ///
    /// # Errors
    /// If the section is truncated.
    pub fn events(&self) -> Result<Option<Vec<EventDesc<'a>>>, PerfError> {
        self.read(feature::EVENT_DESC, |c| {
            let (count, attr_size) = (c.u32()?, c.u32()?);
            let event = |_| {
                let attr = c.take(attr_size as usize)?;
                let ids = c.u32()?;
                let name = string(c)?;
                let ids = c.take_many(ids.into(), 8)?;
                let ids = ids
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .map(|id| u64::from_le_bytes(*id));
                Ok(EventDesc {
                    attr,
                    name,
                    ids: ids.collect(),
                })
            };
            (0..count).map(event).collect()
        })
    }

    /// The entries of the build-ID section, in file order.
    pub(crate) fn build_ids(&self) -> impl Iterator<Item = Result<BuildId<'a>, PerfError>> + 'a {
        let section = self
            .sections
            .iter()
            .find(|section| section.0 == feature::BUILD_ID);
        let (offset, bytes) = section.map_or((0, &[][..]), |section| (section.1, section.2));
        super::walk::Records::new(bytes, offset)
            .map(|record| record.and_then(|raw| BuildId::parse(raw.misc, raw.body, raw.offset)))
    }
}

/// A string: its padded length, then its bytes up to a NUL.
fn string<'a>(c: &mut Cursor<'a>) -> Result<&'a [u8], PerfError> {
    let length = c.u32()?;
    c.take(length as usize).map(le::until_nul)
}
