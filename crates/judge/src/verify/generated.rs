//! Generated code without an unwind table: how much of it was executed, by function.
//!
//! A program need not register tables for code that it generates. What has none is not judged by
//! unwinders that need one; it is a class of its own in the report, `JIT, no table`.

use super::places::{PlaceId, Places};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::rc::Rc;
use unwind_sim_record::jit::Jit;
use unwind_sim_recordings::jitdump::Entry;

/// A generated function without an unwind table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name, or the mapping that it is in.
    pub name: String,
    /// How many of its instructions were executed.
    pub instructions: u64,
    /// The number of distinct addresses of these.
    pub addresses: u64,
}

/// What was executed.
#[derive(Default)]
pub(super) struct Generated {
    /// How often each instruction was executed, by place and address.
    counts: HashMap<(PlaceId, u64), u64>,
    /// The mappings without a table, with the process that first executed them.
    places: BTreeMap<PlaceId, u32>,
    /// What processes and programs that have ended had registered.
    ended: Vec<(u32, Jit)>,
}

impl Generated {
    /// Generated code is executed for the first time.
    pub(super) fn meet(&mut self, process: u32, place: PlaceId) {
        self.places.entry(place).or_insert(process);
    }

    /// An instruction without a table is executed.
    pub(super) fn count(&mut self, place: PlaceId, address: u64) {
        *self.counts.entry((place, address)).or_default() += 1;
    }

    /// A process or its program has ended.
    pub(super) fn end(&mut self, process: u32, jit: Jit) {
        if self.places.values().any(|&p| p == process) {
            self.ended.push((process, jit));
        }
    }

    /// Gives all places of generated code the names that the programs told. `running` are the
    /// processes that have not ended; `file` reads a file as they see it.
    pub(super) fn name<'a>(
        &'a self,
        running: impl Iterator<Item = (u32, &'a Jit)>,
        places: &mut Places,
        file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) {
        let ended = self.ended.iter().map(|(process, jit)| (*process, jit));
        for (process, jit) in ended.chain(running) {
            let mut mine = self
                .places
                .iter()
                .filter(|(_, p)| **p == process)
                .peekable();
            if mine.peek().is_none() {
                continue;
            }
            let names = jit.names(process, file);
            for (&place, _) in mine {
                places.name(place, &names);
            }
        }
    }

    /// Takes back the count of an instruction that has a table after all.
    pub(super) fn take(&mut self, place: PlaceId, address: u64) -> u64 {
        self.counts.remove(&(place, address)).unwrap_or(0)
    }

    /// By place without a table, the functions with a table in the jitdump files that the program wrote.
    pub(super) fn written<'a>(
        &'a self,
        running: impl Iterator<Item = (u32, &'a Jit)>,
        file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Vec<(PlaceId, Rc<[Entry]>)> {
        let mut written = Vec::new();
        if self.counts.is_empty() {
            return written;
        }
        let ended = self.ended.iter().map(|(process, jit)| (*process, jit));
        for (process, jit) in ended.chain(running) {
            let mine = self.places.iter().filter(|(_, p)| **p == process);
            let mine: Vec<PlaceId> = mine.map(|(&place, _)| place).collect();
            if mine.is_empty() {
                continue;
            }
            let entries: Rc<[Entry]> = jit.written_at_last(file).into();
            written.extend(mine.into_iter().map(|place| (place, entries.clone())));
        }
        written
    }

    /// The functions, those with most instructions first.
    pub(super) fn functions(&self, places: &Places) -> Vec<Function> {
        let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (&(place, address), count) in &self.counts {
            let (instructions, addresses) = all.entry(places.function(place, address)).or_default();
            *instructions += count;
            *addresses += 1;
        }
        let functions = all
            .into_iter()
            .map(|(name, (instructions, addresses))| Function {
                name,
                instructions,
                addresses,
            });
        let mut functions: Vec<Function> = functions.collect();
        functions.sort_by_key(|f| std::cmp::Reverse(f.instructions));
        functions
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.counts.allocation_size()
    }
}
