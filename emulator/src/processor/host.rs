//! The host's processor, and the processor that the machine emulates.

use super::{ParseError, Processor};
use std::fmt;

/// A computer's processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Vendor, as named by `cpuid`.
    pub vendor: String,
    /// Family, from `/proc/cpuinfo`; 0 if unknown.
    pub family: u32,
    /// Model, from `/proc/cpuinfo`; 0 if unknown.
    pub model: u32,
    /// The processor that the machine must emulate to be compared with the host.
    pub processor: Processor,
}

impl Host {
    /// Parses the text of `/proc/cpuinfo`.
    pub fn of_cpuinfo(text: &str) -> Host {
        let field = |name: &str| {
            let fields = text.lines().filter_map(|line| line.split_once(':'));
            let mut fields = fields.filter(|(key, _)| key.trim() == name);
            fields.next().map_or("", |(_, value)| value.trim())
        };
        Host {
            vendor: field("vendor_id").to_owned(),
            family: field("cpu family").parse().unwrap_or(0),
            model: field("model").parse().unwrap_or(0),
            processor: Processor::of_cpuinfo(text),
        }
    }
}

/// Shows vendor, family, model, and the emulated processor that corresponds to it.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendor = match self.vendor.as_str() {
            "" => "unknown vendor",
            vendor => vendor,
        };
        let (family, model) = (self.family, self.model);
        write!(f, "{vendor}, family {family}, model {model}, ")?;
        write!(f, "compared as {}", self.processor)
    }
}

/// The host's processor. Without `/proc/cpuinfo`, `v2,intel` is assumed.
pub fn host() -> Host {
    Host::of_cpuinfo(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// Parses `LEVEL[,VENDOR[:GENERATION]][,±FEATURE..]`. `host` can stand for level and vendor.
///
/// # Errors
/// If the text has another form.
pub fn parse(text: &str) -> Result<Processor, ParseError> {
    Processor::parse(text, || host().processor)
}
