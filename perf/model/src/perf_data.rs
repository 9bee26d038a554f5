//! A finished run as a perf.data file, as a tool would have written it.
//!
//! The records are in the order in which the reader took them, each CPU's rings merged, with a
//! FINISHED_ROUND wherever every CPU was read once more. The names and mappings of the tasks that
//! exist at the start come first.
//!
//! Differences between the model and the file:
//! - Times are [`EPOCH_NS`] later, because perf treats a time of 0 as missing.
//! - Tracepoints belong to the system `model`, uprobes to `probe_model`, unless their names are
//!   `SYSTEM:NAME`. A uprobe is written as a tracepoint, as perf probe does.
//! - Records of the form of 2023 have no cookie, and no reader knows that layout. They are written
//!   in the layout of Linux 6.19, with cookie 0; their samples end with the marker.
//! - The model knows only the size of user registers and stack copies: a stack copy is all zeros,
//!   with a valid size of 0.

use super::log::{Entry, Fact};
use super::record::{Body, Delivered, Record};
use super::setup::{EventSetup, Kind};
use super::world::World;
use super::{KERNEL_TEXT, KERNEL_TEXT_BYTES};
use unwind_sim_perf_data::callchain::PERF_CONTEXT_USER;

use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_perf_data::regs;
use unwind_sim_perf_data::write::{
    Body as Written, EventSpec, Id, Machine, SampleData, StackCopy, Tracepoint, WriteError, Writer,
};
use unwind_sim_perf_data::{
    Comm, Mmap, MmapIdentity, Task, Throttle, branch_sample_type, flag, misc, sample_type as st,
};
use unwind_sim_perf_lbr::branch_type as lbr;

