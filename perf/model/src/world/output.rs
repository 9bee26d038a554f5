//! What comes out of a run: the clock, the log, the records in their rings, and the branch records
//! kept at crashes.

use super::CpuTask;
use crate::log::{Entry, Fact};
use crate::record::{Body, Delivered, Record};
use crate::refused::Refused;
use crate::setup::EventSetup;
use unwind_sim_perf_data::BranchEntry;

/// Entries of the log after which nothing more happens. What happens at once may go over it, by
/// what it comes to.
pub const LOG_MAX: usize = 1 << 18;
/// Bytes of records, as their rings count them, after which nothing more happens.
pub const RECORD_BYTES_MAX: u64 = 1 << 26;

/// The branch records that a crash finds. Those of running tasks are in the ring of their CPU,
/// those of the others in the memory that `task_struct` points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Time of the crash, nanoseconds.
    pub time: u64,
    /// The task that crashed.
    pub tid: i32,
    /// What is kept of each task that has user code, in the order in which tasks were made.
    pub tasks: Vec<TaskBranches>,
}

/// The branch records of a task at a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskBranches {
    /// The task.
    pub tid: i32,
    /// The CPU that ran it; `None` if it waited.
    pub cpu: Option<usize>,
    /// The records, newest first.
    pub entries: Vec<BranchEntry>,
}

impl Crash {
    /// Size in memory, bytes.
    fn bytes(&self) -> u64 {
        let of =
            |kept: &TaskBranches| size_of::<TaskBranches>() + size_of_val(kept.entries.as_slice());
        self.tasks.iter().map(of).sum::<usize>() as u64
    }
}

/// The clock and everything that a run leaves behind.
pub(super) struct Output {
    /// Nanoseconds since the start.
    now: u64,
    /// Samples so far.
    samples: u64,
    log: Vec<Entry>,
    rings: Rings,
    crashes: Vec<Crash>,
    crash_bytes: u64,
}

impl Output {
    /// `untold`: lost records are not counted, which is a mutant.
    pub(super) fn new(events: &[EventSetup], cpus: usize, untold: bool) -> Self {
        Self {
            now: 0,
            samples: 0,
            log: Vec::new(),
            rings: Rings::new(events, cpus, untold),
            crashes: Vec::new(),
            crash_bytes: 0,
        }
    }

    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    pub(super) const fn pass(&mut self, ns: u64) {
        self.now += ns;
    }

    /// The number of a new sample, from 1.
    pub(super) const fn next_sample(&mut self) -> u64 {
        self.samples += 1;
        self.samples
    }

    pub(super) fn say(&mut self, at: CpuTask, fact: Fact) {
        self.log.push(Entry {
            time: self.now,
            cpu: at.cpu as u16,
            tid: at.tid,
            fact,
        });
    }

    /// Writes to the event's ring. Returns whether there was room.
    pub(super) fn write(&mut self, at: CpuTask, event: u16, body: Body) -> bool {
        self.rings.write(Record {
            time: self.now,
            sequence: 0,
            cpu: at.cpu as u16,
            event,
            tid: at.tid,
            body,
        })
    }

    /// The reader takes all records of the CPU's rings.
    pub(super) fn read(&mut self, at: CpuTask) {
        self.rings.read(at.cpu);
        self.say(at, Fact::Read);
    }

    /// The end of recording.
    pub(super) fn end(&mut self) {
        self.rings.end(self.now);
    }

    /// The kernel oopses: keeps the branch records of all tasks.
    pub(super) fn oops(&mut self, at: CpuTask, tasks: Vec<TaskBranches>) {
        let crash = Crash {
            time: self.now,
            tid: at.tid,
            tasks,
        };
        self.crash_bytes += crash.bytes();
        self.crashes.push(crash);
        self.say(at, Fact::Oops);
    }

    /// Whether more may happen: the bound of a run's memory.
    pub(super) const fn has_room(&self) -> Result<(), Refused> {
        if self.log.len() >= LOG_MAX {
            Err(Refused::TooMuch)
        } else if self.rings.bytes + self.crash_bytes > RECORD_BYTES_MAX {
            Err(Refused::TooManyRecords)
        } else {
            Ok(())
        }
    }

    pub(super) fn log(&self) -> &[Entry] {
        &self.log
    }

    /// What was read, by time at the end.
    pub(super) fn records(&self) -> &[Record] {
        &self.rings.records
    }

    /// The records with the reader's rounds, in the order in which it took them.
    pub(super) fn delivered(&self) -> &[Delivered] {
        &self.rings.delivered
    }

    pub(super) fn crashes(&self) -> &[Crash] {
        &self.crashes
    }
}

