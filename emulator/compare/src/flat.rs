//! Runs bare code in the emulated machine: bytes at an address, without a program or kernel. For
//! external conformance suites, which set the state at the start and compare the whole state at the
//! end with theirs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use unwind_sim_emulator::address_space::PAGE_SIZE;
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Core, Exit, Machine, MapError, Permissions, Processor};

/// The default limit of instructions.
pub const INSTRUCTIONS_MAX: u64 = 100_000_000;
/// The most bytes that one case may map or dump.
const BYTES_MAX: u64 = 1 << 30;

/// Errors in a case.
#[derive(Debug, thiserror::Error)]
pub enum FlatError {
    /// Not a number.
    #[error("{what}: `{text}` is not a number such as 0x1f or 31")]
    Number {
        /// What the number is for.
        what: &'static str,
        /// The text found.
        text: String,
    },
    /// Not bytes in hex.
    #[error("{what}: `{text}` is not hex bytes such as 90c3")]
    Hex {
        /// What the bytes are for.
        what: &'static str,
        /// The text found.
        text: String,
    },
    /// There is no such register.
    #[error(
        "set: no register `{0}`; there are rax to r15, rip, rflags, fs_base, gs_base, xmm0 to xmm15, \
         ymm0 to ymm15, mxcsr, st0 to st7, fcw, fsw, ftw"
    )]
    Register(String),
    /// A value that the register cannot hold.
    #[error("set: {value} is not a valid value for {register}")]
    Value {
        /// The register.
        register: String,
        /// The value.
        value: String,
    },
    /// The memory cannot be mapped.
    #[error("map: {0}")]
    Map(#[from] MapError),
    /// The case would use too much memory.
    #[error("map: {0:#x} bytes exceed what a case may map")]
    TooMuch(u64),
    /// The end is neither `hlt` nor an address.
    #[error("until: `{0}` is neither `hlt` nor an address")]
    Until(String),
    /// The case has no code.
    #[error("flat: no code")]
    NoCode,
}

/// Bytes at an address.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// The address.
    pub at: String,
    /// The bytes, in hex.
    pub hex: String,
}

/// A range of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The first address.
    pub at: String,
    /// Size in bytes.
    pub size: String,
}

/// A case. Numbers are decimal, or hex with `0x`. Everything not set is zero, except rflags
/// (0x202), mxcsr (0x1f80) and x87, which is as after finit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Returned with the result.
    #[serde(default)]
    pub id: Option<serde_json::Value>,
    /// Code. Execution starts at the first piece unless rip is set. Its pages are mapped.
    pub flat: Vec<Bytes>,
    /// Memory to map, filled with zeros; rounded out to whole pages.
    #[serde(default)]
    pub map: Vec<Span>,
    /// Contents of memory. Its pages are mapped.
    #[serde(default)]
    pub data: Vec<Bytes>,
    /// Initial registers. `xmmN` is the lower half of `ymmN`; if both are set, `ymmN` counts.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Where execution ends: `hlt`, or the address of the next instruction.
    #[serde(default)]
    pub until: Option<String>,
    /// Maximum number of instructions.
    #[serde(default)]
    pub max_instructions: Option<u64>,
    /// Memory to return at the end.
    #[serde(default)]
    pub dump: Vec<Span>,
}

/// The state at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StateLine {
    schema: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<serde_json::Value>,
    /// Why execution ended: `hlt`, `until`, `limit`, `exception`, `syscall`, `unsupported`.
    end: &'static str,
    /// The exception, or other details of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    instructions: u64,
    /// General registers, rip, rflags, fs_base and gs_base.
    #[serde(flatten)]
    registers: BTreeMap<&'static str, String>,
    /// xmm0 to xmm15.
    xmm: Vec<String>,
    /// ymm0 to ymm15. If absent, all their upper halves are zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    ymm: Option<Vec<String>>,
    mxcsr: String,
    /// st0 to st7: sign and exponent, then the significand.
    st: Vec<String>,
    fcw: String,
    fsw: String,
    /// The whole tag word, as fnstenv stores it.
    ftw: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dump: Vec<DumpLine>,
}

/// Memory at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DumpLine {
    at: String,
    /// The bytes in hex, up to the first unmapped one.
    hex: String,
}

