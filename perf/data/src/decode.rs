//! Decodes the bodies of all records except samples.
//!
//! Layouts: `include/uapi/linux/perf_event.h` for types below 64,
//! `tools/lib/perf/include/perf/event.h` for others (Linux 7.2).

use super::attr::EventAttr;
use super::bodies::{
    Comm, IdIndex, Ksymbol, Mmap, MmapIdentity, Namespaces, Task, ThreadMap, Throttle,
};
use super::error::PerfError;
use super::features::BuildId;
use super::le::{self, Cursor};
use super::record::Record;
use super::walk::{RawRecord, misc, record_type as rt};
use crate::callchain::Callchain;

/// Decodes the body of any record except a sample.
pub(super) fn decode<'a>(raw: &RawRecord<'a>, attr: &EventAttr) -> Result<Record<'a>, PerfError> {
    // Records of the tool have no ID trailer, so nothing is cut off at their end.
    if raw.kind >= rt::USER_TYPE_START {
        return decode_tool(raw);
    }

    let end = raw
        .body
        .len()
        .saturating_sub(usize::from(attr.layout.trailer));

    // The fields end before the ID trailer: a text that lacks its NUL must not run into it.
    let c = &mut Cursor::new(&raw.body[..end], raw.offset + 8, "record body");

    // The same bits mean something else in other records (`PERF_RECORD_MISC_*`).
    let out = raw.misc & misc::SWITCH_OUT != 0;
    let preempted = raw.misc & misc::SWITCH_OUT_PREEMPT != 0;

    Ok(match raw.kind {
        // The latter has more fields between the same ones.
        rt::MMAP | rt::MMAP2 => Record::Mmap(decode_mmap(raw, c)?),
        rt::COMM => Record::Comm(Comm {
            pid: c.i32()?,
            tid: c.i32()?,
            exec: raw.misc & misc::COMM_EXEC != 0,
            name: le::until_nul(c.rest()),
        }),
        rt::FORK => Record::Fork(decode_task(c)?),
        rt::EXIT => Record::Exit(decode_task(c)?),
        rt::LOST => Record::Lost {
            id: c.u64()?,
            lost: c.u64()?,
        },
        rt::LOST_SAMPLES => Record::LostSamples { lost: c.u64()? },
        rt::THROTTLE => Record::Throttle(decode_throttle(c)?),
        rt::UNTHROTTLE => Record::Unthrottle(decode_throttle(c)?),
        rt::READ => Record::Read {
            pid: c.i32()?,
            tid: c.i32()?,
        },
        rt::SWITCH => Record::Switch { out, preempted },
        rt::SWITCH_CPU_WIDE => Record::SwitchCpuWide {
            out,
            preempted,
            other_pid: c.i32()?,
            other_tid: c.i32()?,
        },
        rt::NAMESPACES => {
            // Each link is a device and an inode.
            let (pid, tid, count) = (c.i32()?, c.i32()?, c.u64()?);
            Record::Namespaces(Namespaces {
                pid,
                tid,
                links: c.take_many(count, 16)?,
            })
        }
        rt::KSYMBOL => Record::Ksymbol(Ksymbol {
            address: c.u64()?,
            length: c.u32()?,
            kind: c.u16()?,
            flags: c.u16()?,
            name: le::until_nul(c.rest()),
        }),
        rt::BPF_EVENT => {
            let (kind, flags, id) = (c.u16()?, c.u16()?, c.u32()?);
            Record::BpfEvent {
                kind,
                flags,
                id,
                // `BPF_TAG_SIZE` is 8.
                tag: c.u64()?.to_le_bytes(),
            }
        }
        rt::CGROUP => Record::Cgroup {
            id: c.u64()?,
            path: le::until_nul(c.rest()),
        },
        rt::TEXT_POKE => {
            // Both lengths come before the bytes, the old ones first.
            let (address, old, new) = (c.u64()?, c.u16()?, c.u16()?);
            let (old, new) = (c.take(old.into())?, c.take(new.into())?);
            Record::TextPoke { address, old, new }
        }
        rt::CALLCHAIN_DEFERRED => {
            let first = c.u64()?;
            // The form proposed in 2023 has a count and no cookie. A cookie is never this small.
            let is_count = first <= 8192 && end == 8 + 8 * first as usize;
            let (cookie, count) = if is_count {
                (0, first)
            } else {
                (first, c.u64()?)
            };
            let chain = Callchain::new(c.take_many(count, 8)?);
            Record::CallchainDeferred { cookie, chain }
        }
        rt::AUX | rt::ITRACE_START | rt::AUX_OUTPUT_HW_ID => Record::Aux,
        _ => Record::Other,
    })
}

