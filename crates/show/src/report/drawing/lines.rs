//! The words of a drawing: which are shown, and what is said of each.

use super::super::stack::number;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use unwind_sim_recordings::counted::counted;
use unwind_sim_view::timeline::{Hex, Note, State, Walk};

/// The number of lines of a drawing, at most.
const LINES_MAX: usize = 40;
/// The number of words between two shown ones that are shown, too.
const PLAIN_MAX: u64 = 2;
/// Bytes of a word.
const WORD: u64 = 8;
/// Words that lie farther apart are taken for those of two stacks. A frame of more than a page is rare, and
/// stacks of threads lie 8 MiB apart (`RLIMIT_STACK`, getrlimit(2)).
const APART: u64 = 1 << 20;
/// Values below this are numbers.
const SMALL: u64 = 1 << 16;

/// A line of the list of words.
pub(super) enum Line {
    Word(DrawnWord),
    /// Words that are left out, or the start of another stack.
    Gap(String),
}

/// A word as it is drawn.
#[derive(Default)]
pub(super) struct DrawnWord {
    /// The registers that point to it.
    pub(super) register: String,
    /// Where it lies, such as `rsp+8`.
    pub(super) place: String,
    /// Its content: a name, a place or a number.
    pub(super) value: String,
    /// What it is.
    pub(super) note: String,
    /// Whether a true frame returns there.
    pub(super) is_return: bool,
    /// Whether the walk has read it.
    pub(super) is_read: bool,
}

/// The lines of a state, and where each address is in them.
pub(super) struct Lines {
    pub(super) lines: Vec<Line>,
    pub(super) rows: HashMap<u64, usize>,
}

/// What is known of a word.
#[derive(Clone, Copy, Default)]
struct Known<'a> {
    value: Option<u64>,
    notes: &'a [Note],
    /// Whether only its address is known: a walk has read it, and the state does not list it.
    is_address: bool,
}

/// Names of addresses on the stacks of a drawing.
pub(super) struct Places {
    rsp: u64,
    /// First and last address of each stack, the sampled one first.
    stacks: Vec<(u64, u64)>,
}

impl Places {
    fn of(state: &State, known: &BTreeMap<u64, Known<'_>>) -> Places {
        let rsp = state.stack.rsp.0;
        let mut stacks: Vec<(u64, u64)> = Vec::new();
        for &address in known.keys() {
            match stacks.last_mut() {
                Some((_, last)) if address - *last < APART => *last = address,
                _ => stacks.push((address, address)),
            }
        }

        // The name of the others is by number, so the sampled one has to be the first.
        stacks.sort_by_key(|(first, last)| !(*first..=*last).contains(&rsp));
        Places { rsp, stacks }
    }

    /// The number of the stack that an address is on.
    fn stack(&self, address: u64) -> Option<usize> {
        let mut all = self.stacks.iter();
        all.position(|(first, last)| (*first..=last.saturating_add(WORD)).contains(&address))
    }

    /// `rsp+8`, or `s2+8` on another stack.
    pub(super) fn name(&self, address: u64) -> Option<String> {
        Some(match self.stack(address)? {
            0 => relative("rsp", address.wrapping_sub(self.rsp)),
            other => {
                let name = format!("s{}", other + 1);
                relative(&name, address - self.stacks[other].0)
            }
        })
    }
}

/// `rsp`, `rsp+16` or `rsp-8`.
fn relative(base: &str, distance: u64) -> String {
    match distance as i64 {
        0 => base.to_owned(),
        distance => format!("{base}{distance:+}"),
    }
}

