//! The header of a case: its `#! key: value` lines.
//!
//! This module defines the keys, their allowed values and their defaults.

use super::error::CaseErrorKind;
use super::matrix;
use super::operand::{Corruption, Forgotten, is_symbol, parse_number};
use super::sample::{Chain, PointKey};
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;

/// All keys, in the order in which a case should have them.
pub const KEYS: [&str; 22] = [
    "claim",
    "source",
    "group",
    "right",
    "wrong",
    "covers",
    "link",
    "cflags",
    "assembler",
    "regs",
    "config",
    "view",
    "tables",
    "inject",
    "memory",
    "set",
    "forget",
    "truth-unknown-max",
    "not-emulated",
    "machine",
    "interrupt",
    "nmi",
];

/// The required keys.
pub(crate) const REQUIRED: &str = "claim, source, group, and right or wrong";

/// The memory that a walk can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The whole stack, including below rsp.
    #[default]
    Cpu,
    /// A copy from rsp to the end of the stack.
    Copy,
    /// A copy of this many bytes from rsp.
    CopyBytes(u64),
}

/// What kind of program a case is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// `process`: a Linux program.
    #[default]
    Process,
    /// `kernel`: a small kernel, which runs in ring 0 of the emulated machine.
    Kernel,
}

/// When an interrupt or an NMI is delivered to a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// `before LABEL`: once, when the label is first reached.
    Before(String),
    /// `every in LABEL: CHAIN`: at every sample point in turn. The sample is then taken at LABEL in
    /// the handler, and afterwards the state is restored.
    Every {
        /// The label in the handler.
        inside: String,
        /// The frames of the handler at the label, which are inside the frames of the sample point.
        chain: Chain,
    },
}

/// An unwind table in the case's binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `.eh_frame`.
    EhFrame,
    /// `.debug_frame`.
    DebugFrame,
    /// `.sframe`.
    Sframe,
    /// `.orc_unwind` and `.orc_unwind_ip`.
    Orc,
}

/// The kind of an injected table defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// `offset`: a CFA offset is wrong.
    Offset,
    /// `register`: the CFA uses the wrong base register.
    Register,
    /// `missing-row`: a row is absent, and the one before it continues.
    MissingRow,
    /// `late-row`: a row starts some bytes late.
    LateRow,
    /// `wrong-slot`: a callee-saved register is read from the wrong slot.
    WrongSlot,
    /// `wrong-ra-slot`: the return address is read from the wrong slot.
    WrongRaSlot,
}

impl Defect {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Offset,
        Self::Register,
        Self::MissingRow,
        Self::LateRow,
        Self::WrongSlot,
        Self::WrongRaSlot,
    ];

    /// The name in the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Offset => "offset",
            Self::Register => "register",
            Self::MissingRow => "missing-row",
            Self::LateRow => "late-row",
            Self::WrongSlot => "wrong-slot",
            Self::WrongRaSlot => "wrong-ra-slot",
        }
    }
}

/// An injected defect: present when the file is assembled with `--defsym DEFECT=1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inject {
    /// The kind of defect.
    pub kind: Defect,
    /// A label whose address is covered by the wrong row.
    pub label: String,
    /// If no walk can distinguish the wrong table from the right one, why.
    pub equivalent: Option<String>,
}

/// One restriction of a claim: a reason, a sample point, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimArg {
    /// The reason; present in every argument of `wrong:`, and in none of `right:`.
    pub code: Option<Code>,
    /// The sample point; if absent, every point (`right`) or some point (`wrong`).
    pub at: Option<PointKey>,
}

/// What the author claims of an unwinder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The unwinder as on the command line: `NAME[:PROFILE][+FALLBACK]`.
    pub unwinder: String,
    /// The start; if absent, every start in `regs:`.
    pub start: Option<Variant>,
    /// The restrictions; if empty, every sample point.
    pub args: Vec<ClaimArg>,
}

/// The form of a claim, for messages.
const RIGHT_FORM: &str = "`right: NAME[@START]` or `right: NAME(at LABEL, at LABEL)`";
const WRONG_FORM: &str = "`wrong: NAME[@START](USnnn)` or `wrong: NAME(USnnn at LABEL)`";

