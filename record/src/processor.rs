//! The processor of this computer, and which one the machine is to be.

use std::fmt;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::processor::ParseError;

/// A computer's processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// As `cpuid` names it.
    pub vendor: String,
    /// As `/proc/cpuinfo` gives it; 0 if it does not.
    pub family: u32,
    /// The same.
    pub model: u32,
    /// What the machine has to be, to be compared with it.
    pub processor: Processor,
}

impl Host {
    /// From the text of a `/proc/cpuinfo`.
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

/// Vendor, family, model, and the processor that stands for it.
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

/// This computer's processor. Where there is no `/proc/cpuinfo`, it is taken for the default.
pub fn host() -> Host {
    Host::of_cpuinfo(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// Reads `LEVEL[,VENDOR[:GENERATION]][,±FEATURE..]`, where `host` can stand for level and vendor.
///
/// # Errors
/// If the text is something else.
pub fn parse(text: &str) -> Result<Processor, ParseError> {
    Processor::parse(text, || host().processor)
}