/// Time 0 of the model in the file, nanoseconds.
pub const EPOCH_NS: u64 = 1_000_000_000;
/// The most mappings of user code; if there would be more, one mapping covers all.
const MAPS_MAX: usize = 64;
/// User addresses that are further apart than this are in different mappings, bytes.
const MAP_GAP: u64 = 1 << 20;
/// Size of a page, bytes.
const PAGE: u64 = 0x1000;
/// The longest record, bytes: its size has 16 bits and is a multiple of 8.
const RECORD_MAX: u32 = 0xfff8;
/// Address of `[vdso]`.
const VDSO: u64 = 0x7fff_f7fc_1000;
/// `PERF_COUNT_SW_CPU_CLOCK`.
const CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_CONTEXT_SWITCHES`: counted at a point of the kernel, as a tracepoint is.
const CONTEXT_SWITCHES: u64 = 3;
/// `PERF_COUNT_SW_BPF_OUTPUT`.
const BPF_OUTPUT: u64 = 10;
/// `PROT_READ | PROT_EXEC`.
const READ_EXEC: u32 = 5;
/// `MAP_PRIVATE`.
const PRIVATE: u32 = 2;

/// The bytes of a perf.data file with the records of a finished run.
///
/// # Errors
/// If there are no events, or a record cannot be written; no run is known to cause the latter.
pub fn perf_data(world: &World) -> Result<Vec<u8>, WriteError> {
    if world.events().is_empty() {
        return Err(WriteError::NoEvents);
    }

    let events = world.events().iter().enumerate();
    let mut file = File {
        writer: Writer::new(events.clone().map(|(at, event)| spec(at, event)).collect()),
        world,
    };

    file.writer.tracepoints(
        events
            .filter_map(|(at, event)| tracepoint(at, event))
            .collect(),
    );

    // `perf script --stitch-lbr` needs the depth of the ring, which is a capability of the PMU.
    let branches = world.setup().lbr_depth.entries().to_string();
    file.writer.machine(Machine {
        cpus: u32::from(world.setup().cpus),
        pmu_caps: match world.branch_memory() {
            Some(_) => vec![("branches".to_owned(), branches)],
            None => Vec::new(),
        },
        ..Machine::default()
    });

    // As perf does, before all that was recorded.
    file.start()?;

    // Records are delivered in the order of reading, so they are found by their number.
    let records: BTreeMap<u64, &Record> = world
        .records()
        .iter()
        .map(|record| (record.sequence, record))
        .collect();

    // A round ends when every CPU's ring has been read.
    let mut unread: BTreeSet<u16> = (0..world.setup().cpus).collect();
    for delivered in world.delivered() {
        match delivered {
            Delivered::Record(sequence) => match records.get(sequence) {
                Some(record) => file.record(record)?,
                None => debug_assert!(false, "record {sequence} was delivered and is not there"),
            },
            Delivered::Cpu(cpu) => {
                unread.remove(cpu);
                if unread.is_empty() {
                    file.writer
                        .record(&Written::FinishedRound, &Id::default())?;
                    unread.extend(0..world.setup().cpus);
                }
            }
        }
    }

    Ok(file.writer.finish())
}

/// The attribute of an event.
fn spec(index: usize, event: &EventSetup) -> EventSpec {
    let tracepoint = tracepoint(index, event);
    // A uprobe is a tracepoint, as perf probe makes it.
    let base = match event.kind {
        // PERF_COUNT_HW_CPU_CYCLES.
        Kind::Pmu => EventSpec {
            kind: 0,
            ..EventSpec::software(&event.name, 0)
        },
        Kind::Timer => EventSpec::software(&event.name, CPU_CLOCK),
        Kind::Software => EventSpec::software(&event.name, CONTEXT_SWITCHES),
        Kind::Tracepoint | Kind::Uprobe => tracepoint
            .as_ref()
            .map_or_else(EventSpec::default, EventSpec::tracepoint),
        Kind::BpfOutput => EventSpec::software(&event.name, BPF_OUTPUT),
    };

    // The fields that identify a record, which the form of 2023 needs.
    let [identifier, tid, time] = event.identified;
    let is_output = event.kind == Kind::BpfOutput;
    let bits = |all: &[(bool, u64)]| {
        let set = all.iter().filter(|(is_set, _)| *is_set);
        set.fold(0, |bits, (_, bit)| bits | bit)
    };

    EventSpec {
        config1: event.config1,
        // One word of the attribute holds either the period or the frequency.
        sample_period: match event.kind {
            Kind::Pmu | Kind::Timer => event.frequency.unwrap_or(event.period),
            _ => 1,
        },
        sample_type: st::IP
            | st::CPU
            | st::PERIOD
            | bits(&[
                (identifier, st::IDENTIFIER),
                (tid, st::TID),
                (time, st::TIME),
                (event.stack_user > 0, st::STACK_USER),
                (event.branch_stack, st::BRANCH_STACK),
                (event.has_callchain && !is_output, st::CALLCHAIN),
                (is_output || tracepoint.is_some(), st::RAW),
                (event.regs_intr, st::REGS_INTR),
            ]),
        // What `--call-graph lbr` asks for.
        branch_sample_type: if event.branch_stack {
            lbr::CALL_STACK | lbr::USER | branch_sample_type::HW_INDEX
        } else {
            0
        },
        flags: flag::SAMPLE_ID_ALL
            | bits(&[
                (event.frequency.is_some(), flag::FREQ),
                (event.inherit, flag::INHERIT),
                (event.exclude_user, flag::EXCLUDE_USER),
                (event.exclude_kernel, flag::EXCLUDE_KERNEL),
                (event.exclude_idle, flag::EXCLUDE_IDLE),
                (
                    event.defer_callchain && event.has_callchain,
                    flag::DEFER_CALLCHAIN,
                ),
                (event.defer_output, flag::DEFER_OUTPUT),
                // One event asks for the records of what tasks do, as in perf record.
                (index == 0, SIDE_BAND),
            ]),
        sample_stack_user: event.stack_user,
        sample_regs_intr: if event.regs_intr { REGISTERS } else { 0 },
        ids: vec![id_of(index)],
        ..base
    }
}

/// The registers that samples may have, in the order of their bits: rbp, rsp, rip, flags and cs.
const REGISTERS: u64 = 1 << regs::PERF_REG_X86_BP
    | 1 << regs::PERF_REG_X86_SP
    | 1 << regs::PERF_REG_X86_IP
    | 1 << regs::PERF_REG_X86_FLAGS
    | 1 << regs::PERF_REG_X86_CS;

/// The number of the first tracepoint; lower numbers are ftrace's own.
const TRACEPOINT_ID: usize = 1000;

/// An event as a tracepoint, if it is one.
fn tracepoint(index: usize, event: &EventSetup) -> Option<Tracepoint> {
    let (system, fields, print) = match event.kind {
        Kind::Tracepoint => (
            "model",
            "\tfield:u32 cpu;\toffset:8;\tsize:4;\tsigned:0;\n",
            "\"cpu=%u\", REC->cpu",
        ),
        Kind::Uprobe => (
            "probe_model",
            "\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n",
            "\"(%lx)\", REC->__probe_ip",
        ),
        Kind::Pmu | Kind::Timer | Kind::Software | Kind::BpfOutput => return None,
    };
    let (system, name) = event.name.split_once(':').unwrap_or((system, &event.name));
    Some(Tracepoint {
        system: system.to_owned(),
        name: name.to_owned(),
        id: (TRACEPOINT_ID + index) as u16,
        fields: fields.to_owned(),
        print: print.to_owned(),
    })
}

/// The flags by which the first event records what tasks do.
const SIDE_BAND: u64 = flag::MMAP | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;

/// The id of an event.
fn id_of(event: usize) -> u64 {
    event as u64 + 1
}

/// A file being written.
struct File<'a> {
    writer: Writer,
    world: &'a World,
}

impl File<'_> {
    /// Writes the names and mappings of the tasks that exist at the start, as perf does.
    fn start(&mut self) -> Result<(), WriteError> {
        let nobody = Id::default();
        // The kernel's mapping belongs to no process.
        let kernel = Mmap {
            pid: -1,
            tid: 0,
            address: KERNEL_TEXT,
            length: KERNEL_TEXT_BYTES,
            file_offset: KERNEL_TEXT,
            identity: MmapIdentity::Path,
            protection: READ_EXEC,
            flags: PRIVATE,
            // As a module: for `[kernel.kallsyms]` perf would show symbols of the running kernel.
            path: b"[model]",
        };

        // The mode of a mapping says whose address space it is in.
        let cpumode = misc::CPUMODE_KERNEL;
        let kernel = Written::Mmap {
            mmap: kernel,
            cpumode,
        };
        self.writer.record(&kernel, &nobody)?;

        // Children come with their parents' forks.
        // All tasks run the same program, at the same addresses.
        let maps = maps(self.world.records());
        let children: BTreeSet<i32> = self.world.log().iter().filter_map(forked).collect();
        let threads = self.world.threads();
        for (tid, is_kernel) in threads.filter(|(tid, _)| !children.contains(tid)) {
            let name = name(if is_kernel { "kthread" } else { "task" }, tid);
            let comm = Comm {
                pid: tid,
                tid,
                exec: false,
                name: name.as_bytes(),
            };
            self.writer.record(&Written::Comm(comm), &nobody)?;

            // A kernel thread has no user addresses.
            for &(from, to) in maps.iter().filter(|_| !is_kernel) {
                let mmap = Mmap {
                    pid: tid,
                    tid,
                    address: from,
                    length: to - from,
                    file_offset: from,
                    identity: MmapIdentity::Path,
                    protection: READ_EXEC,
                    flags: PRIVATE,
                    path: b"/model/program",
                };
                let cpumode = misc::CPUMODE_USER;
                self.writer
                    .record(&Written::Mmap { mmap, cpumode }, &nobody)?;
            }
        }

        Ok(())
    }

    // All that the file's records have in common is in the ID trailer.
    fn record(&mut self, record: &Record) -> Result<(), WriteError> {
        let event = usize::from(record.event);
        let id = Id {
            event,
            id: id_of(event),
            stream_id: 0,
            pid: record.tid,
            tid: record.tid,
            time: record.time + EPOCH_NS,
            cpu: u32::from(record.cpu),
        };

        // Every task of the model is a process of its own.
        let (tid, time) = (record.tid, id.time);
        let throttle = Throttle {
            time,
            id: id.id,
            stream_id: id.id,
        };

        // Kept here, because the record only borrows it.
        let exec_name = name("exec", tid);
        let setup = &self.world.events()[event];

        // A tracepoint's payload begins with the fields that all of them have.
        let raw = match (&record.body, tracepoint(event, setup)) {
            (Body::Sample { payload, .. }, Some(tracepoint)) => {
                [&tracepoint.common(tid)[..], payload].concat()
            }
            _ => Vec::new(),
        };

        // In the order of their bits (`arch/x86/include/uapi/asm/perf_regs.h`).
        let registers = match &record.body {
            Body::Sample { registers, .. } => registers.map(|r| [r.bp, r.sp, r.ip, r.flags, r.cs]),
            _ => None,
        };

        // Each record of the model has one in the file.
        let body = match &record.body {
            Body::Sample {
                period,
                user_mode,
                ip,
                chain,
                user_bytes,
                branches,
                ..
            } => Written::Sample(SampleData {
                misc: if *user_mode {
                    misc::CPUMODE_USER
                } else {
                    misc::CPUMODE_KERNEL
                },
                ip: *ip,
                period: *period,
                callchain: chain,
                raw: &raw,
                intr_regs: registers.as_ref().map_or(&[], |words| words),
                branch_hw_index: branches.as_ref().map_or(0, |b| b.hw_index),
                branches: branches.as_ref().map_or(&[], |b| &b.entries),
                user_stack: StackCopy {
                    bytes: &[],
                    size: stack_size(record.body.size(), *user_bytes),
                },
                ..SampleData::default()
            }),
            // What a program writes is a sample of the event that takes outputs.
            Body::Raw { data } => Written::Sample(SampleData {
                raw: data,
                ..SampleData::default()
            }),
            // The form of 2023 is written in today's layout.
            Body::Deferred { cookie, frames, .. } => Written::CallchainDeferred {
                cookie: cookie.unwrap_or(0),
                frames,
            },
            Body::Lost { lost } => Written::Lost {
                id: id.id,
                lost: *lost,
            },
            Body::LostSamples { lost } => Written::LostSamples { lost: *lost },
            // An execve is a COMM with the flag `PERF_RECORD_MISC_COMM_EXEC`.
            Body::Exec => Written::Comm(Comm {
                pid: tid,
                tid,
                exec: true,
                name: exec_name.as_bytes(),
            }),
            Body::Vdso => Written::Mmap {
                mmap: Mmap {
                    pid: tid,
                    tid,
                    address: VDSO,
                    length: PAGE,
                    file_offset: 0,
                    identity: MmapIdentity::Path,
                    protection: READ_EXEC,
                    flags: PRIVATE,
                    path: b"[vdso]",
                },
                cpumode: misc::CPUMODE_USER,
            },
            Body::Fork { child } => Written::Fork(Task {
                pid: *child,
                ppid: tid,
                tid: *child,
                ptid: tid,
                time,
            }),
            Body::Exit => Written::Exit(Task {
                pid: tid,
                ppid: tid,
                tid,
                ptid: tid,
                time,
            }),
            Body::Throttle => Written::Throttle(throttle),
            Body::Unthrottle => Written::Unthrottle(throttle),
        };

        self.writer.record(&body, &id)
    }
}

/// The size of a stack copy in a sample of `size` bytes, of which the copy is `asked`: what fits,
/// in words (`perf_sample_ustack_size`, `kernel/events/core.c`).
const fn stack_size(size: u32, asked: u32) -> usize {
    // The words before and after it are not in the model's size.
    let left = RECORD_MAX.saturating_sub(size - asked + 16);
    let fits = if asked < left { asked } else { left };
    (fits & !7) as usize
}

/// The task that a fact says was created.
const fn forked(entry: &Entry) -> Option<i32> {
    match entry.fact {
        Fact::Fork { child } => Some(child),
        _ => None,
    }
}

/// The name of a task, at most 15 bytes as in the kernel.
fn name(kind: &str, tid: i32) -> String {
    let mut name = format!("{kind}-{tid}");
    name.truncate(15);
    name
}

/// Ranges of pages that hold all user addresses of the records.
fn maps(records: &[Record]) -> Vec<(u64, u64)> {
    let mut pages = BTreeSet::new();
    let mut add = |address: u64| {
        pages.insert(address & !(PAGE - 1));
    };

    // A mapping is made for what is there, since the model has no files.
    for record in records {
        match &record.body {
            Body::Sample {
                user_mode,
                ip,
                chain,
                ..
            } => {
                if *user_mode {
                    add(*ip);
                }
                let user = chain.iter().skip_while(|word| **word != PERF_CONTEXT_USER);
                user.skip(1).copied().for_each(&mut add);
            }
            Body::Deferred { frames, .. } => frames.iter().copied().for_each(&mut add),
            _ => {}
        }
    }

    // Near pages are joined, which keeps the list short.
    let mut maps: Vec<(u64, u64)> = Vec::new();
    for page in pages {
        let end = page.saturating_add(PAGE);
        match maps.last_mut() {
            Some((_, to)) if page - *to <= MAP_GAP => *to = end,
            _ => maps.push((page, end)),
        }
    }

    // Every task gets a copy of the list.
    match (maps.first(), maps.last()) {
        (Some(&(from, _)), Some(&(_, to))) if maps.len() > MAPS_MAX => vec![(from, to)],
        _ => maps,
    }
}

#[cfg(test)]
mod tests;