impl Claim {
    /// Reads the items of a `right:` or `wrong:` line.
    pub(crate) fn parse_list(is_wrong: bool, text: &str) -> Result<Vec<Self>, CaseErrorKind> {
        let form = if is_wrong { WRONG_FORM } else { RIGHT_FORM };
        let mut claims = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            // An item is a name, perhaps with `@START`, and perhaps arguments in parentheses.
            let head_end = rest.find([' ', '\t', '(']).unwrap_or(rest.len());
            let (head, tail) = rest.split_at(head_end);
            let bad = |what| CaseErrorKind::BadClaim {
                item: head.to_owned(),
                what,
                form,
            };

            // Arguments contain blanks (`at LABEL`), so only the parenthesis ends them.
            let args = match tail.strip_prefix('(') {
                Some(tail) => {
                    let (args, tail) = tail
                        .split_once(')')
                        .ok_or_else(|| bad("has no closing parenthesis"))?;
                    rest = tail.trim_start();
                    let args = args
                        .split(',')
                        .map(|arg| ClaimArg::parse(is_wrong, arg.trim(), form));
                    args.collect::<Result<Vec<_>, _>>()?
                }
                None => {
                    rest = tail.trim_start();
                    Vec::new()
                }
            };

            // What an unwinder gets wrong must have a reason.
            if is_wrong && args.is_empty() {
                return Err(bad("has no reason code"));
            }

            // Without a start, the claim holds for each one in `regs:`.
            let (unwinder, start) = match head.split_once('@') {
                Some((unwinder, start)) => (
                    unwinder,
                    Some(parse_start(start).ok_or_else(|| bad("names an unknown start"))?),
                ),
                None => (head, None),
            };

            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b":+-".contains(&b);
            if unwinder.is_empty() || !unwinder.bytes().all(plain) {
                return Err(bad("is not an unwinder"));
            }

            claims.push(Self {
                unwinder: unwinder.to_owned(),
                start,
                args,
            });
        }
        Ok(claims)
    }
}

impl ClaimArg {
    fn parse(is_wrong: bool, text: &str, form: &'static str) -> Result<Self, CaseErrorKind> {
        let bad = |what| CaseErrorKind::BadClaim {
            item: text.to_owned(),
            what,
            form,
        };
        let (code, at) = match text.strip_prefix("at ") {
            Some(at) => ("", Some(at)),
            None => match text.split_once(" at ") {
                Some((code, at)) => (code.trim(), Some(at)),
                None => (text, None),
            },
        };
        let code = match (is_wrong, code) {
            (true, "") => return Err(bad("has no reason code")),
            (true, code) => Some(parse_code(code)?),
            (false, "") => None,
            (false, _) => return Err(bad("is not a sample point")),
        };
        let at = at.map(|at| PointKey::parse(at.trim())).transpose()?;
        Ok(Self { code, at })
    }
}

fn parse_code(text: &str) -> Result<Code, CaseErrorKind> {
    matrix::parse_code(text).ok_or_else(|| CaseErrorKind::BadCode {
        code: text.to_owned(),
    })
}

/// Reads a start by its full name; `fake` alone is ambiguous.
fn parse_start(text: &str) -> Option<Variant> {
    Variant::from_name(text).filter(|start| start.as_str() == text)
}

/// The header of a case. Repeated keys are joined in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// `claim`: what the case proves, one sentence.
    pub claim: String,
    /// `source`: where the situation is documented or was observed; must be public.
    pub sources: Vec<String>,
    /// `group`: the folder below `corpus/cases`.
    pub group: String,
    /// `link`: flags for `cc`.
    pub link: Vec<String>,
    /// `cflags`: flags for assembling.
    pub cflags: Vec<String>,
    /// `right`: unwinders that must give the true chain.
    pub right: Vec<Claim>,
    /// `wrong`: unwinders that cannot, and why.
    pub wrong: Vec<Claim>,
    /// `covers`: the codes that this case is an example of.
    pub covers: Vec<Code>,
    /// `regs`: the starts.
    pub regs: Vec<Variant>,
    /// `config: FRAME_POINTER=y`: fake registers come from a kernel with frame pointers.
    pub frame_pointer_config: bool,
    /// `view`.
    pub view: View,
    /// `tables`; empty for `none`.
    pub tables: Vec<Table>,
    /// `assembler`: the version of the only GNU assembler whose rows the case is about.
    pub assembler: Option<String>,
    /// `inject`.
    pub inject: Option<Inject>,
    /// `memory` and `set`, in the order of the file.
    pub corruptions: Vec<Corruption>,
    /// `forget`, in the order of the file.
    pub forgotten: Vec<Forgotten>,
    /// `truth-unknown-max`: the maximum number of instructions at which the tracker may not know
    /// the truth.
    pub truth_unknown_max: u64,
    /// `not-emulated`: why the emulated machine cannot run it.
    pub not_emulated: Option<String>,
    /// `machine`.
    pub machine: Machine,
    /// `interrupt`.
    pub interrupt: Option<Delivery>,
    /// `nmi`.
    pub nmi: Option<Delivery>,
}

