//! What the truth says of the words of a stack.

use super::stack::Note;
use crate::saved::saved_registers;
use std::collections::BTreeMap;
use unwind_sim_judge::check::Subject;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;

/// The return addresses, saved registers and CFAs of the true frames, by address.
pub fn of_truth(view: &View<'_>, dwarf: &Dwarf, cache: &mut Cache) -> BTreeMap<u64, Vec<Note>> {
    let mut notes: BTreeMap<u64, Vec<Note>> = BTreeMap::new();

    let truth = &view.sample.truth;
    let frames = truth.frames();

    for (index, frame) in frames.iter().enumerate() {
        if let Some(slot) = truth.slot(index) {
            let place = Location::of(view.space, frame.address()).to_string();
            let note = Note::ReturnAddress {
                frame: index,
                place,
            };
            notes.entry(slot).or_default().push(note);
        }
        // The outermost frame's CFA is not known: nothing was called from outside of it.
        if index + 1 < frames.len() {
            let note = Note::Cfa { frame: index };
            notes.entry(frame.cfa).or_default().push(note);
        }
    }

    let (memory, live) = (view.sample.memory(), view.live());

    // The truth has values of registers, but not where a function saved them.
    let subject = Subject::of(view, &memory, &live);
    let mut low = live.rsp();

    for (index, frame) in frames.iter().enumerate() {
        let saved = saved_registers(view, &subject, (dwarf, &mut *cache), (index, low));

        // A register is saved by the frame that is called, and belongs to its caller.
        for (address, reg) in saved {
            let note = Note::Saved {
                register: reg.as_str(),
                frame: index + 1,
            };
            notes.entry(address).or_default().push(note);
        }

        // The frame of the caller starts where this one ends.
        low = frame.cfa;
    }

    notes
}