impl StateLine {
    /// Whether execution ended at something that the machine does not model.
    pub fn is_not_modelled(&self) -> bool {
        self.end == "unsupported"
    }
}

const GENERAL: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Parses a number in decimal, or in hex with `0x`.
///
/// # Errors
/// If it is not a number.
pub fn number(what: &'static str, text: &str) -> Result<u64, FlatError> {
    wide(text)
        .and_then(|n| u64::try_from(n).ok())
        .ok_or_else(|| FlatError::Number {
            what,
            text: text.to_owned(),
        })
}

fn wide(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn bytes(what: &'static str, text: &str) -> Result<Vec<u8>, FlatError> {
    let failure = || FlatError::Hex {
        what,
        text: text.chars().take(40).collect(),
    };
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err(failure());
    }
    let digit = |b: u8| char::from(b).to_digit(16).ok_or_else(failure);
    let pair = |pair: &[u8]| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    digits.chunks_exact(2).map(pair).collect()
}

/// Runs a case. `schema` names the format of which the line is a part.
///
/// # Errors
/// If the case is invalid. Whatever its code does is not an error.
pub fn run(
    case: &Case,
    processor: Processor,
    schema: &'static str,
) -> Result<StateLine, FlatError> {
    let mut space = AddressSpace::bare();
    let mut taken = 0;
    let mut map = |space: &mut AddressSpace, at: u64, size: u64| {
        taken += size;

        // Bounds what a case can make the machine allocate.
        if taken > BYTES_MAX {
            return Err(FlatError::TooMuch(taken));
        }

        let end = at.saturating_add(size.max(1)).div_ceil(PAGE_SIZE);
        let mut page = at / PAGE_SIZE;
        let is_free = |space: &AddressSpace, page: u64| space.area(page * PAGE_SIZE).is_none();

        // Pieces may share a page, and mapping it again would clear it.
        while page < end {
            let first = page;
            while page < end && is_free(space, page) {
                page += 1;
            }
            if page > first {
                let range = first * PAGE_SIZE..page.saturating_mul(PAGE_SIZE);
                space.map(range, Permissions::ALL)?;
            }
            page += 1;
        }
        Ok(())
    };

    for span in &case.map {
        let (at, size) = (number("map", &span.at)?, number("map", &span.size)?);
        map(&mut space, at, size)?;
    }

    let mut first = None;
    let pieces = case.flat.iter().map(|piece| ("flat", piece));
    for (what, piece) in pieces.chain(case.data.iter().map(|piece| ("data", piece))) {
        let (at, content) = (number(what, &piece.at)?, bytes(what, &piece.hex)?);
        map(&mut space, at, content.len() as u64)?;
        // The pages have just been mapped.
        let _ = space.poke(at, &content);
        // Execution starts at the first piece of code.
        if what == "flat" {
            first = first.or(Some(at));
        }
    }

    let mut machine = Machine::new(Core::with_processor(space, processor));
    machine.core.state.rip = first.ok_or(FlatError::NoCode)?;

    // Others keep the value that a new machine has.
    for (register, value) in &case.set {
        set(&mut machine.core, register, value)?;
    }

    // `hlt` ends every run, so it needs no address.
    let until = match case.until.as_deref() {
        None | Some("hlt") => None,
        Some(text) => {
            let address = number("until", text);
            Some(address.map_err(|_| FlatError::Until(text.to_owned()))?)
        }
    };
    let limit = case.max_instructions.unwrap_or(INSTRUCTIONS_MAX);
    let (end, what) = execute(&mut machine, until, limit);

    let mut dump = Vec::new();

    // After the run, however it ended: the dump says what was stored until then.
    for span in &case.dump {
        let (at, size) = (number("dump", &span.at)?, number("dump", &span.size)?);
        dump.push(dumped(&machine, at, size.min(BYTES_MAX)));
    }

    Ok(line(case, &machine, schema, end, what, dump))
}

