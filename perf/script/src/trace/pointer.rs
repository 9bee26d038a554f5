//! `%p` and its extensions: functions, network addresses, ids, raw bytes, as libtraceevent 1.9
//! prints them.
//!
//! Like there, a width before `%p` is ignored.

use super::eval::Record;
use super::parse::Expr;

/// Finds a function of the kernel: returns its name and start address.
pub(crate) type Functions<'f> = dyn FnMut(u64) -> Option<(Vec<u8>, u64)> + 'f;

/// `AF_INET`.
const INET: [u8; 2] = 2u16.to_le_bytes();
/// `AF_INET6`.
const INET6: [u8; 2] = 10u16.to_le_bytes();
/// The bytes of a GUID in printing order.
const GUID: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

/// Number of characters after `%p` that specify the kind of pointer.
pub(super) fn kind_length(text: &[u8]) -> usize {
    let at = |index: usize| text.get(index).copied().unwrap_or(0);
    let one_of = |index: usize, set: &[u8]| usize::from(set.contains(&at(index)));
    match at(0) {
        b'F' | b'S' | b'f' | b's' => 1,
        b'M' | b'm' => 1 + one_of(1, b"RF"),
        b'U' => 1 + one_of(1, b"LlBb"),
        b'h' => 1 + one_of(1, b"CDN"),
        b'I' | b'i' => match at(1) {
            b'4' => 2 + one_of(2, b"hnbl"),
            b'6' => 2 + one_of(2, b"c"),
            b'S' => {
                let mut end = 2;
                while one_of(end, b"pfs") == 1 {
                    end += 1;
                }
                end += one_of(end, b"hnbl");
                end + one_of(end, b"c")
            }
            _ => 1,
        },
        _ => 0,
    }
}

/// Prints `of` as a pointer of this kind. `length` is the value of a `*`.
pub(super) fn print(
    record: &Record<'_>,
    of: &Expr,
    kind: &[u8],
    length: usize,
    functions: &mut Functions<'_>,
    out: &mut Vec<u8>,
) {
    // A text is printed whatever the kind of the pointer.
    if let Expr::Text(text) = of {
        return out.extend_from_slice(text);
    }

    // The first letter is the kind; what follows are its options.
    let text = match kind.first() {
        Some(b'F' | b'S' | b'f' | b's') => {
            let value = record.number(of);
            match functions(value) {
                None => format!("0x{value:x}"),
                Some((name, start)) => {
                    out.extend_from_slice(&name);
                    // Upper case asks for the offset in the function.
                    if !kind[0].is_ascii_uppercase() {
                        return;
                    }
                    format!("+0x{:x}", value.wrapping_sub(start))
                }
            }
        }
        Some(b'h') => match of {
            Expr::Dynamic(number) => {
                let between = match kind.get(1) {
                    Some(b'C') => ":",
                    Some(b'D') => "-",
                    Some(b'N') => "",
                    _ => " ",
                };
                hex(record.bytes(*number).iter().take(length), between)
            }
            other => not_a_field(other),
        },
        Some(b'M' | b'm' | b'I' | b'i' | b'U') => match of {
            Expr::Field(number) => in_field(record.place(*number), kind),
            other => not_a_field(other),
        },
        _ => match record.number(of) {
            0 => "(nil)".into(),
            value => format!("0x{value:x}"),
        },
    };

    out.extend_from_slice(text.as_bytes());
}

/// The text of a pointer to a field's bytes.
fn in_field(bytes: &[u8], kind: &[u8]) -> String {
    let rest = kind.get(2..).unwrap_or(&[]);
    // `%pi4` pads with zeros, `%pi6` has no colons (`Documentation/core-api/printk-formats.rst`).
    let plain = kind[0] == b'i';

    match kind {
        [b'M' | b'm', how @ ..] => match <[u8; 6]>::try_from(bytes) {
            Err(_) => "INVALIDMAC".into(),
            Ok(mut address) => {
                // Reversed, for Bluetooth.
                if how.contains(&b'R') {
                    address.reverse();
                }
                let between = match (kind[0], how.first()) {
                    (b'm', _) => "",
                    (_, Some(b'F')) => "-",
                    _ => ":",
                };
                hex(address.iter(), between)
            }
        },
        // A UUID in one of its orders.
        [b'U', how @ ..] => match <[u8; 16]>::try_from(bytes) {
            Err(_) => "INVALIDUUID".into(),
            Ok(id) => uuid(&id, how.first().copied()),
        },
        [_, b'4', ..] => match <[u8; 4]>::try_from(bytes) {
            Err(_) => "INVALIDIPv4".into(),
            Ok(address) => ip4(address, plain, rest),
        },
        [_, b'6', ..] => match <[u8; 16]>::try_from(bytes) {
            Err(_) => "INVALIDIPv6".into(),
            Ok(address) => ip6(&address, plain, rest.contains(&b'c')),
        },
        [_, b'S', ..] => socket(bytes, plain, rest),
        _ => String::new(),
    }
}

