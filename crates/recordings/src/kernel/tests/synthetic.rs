//! Builds a small vmlinux, and a bzImage around it.

use crate::kernel::Form;

/// Address of the code.
pub(super) const TEXT: u64 = 0xffff_ffff_8100_0000;
/// Size of the code, bytes.
pub(super) const TEXT_LEN: usize = 0x2000;
/// Number of functions, each of 8 bytes and starting with a `call`.
pub(super) const FUNCTIONS: u64 = 600;
/// File offset of the code.
const OFFSET: usize = 0x1000;
/// Length of one name, too long for seven bits.
pub(super) const LONG: usize = 300;
/// A token of more than 16 bytes.
const LONG_TOKEN: &str = "raw_spin_lock_irqsave";

/// The properties of the image.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Form of the kallsyms values.
    pub(super) form: Form,
    /// Are the values before the names?
    pub(super) values_first: bool,
    /// Are markers u64, as before 5.0?
    pub(super) wide_markers: bool,
    /// Is `seqs_of_names` between the markers and the tokens?
    pub(super) seqs: bool,
    /// Alignment of the parts, bytes.
    pub(super) align: usize,
    /// Are there section headers?
    pub(super) sections: bool,
    /// The version in the banner.
    pub(super) version: &'static str,
}

pub(super) const USUAL: Shape = Shape {
    form: Form::AbsolutePercpu,
    values_first: false,
    wide_markers: false,
    seqs: false,
    align: 8,
    sections: true,
    version: "6.1.0-test",
};

/// `struct orc_entry` of 4.14 to 6.2: CFA = rsp + 8 * (1 + n % 3), call.
fn orc_entry(n: u64) -> [u8; 6] {
    [8 * (1 + n % 3) as u8, 0, 0, 0, 5, 0]
}

fn align(to: usize, out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(to), 0);
}

/// The image's contents apart from code: the name of each part and its offset from [`TEXT`].
struct Data {
    bytes: Vec<u8>,
    orc_ip: usize,
    orc: usize,
    orc_end: usize,
}

/// All symbols in address order: address, type and name.
pub(super) fn symbols(shape: &Shape) -> Vec<(u64, char, String)> {
    let data = data(shape, &[]);
    let at = |offset: usize| TEXT + offset as u64;
    let mut out = Vec::new();

    // Per-CPU symbols; the newer forms have no absolute ones.
    if matches!(shape.form, Form::AbsolutePercpu | Form::Addresses) {
        out.push((0, 'A', "fixed_percpu_data".to_owned()));
        out.push((0x1fb80, 'A', "current_task".to_owned()));
    }

    out.push((TEXT, 'T', "_stext".into()));
    out.push((TEXT, 'T', "_text".into()));

    for n in 0..FUNCTIONS {
        let kind = if n % 2 == 0 { 't' } else { 'T' };
        // One name whose length does not fit into seven bits, and one with a long token.
        let name = match n {
            5 => "x".repeat(LONG),
            6 => format!("get_{LONG_TOKEN}_{n}"),
            _ => format!("function_{n}"),
        };
        out.push((TEXT + 8 * n, kind, name));
    }

    out.push((at(TEXT_LEN), 'T', "_etext".into()));
    out.push((at(TEXT_LEN), 'D', "linux_banner".into()));
    out.push((at(data.orc_ip), 'R', "__start_orc_unwind_ip".into()));
    out.push((at(data.orc), 'R', "__start_orc_unwind".into()));
    out.push((at(data.orc), 'R', "__stop_orc_unwind_ip".into()));
    out.push((at(data.orc_end), 'R', "__stop_orc_unwind".into()));
    out.push((TEXT + 0x10_0000, 'B', "_end".into()));
    out
}

fn data(shape: &Shape, symbols: &[(u64, char, String)]) -> Data {
    let mut out = vec![0xcc; TEXT_LEN];
    for n in 0..FUNCTIONS as usize {
        // Each function starts with `call rel32`.
        out[8 * n] = 0xe8;
    }

    out.extend(format!("Linux version {} (a@b) #1\0", shape.version).into_bytes());
    align(8, &mut out);

    let orc_ip = out.len();
    for n in 0..FUNCTIONS {
        let slot = out.len() as u64;
        // Relative to the slot's own address (`orc_ip`).
        let relative = (8 * n).wrapping_sub(slot) as u32;
        out.extend(relative.to_le_bytes());
    }

    let orc = out.len();
    out.extend((0..FUNCTIONS).flat_map(orc_entry));
    let orc_end = out.len();
    align(8, &mut out);

    if !symbols.is_empty() {
        kallsyms(shape, symbols, &mut out);
    }

    Data {
        bytes: out,
        orc_ip,
        orc,
        orc_end,
    }
}

/// Tokens: one for each letter, three of several letters, and empty unused ones.
fn tokens() -> Vec<Vec<u8>> {
    let token = |byte: u8| match byte {
        1 => b"function_".to_vec(),
        2 => b"__st".to_vec(),
        3 => LONG_TOKEN.into(),
        b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => vec![byte],
        _ => Vec::new(),
    };
    (0..=255).map(token).collect()
}

/// A name as stored in kallsyms.
pub(super) fn pack(kind: char, name: &str) -> Vec<u8> {
    let text = format!("{kind}{name}");
    let mut out = text
        .replace("function_", "\u{1}")
        .replace("__st", "\u{2}")
        .replace(LONG_TOKEN, "\u{3}")
        .into_bytes();
    let len = out.len();
    let mut packed = match len {
        0..0x80 => vec![len as u8],
        _ => vec![len as u8 | 0x80, (len >> 7) as u8],
    };
    packed.append(&mut out);
    packed
}

