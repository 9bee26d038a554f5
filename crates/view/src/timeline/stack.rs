//! The words of a stack, with what is in them.

use super::Hex;
use super::truth::of_truth;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::case::POISON;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::{MemoryView, View};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::memory::Memory;

/// The number of words shown below rsp: what was just popped, and a red zone in use.
const BELOW: u64 = 4;
/// The number of words shown from rsp upwards.
const ABOVE: u64 = 64;
/// The number of words further up that are shown because something is known of them.
const NOTED_MAX: usize = 256;

/// The words of a stack, in the order of their addresses. Words without a note may be left out.
#[derive(Clone, Default, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Stack {
    /// The stack pointer.
    pub rsp: Hex,
    /// The words.
    pub words: Vec<Word>,
}

/// A word of the stack.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Word {
    /// Its address.
    pub address: Hex,
    /// Its content; none if the memory was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Hex>,
    /// What is known of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// What is known of a word.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Note {
    /// The pc of a true frame: its return address, or where it was interrupted.
    ReturnAddress {
        /// The number of the true frame that continues there.
        frame: usize,
        /// Where it continues.
        place: String,
    },
    /// A register that a function saved, which is still there.
    Saved {
        /// The register.
        register: &'static str,
        /// The number of the true frame that the register belongs to.
        frame: usize,
    },
    /// The CFA of a true frame: where its caller's rsp is after the return.
    Cfa {
        /// The number of the true frame.
        frame: usize,
    },
    /// The word lies below the memory that a walk can read.
    BelowCopy,
    /// The word lies above the memory that a walk can read.
    BeyondCopy,
    /// The word is below rsp.
    BelowRsp,
    /// The content is what cases fill unused stack with.
    Poisoned,
    /// The content is the address of code, but no true frame that is known returns there.
    CodeAddress {
        /// The code.
        place: String,
    },
}

impl Stack {
    pub(super) fn of(
        view: &View<'_>,
        memory_view: MemoryView,
        dwarf: &Dwarf,
        cache: &mut Cache,
    ) -> Stack {
        let rsp = view.live().rsp();
        let memory = view.sample.memory();

        // Notes from the truth come first; the others are about where a word lies or what it looks
        // like.
        let mut notes = of_truth(view, dwarf, cache);

        // The words of a stack are aligned, even where rsp is not.
        let near = (0..BELOW + ABOVE).map(|i| {
            let below = BELOW * 8;
            (rsp & !7).wrapping_sub(below).wrapping_add(i * 8)
        });

        // Words that were not recorded are left out, except those that the truth names.
        let mut addresses: std::collections::BTreeSet<u64> = near
            .filter(|&address| memory.read_u64(address).is_ok())
            .collect();
        addresses.extend(notes.keys().copied().take(NOTED_MAX));

        let words = addresses.into_iter().map(|address| {
            let value = memory.read_u64(address).ok();
            let mut notes = notes.remove(&address).unwrap_or_default();
            if address < rsp {
                notes.push(Note::BelowRsp);
            }

            // Cases fill stack that is not in use with this value (`corpus/cases/prelude.inc`).
            if value == Some(POISON) {
                notes.push(Note::Poisoned);
            }
            // An unwinder that gets a copy does not see what is outside of it.
            if let MemoryView::Copy(bytes) = memory_view {
                if address < rsp {
                    notes.push(Note::BelowCopy);
                } else if address.saturating_add(8) > rsp.saturating_add(bytes) {
                    notes.push(Note::BeyondCopy);
                }
            }

            let is_return = notes
                .iter()
                .any(|n| matches!(n, Note::ReturnAddress { .. }));
            // A guess would take it for a return address.
            if let Some(value) = value.filter(|&v| !is_return && view.space.is_text(v)) {
                let place = Location::of(view.space, CodeAddress::Return(value)).to_string();
                notes.push(Note::CodeAddress { place });
            }

            Word {
                address: Hex(address),
                value: value.map(Hex),
                notes,
            }
        });

        Stack {
            rsp: Hex(rsp),
            words: words.collect(),
        }
    }
}
