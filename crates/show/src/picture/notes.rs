//! What is known of the words of a stack: what each is, from the truth, and who read it.

use super::words::bounds;
use super::{DrawnWalk, true_function};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Frame, How};
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Rule, Value};
use unwind_sim_unwind::truth::TrueKind;
use unwind_sim_view::timeline::{self, of_truth};

/// The name of a signal handler's return address. The trampoline often has no symbol.
pub(super) const TO_TRAMPOLINE: &str = "return address, to the trampoline";
/// What is known of a word.
#[derive(Default)]
pub(super) struct Note {
    /// What it is, from the truth.
    pub(super) names: Vec<String>,
    /// Who read it, and for what: `(what, unwinders)`.
    readers: Vec<(String, Vec<String>)>,
}

impl Note {
    fn read(&mut self, what: String, by: &str) {
        match self.readers.iter_mut().find(|(w, _)| *w == what) {
            Some((_, who)) if who.iter().any(|w| w == by) => {}
            Some((_, who)) => who.push(by.to_owned()),
            None => self.readers.push((what, vec![by.to_owned()])),
        }
    }
}

/// The notes on all words, by address.
pub(super) type Notes = BTreeMap<u64, Note>;

/// The notes on the words of a sample.
pub(super) fn notes(view: &View<'_>, walks: &[DrawnWalk<'_>]) -> Notes {
    let mut notes = Notes::new();
    name(view, &mut notes);
    for walk in walks {
        read_by(view, walk, &mut notes);
    }
    notes
}

/// Names the words that the truth knows.
fn name(view: &View<'_>, notes: &mut Notes) {
    let frames = view.sample.truth.frames();
    for (address, known) in of_truth(view, &Dwarf::new(), &mut Cache::new()) {
        let names = known.iter().filter_map(|note| match *note {
            timeline::Note::ReturnAddress { frame, .. } => {
                let whose = true_function(view, frame);
                Some(match frames[frame].kind {
                    TrueKind::Interrupted => format!("rip of the interrupted {whose}"),
                    _ if whose == "<signal>" => TO_TRAMPOLINE.to_owned(),
                    _ => format!("return address, to {whose}"),
                })
            }
            timeline::Note::Saved { register, frame } => Some(format!(
                "saved {register} of {}",
                true_function(view, frame)
            )),
            _ => None,
        });
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            notes.entry(address).or_default().names.extend(names);
        }
    }
}

/// Notes the words that a walk read, and those that it could not read.
fn read_by(view: &View<'_>, walk: &DrawnWalk<'_>, notes: &mut Notes) {
    // The word of the return address is noted by the number of the frame that was found through it.
    let chain = &walk.outcome.chain;
    for (number, frame) in chain.steps().enumerate() {
        if let Some(slot) = frame.slot {
            notes
                .entry(slot)
                .or_default()
                .read(format!("frame {number}"), walk.name);
        }

        let How::Rule { row, words } = frame.how else {
            continue;
        };

        // The rule was applied to the frame before, whose registers tell what each word is.
        let inner = number.checked_sub(1).and_then(|i| chain.frames.get(i));
        for word in words.iter().filter(|word| Some(word.address) != frame.slot) {
            let reg = register_at(row.rule(), inner, frame.sp, word.address);
            let what = reg.map_or("read".to_owned(), |reg| reg.to_string());
            notes.entry(word.address).or_default().read(what, walk.name);
        }
    }

    let failed = |reason: &Reason| match reason {
        Reason::Memory(error) => Some(error.address()),
        _ => None,
    };

    // Far from all that was recorded, a word has no place in the picture.
    let near = |address: &u64| {
        let mut regions = view.sample.regions.iter();
        regions.any(|region| bounds(region).contains(address))
    };

    // Events say which register's word could not be read; without its address nothing can be
    // marked.
    let lost = chain.events.iter().filter_map(|event| match event {
        Event::RegisterLost { reg, cause, .. } => {
            Some((format!("{reg} unreadable"), failed(cause)?))
        }
        _ => None,
    });
    let mut unread: Vec<(String, u64)> = lost.collect();
    // A walk that ends because it lost a register repeats the cause.
    if let Some(address) = failed(&chain.end.reason)
        && unread.iter().all(|(_, other)| *other != address)
    {
        unread.push(("unreadable".to_owned(), address));
    }

    for (what, address) in unread.into_iter().filter(|(_, address)| near(address)) {
        notes.entry(address).or_default().read(what, walk.name);
    }
}

/// The register that a rule reads from `address`. The CFA is `sp` of the frame in nearly all rules;
/// `inner` is the frame that the rule was applied to.
fn register_at(rule: &Rule, inner: Option<&Frame>, sp: u64, address: u64) -> Option<Reg> {
    let is_at = |value: Value| match value {
        Value::Load { base, offset, .. } => {
            let base = match base {
                Base::Cfa => Some(sp),
                Base::Reg(Reg::Rsp) => inner.map(|inner| inner.sp),
                Base::Reg(_) => None,
            };
            base.is_some_and(|base| base.wrapping_add_signed(i64::from(offset)) == address)
        }
        _ => false,
    };
    let saved = Reg::CALLEE_SAVED.into_iter();
    saved.chain([Reg::Rsp]).find(|reg| {
        is_at(if *reg == Reg::Rsp {
            rule.sp
        } else {
            rule.saved(*reg)
        })
    })
}

/// What is known of a word, in one line.
pub(super) fn text(note: &Note) -> String {
    let mut out = note.names.join("; ");
    let readers = note.readers.iter();
    let readers: Vec<String> = readers
        .map(|(what, by)| format!("{}: {what}", by.join(", ")))
        .collect();
    if !readers.is_empty() {
        let gap = if out.is_empty() { "" } else { "  " };
        let _ = write!(out, "{gap}<- {}", readers.join("; "));
    }
    out
}