impl Default for Header {
    fn default() -> Self {
        // The program is the case alone, at its link addresses, and has no library or loader around
        // it.
        let link = ["-nostdlib", "-static", "-no-pie"];
        Self {
            claim: String::new(),
            sources: Vec::new(),
            group: String::new(),
            link: link.map(str::to_owned).to_vec(),
            cflags: Vec::new(),
            assembler: None,
            right: Vec::new(),
            wrong: Vec::new(),
            covers: Vec::new(),
            regs: vec![Variant::Hardware],
            frame_pointer_config: false,
            view: View::default(),
            tables: vec![Table::EhFrame],
            inject: None,
            corruptions: Vec::new(),
            forgotten: Vec::new(),
            truth_unknown_max: 0,
            not_emulated: None,
            machine: Machine::default(),
            interrupt: None,
            nmi: None,
        }
    }
}

impl Header {
    /// Sets one key. `value` is trimmed and not empty.
    ///
    /// # Errors
    /// If there is no such key, or it cannot have this value.
    pub(crate) fn set(&mut self, key: &'static str, value: &str) -> Result<(), CaseErrorKind> {
        let bad = |value: &str, allowed| {
            let value = value.to_owned();
            CaseErrorKind::BadValue {
                key,
                value,
                allowed,
            }
        };
        match key {
            "claim" => {
                if !value.ends_with('.') {
                    return Err(CaseErrorKind::ClaimNotASentence);
                }
                self.claim = value.to_owned();
            }
            "source" => self.sources.push(value.to_owned()),
            "group" => {
                // It becomes a path below `corpus/cases`, so `/` and `..` must not be possible.
                let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                if !value.bytes().all(plain) {
                    return Err(bad(
                        value,
                        "the name of a folder, in lower-case letters and hyphens",
                    ));
                }
                self.group = value.to_owned();
            }

            // These replace the flags of `Header::default`, for cases that need the C library.
            "link" => self.link = words(value),
            "cflags" => self.cflags = words(value),
            "assembler" => {
                // With another version the case is not built: its rows would not be those it is
                // about.
                let is_version = value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                if !is_version {
                    return Err(bad(value, "a version of the GNU assembler, such as 2.40"));
                }
                self.assembler = Some(value.to_owned());
            }
            "right" => self.right = Claim::parse_list(false, value)?,
            "wrong" => self.wrong = Claim::parse_list(true, value)?,
            "covers" => {
                self.covers = value
                    .split_whitespace()
                    .map(parse_code)
                    .collect::<Result<_, _>>()?;
            }
            "regs" => {
                let allowed =
                    "hw, fake:v5.1, fake:v3-2019, fake:v5.2, fake:always-ip, separated by blanks";

                // Only full names: `fake` alone could be the fake registers of any kernel.
                let start = |word| parse_start(word).ok_or_else(|| bad(word, allowed));
                self.regs = value
                    .split_whitespace()
                    .map(start)
                    .collect::<Result<_, _>>()?;
            }
            "config" => {
                // Written as in a kernel's `.config`, without `CONFIG_`.
                self.frame_pointer_config = match value {
                    "FRAME_POINTER=y" => true,
                    "FRAME_POINTER=n" => false,
                    _ => return Err(bad(value, "FRAME_POINTER=y, FRAME_POINTER=n")),
                }
            }
            "view" => self.view = parse_view(value).ok_or_else(|| bad(value, VIEWS))?,
            "tables" => self.tables = parse_tables(value).map_err(|word| bad(word, TABLES))?,
            "inject" => self.inject = Some(parse_inject(value)?),
            "memory" | "set" => {
                // Both keys share a list, which keeps the order of the file.
                self.corruptions
                    .push(Corruption::parse(key == "memory", value)?);
            }
            "not-emulated" => self.not_emulated = Some(value.to_owned()),
            "forget" => self.forgotten.push(Forgotten::parse(value)?),
            "machine" => {
                self.machine = match value {
                    "process" => Machine::Process,
                    "kernel" => Machine::Kernel,
                    _ => return Err(bad(value, "process, kernel")),
                }
            }
            "interrupt" => {
                self.interrupt = Some(parse_delivery(value).ok_or_else(|| bad(value, DELIVERIES))?);
            }
            "nmi" => self.nmi = Some(parse_delivery(value).ok_or_else(|| bad(value, DELIVERIES))?),
            "truth-unknown-max" => {
                self.truth_unknown_max =
                    parse_number(value).ok_or_else(|| bad(value, "a number of instructions"))?;
            }
            // A key that is added to `KEYS` alone sets nothing.
            _ => {
                let key = key.to_owned();
                return Err(CaseErrorKind::UnknownKey { key });
            }
        }

        Ok(())
    }

