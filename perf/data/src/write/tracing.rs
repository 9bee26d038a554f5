//! Writes the section of tracepoint formats, which perf copies from tracefs
//! (`tools/perf/util/trace-event-info.c`, Linux 7.2).

/// The format of a tracepoint or probe. perf cannot read a recording without the formats of its
/// tracepoints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tracepoint {
    /// Its system, such as `kmem`.
    pub system: String,
    /// Its name in that system.
    pub name: String,
    /// Its number: `config` of its event, and the first field of its payloads.
    pub id: u16,
    /// The fields after the first [`COMMON_BYTES`], as lines of a format file.
    pub fields: String,
    /// How to print the fields: the text after `print fmt: `.
    pub print: String,
}

/// Size in bytes of the fields at the start of every payload: tracepoint number, flags, preemption
/// count, thread id.
pub const COMMON_BYTES: usize = 8;

/// "tracing" and its magic bytes.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// The version of the section.
const VERSION: &[u8] = b"0.6\0";
/// Little endian, and the size of a long.
const MACHINE: [u8; 2] = [0, 8];
/// Page size, bytes.
const PAGE: u32 = 4096;
/// `events/header_page` of tracefs.
const HEADER_PAGE: &str = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;
";
/// `events/header_event` of tracefs.
const HEADER_EVENT: &str = "\
# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
";
/// The fields at the start of every event, as in a format file.
const COMMON: &str = "\
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

impl Tracepoint {
    /// The event's name, `SYSTEM:NAME`.
    pub fn event_name(&self) -> String {
        format!("{}:{}", self.system, self.name)
    }

    /// The fields at the start of a payload, for a thread.
    pub fn common(&self, tid: i32) -> [u8; COMMON_BYTES] {
        let mut bytes = [0; COMMON_BYTES];
        bytes[..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..].copy_from_slice(&tid.to_le_bytes());
        bytes
    }

    fn format(&self) -> String {
        let Self {
            name,
            id,
            fields,
            print,
            ..
        } = self;
        format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{fields}\nprint fmt: {print}\n")
    }
}

/// The section with the formats of `tracepoints`.
pub(super) fn section(tracepoints: &[Tracepoint]) -> Vec<u8> {
    let mut out = [MAGIC, VERSION, &MACHINE, &PAGE.to_le_bytes()].concat();
    let sized = |text: &str, out: &mut Vec<u8>| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };

    out.extend(b"header_page\0");
    sized(HEADER_PAGE, &mut out);
    out.extend(b"header_event\0");
    sized(HEADER_EVENT, &mut out);

    // Events of ftrace itself.
    out.extend(0u32.to_le_bytes());
    out.extend((tracepoints.len() as u32).to_le_bytes());

    for tracepoint in tracepoints {
        out.extend(tracepoint.system.as_bytes());
        out.push(0);
        // One event in this system: each tracepoint is written as a system of its own.
        out.extend(1u32.to_le_bytes());
        sized(&tracepoint.format(), &mut out);
    }
    // The kernel's symbols, its strings, and the names of tasks: all empty.
    out.extend(0u32.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out
}
