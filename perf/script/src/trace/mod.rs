//! Payloads of tracepoints: reads their formats from the recording, and prints them.
//!
//! The section is written by `tools/perf/util/trace-event-info.c` (Linux 7.2); a format is the
//! kernel's `events/SYSTEM/NAME/format`. [`lex`] and [`parse`] read its `print fmt`, a piece of C;
//! [`eval`] applies it to a payload, as libtraceevent does.

mod eval;
mod lex;
mod parse;
mod pointer;

use parse::Print;
use pointer::Functions;
use std::collections::HashMap;
use unwind_sim_perf_data::le;

/// Maximum number of formats.
const FORMATS_MAX: usize = 1 << 16;
/// Maximum number of kernel strings.
const STRINGS_MAX: usize = 1 << 16;

/// A field of a payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Field {
    pub(super) name: Vec<u8>,
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) signed: bool,
    /// Size of an array's elements in bytes; `None` if the field is not an array.
    pub(super) element: Option<usize>,
    /// Whether the elements are characters.
    pub(super) text: bool,
    pub(super) kind: Kind,
    /// Set if the field holds the location of the data instead of the data.
    pub(super) location: Option<Location>,
    /// Whether it is one of the fields that every event has.
    common: bool,
}

/// How a number is shown without a `print fmt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Pointer,
    /// `long`: often an address.
    Long,
    Other,
}

/// What the offset of a variable-size field is relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Location {
    /// The start of the payload (`__data_loc`).
    Payload,
    /// The end of the field (`__rel_loc`).
    Field,
}

/// The format of a tracepoint.
#[derive(Debug)]
pub(super) struct Format {
    fields: Vec<Field>,
    /// The parsed `print fmt`; `None` if it is not understood.
    print: Option<Print>,
}

/// Strings of the kernel to which tracepoints point, by address.
pub(super) type Strings = HashMap<u64, Vec<u8>>;

/// The formats of a recording, by event number.
#[derive(Debug, Default)]
pub(super) struct Formats {
    events: HashMap<u64, Format>,
    strings: Strings,
}

impl Formats {
    /// Reads the section, up to the first truncated part.
    pub(super) fn parse(section: &[u8]) -> Self {
        let mut formats = Self::default();
        let _ = formats.read(section);
        formats
    }

    fn read(&mut self, section: &[u8]) -> Option<()> {
        let c = &mut Section(section);

        // The magic, then the version as text.
        c.take(10)?;
        c.string()?;

        // Byte order, size of a long, size of a page.
        c.take(1 + 1 + 4)?;

        // `header_page` and `header_event`, which describe ring buffers, not events.
        for _ in 0..2 {
            c.string()?;
            c.sized()?;
        }

        for _ in 0..c.u32()? {
            c.sized()?;
        }

        for _ in 0..c.u32()? {
            c.string()?;
            for _ in 0..c.u32()? {
                let (number, format) = format(c.sized()?)?;
                if self.events.len() < FORMATS_MAX {
                    self.events.insert(number, format);
                }
            }
        }

        // The kernel's symbols, then `printk_formats` of tracefs.
        let symbols = c.u32()?;
        c.take(usize::try_from(symbols).ok()?)?;
        let strings = c.u32()?;
        let strings = c.take(usize::try_from(strings).ok()?)?;
        let lines = strings.split(|&byte| byte == b'\n');

        self.strings = lines.filter_map(kernel_string).take(STRINGS_MAX).collect();
        Some(())
    }

    /// Appends the text of a payload of event `number`.
    pub(super) fn print(
        &self,
        number: u64,
        payload: &[u8],
        functions: &mut Functions<'_>,
        out: &mut Vec<u8>,
    ) {
        match self.events.get(&number) {
            // Without a format perf shows the bytes.
            None => {
                for byte in payload {
                    out.extend_from_slice(format!("{byte:02x} ").as_bytes());
                }
            }
            Some(Format {
                fields,
                print: Some(print),
            }) => eval::print(fields, print, payload, &self.strings, functions, out),
            Some(Format {
                fields,
                print: None,
            }) => {
                // Its format could not be parsed: the fields are shown one by one.
                out.extend_from_slice(b"[FAILED TO PARSE]");
                for field in fields.iter().filter(|field| !field.common) {
                    out.push(b' ');
                    out.extend_from_slice(&field.name);
                    out.push(b'=');
                    eval::plain(field, payload, out);
                }
            }
        }
    }
}

