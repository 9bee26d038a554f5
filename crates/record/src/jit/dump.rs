//! jitdump files while the program writes them: by system calls, or through a C stream.
//!
//! Most runtimes write through a stream with a buffer (CPython, V8), which reaches the file when
//! the code has run long ago, or at exit. What they hand to `fwrite` is read there.

use hashbrown::HashMap;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_recordings::jitdump::{Function, Stream};

use super::frames::SECTION_MAX;

/// The maximum number of bytes in one call that are looked at.
const WRITE_MAX: u64 = SECTION_MAX;
/// The maximum number of parts of a `writev` (Linux `UIO_MAXIOV`).
const PARTS_MAX: u64 = 1024;
/// The maximum number of C streams and of files that are followed.
const STREAMS_MAX: usize = 64;
/// The longest path that is read (Linux `PATH_MAX`).
const PATH_MAX: u64 = 4096;

/// The jitdump files that a process writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Dumps {
    /// What was written to descriptors.
    by_descriptor: HashMap<u64, Stream>,
    /// What was written to C streams, by the address of their `FILE`.
    by_stream: HashMap<u64, Stream>,
    /// The number of functions that were given of each file, by its header: a stream's bytes come
    /// through its descriptor again.
    given: HashMap<Vec<u8>, usize>,
}

impl Dumps {
    /// A system call was answered. Returns the functions that are complete now.
    pub(super) fn called(&mut self, call: &SystemCall, memory: &AddressSpace) -> Vec<Function> {
        let fd = call.args[0];
        match call.name {
            "close" => {
                self.by_descriptor.remove(&fd);
                return Vec::new();
            }
            "write" | "pwrite64" | "writev" => {}
            _ => return Vec::new(),
        }
        if !self.by_descriptor.contains_key(&fd) && !starts(call, memory) {
            return Vec::new();
        }
        let Some(bytes) = written(call, memory) else {
            return Vec::new();
        };
        let stream = self.by_descriptor.entry(fd).or_default();
        let before = stream.feed(&bytes);
        news(&mut self.given, stream, before)
    }

    /// `fwrite` was entered, with these arguments. Returns the functions that are complete now.
    pub(super) fn streamed(&mut self, args: [u64; 4], memory: &AddressSpace) -> Vec<Function> {
        let [address, size, count, file] = args;
        let size = size.checked_mul(count).filter(|size| *size <= WRITE_MAX);
        let Some(size) = size.filter(|size| *size > 0) else {
            return Vec::new();
        };

        // Inside of a record, the same bytes are not the start of a file.
        let is_begun = self
            .by_stream
            .get(&file)
            .is_some_and(|stream| stream.problem().is_none() && !stream.is_between_records());
        if !is_begun && is_start(address, size, memory) {
            // The end of a stream is not seen.
            if self.by_stream.len() >= STREAMS_MAX {
                self.by_stream.clear();
            }
            self.by_stream.insert(file, Stream::default());
        }

        let Some(stream) = self.by_stream.get_mut(&file) else {
            return Vec::new();
        };
        let Some(bytes) = read(memory, address, size) else {
            return Vec::new();
        };

        let before = stream.feed(&bytes);
        news(&mut self.given, stream, before)
    }
}

/// The functions behind the first `before` of a stream that were not given yet.
fn news(given: &mut HashMap<Vec<u8>, usize>, stream: &Stream, before: usize) -> Vec<Function> {
    let functions = stream.functions();
    let (Some(header), true) = (stream.header(), functions.len() > before) else {
        return Vec::new();
    };
    if given.len() >= STREAMS_MAX && !given.contains_key(header) {
        given.clear();
    }
    let given = given.entry(header.to_vec()).or_default();
    let first = before.max(*given).min(functions.len());
    *given = functions.len().max(*given);
    functions[first..].to_vec()
}

/// The path that a call has opened, if it has opened one.
pub(super) fn opened(call: &SystemCall, memory: &AddressSpace) -> Option<Vec<u8>> {
    let address = match call.name {
        "openat" => call.args[1],
        "open" | "creat" => call.args[0],
        _ => return None,
    };
    if call.result.cast_signed() < 0 {
        return None;
    }
    let mut path = Vec::new();
    for at in 0..PATH_MAX {
        let mut byte = [0];
        memory.read(address.wrapping_add(at), &mut byte).ok()?;
        match byte {
            [0] => break,
            [byte] => path.push(byte),
        }
    }
    Some(path)
}

/// The bytes that a call has written.
fn written(call: &SystemCall, memory: &AddressSpace) -> Option<Vec<u8>> {
    let size = call.result;
    if size == 0 || size > WRITE_MAX {
        return None;
    }
    if call.name != "writev" {
        return read(memory, call.args[1], size);
    }
    let mut out = Vec::new();
    for i in 0..call.args[2].min(PARTS_MAX) {
        let at = call.args[1].wrapping_add(i * 16);
        let left = size - out.len() as u64;
        let len = memory.read_u64(at.wrapping_add(8)).ok()?.min(left);
        out.extend(read(memory, memory.read_u64(at).ok()?, len)?);
    }
    Some(out)
}

/// Has a call written the start of a jitdump file?
fn starts(call: &SystemCall, memory: &AddressSpace) -> bool {
    let address = match call.name {
        "writev" => memory.read_u64(call.args[1]).ok(),
        _ => Some(call.args[1]),
    };
    address.is_some_and(|address| is_start(address, call.result, memory))
}

/// Is the start of a jitdump file at `address`, in `size` bytes?
fn is_start(address: u64, size: u64, memory: &AddressSpace) -> bool {
    let first = read(memory, address, size.min(4));
    first.is_some_and(|bytes| Stream::starts(&bytes))
}

fn read(memory: &AddressSpace, address: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    memory.read(address, &mut bytes).ok()?;
    Some(bytes)
}