    /// The delivery at every sample point, if there is one: whether it is an NMI, the label in the
    /// handler, and the frames there.
    pub fn every(&self) -> Option<(bool, &str, &Chain)> {
        let both = [(false, &self.interrupt), (true, &self.nmi)];
        both.into_iter()
            .find_map(|(is_nmi, delivery)| match delivery {
                Some(Delivery::Every { inside, chain }) => Some((is_nmi, inside.as_str(), chain)),
                _ => None,
            })
    }

    /// What conflicts with the kind of machine that the case runs in.
    pub(crate) fn machine_mismatch(&self) -> Option<&'static str> {
        let every = |delivery: &Option<Delivery>| matches!(delivery, Some(Delivery::Every { .. }));
        match self.machine {
            Machine::Process if self.interrupt.is_some() || self.nmi.is_some() => {
                Some("an interrupt without `machine: kernel`")
            }
            Machine::Kernel if self.inject.is_some() || self.not_emulated.is_some() => {
                Some("`inject` or `not-emulated` with `machine: kernel`")
            }
            _ if every(&self.interrupt) && every(&self.nmi) => {
                Some("an interrupt and an NMI at every sample point")
            }
            _ => None,
        }
    }

    /// The first required key that is absent.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let required = [
            ("claim", self.claim.is_empty()),
            ("source", self.sources.is_empty()),
            ("group", self.group.is_empty()),
            ("right", self.right.is_empty() && self.wrong.is_empty()),
        ];
        required
            .into_iter()
            .find(|(_, absent)| *absent)
            .map(|(key, _)| key)
    }
}

const VIEWS: &str = "cpu, copy, copy:BYTES";
const TABLES: &str = "none, or some of eh_frame, debug_frame, sframe, orc";

const DELIVERIES: &str = "before LABEL, every in LABEL: innermost < .. < the handler's entry";

fn parse_delivery(value: &str) -> Option<Delivery> {
    if let Some(label) = value.strip_prefix("before ") {
        let label = label.trim().to_owned();
        return is_symbol(&label).then_some(Delivery::Before(label));
    }
    let (inside, chain) = value.strip_prefix("every in ")?.split_once(':')?;
    let chain = Chain::parse(chain).ok().filter(|chain| chain.complete)?;
    let inside = inside.trim().to_owned();
    is_symbol(&inside).then_some(Delivery::Every { inside, chain })
}

fn words(value: &str) -> Vec<String> {
    value.split_whitespace().map(str::to_owned).collect()
}

fn parse_view(value: &str) -> Option<View> {
    Some(match value {
        "cpu" => View::Cpu,
        "copy" => View::Copy,
        _ => View::CopyBytes(parse_number(value.strip_prefix("copy:")?)?),
    })
}

fn parse_tables(value: &str) -> Result<Vec<Table>, &str> {
    if value == "none" {
        return Ok(Vec::new());
    }
    let table = |word| match word {
        "eh_frame" => Ok(Table::EhFrame),
        "debug_frame" => Ok(Table::DebugFrame),
        "sframe" => Ok(Table::Sframe),
        "orc" => Ok(Table::Orc),
        _ => Err(word),
    };
    value.split_whitespace().map(table).collect()
}

fn parse_inject(value: &str) -> Result<Inject, CaseErrorKind> {
    let allowed = "KIND at LABEL [equivalent: WHY], with KIND one of offset, register, \
                   missing-row, late-row, wrong-slot, wrong-ra-slot";
    let bad = || CaseErrorKind::BadValue {
        key: "inject",
        value: value.to_owned(),
        allowed,
    };

    let (kind, rest) = value.split_once(" at ").ok_or_else(bad)?;
    let kind = Defect::ALL
        .into_iter()
        .find(|defect| defect.as_str() == kind.trim());

    // The reason is free text, so it goes to the end of the line.
    let (label, equivalent) = match rest.split_once(" equivalent:") {
        Some((label, why)) => (label.trim(), Some(why.trim())),
        None => (rest.trim(), None),
    };

    // Without a reason, any defect that the check misses could be called equivalent.
    if !is_symbol(label) || equivalent.is_some_and(str::is_empty) {
        return Err(bad());
    }

    Ok(Inject {
        kind: kind.ok_or_else(bad)?,
        label: label.to_owned(),
        equivalent: equivalent.map(str::to_owned),
    })
}
