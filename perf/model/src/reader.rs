//! The rings of a run, and the reader's side: what it takes out of them, in its order, and the end
//! of a recording.

use super::record::{Body, Record, Ring};
use super::setup::EventSetup;

/// What a reader got, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    /// The record of this sequence number.
    Record(u64),
    /// This CPU's rings are empty.
    Cpu(u16),
}

/// A ring of each event on each CPU, and what was read out of them.
pub(super) struct Rings {
    cpus: usize,
    rings: Vec<Ring>,
    /// Of the last record that was written.
    sequence: u64,
    records: Vec<Record>,
    delivered: Vec<Delivered>,
    /// Bytes of all records that were not lost.
    bytes: u64,
}

impl Rings {
    /// Empty rings.
    pub(super) fn new(events: &[EventSetup], cpus: usize) -> Self {
        let of_event = |event: &EventSetup| vec![Ring::new(event.ring_bytes); cpus];
        Self {
            cpus,
            rings: events.iter().flat_map(of_event).collect(),
            sequence: 0,
            records: Vec::new(),
            delivered: Vec::new(),
            bytes: 0,
        }
    }

    /// Writes to the ring of the record's event and CPU; false if there was no room. `untold`: the
    /// mutant that does not count what was lost.
    pub(super) fn write(&mut self, record: Record, untold: bool) -> bool {
        let index = usize::from(record.event) * self.cpus + usize::from(record.cpu);
        let size = record.body.size();
        let Some(ring) = self.rings.get_mut(index) else {
            return false;
        };
        let written = ring.write(record, &mut self.sequence, untold);
        self.bytes += u64::from(if written { size } else { 0 });
        written
    }

    /// Bytes of all records so far that were not lost.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was read.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// The records with the reader's rounds, in the order in which it took them.
    pub(super) fn delivered(&self) -> &[Delivered] {
        &self.delivered
    }

    /// The reader takes all records of the CPU's rings.
    pub(super) fn read(&mut self, cpu: usize) {
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
    pub(super) fn end(&mut self, time: u64) {
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
