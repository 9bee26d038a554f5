//! Captures of a kernel, with as many stops as wanted.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// States of the kernel's unwinder at each stop.
const STATES: u64 = 20;
/// The words of a stack, zlib in base64: an address of the kernel, and zeros.
const STACK: &str = "eJxjYIAAUQaGxv9AwA7lszJC+MxQvipUnmGIAQB5Fg3C";
const SYSTEM_MAP: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 T f
ffffffff81002000 T _etext
ffffffff81003000 B _end
";

/// Writes the list of the kernel's symbols, which is all that is needed of it.
pub(crate) fn write_map(path: &Path) -> io::Result<()> {
    File::create(path)?.write_all(SYSTEM_MAP.as_bytes())
}

/// Writes a capture of a kernel with frame pointers, which says neither that nor where the kernel was: both
/// have to be found out from all states.
pub(crate) fn write(path: &Path, stops: u64) -> io::Result<()> {
    let mut out = io::BufWriter::new(File::create(path)?);
    write!(out, r#"{{"kernel":"vmlinuz-6.12.0","points":["#)?;
    for stop in 0..stops {
        let comma = if stop == 0 { "" } else { "," };
        write!(
            out,
            r#"{comma}{{"regs":{{"rip":"0xffffffff81000030","rsp":"0xffffc90000003f20","rbp":0,"eflags":2,"cs":16}},"stacks":[{{"type":"TASK","begin":"0xffffc90000000000","end":"0xffffc90000004000","data_at":"0xffffc90000003f20","data":"{STACK}"}}],"kernel":["#
        )?;
        for state in 0..STATES {
            let comma = if state == 0 { "" } else { "," };
            write!(
                out,
                r#"{comma}{{"type":1,"begin":"0xffffc90000000000","end":"0xffffc90000004000","next_sp":0,"mask":2,"graph_idx":0,"error":0,"got_irq":0,"bp":"0xffffc90000003f{state:02x}","orig_sp":0,"ip":"0xffffffff81000105","next_bp":0,"regs":0}}"#
            )?;
        }
        write!(out, "]}}")?;
    }
    write!(out, "]}}")?;
    out.flush()
}