/// The lines of a state as `walk` sees it.
pub(super) fn lines(state: &State, walk: &Walk) -> (Lines, Places) {
    let read: BTreeSet<u64> = walk
        .steps
        .iter()
        .flat_map(|step| step.reads.iter().map(|at| at.0))
        .collect();

    let known = known(state, walk);
    let places = Places::of(state, &known);
    let pointers = pointers(state);

    // What the truth or the walk says something about, and where the registers point to.
    let is_kept = |address: u64, of: &Known<'_>| {
        let is_named =
            |note: &Note| matches!(note, Note::ReturnAddress { .. } | Note::Saved { .. });
        of.notes.iter().any(is_named)
            || read.contains(&address)
            || pointers.contains_key(&address)
            || in_use_below_rsp(state, address, of)
    };

    let mut out = Lines {
        lines: Vec::new(),
        rows: HashMap::new(),
    };
    let kept: Vec<u64> = {
        let all = known.iter().filter(|(at, of)| is_kept(**at, of));
        all.map(|(at, _)| *at).collect()
    };

    for stack in 0..places.stacks.len() {
        let mine = kept.iter().copied();
        let mine: Vec<u64> = mine.filter(|at| places.stack(*at) == Some(stack)).collect();
        if stack > 0 && !mine.is_empty() {
            let name = format!("another stack, s{}", stack + 1);
            out.lines.push(Line::Gap(name));
        }

        let mut next: Option<u64> = None;
        for (nth, &address) in mine.iter().enumerate() {
            if out.lines.len() >= LINES_MAX {
                let more = counted((mine.len() - nth) as u64, "more word");
                out.lines.push(Line::Gap(format!("… {more} further up")));
                break;
            }

            // A few words between two that matter show how far these lie apart. A state does not list
            // all words; those that it has not are folded, too.
            let from = next.unwrap_or(address).min(address);
            let between = (address - from) / WORD;
            let plain = (from..address).step_by(WORD as usize);
            let plain = plain.take(PLAIN_MAX as usize);
            let plain: Vec<_> = plain
                .filter_map(|at| Some((at, *known.get(&at)?)))
                .collect();
            if plain.len() as u64 == between {
                for (at, of) in plain {
                    out.word(at, word(state, &places, &pointers, &read, (at, of)));
                }
            } else {
                let words = counted(between, "word");
                out.lines.push(Line::Gap(format!("… {words}")));
            }

            let of = known[&address];
            out.word(
                address,
                word(state, &places, &pointers, &read, (address, of)),
            );
            next = Some(address.saturating_add(WORD));
        }
    }

    (out, places)
}

impl Lines {
    fn word(&mut self, address: u64, word: DrawnWord) {
        self.rows.insert(address, self.lines.len());
        self.lines.push(Line::Word(word));
    }
}

/// All words of a state, with those of other memory that the walk has read.
fn known<'a>(state: &'a State, walk: &Walk) -> BTreeMap<u64, Known<'a>> {
    let words = state.stack.words.iter().map(|word| {
        let known = Known {
            value: word.value.map(|value| value.0),
            notes: &word.notes,
            is_address: false,
        };
        (word.address.0, known)
    });
    let mut known: BTreeMap<u64, Known<'_>> = words.collect();

    for step in &walk.steps {
        let pairs = step.frame.iter().flat_map(|frame| &frame.words);
        for [address, value] in pairs {
            if let Some(address) = number(address) {
                let value = number(value);
                known.entry(address).or_insert(Known {
                    value,
                    ..Known::default()
                });
            }
        }
        // Of what a refused step has read only the address is said.
        for Hex(address) in &step.reads {
            known.entry(*address).or_insert(Known {
                is_address: true,
                ..Known::default()
            });
        }
    }
    known
}

/// rsp and rbp by what they point to.
fn pointers(state: &State) -> BTreeMap<u64, Vec<&'static str>> {
    let mut pointers: BTreeMap<u64, Vec<&'static str>> = BTreeMap::new();
    let known = |address: u64| state.stack.words.iter().any(|w| w.address.0 == address);
    for register in &state.registers {
        let is_pointer = matches!(register.name, "rsp" | "rbp");
        if is_pointer && known(register.value.0) {
            let names = pointers.entry(register.value.0).or_default();
            // rsp comes first, as the stack begins there.
            let at = if register.name == "rsp" {
                0
            } else {
                names.len()
            };
            names.insert(at, register.name);
        }
    }
    pointers
}