fn execute(
    machine: &mut Machine,
    until: Option<u64>,
    limit: u64,
) -> (&'static str, Option<String>) {
    let exit = match until {
        // Without an address, whole blocks run; with one, which may be inside of a block, single
        // steps.
        None => machine.run(limit, &mut ()),
        Some(address) => loop {
            if machine.core.state.rip == address {
                return ("until", None);
            }
            if machine.executed() >= limit {
                break Exit::Limit;
            }
            match machine.run(1, &mut ()) {
                Exit::Limit => {}
                exit => break exit,
            }
        },
    };

    match exit {
        Exit::Limit => ("limit", None),
        Exit::Halt => ("hlt", None),
        Exit::Kernel(call) => ("syscall", Some(format!("{call:?}"))),
        Exit::Unsupported | Exit::System => ("unsupported", None),
        Exit::Exception(exception) => ("exception", Some(exception.to_string())),
    }
}

fn dumped(machine: &Machine, at: u64, size: u64) -> DumpLine {
    let mut text = String::new();
    let mut address = at;
    while address < at.saturating_add(size) {
        let mut byte = [0];
        if machine.core.memory.peek(address, &mut byte).is_err() {
            break;
        }
        text.push_str(&format!("{:02x}", byte[0]));
        address += 1;
    }
    DumpLine {
        at: hex(at),
        hex: text,
    }
}

/// The number in the name of a register.
fn numbered(register: &str, prefix: &str, count: usize) -> Option<usize> {
    let number: usize = register.strip_prefix(prefix)?.parse().ok()?;
    (number < count).then_some(number)
}

/// Offsets in the FXSAVE image (SDM volume 1, table 10-2).
const FCW: usize = 0;
const FSW: usize = 2;
const FTW: usize = 4;
const ST: usize = 32;

/// Parses a value of a ymm register, and returns its lower half first.
fn halves(text: &str) -> Option<[u128; 2]> {
    const HALF: usize = 32;
    match text.strip_prefix("0x") {
        Some(digits) if digits.len() > HALF && digits.is_ascii() => {
            let (upper, lower) = digits.split_at(digits.len() - HALF);
            // A sign is not a digit.
            let half = |digits: &str| {
                if digits.starts_with('+') {
                    None
                } else {
                    u128::from_str_radix(digits, 16).ok()
                }
            };
            Some([half(lower)?, half(upper)?])
        }
        _ => Some([wide(text)?, 0]),
    }
}