fn kallsyms(shape: &Shape, symbols: &[(u64, char, String)], out: &mut Vec<u8>) {
    if shape.values_first {
        values(shape, symbols, out);
    }

    out.extend(&(symbols.len() as u64).to_le_bytes()[..shape.align]);

    // A marker for every 256th name (`scripts/kallsyms.c`).
    let names = out.len();
    let mut markers = Vec::new();
    for (n, (_, kind, name)) in symbols.iter().enumerate() {
        if n % 256 == 0 {
            markers.push((out.len() - names) as u64);
        }
        out.extend(pack(*kind, name));
    }

    align(shape.align, out);
    for marker in markers {
        let width = if shape.wide_markers { 8 } else { 4 };
        out.extend(&marker.to_le_bytes()[..width]);
    }
    align(shape.align, out);

    // `kallsyms_seqs_of_names` has three bytes for each name.
    if shape.seqs {
        out.extend((0..symbols.len()).flat_map(|n| [0, (n >> 8) as u8, n as u8]));
        align(shape.align, out);
    }

    // Each byte of a name stands for a token; the index says where each of the tokens starts.
    let tokens = tokens();
    let mut index = Vec::new();
    let table = out.len();
    for token in &tokens {
        index.extend(((out.len() - table) as u16).to_le_bytes());
        out.extend(token);
        out.push(0);
    }

    align(shape.align, out);
    out.extend(index);
    if !shape.values_first {
        values(shape, symbols, out);
    }
}

fn values(shape: &Shape, symbols: &[(u64, char, String)], out: &mut Vec<u8>) {
    for (address, ..) in symbols {
        let offset = match shape.form {
            Form::Addresses => {
                out.extend(address.to_le_bytes());
                continue;
            }
            Form::AbsolutePercpu if *address < TEXT => *address,
            Form::AbsolutePercpu => TEXT.wrapping_sub(*address).wrapping_sub(1),
            Form::BaseRelative => address - TEXT,
            Form::PlaceRelative => address.wrapping_sub(TEXT + out.len() as u64),
        };
        out.extend((offset as u32).to_le_bytes());
    }
    align(shape.align, out);
    if matches!(shape.form, Form::AbsolutePercpu | Form::BaseRelative) {
        out.extend(TEXT.to_le_bytes());
    }
}

pub(super) fn vmlinux(shape: &Shape) -> Vec<u8> {
    let data = data(shape, &symbols(shape));
    let len = data.bytes.len() as u64;
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();

    let names = b"\0.text\0.orc_unwind_ip\0.orc_unwind\0.shstrtab\0";
    let strings_at = OFFSET + data.bytes.len();
    let headers_at = (strings_at + names.len()).next_multiple_of(8);

    let (shoff, shnum) = if shape.sections {
        (headers_at as u64, 5)
    } else {
        (0, 0)
    };

    out.extend(
        // e_entry, e_phoff and e_shoff.
        [0x100_0000, 64, shoff]
            .iter()
            .flat_map(|v: &u64| v.to_le_bytes()),
    );
    out.extend(0_u32.to_le_bytes());
    // e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum and e_shstrndx.
    let sizes: [u16; 6] = [64, 56, 1, 64, shnum, if shape.sections { 4 } else { 0 }];
    out.extend(sizes.iter().flat_map(|v| v.to_le_bytes()));

    // One segment, readable and executable.
    out.extend([1_u32, 5].iter().flat_map(|v| v.to_le_bytes()));
    // From p_offset to p_align.
    let segment = [OFFSET as u64, TEXT, 0x100_0000, len, len, 0x20_0000];
    out.extend(segment.iter().flat_map(|v| v.to_le_bytes()));

    out.resize(OFFSET, 0);
    out.extend(&data.bytes);
    out.extend(names);
    out.resize(headers_at, 0);

    if !shape.sections {
        return out;
    }

    let mut section = |name: u32, kind: u32, flags: u64, start: usize, end: usize| {
        out.extend([name, kind].iter().flat_map(|v| v.to_le_bytes()));
        let address = if flags == 0 { 0 } else { TEXT + start as u64 };
        let (offset, size) = (OFFSET + start, end - start);
        // From sh_flags to sh_entsize.
        let fields = [flags, address, offset as u64, size as u64, 0, 1, 0];
        out.extend(fields.iter().flat_map(|v| v.to_le_bytes()));
    };

    // The first section header is all zeros (gABI).
    section(0, 0, 0, 0, 0);
    section(1, 1, 6, 0, TEXT_LEN);
    section(7, 1, 2, data.orc_ip, data.orc);
    section(22, 1, 2, data.orc, data.orc_end);
    section(34, 3, 0, data.bytes.len(), data.bytes.len() + names.len());

    out
}

/// A bzImage with the payload `packed` after one setup sector.
pub(super) fn bzimage(packed: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 1024];
    out[0x1f1] = 1;
    out[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    out[0x202..0x206].copy_from_slice(b"HdrS");
    out[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    out[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    out[0x248..0x24c].copy_from_slice(&0x40_u32.to_le_bytes());
    out[0x24c..0x250].copy_from_slice(&(packed.len() as u32).to_le_bytes());
    out[0x300..0x310].copy_from_slice(b"6.1.0-boot (a@b)");
    out.resize(1024 + 0x40, 0);
    out.extend(packed);
    // In real images, their own relocations follow.
    out.extend([0x90; 64]);
    out
}