/// A ring of each event on each CPU, and what was read out of them.
struct Rings {
    cpus: usize,
    rings: Vec<Ring>,
    /// Of the last record that was written.
    sequence: u64,
    records: Vec<Record>,
    delivered: Vec<Delivered>,
    /// Bytes of all records that were not lost.
    bytes: u64,
    /// What was lost is not counted, which is a mutant.
    untold: bool,
}

impl Rings {
    /// Empty rings.
    fn new(events: &[EventSetup], cpus: usize, untold: bool) -> Self {
        let of_event = |event: &EventSetup| vec![Ring::new(event.ring_bytes); cpus];
        Self {
            cpus,
            rings: events.iter().flat_map(of_event).collect(),
            sequence: 0,
            records: Vec::new(),
            delivered: Vec::new(),
            bytes: 0,
            untold,
        }
    }

    /// Writes to the ring of the record's event and CPU; false if there was no room.
    fn write(&mut self, record: Record) -> bool {
        let index = usize::from(record.event) * self.cpus + usize::from(record.cpu);
        let size = record.body.size();
        let Some(ring) = self.rings.get_mut(index) else {
            return false;
        };
        let written = ring.write(record, &mut self.sequence, self.untold);
        self.bytes += u64::from(if written { size } else { 0 });
        written
    }

    /// The reader takes all records of the CPU's rings.
    fn read(&mut self, cpu: usize) {
        let from = self.records.len();
        for ring in self.rings.iter_mut().skip(cpu).step_by(self.cpus) {
            ring.read(&mut self.records);
        }
        // A tool has one ring for all events of a CPU (PERF_EVENT_IOC_SET_OUTPUT).
        let taken = &mut self.records[from..];
        taken.sort_unstable_by_key(|record| record.sequence);
        let numbers = taken.iter().map(|r| Delivered::Record(r.sequence));
        self.delivered.extend(numbers);
        self.delivered.push(Delivered::Cpu(cpu as u16));
    }

    /// The end of recording: the reader asks what was lost and not told, and sorts by time.
    fn end(&mut self, time: u64) {
        for (index, ring) in self.rings.iter_mut().enumerate() {
            let lost = ring.take_lost();
            if lost > 0 {
                self.sequence += 1;
                self.delivered.push(Delivered::Record(self.sequence));
                self.records.push(Record {
                    time,
                    sequence: self.sequence,
                    cpu: (index % self.cpus) as u16,
                    event: (index / self.cpus) as u16,
                    tid: 0,
                    body: Body::LostSamples { lost },
                });
            }
        }
        self.records
            .sort_by_key(|record| (record.time, record.sequence));
    }
}

/// A ring buffer of one event on one CPU.
#[derive(Clone, Debug, Default)]
struct Ring {
    capacity: u32,
    used: u32,
    /// Records that did not fit and are not told yet.
    lost: u64,
    records: Vec<Record>,
}

impl Ring {
    fn new(capacity: u32) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// Writes a record, and before it what was lost (`__perf_output_begin`). False if there was
    /// no room. `untold`: the mutant that does not count.
    fn write(&mut self, record: Record, sequence: &mut u64, untold: bool) -> bool {
        let told = Body::Lost { lost: self.lost };
        let before = if self.lost > 0 { told.size() } else { 0 };
        let need = before + record.body.size();
        if self.used + need > self.capacity {
            self.lost += u64::from(!untold);
            return false;
        }
        if self.lost > 0 {
            self.push(
                Record {
                    body: told,
                    ..record
                },
                sequence,
            );
            self.lost = 0;
        }
        self.used += need;
        self.push(record, sequence);
        true
    }

    fn push(&mut self, record: Record, sequence: &mut u64) {
        *sequence += 1;
        self.records.push(Record {
            sequence: *sequence,
            ..record
        });
    }

    /// The reader takes everything.
    fn read(&mut self, out: &mut Vec<Record>) {
        self.used = 0;
        out.append(&mut self.records);
    }

    /// What was lost and not told, taken at the end.
    fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(time: u64) -> Record {
        Record {
            time,
            sequence: 0,
            cpu: 0,
            event: 0,
            tid: 1,
            body: Body::Exit,
        }
    }

    #[test]
    fn what_did_not_fit_is_told_by_the_next_record() {
        let mut ring = Ring::new(3 * 64);
        let mut sequence = 0;
        let wrote: Vec<_> = (0..5)
            .map(|time| ring.write(exit(time), &mut sequence, false))
            .collect();
        assert_eq!(wrote, [true, true, true, false, false]);
        let mut out = Vec::new();
        ring.read(&mut out);
        assert!(ring.write(exit(9), &mut sequence, false));
        ring.read(&mut out);
        assert_eq!(out[3].body, Body::Lost { lost: 2 });
        assert_eq!(out[4].body, Body::Exit);
        assert_eq!(ring.take_lost(), 0);
    }
}
