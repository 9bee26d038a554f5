//! Generated code: the tables that the program registers for it, and the names that it tells.

use super::Checker;
use super::mapped::Mapped;
use crate::check::Subject;
use crate::verify::findings::{Check, Site};
use crate::verify::frames::{outer, top, wrong_in};
use crate::verify::generated::{Function, Generated};
use crate::verify::late::{Kept, Late};
use crate::verify::places::{PlaceId, Places};
use crate::verify::shown::Shown;
use unwind_sim_emulator::Core;
use unwind_sim_record::jit::{self, Jit};
use unwind_sim_record::machine::{MachineMemory, cpu_at};
use unwind_sim_record::registers::live_registers;
use unwind_sim_recordings::jitdump::Entry;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::{self, Mapping};
use unwind_sim_unwind::truth::Truth;

/// Generated code that was executed without a table.
///
/// What is counted in `counts` is not among the checked instructions. It stays there unless the program
/// writes a table later: then `late` has its state, and it is judged at the end.
#[derive(Default)]
pub(super) struct WithoutTable {
    counts: Generated,
    late: Late,
    shown: Shown,
}

impl WithoutTable {
    /// A process or its program has ended, which had told this of its code.
    pub(super) fn end(&mut self, process: u32, jit: Jit) {
        self.counts.end(process, jit);
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.counts.bytes() + self.late.bytes() + self.shown.bytes()
    }

    /// The functions, the number of instructions that were not kept, and the bytes of code around
    /// findings.
    pub(super) fn finish(self, places: &Places) -> (Vec<Function>, u64, Shown) {
        let functions = self.counts.functions(places);
        (functions, self.late.left_out, self.shown)
    }
}

impl Checker<'_> {
    /// The function at `rip`, which registers unwind tables, is entered.
    #[cold]
    pub(super) fn entered_hook(&mut self, core: &Core, rip: u64) {
        self.entered_kernel_hook(core, rip);
        if self.mapped.entered_hook(core, rip) {
            self.outcome.change_all();
        }
    }

    /// Code at `rip` was looked up: if it is generated, its place will get names.
    #[cold]
    pub(super) fn meet_generated(&mut self, rip: u64) {
        if self.mapped.space.find(rip).is_some_and(jit::is_generated) {
            let place = self.mapped.place(rip);
            self.generated.counts.meet(self.stacks.task.process, place);
        }
    }

    /// Counts an instruction of generated code without a table, and keeps its state for when the
    /// program writes one.
    #[inline(never)]
    pub(super) fn count_generated(&mut self, core: &Core, rip: u64) {
        let place = self.mapped.place(rip);
        let no_table = self.outcome.no_table;
        self.generated.counts.count(place, rip);
        if let Some(&held) = self.stacks.tracker.frames().last()
            && self.generated.late.wants(place, rip)
        {
            let state = (live_registers(&core.state, rip), held);
            let now = (self.counts.executed, no_table);
            let memory = &MachineMemory(&core.memory);
            self.generated
                .late
                .keep(place, cpu_at(&core.state, rip), state, memory, now);
        }
        for (which, tally) in (0..).zip(&mut self.counts.tallies) {
            tally.no_table += u64::from(no_table >> which & 1);
        }
    }

    /// Keeps the bytes of generated code around the address of a finding.
    #[cold]
    pub(super) fn show(&mut self, core: &Core, place: PlaceId, address: u64, inside: u64) {
        let Some(mapping) = self.mapped.space.find(inside) else {
            return;
        };
        if jit::is_generated(mapping) {
            let range = &mapping.range;
            self.generated
                .shown
                .keep(place, address, range, &MachineMemory(&core.memory));
        }
    }

    /// Names generated code, before [`Checker::finish`]. `file` reads a file as the program sees
    /// it.
    pub fn name_generated(&mut self, file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        self.judge_late(file);
        let Mapped { jit, places, .. } = &mut self.mapped;
        let others = self.processes.jits();
        let running = others.chain([(self.stacks.task.process, &*jit)]);
        self.generated.counts.name(running, places, file);
    }

    /// Judges the code that ran before the program wrote its jitdump file.
    fn judge_late(&mut self, file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        let others = self.processes.jits();
        let running = others.chain([(self.stacks.task.process, &self.mapped.jit)]);
        let written = self.generated.counts.written(running, file);
        for (place, entries) in written {
            for kept in self.generated.late.take(place) {
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

        let count = self.generated.counts.take(place, rip);
        let site = Site {
            place: self.mapped.places.at(&space, rip),
            address: rip,
            activation: None,
            number: kept.number,
        };

        // It was counted under the place of memory without a file; now it belongs to the image of
        // the table.
        self.code.executed(site.place, rip);

        for which in 0..self.unwinders.len() {
            // Only for these unwinders it had no table when it ran; the others judged it then.
            if kept.no_table >> which & 1 == 0 {
                continue;
            }

            let mut cache = Cache::new();
            let found = subject.check_frame(self.unwinders.finders[which], 0, &mut cache);

            // What counted as code without a table is judged now.
            let tally = &mut self.counts.tallies[which];
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
