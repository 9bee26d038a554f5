//! The message for an instruction that is not modelled: the instruction, its extension, and what to
//! do.

use iced_x86::{CpuidFeature, Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
use std::fmt;

/// An instruction at which a run ended because it is not modelled.
#[derive(Clone, Debug)]
pub struct Unsupported<'a> {
    rip: u64,
    bytes: &'a [u8],
    place: Option<&'a str>,
}

/// What the missing instruction belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// AVX and instructions encoded like it: programs can do without.
    Vector,
    /// Another extension of the processor.
    Extension,
    /// `int 0x80`.
    Calls32,
    /// Not a known instruction.
    Unknown,
}

impl<'a> Unsupported<'a> {
    /// Describes the instruction at `rip`.
    pub fn of(rip: u64, bytes: &'a [u8]) -> Unsupported<'a> {
        Unsupported {
            rip,
            bytes,
            place: None,
        }
    }

    /// Adds the function that contains the instruction, and the offset in it.
    pub fn within(self, place: &'a str) -> Unsupported<'a> {
        Unsupported {
            place: Some(place),
            ..self
        }
    }

    fn decode(&self) -> Instruction {
        Decoder::with_ip(64, self.bytes, self.rip, DecoderOptions::NONE).decode()
    }

    /// The mnemonic; empty if there is no such instruction.
    pub fn mnemonic(&self) -> String {
        let instruction = self.decode();
        let mut out = String::new();
        if !instruction.is_invalid() {
            GasFormatter::new().format_mnemonic(&instruction, &mut out);
        }
        out
    }

    fn kind(&self) -> Kind {
        let instruction = self.decode();
        let is_vector = |feature: &CpuidFeature| {
            let name = format!("{feature:?}");
            name.starts_with("AVX") || matches!(&name[..], "FMA" | "FMA4" | "F16C" | "XOP")
        };
        match instruction.cpuid_features() {
            _ if instruction.is_invalid() => Kind::Unknown,
            _ if self.bytes.starts_with(&[0xcd, 0x80]) => Kind::Calls32,
            features if features.iter().any(is_vector) => Kind::Vector,
            _ => Kind::Extension,
        }
    }
}

impl fmt::Display for Unsupported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let features = self.decode();
        let features: Vec<String> = features
            .cpuid_features()
            .iter()
            .map(|feature| format!("{feature:?}"))
            .collect();

        // iced names more than one if an instruction needs all of them.
        let features = features.join(" and ");

        match (self.kind(), self.mnemonic()) {
            (Kind::Vector, name) => write!(f, "{name}: {features} is not modelled")?,
            (Kind::Calls32, name) => write!(
                f,
                "{name}: system calls of 32-bit programs are not modelled"
            )?,
            (Kind::Extension, name) => write!(f, "{name} ({features}) is not modelled")?,
            (Kind::Unknown, _) => write!(f, "these bytes are not a modelled instruction")?,
        }

        if let Some(place) = self.place {
            write!(f, ", in {place}")?;
        }

        write!(f, ", at {:#x}:", self.rip)?;

        // The bytes, since what cannot be decoded has no other name.
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, " {byte:02x}"))?;

        match self.kind() {
            Kind::Vector => write!(
                f,
                "; cpuid does not report it: if the program chose this code by the processor's model, \
                 choose another one (--cpu v2, v3,intel or v3,amd); otherwise build the program for \
                 x86-64-v2 (-march=x86-64-v2), or make its library use other code \
                 (GLIBC_TUNABLES=glibc.cpu.hwcaps=...)"
            ),
            _ => Ok(()),
        }
    }
}