fn hex<'b>(bytes: impl Iterator<Item = &'b u8>, between: &str) -> String {
    let all: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
    all.join(between)
}

fn uuid(id: &[u8; 16], how: Option<u8>) -> String {
    let mut text = String::new();
    for (at, guid) in GUID.into_iter().enumerate() {
        let is_guid = matches!(how, Some(b'L' | b'l'));
        text += &format!("{:02x}", id[if is_guid { guid } else { at }]);
        if matches!(at, 3 | 5 | 7 | 9) {
            text.push('-');
        }
    }
    match how {
        Some(b'L' | b'B') => text.to_uppercase(),
        _ => text,
    }
}

fn ip4(mut address: [u8; 4], plain: bool, order: &[u8]) -> String {
    // Host order is x86's, in which the bytes are reversed.
    if matches!(order.first(), Some(b'h' | b'l')) {
        address.reverse();
    }
    let [a, b, c, d] = address;
    if plain {
        format!("{a:03}.{b:03}.{c:03}.{d:03}")
    } else {
        format!("{a}.{b}.{c}.{d}")
    }
}

fn ip6(address: &[u8; 16], plain: bool, short: bool) -> String {
    if short && !plain {
        return ip6_short(address);
    }
    let (pairs, _) = address.as_chunks::<2>();
    let words: Vec<String> = pairs.iter().map(|pair| hex(pair.iter(), "")).collect();
    words.join(if plain { "" } else { ":" })
}

/// Like the kernel's `ip6_compressed_string` (`lib/vsprintf.c`, Linux 7.2).
fn ip6_short(address: &[u8; 16]) -> String {
    let (pairs, _) = address.as_chunks::<2>();

    // IPv4 addresses inside: the last four bytes are written in decimal.
    let mapped = address[..10] == [0; 10] && address[10..12] == [0xff; 2];
    let isatap = address[8] | 2 == 2 && address[9..12] == [0, 0x5e, 0xfe];
    let range = if mapped || isatap { 6 } else { 8 };

    // The length of the run of zeros that starts here.
    let zeros = |from: usize| {
        let run = pairs[from..range]
            .iter()
            .take_while(|pair| **pair == [0; 2]);
        run.count()
    };
    // The first of the longest runs of zeros, if longer than one.
    let longest = (0..range)
        .max_by_key(|&from| (zeros(from), range - from))
        .filter(|&from| zeros(from) > 1);

    let mut text = String::new();
    let mut colon = false;
    let mut at = 0;
    while at < range {
        if Some(at) == longest {
            text += if colon || at == 0 { "::" } else { ":" };
            colon = false;
            at += zeros(at);
            continue;
        }

        if colon {
            text.push(':');
        }
        text += &format!("{:x}", u16::from_be_bytes(pairs[at]));
        colon = true;
        at += 1;
    }

    // The rest is an IPv4 address.
    if range == 6 {
        if colon {
            text.push(':');
        }
        let last = [address[12], address[13], address[14], address[15]];
        text += &ip4(last, false, b"");
    }
    text
}

/// A `struct sockaddr`: depends on the address family.
fn socket(bytes: &[u8], plain: bool, mut how: &[u8]) -> String {
    let mut option = |wanted: u8| {
        let found = !plain && how.first() == Some(&wanted);
        how = &how[usize::from(found)..];
        found
    };

    // The options come in this order, and each at most once.
    let (port, short) = (option(b'p'), option(b'c'));

    // The family comes first and says how long the rest has to be.
    match bytes {
        [f0, f1, p0, p1, rest @ ..] if [*f0, *f1] == INET => {
            // A whole `struct sockaddr_in` has 16 bytes, a `struct sockaddr_in6` 28.
            let Some((address, _)) = rest.split_first_chunk::<4>().filter(|_| rest.len() >= 12)
            else {
                return "INVALIDIPv4".into();
            };
            let text = ip4(*address, plain, how);
            if port {
                format!("{text}:{}", u16::from_be_bytes([*p0, *p1]))
            } else {
                text
            }
        }
        [f0, f1, p0, p1, rest @ ..] if [*f0, *f1] == INET6 => {
            let address = rest
                .get(4..)
                .and_then(|rest| rest.split_first_chunk::<16>());
            let Some((address, _)) = address.filter(|_| rest.len() >= 24) else {
                return "INVALIDIPv6".into();
            };
            let text = ip6(address, plain, short);
            if port {
                format!("[{text}]:{}", u16::from_be_bytes([*p0, *p1]))
            } else {
                text
            }
        }
        _ => String::new(),
    }
}