/// Parses a line of `printk_formats`: `0xffffffff82001234 : "text"`. Like libtraceevent, removes
/// the quotes, and an escaped newline at the end.
fn kernel_string(line: &[u8]) -> Option<(u64, Vec<u8>)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let address = std::str::from_utf8(&line[..colon]).ok()?.trim();
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
    let text = line.get(colon + 2..)?;
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    let text = text.strip_suffix(b"\"").unwrap_or(text);
    let text = text.strip_suffix(b"\\n").unwrap_or(text);
    Some((address, text.to_vec()))
}

/// A cursor over the section.
struct Section<'a>(&'a [u8]);

impl<'a> Section<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(taken)
    }
    fn u32(&mut self) -> Option<u32> {
        le::u32_at(self.take(4)?, 0)
    }
    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = le::u64_at(self.take(8)?, 0)?;
        self.take(usize::try_from(size).ok()?)
    }
    fn string(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }
}

/// Parses one format; returns its event number, too.
fn format(text: &[u8]) -> Option<(u64, Format)> {
    let mut number = None;
    let mut fields = Vec::new();
    let mut common = true;
    // A `print fmt` may have several lines.
    const PRINT: &[u8] = b"print fmt:";
    let end = text.windows(PRINT.len()).position(|part| part == PRINT);
    let (head, tail) = text.split_at(end.unwrap_or(text.len()));
    for line in head.split(|&byte| byte == b'\n') {
        let text = std::str::from_utf8(line).unwrap_or_default();
        if let Some(id) = text.strip_prefix("ID:") {
            number = id.trim().parse().ok();
        } else if text.trim_start().starts_with("field:") {
            fields.extend(field(text.trim_start(), common));
        } else if text.is_empty() && !fields.is_empty() {
            common = false;
        }
    }
    let print = tail.strip_prefix(PRINT);
    let print = print.and_then(|source| parse::print(source, &fields));
    Some((number?, Format { fields, print }))
}

