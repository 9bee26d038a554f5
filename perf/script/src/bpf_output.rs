//! The data that a BPF program wrote with a sample, printed like `perf_sample__fprintf_bpf_output`
//! (`tools/perf/builtin-script.c`, Linux 7.2): its bytes, and the string if they form one.

/// Bytes per line.
const LINE: usize = 8;

/// Prints the bytes, and the string if they form one.
pub(super) fn print(raw: &[u8], out: &mut Vec<u8>) {
    out.push(b'\n');
    for (number, bytes) in raw.chunks(LINE).enumerate() {
        let label = if number == 0 { "BPF output:" } else { "" };
        let hex: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        let line = format!("{label:>17} {:04x}:{hex:<24}  ", number * LINE);
        out.extend_from_slice(line.as_bytes());
        let shown = bytes
            .iter()
            .map(|&byte| if is_print(byte) { byte } else { b'.' });
        out.extend(shown.chain(std::iter::repeat(b' ')).take(LINE));
        out.push(b'\n');
    }
    if let Some(text) = string(raw) {
        out.extend_from_slice(format!("{:>17} \"", "BPF string:").as_bytes());
        out.extend_from_slice(text);
        out.extend_from_slice(b"\"\n");
    }
}

/// Whether a byte is printable Latin-1, as in the kernel's `lib/ctype.c`, which perf uses.
fn is_print(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) || byte >= 0xa0
}

/// The text of a string: printable characters and a NUL, followed only by NULs.
fn string(raw: &[u8]) -> Option<&[u8]> {
    let end = raw.iter().position(|&byte| byte == 0)?;
    let (text, rest) = raw.split_at(end);
    let is_string = text.iter().copied().all(is_print) && rest.iter().all(|&byte| byte == 0);
    is_string.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(raw: &[u8]) -> String {
        let mut out = Vec::new();
        print(raw, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_characters_and_then_nothing_are_a_string() {
        assert!(
            said(b"abc\0")
                .ends_with("61 62 63 00              abc.    \n      BPF string: \"abc\"\n")
        );
        for other in [&b"abc"[..], b"abc\0d", b"a\nb\0"] {
            assert!(!said(other).contains("BPF string"), "{other:?}");
        }
        let mut out = Vec::new();
        print(b"\x9f\xa0\xff", &mut out);
        assert!(out.ends_with(b".\xa0\xff     \n"), "{out:?}");
        let long = said(b"123456789");
        let lines: Vec<&str> = long.lines().collect();
        assert_eq!(
            lines[2],
            "                  0008: 39                       9       "
        );
    }
}
