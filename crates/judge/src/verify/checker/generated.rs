//! Generated code: the tables that the program registers for it, and the names that it tells.

use super::Checker;
use crate::check::Subject;
use crate::verify::findings::{Check, Site};
use crate::verify::frames::{outer, top, wrong_in};
use crate::verify::late::Kept;
use crate::verify::places::PlaceId;
use std::ops::Range;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_record::jit;
use unwind_sim_record::machine::{MachineMemory, cpu_at};
use unwind_sim_record::registers::live_registers;
use unwind_sim_recordings::jitdump::Entry;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::{self, Mapping};
use unwind_sim_unwind::truth::Truth;

impl Checker<'_> {
    /// The function at `rip`, which registers unwind tables, is entered.
    #[cold]
    pub(super) fn entered_hook(&mut self, core: &Core, rip: u64) {
        const ARGUMENTS: [usize; 4] = [7, 6, 2, 1];
        let args = ARGUMENTS.map(|register| core.state.gpr(register));
        let changed = self.jit.entered(rip, args, &core.memory);
        self.lay(&changed);
    }

    /// A system call may have written to a jitdump file.
    pub(super) fn wrote_jitdump(&mut self, call: &SystemCall, core: &Core) {
        let changed = self.jit.called(call, &core.memory);
        self.lay(&changed);
    }

    /// Puts the registered tables in force for these parts of the memory.
    pub(super) fn lay(&mut self, ranges: &[Range<u64>]) {
        let before = self.space.stamp();
        for range in ranges {
            for mapping in self.jit.layout(&self.space, range) {
                self.space.map(mapping);
            }
        }
        self.images_changed(before);
    }

    /// Code at `rip` was looked up: if it is generated, its place will get names.
    #[cold]
    pub(super) fn meet_generated(&mut self, rip: u64) {
        if self.space.find(rip).is_some_and(jit::is_generated) {
            let place = self.places.at(&self.space, rip);
            self.generated.meet(self.task.process, place);
        }
    }

    /// Counts an instruction of generated code without a table, and keeps its state for when the
    /// program writes one.
    #[inline(never)]
    pub(super) fn count_generated(&mut self, core: &Core, rip: u64) {
        let place = self.places.at(&self.space, rip);
        self.generated.count(place, rip);
        if let Some(&held) = self.tracker.frames().last()
            && self.late.wants(place, rip)
        {
            let state = (live_registers(&core.state, rip), held);
            let now = (self.number, self.no_table);
            let memory = &MachineMemory(&core.memory);
            self.late
                .keep(place, cpu_at(&core.state, rip), state, memory, now);
        }
        for (which, tally) in (0..).zip(&mut self.tallies) {
            tally.no_table += u64::from(self.no_table >> which & 1);
        }
    }

    /// Keeps the bytes of generated code around the address of a finding.
    #[cold]
    pub(super) fn show(&mut self, core: &Core, place: PlaceId, address: u64, inside: u64) {
        let Some(mapping) = self.space.find(inside) else {
            return;
        };
        if jit::is_generated(mapping) {
            let range = &mapping.range;
            self.shown
                .keep(place, address, range, &MachineMemory(&core.memory));
        }
    }

    /// Names generated code, before [`Checker::finish`]. `file` reads a file as the program sees
    /// it.
    pub fn name_generated(&mut self, file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        self.judge_late(file);
        let others = self
            .processes
            .iter()
            .map(|(&number, other)| (number, &other.jit));
        let running = others.chain([(self.task.process, &self.jit)]);
        self.generated.name(running, &mut self.places, file);
    }

    /// Judges the code that ran before the program wrote its jitdump file.
    fn judge_late(&mut self, file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        let others = self.processes.iter();
        let others = others.map(|(&number, other)| (number, &other.jit));
        let running = others.chain([(self.task.process, &self.jit)]);
        let written = self.generated.written(running, file);
        for (place, entries) in written {
            for kept in self.late.take(place) {
                // Code at an address may be replaced: the row is that of the code that ran.
                let mut of = entries.iter().rev();
                if let Some(entry) = of.find(|entry| is_code_of(entry, &kept)) {
                    self.judge_kept(place, &kept, entry);
                }
            }
        }
    }

    fn judge_kept(&mut self, place: PlaceId, kept: &Kept, entry: &Entry) {
        let rip = kept.cpu.rip;
        let mut space = image::AddressSpace::new();
        space.map(Mapping {
            range: entry.range.clone(),
            bias: entry.bias,
            image: Some(entry.image.clone()),
            name: jit::REGISTERED.to_owned(),
        });

        let outer = outer(&kept.held, 0);
        let subject = Subject {
            space: &space,
            memory: &kept.stack,
            truth: &Truth::Known(vec![top(&kept.cpu, kept.held.cfa), outer]),
            live: &kept.live,
            is_whole: true,
        };

        let count = self.generated.take(place, rip);
        let site = Site {
            place: self.places.at(&space, rip),
            address: rip,
            activation: None,
            number: kept.number,
        };

        // It was counted under the place of memory without a file; now it belongs to the image of
        // the table.
        self.code.executed(site.place, rip);

        for which in 0..self.finders.len() {
            // Only for these unwinders it had no table when it ran; the others judged it then.
            if kept.no_table >> which & 1 == 0 {
                continue;
            }

            let mut cache = Cache::new();
            let found = subject.check_frame(self.finders[which], 0, &mut cache);

            // What counted as code without a table is judged now.
            let tally = &mut self.tallies[which];
            tally.no_table = tally.no_table.saturating_sub(count);

            if !found.is_empty() {
                tally.wrong += count;
                let check = (which, Check::Instruction);
                let wrong = wrong_in(&found);
                self.findings.add_late(check, wrong, site, &found, count);
            }
        }
    }
}

/// Whether a function of a jitdump file is the code that was executed.
fn is_code_of(entry: &Entry, kept: &Kept) -> bool {
    let rip = kept.cpu.rip;
    if !entry.range.contains(&rip) {
        return false;
    }
    let svma = rip.wrapping_sub(entry.bias);
    let len = (entry.range.end - rip).min(kept.code.len() as u64);
    let code = entry.image.text_bytes(svma, len as usize);
    // The file may have fewer bytes of the code than there were.
    kept.code.starts_with(code)
}