/// The message with the number from `enum tep_print_arg_type` (`event-parse.h`).
fn not_a_field(of: &Expr) -> String {
    let number = match of {
        Expr::Number(_) | Expr::Name(_) => 1,
        Expr::Field(_) => 2,
        Expr::Flags(..) => 3,
        Expr::Symbolic(..) => 4,
        Expr::Hex(_, _, " ") => 5,
        Expr::Array(..) => 6,
        Expr::Cast(..) => 7,
        Expr::Str(_) => 8,
        Expr::Text(_) => 9,
        Expr::Dynamic(_) => 10,
        Expr::Index(..) | Expr::Unary(..) | Expr::Binary(..) | Expr::Choice(..) => 11,
        Expr::Mask(..) => 13,
        Expr::DynamicLen(_) => 14,
        Expr::Hex(..) => 15,
    };
    format!("ARG TYPE NOT FIELD BUT {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_addresses_leave_out_the_first_of_the_longest_runs_of_zeros() {
        let said = |words: [u16; 8]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            in_field(&bytes, b"I6c")
        };
        assert_eq!(said([0x2001, 0xdb8, 0, 0, 1, 0, 0, 1]), "2001:db8::1:0:0:1");
        assert_eq!(
            said([0x2001, 0xdb8, 0, 1, 1, 1, 1, 1]),
            "2001:db8:0:1:1:1:1:1"
        );
        assert_eq!(said([0, 0, 0, 0, 0, 0, 0, 1]), "::1");
        assert_eq!(said([1, 0, 0, 0, 0, 0, 0, 0]), "1::");
        assert_eq!(
            said([0, 0, 0, 0, 0, 0xffff, 0x102, 0x304]),
            "::ffff:1.2.3.4"
        );
        assert_eq!(
            said([0xfe80, 0, 0, 0, 0, 0x5efe, 0x102, 0x304]),
            "fe80::5efe:1.2.3.4"
        );
    }

    #[test]
    fn what_has_the_wrong_size_is_called_invalid() {
        let kinds: [&[u8]; 5] = [b"I4", b"I6", b"M", b"U", b"h"];
        let said = kinds.map(|kind| in_field(b"abc", kind));
        let wanted = [
            "INVALIDIPv4",
            "INVALIDIPv6",
            "INVALIDMAC",
            "INVALIDUUID",
            "",
        ];
        assert_eq!(said, wanted);
        assert_eq!(in_field(b"\x02\0", b"ISpc"), "");
        assert_eq!(
            in_field(b"\x02\0\0\x50\x01\x02\x03\x04", b"ISpc"),
            "INVALIDIPv4"
        );
        let socket = b"\x02\0\0\x50\x01\x02\x03\x04\0\0\0\0\0\0\0\0";
        assert_eq!(in_field(socket, b"ISpc"), "1.2.3.4:80");
    }

    #[test]
    fn macs_and_ids_have_their_own_orders() {
        let mac = [1, 2, 3, 4, 5, 0xab];
        let said = [&b"M"[..], b"m", b"MF", b"MR", b"mR"].map(|kind| in_field(&mac, kind));
        let wanted = [
            "01:02:03:04:05:ab",
            "0102030405ab",
            "01-02-03-04-05-ab",
            "ab:05:04:03:02:01",
            "ab0504030201",
        ];
        assert_eq!(said, wanted);

        // `L` is little-endian in capitals.
        let id: Vec<u8> = (0xa0..0xb0).collect();
        assert_eq!(in_field(&id, b"U"), "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
        assert_eq!(in_field(&id, b"UL"), "A3A2A1A0-A5A4-A7A6-A8A9-AAABACADAEAF");

        // How many letters behind `%p` belong to it.
        for (text, length) in [
            ("S+", 1),
            ("ISpfsc ", 6),
            ("I4h", 3),
            ("I6c", 3),
            ("hD", 2),
            ("x", 0),
        ] {
            assert_eq!(kind_length(text.as_bytes()), length, "{text}");
        }
    }
}