fn set(core: &mut Core, register: &str, text: &str) -> Result<(), FlatError> {
    let bad = || FlatError::Value {
        register: register.to_owned(),
        value: text.to_owned(),
    };

    if let Some(number) = numbered(register, "ymm", 16) {
        let halves = halves(text).ok_or_else(bad)?;
        core.state.vectors.set_ymm(number, halves);
        return Ok(());
    }

    // From here on a value has at most 128 bits; only a ymm register has more.
    let value = wide(text).ok_or_else(bad)?;
    let small = u64::try_from(value).map_err(|_| bad());

    if let Some(number) = GENERAL.iter().position(|name| *name == register) {
        core.state.set_gpr(number, small?);
        return Ok(());
    }
    if let Some(number) = numbered(register, "xmm", 16) {
        core.state.vectors.set_xmm(number, value);
        return Ok(());
    }

    // The x87 state is only accessible as a whole, in the format of `fxsave`.
    let short = u16::try_from(value).map_err(|_| bad());
    let mut image = core.fx_image();

    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    match register {
        "rip" => core.state.rip = small?,
        "rflags" => core.state.set_rflags(small?),
        "fs_base" => core.state.set_gpr(reg::FS, small?),
        "gs_base" => core.state.set_gpr(reg::GS, small?),
        "mxcsr" => {
            // The other bits are reserved: `ldmxcsr` would raise #GP (SDM volume 1).
            let mxcsr = u32::try_from(value).ok().filter(|bits| bits >> 16 == 0);
            core.state.mxcsr = mxcsr.ok_or_else(bad)?;
        }
        "fcw" | "fsw" => {
            put(
                if register == "fcw" { FCW } else { FSW },
                &short?.to_le_bytes(),
            );
            core.set_fx_image(&image).ok_or_else(bad)?;
        }
        "ftw" => {
            let short = short?;
            // `fstenv` has two bits for each register, 3 if it is empty; `fxsave` has one, set if
            // it is not (SDM volume 1).
            let full = |number: u32| u8::from(short >> (2 * number) & 3 != 3) << number;
            put(FTW, &[(0..8).map(full).sum()]);
            core.set_fx_image(&image).ok_or_else(bad)?;
        }
        _ => {
            let number = numbered(register, "st", 8);
            let number = number.ok_or_else(|| FlatError::Register(register.to_owned()))?;

            // An x87 register has 80 bits.
            if value >> 80 != 0 {
                return Err(bad());
            }

            put(ST + 16 * number, &value.to_le_bytes()[..10]);
            // Setting a register marks it as not empty.
            let top = u16::from_le_bytes([image[FSW], image[FSW + 1]]) >> 11 & 7;
            image[FTW] |= 1 << ((number as u16 + top) & 7);
            core.set_fx_image(&image).ok_or_else(bad)?;
        }
    }

    Ok(())
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

fn line(
    case: &Case,
    machine: &Machine,
    schema: &'static str,
    end: &'static str,
    what: Option<String>,
    dump: Vec<DumpLine>,
) -> StateLine {
    let core = &machine.core;
    let general = GENERAL.iter().enumerate();
    let mut registers: BTreeMap<&'static str, String> = general
        .map(|(n, name)| (*name, hex(core.state.gpr(n))))
        .collect();
    registers.insert("rip", hex(core.state.rip));
    registers.insert("rflags", hex(core.state.rflags()));
    registers.insert("fs_base", hex(core.state.gpr(reg::FS)));
    registers.insert("gs_base", hex(core.state.gpr(reg::GS)));

    // The state of x87 is read from the image that `fxsave` would store.
    let image = core.fx_image();
    let short = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);

    // 10 bytes of 16; the others are reserved.
    let st = |number: usize| {
        let mut bytes = [0; 16];
        bytes[..10].copy_from_slice(&image[ST + 16 * number..][..10]);
        u128::from_le_bytes(bytes)
    };

    // `fxsave` stores values by position in the stack, and tags by number of the register.
    let top = usize::from(short(FSW) >> 11 & 7);
    let tag = |physical: usize| match image[FTW] >> physical & 1 {
        0 => 3,
        _ => tag_of(st((physical + 8 - top) % 8)),
    };
    // The full tag word, as `fstenv` stores it.
    let ftw = (0..8).fold(0u16, |word, n| word | tag(n) << (2 * n));

    StateLine {
        schema,
        kind: "state",
        id: case.id.clone(),
        end,
        what,
        instructions: machine.executed(),
        registers,
        xmm: core
            .state
            .vectors
            .lower()
            .iter()
            .map(|x| format!("{x:#034x}"))
            .collect(),
        ymm: ymm(core),
        mxcsr: hex(core.state.mxcsr.into()),
        st: (0..8).map(|n| format!("{:#022x}", st(n))).collect(),
        fcw: hex(short(FCW).into()),
        fsw: hex(short(FSW).into()),
        ftw: hex(ftw.into()),
        dump,
    }
}

/// The ymm registers, if an upper half is not zero.
fn ymm(core: &Core) -> Option<Vec<String>> {
    let all = std::array::from_fn::<_, 16, _>(|number| core.state.vectors.ymm(number));
    let text = |[lower, upper]: [u128; 2]| format!("{upper:#034x}{lower:032x}");
    let is_used = all.iter().any(|[_, upper]| *upper != 0);
    is_used.then(|| all.map(text).to_vec())
}