/// Whether a word below rsp looks like one that a leaf keeps in its red zone (psABI 3.2.2): neither zero, nor
/// what cases fill unused stack with, nor an old return address, and so are all words from there to rsp.
fn in_use_below_rsp(state: &State, address: u64, of: &Known<'_>) -> bool {
    let is_unused = |note: &Note| matches!(note, Note::Poisoned | Note::CodeAddress { .. });
    let is_used = |value: Option<u64>, notes: &[Note]| {
        value.is_some_and(|value| value != 0) && !notes.iter().any(is_unused)
    };
    let rsp = state.stack.rsp.0;
    if address >= rsp || !is_used(of.value, of.notes) {
        return false;
    }
    let words = state.stack.words.iter();
    let mut above = words.filter(|word| (address..rsp).contains(&word.address.0));
    above.all(|word| is_used(word.value.map(|value| value.0), &word.notes))
}

fn word(
    state: &State,
    places: &Places,
    pointers: &BTreeMap<u64, Vec<&'static str>>,
    read: &BTreeSet<u64>,
    (address, of): (u64, Known<'_>),
) -> DrawnWord {
    let is_return = |note: &Note| matches!(note, Note::ReturnAddress { .. });
    DrawnWord {
        register: pointers
            .get(&address)
            .map(|names| names.join(" "))
            .unwrap_or_default(),
        place: places
            .name(address)
            .unwrap_or_else(|| format!("{address:#x}")),
        value: value(places, of),
        note: {
            let notes: Vec<String> = of.notes.iter().filter_map(said).collect();
            // Of a saved register it does not matter what else it could be.
            let code = of.notes.iter().find_map(|note| code_said(note, state));
            let code = code.filter(|_| notes.is_empty());
            notes.into_iter().chain(code).collect::<Vec<_>>().join(", ")
        },
        is_return: of.notes.iter().any(is_return),
        is_read: read.contains(&address),
    }
}

/// A content as code, as a place on a stack, or as a number.
fn value(places: &Places, of: Known<'_>) -> String {
    let Some(value) = of.value else {
        let text = if of.is_address { "" } else { "not recorded" };
        return text.to_owned();
    };
    let code = of.notes.iter().find_map(|note| match note {
        Note::ReturnAddress { place, .. } | Note::CodeAddress { place } => Some(place.clone()),
        _ => None,
    });
    if let Some(code) = code {
        return code;
    }
    match value {
        0..SMALL => value.to_string(),
        _ => places.name(value).unwrap_or_else(|| format!("{value:#x}")),
    }
}

/// What is said of a word beside its content.
fn said(note: &Note) -> Option<String> {
    Some(match note {
        Note::ReturnAddress { frame, .. } => format!("return to #{frame}"),
        Note::Saved { register, frame } => format!("saved {register} of #{frame}"),
        Note::BelowCopy | Note::BeyondCopy => "outside the copy".to_owned(),
        Note::BelowRsp => "below rsp".to_owned(),
        Note::Poisoned => "not in use".to_owned(),
        // The frames say it.
        Note::Cfa { .. } | Note::CodeAddress { .. } => return None,
    })
}

/// What is said of an address of code to which no true frame returns that is known.
fn code_said(note: &Note, state: &State) -> Option<String> {
    let Note::CodeAddress { .. } = note else {
        return None;
    };
    // Only if all true frames are known can it be called stale.
    let text = match state.truth {
        "complete" => "not a return address",
        _ => "an address of code",
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_view::json::{EndLine, VerdictLine};
    use unwind_sim_view::timeline::{Stack, Word};

    const RSP: u64 = 0x7ffe_0000;

    /// A walk that has read nothing.
    fn walk() -> Walk {
        Walk {
            start: "hw",
            verdict: VerdictLine {
                word: "ok",
                short: ".".to_owned(),
                at: None,
                count: None,
                why: None,
                end_not_claimed: false,
                known: 0,
                found: 0,
            },
            letter: '.',
            steps: Vec::new(),
            end: EndLine {
                code: "US001",
                text: String::new(),
                kind: None,
                fallback: None,
            },
            cause: None,
        }
    }

    /// A state with these words, each with its value.
    fn state(words: &[(u64, u64, Note)]) -> State {
        let words = words.iter().map(|(address, value, note)| Word {
            address: Hex(*address),
            value: Some(Hex(*value)),
            notes: vec![note.clone()],
        });
        State {
            truth: "complete",
            stack: Stack {
                rsp: Hex(RSP),
                words: words.collect(),
            },
            ..State::default()
        }
    }

    fn to(frame: usize) -> Note {
        let place = format!("f{frame}+0x1");
        Note::ReturnAddress { frame, place }
    }

    fn saved() -> Note {
        Note::Saved {
            register: "rbp",
            frame: 1,
        }
    }

    /// Each line as one text.
    fn drawn(state: &State) -> Vec<String> {
        let lines = lines(state, &walk()).0.lines.into_iter();
        let text = |line: Line| match line {
            Line::Gap(text) => text,
            Line::Word(word) => {
                let parts = [word.place, word.value, word.note];
                parts.join(" ").trim_end().to_owned()
            }
        };
        lines.map(text).collect()
    }

    #[test]
    fn places_are_relative_to_their_stack() {
        let other = 0x50_0000;
        let drawn = drawn(&state(&[
            (other, 7, to(2)),
            (other + 16, RSP + 8, saved()),
            (RSP, 7, to(1)),
            (RSP + 8, other + 16, saved()),
        ]));
        assert_eq!(
            drawn,
            [
                "rsp f1+0x1 return to #1",
                "rsp+8 s2+16 saved rbp of #1",
                "another stack, s2",
                "s2 f2+0x1 return to #2",
                "… 1 word",
                "s2+16 rsp+8 saved rbp of #1",
            ]
        );
    }

    /// What lies between is drawn only if the state has it: it may be recorded all the same.
    #[test]
    fn words_that_the_state_does_not_list_are_folded() {
        let cfa = Note::Cfa { frame: 0 };
        let drawn = drawn(&state(&[
            (RSP, 7, to(1)),
            (RSP + 8, 70_000, cfa),
            (RSP + 16, 7, to(2)),
            (RSP + 32, 7, to(3)),
            (RSP + 800, 7, to(4)),
        ]));
        assert_eq!(
            drawn,
            [
                "rsp f1+0x1 return to #1",
                "rsp+8 0x11170",
                "rsp+16 f2+0x1 return to #2",
                "… 1 word",
                "rsp+32 f3+0x1 return to #3",
                "… 95 words",
                "rsp+800 f4+0x1 return to #4",
            ]
        );
    }

    /// Below rsp only what a leaf may keep there is of interest.
    #[test]
    fn a_red_zone_in_use_is_drawn() {
        let below = |distance: u64, value: u64, note: Note| (RSP - distance, value, note);
        let words = [
            below(24, 5, Note::BelowRsp),
            below(16, 0, Note::BelowRsp),
            below(8, 9, Note::BelowRsp),
            (RSP, 7, to(1)),
        ];
        // A zero ends it, whatever is behind.
        let both = ["rsp-8 9 below rsp", "rsp f1+0x1 return to #1"];
        assert_eq!(drawn(&state(&words)), both);

        let stale = Note::CodeAddress {
            place: "g+0x1".to_owned(),
        };
        let words = [below(8, 9, stale), (RSP, 7, to(1))];
        assert_eq!(drawn(&state(&words)), both[1..]);
    }

    #[test]
    fn a_deep_stack_is_cut() {
        let cut = |words: u64| {
            let words = (0..words).map(|n| (RSP + n * WORD, 7, to(n as usize)));
            let drawn = drawn(&state(&words.collect::<Vec<_>>()));
            assert_eq!(drawn.len(), LINES_MAX + 1);
            drawn[LINES_MAX].clone()
        };
        assert_eq!(cut(10_000), "… 9960 more words further up");
        assert_eq!(cut(LINES_MAX as u64 + 1), "… 1 more word further up");
    }
}
