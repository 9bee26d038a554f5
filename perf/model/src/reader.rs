//! The reader's side: what it takes out of the rings, in its order, and the end of a recording.

use super::log::Fact;
use super::record::{Body, Record};
use super::world::World;

/// What a reader got, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    /// The record of this sequence number.
    Record(u64),
    /// This CPU's rings are empty.
    Cpu(u16),
}

impl World {
    /// What the reader has: after [`World::finish`] by time, before in the order it took it.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The records with the reader's rounds, in the order in which it took them.
    pub(super) fn delivered(&self) -> &[Delivered] {
        &self.delivered
    }

    /// Takes all records of the CPU's rings.
    pub(super) fn read(&mut self, cpu: usize) {
        let cpus = self.cpus.len();
        let from = self.records.len();
        for ring in self.rings.iter_mut().skip(cpu).step_by(cpus) {
            ring.read(&mut self.records);
        }
        // A tool has one ring for all events of a CPU (PERF_EVENT_IOC_SET_OUTPUT).
        let taken = &mut self.records[from..];
        taken.sort_unstable_by_key(|record| record.sequence);
        let numbers = taken.iter().map(|r| Delivered::Record(r.sequence));
        self.delivered.extend(numbers);
        self.delivered.push(Delivered::Cpu(cpu as u16));
        self.say(cpu, Fact::Read);
    }

    /// The end of recording: the reader takes everything, asks what was lost and not told, and
    /// sorts by time.
    pub fn finish(&mut self) {
        self.close_all();
        for cpu in 0..self.cpus.len() {
            self.read(cpu);
        }
        let cpus = self.cpus.len();
        for (index, ring) in self.rings.iter_mut().enumerate() {
            let lost = ring.take_lost();
            if lost > 0 {
                self.sequence += 1;
                self.delivered.push(Delivered::Record(self.sequence));
                self.records.push(Record {
                    time: self.now,
                    sequence: self.sequence,
                    cpu: (index % cpus) as u16,
                    event: (index / cpus) as u16,
                    tid: 0,
                    body: Body::LostSamples { lost },
                });
            }
        }
        self.records
            .sort_by_key(|record| (record.time, record.sequence));
    }
}