/// The tag of a register that is not empty: 0 valid, 1 zero, 2 special (SDM volume 1).
fn tag_of(value: u128) -> u16 {
    let (exponent, significand) = ((value >> 64) as u16 & 0x7fff, value as u64);
    match (exponent, significand) {
        (0, 0) => 1,
        (0 | 0x7fff, _) => 2,
        (_, significand) if significand >> 63 == 0 => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Result<StateLine, FlatError> {
        run(
            &serde_json::from_str(text).expect("a case"),
            Processor::default(),
            "test.v1",
        )
    }

    #[test]
    fn code_runs_until_hlt() {
        // mov $5, %eax; add %rdi, %rax; movq %rax, %xmm1; fld1; mov %rax, (%rsi); hlt
        let line = case(
            r#"{"flat":[{"at":"0x1000","hex":"b805000000 4801f8 66480f6ec8 d9e8 488906 f4"}],
                "map":[{"at":"0x20000","size":"16"}],"set":{"rdi":"2","rsi":"0x20008"},
                "dump":[{"at":"0x20008","size":"2"}]}"#,
        )
        .expect("it runs");
        assert_eq!((line.end, line.instructions), ("hlt", 6));
        assert_eq!(line.registers["rax"], "0x7");
        assert_eq!(line.registers["rflags"], "0x202");
        assert_eq!(line.xmm[1], format!("{:#034x}", 7));
        assert_eq!(line.st[0], "0x3fff8000000000000000");
        assert_eq!((line.fcw.as_str(), line.ftw.as_str()), ("0x37f", "0x3fff"));
        assert_eq!(line.dump[0].hex, "0700");
    }

    #[test]
    fn upper_halves_are_set_and_returned() {
        // paddq %xmm2, %xmm1; hlt
        let code = r#""flat":[{"at":"0x1000","hex":"660fd4caf4"}]"#;
        let (upper, zeros) = ("123456789abcdef0fedcba9876543210", "0".repeat(31));
        let set = format!(r#""set":{{"ymm1":"0x{upper}{zeros}5","xmm2":"2"}}"#);

        let line = case(&format!("{{{code},{set}}}")).expect("it runs");
        assert_eq!(line.xmm[1], format!("{:#034x}", 7));
        let ymm = line.ymm.expect("an upper half is set");
        assert_eq!(ymm[1], format!("0x{upper}{zeros}7"));
        assert_eq!((ymm.len(), &ymm[2]), (16, &format!("{:#066x}", 2)));

        // One digit more than a half, and no upper half at all.
        let set = format!(r#""set":{{"ymm15":"0x3{zeros}1"}}"#);
        let line = case(&format!("{{{code},{set}}}")).expect("it runs");
        assert_eq!(line.ymm.expect("3")[15], format!("0x{:032x}{zeros}1", 3));
        let line = case(&format!(r#"{{{code},"set":{{"ymm1":"3"}}}}"#)).expect("it runs");
        assert_eq!(
            (line.ymm, line.xmm[1].as_str()),
            (None, "0x00000000000000000000000000000003")
        );

        for wrong in [
            format!("0x1{upper}{upper}"),
            format!("0x+{upper}"),
            format!("0xg{upper}"),
        ] {
            let set = format!(r#""set":{{"ymm1":"{wrong}"}}"#);
            assert!(case(&format!("{{{code},{set}}}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_ends_at_an_address_an_exception_or_a_limit() {
        let loops = r#"{"flat":[{"at":"0x1000","hex":"90ebfd"}],"max_instructions":10"#;
        assert_eq!(case(&format!("{loops}}}")).expect("it runs").end, "limit");
        let until = case(&format!(r#"{loops},"until":"0x1001"}}"#)).expect("it runs");
        assert_eq!((until.end, until.instructions), ("until", 1));
        let fault = case(r#"{"flat":[{"at":"0x1000","hex":"8b00"}]}"#).expect("it runs");
        assert_eq!(
            (fault.end, fault.registers["rip"].as_str()),
            ("exception", "0x1000")
        );
    }

    #[test]
    fn malformed_cases_are_errors() {
        for text in [
            r#"{"flat":[]}"#,
            r#"{"flat":[{"at":"x","hex":"90"}]}"#,
            r#"{"flat":[{"at":"1","hex":"9"}]}"#,
            r#"{"flat":[{"at":"0x1000","hex":"90"}],"set":{"rzx":"1"}}"#,
            r#"{"flat":[{"at":"0x1000","hex":"90"}],"set":{"ymm16":"1"}}"#,
            r#"{"flat":[{"at":"0x1000","hex":"90"}],"set":{"mxcsr":"0xffffffff"}}"#,
            r#"{"flat":[{"at":"0x1000","hex":"90"}],"map":[{"at":"0","size":"0xffffffffffff"}]}"#,
            r#"{"flat":[{"at":"0xffffffffffffffff","hex":"9090"}]}"#,
        ] {
            assert!(case(text).is_err(), "{text}");
        }
    }
}