/// Decodes a record written by the perf tool.
fn decode_tool<'a>(raw: &RawRecord<'a>) -> Result<Record<'a>, PerfError> {
    let c = &mut Cursor::new(raw.body, raw.offset + 8, "record body");
    Ok(match raw.kind {
        rt::FINISHED_ROUND => Record::FinishedRound,
        rt::FINISHED_INIT => Record::FinishedInit,
        rt::HEADER_ATTR => Record::HeaderAttr,
        rt::HEADER_BUILD_ID => {
            Record::HeaderBuildId(BuildId::parse(raw.misc, raw.body, raw.offset)?)
        }
        rt::HEADER_FEATURE => Record::HeaderFeature {
            feature: c.u64()?,
            data: c.rest(),
        },
        // A count that does not fit into the record is an error, not a reason to allocate.
        rt::ID_INDEX => {
            let count = c.u64()?;
            // `struct id_index_entry` has four words.
            Record::IdIndex(IdIndex {
                entries: c.take_many(count, 32)?,
            })
        }
        rt::TIME_CONV => Record::TimeConv {
            shift: c.u64()?,
            mult: c.u64()?,
            zero: c.u64()?,
        },
        rt::THREAD_MAP => {
            let count = c.u64()?;
            // A thread's number, and its name in 16 bytes.
            Record::ThreadMap(ThreadMap {
                entries: c.take_many(count, 24)?,
            })
        }
        // Unpacked elsewhere: what is in it are records of their own.
        rt::COMPRESSED | rt::COMPRESSED2 => Record::Compressed,
        rt::AUXTRACE_INFO | rt::AUXTRACE | rt::AUXTRACE_ERROR => Record::Aux,
        _ => Record::Other,
    })
}

fn decode_mmap<'a>(raw: &RawRecord<'a>, c: &mut Cursor<'a>) -> Result<Mmap<'a>, PerfError> {
    let (pid, tid) = (c.i32()?, c.i32()?);
    let (address, length, file_offset) = (c.u64()?, c.u64()?, c.u64()?);

    // MMAP has no identity but its path; MMAP2 has one of two others.
    let mut identity = MmapIdentity::Path;
    let (mut protection, mut flags) = (0, 0);
    if raw.kind == rt::MMAP2 {
        // The same 24 bytes hold either: a byte of length, three of padding and the ID, or the
        // file's inode (`struct perf_record_mmap2`).
        identity = if raw.misc & misc::MMAP_BUILD_ID != 0 {
            let bytes = c.take(24)?;
            // A build ID has at most 20 bytes (`BUILD_ID_SIZE`).
            let size = usize::from(bytes[0]).min(20);
            MmapIdentity::BuildId(&bytes[4..4 + size])
        } else {
            let (major, minor) = (c.u32()?, c.u32()?);
            MmapIdentity::Inode {
                major,
                minor,
                inode: c.u64()?,
                generation: c.u64()?,
            }
        };
        (protection, flags) = (c.u32()?, c.u32()?);
    }

    let path = le::until_nul(c.rest());
    Ok(Mmap {
        pid,
        tid,
        address,
        length,
        file_offset,
        identity,
        protection,
        flags,
        path,
    })
}

fn decode_task(c: &mut Cursor<'_>) -> Result<Task, PerfError> {
    let (pid, ppid, tid, ptid) = (c.i32()?, c.i32()?, c.i32()?, c.i32()?);
    Ok(Task {
        pid,
        ppid,
        tid,
        ptid,
        time: c.u64()?,
    })
}

fn decode_throttle(c: &mut Cursor<'_>) -> Result<Throttle, PerfError> {
    Ok(Throttle {
        time: c.u64()?,
        id: c.u64()?,
        stream_id: c.u64()?,
    })
}