/// `field:char prev_comm[16]; offset:8; size:16; signed:0;`
fn field(line: &str, common: bool) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let mut value = |name: &str| parts.next()?.strip_prefix(name)?.parse::<usize>().ok();
    let (offset, size) = (value("offset:")?, value("size:")?);
    let signed = value("signed:").unwrap_or(0) != 0;

    // The data of a dynamic array lie elsewhere in the payload. The field has their length and
    // offset, from the payload's start or from the field's end.
    let location = match declaration {
        d if d.starts_with("__data_loc") => Some(Location::Payload),
        d if d.starts_with("__rel_loc") => Some(Location::Field),
        _ => None,
    };

    let (kind, name, count) = match declaration.split_once('[') {
        // The name is the last word, which may follow an asterisk directly.
        None => {
            let (kind, name) = declaration.rsplit_once([' ', '*'])?;
            (kind, name, None)
        }
        // `__data_loc char[] name` has its brackets before the name.
        Some((kind, rest)) if location.is_some() => (kind, rest.split_once(']')?.1.trim(), Some(0)),
        Some((before, count)) => {
            let (kind, name) = before.rsplit_once([' ', '*'])?;
            let count = count.split(']').next()?.parse().unwrap_or(0);
            (kind, name, Some(count))
        }
    };

    let kind = kind.trim();
    // The size of a dynamic field is that of its location, not of its elements.
    let plain = kind
        .trim_start_matches("__data_loc ")
        .trim_start_matches("__rel_loc ");
    let dynamic = parse::size_of_type(plain.as_bytes()).unwrap_or(8);

    let element = count.map(|count: usize| match location {
        Some(_) => dynamic,
        None => size.checked_div(count).unwrap_or(1).max(1),
    });

    Some(Field {
        name: name.as_bytes().to_vec(),
        offset,
        size,
        signed,
        element,
        text: ["char", "u8", "s8"].iter().any(|part| kind.contains(part)),
        kind: if declaration.contains('*') {
            Kind::Pointer
        } else if kind.contains("long") {
            Kind::Long
        } else {
            Kind::Other
        },
        location,
        common,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch
ID: 310
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t prev_pid;	offset:24;	size:4;	signed:1;
	field:long prev_state;	offset:32;	size:8;	signed:1;
	field:__data_loc char[] name;	offset:40;	size:4;	signed:0;

print fmt: \"prev_comm=%s prev_pid=%d prev_state=%s%s %5.3s|\", REC->prev_comm, REC->prev_pid, (REC->prev_state & ((((0x00000000 | 0x00000001) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x00000000 | 0x00000001) + 1) << 1) - 1), \"|\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }) : \"R\", REC->prev_state & (((0x1 | 0x2) + 1)) ? \"+\" : \"\", __get_str(name)
";

    fn payload(state: u64) -> Vec<u8> {
        let mut bytes = vec![0; 44];
        bytes[8..12].copy_from_slice(b"deep");
        bytes[24..28].copy_from_slice(&(-7i32).to_le_bytes());
        bytes[32..40].copy_from_slice(&state.to_le_bytes());
        bytes[40..44].copy_from_slice(&(44u32 | 5 << 16).to_le_bytes());
        bytes.extend(b"abcd\0");
        bytes
    }

    #[test]
    fn a_switch_is_printed_as_its_format_says() {
        let (number, format) = format(SWITCH.as_bytes()).unwrap();
        assert_eq!(number, 310);
        let formats = Formats {
            events: HashMap::from([(310, format)]),
            ..Formats::default()
        };
        let said = |state| {
            let mut out = Vec::new();
            formats.print(310, &payload(state), &mut |_| None, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(said(0), "prev_comm=deep prev_pid=-7 prev_state=R   abc|");
        assert_eq!(said(3), "prev_comm=deep prev_pid=-7 prev_state=S|D   abc|");
        assert_eq!(said(4), "prev_comm=deep prev_pid=-7 prev_state=R+   abc|");
    }

    /// The section with one format and some kernel strings, as perf's `tracing_data_get` writes it.
    fn section(format: &str, strings: &str) -> Vec<u8> {
        let sized = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let short = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
        let mut out = b"\x17\x08\x44tracing0.6\0\x00\x08\x00\x10\x00\x00".to_vec();
        for name in ["header_page", "header_event"] {
            out.extend([name.as_bytes(), b"\0"].concat());
            out.extend(sized("x"));
        }
        out.extend(0u32.to_le_bytes());
        out.extend([&1u32.to_le_bytes()[..], b"rcu\0", &1u32.to_le_bytes()].concat());
        out.extend(sized(format));
        out.extend(short("ffffffff81000000 T _text\n"));
        out.extend(short(strings));
        out
    }

    #[test]
    fn a_pointer_to_a_string_of_the_kernel_is_that_string() {
        const UTILIZATION: &str = "name: rcu_utilization
ID: 7
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:const char * s;	offset:8;	size:8;	signed:0;

print fmt: \"%s\", REC->s
";
        // From `printk_formats`; a line that is not understood is skipped.
        let strings = "0xffffffff82000010 : \"Start context switch\"
0xffffffff82000020 : \"with a \\\"colon: %d\\n\"
nonsense
";
        let formats = Formats::parse(&section(UTILIZATION, strings));
        let said = |address: u64| {
            let payload = [[0; 8], address.to_le_bytes()].concat();
            let mut out = Vec::new();
            formats.print(7, &payload, &mut |_| None, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(said(0xffff_ffff_8200_0010), "Start context switch");
        assert_eq!(said(0xffff_ffff_8200_0020), "with a \\\"colon: %d");
        assert_eq!(said(0xffff_ffff_8200_0011), "ffffffff82000011");

        // Cut anywhere, the section must be survived.
        for cut in 0..section(UTILIZATION, strings).len() {
            let _ = Formats::parse(&section(UTILIZATION, strings)[..cut]);
        }
    }

    #[test]
    fn a_payload_cut_short_and_nonsense_do_not_matter() {
        let (_, format) = format(SWITCH.as_bytes()).unwrap();
        let formats = Formats {
            events: HashMap::from([(310, format)]),
            ..Formats::default()
        };
        for length in 0..49 {
            formats.print(310, &payload(5)[..length], &mut |_| None, &mut Vec::new());
        }
        for cut in 0..SWITCH.len() {
            let _ = super::format(&SWITCH.as_bytes()[..cut]);
        }
        let deep = format!("ID: 1\nprint fmt: \"%d\", {}1", "(".repeat(100_000));
        assert!(super::format(deep.as_bytes()).unwrap().1.print.is_none());
    }
}
