//! Where a call chain ends, and whether it is whole: the one place that says so.
//!
//! An unwinder's word is not taken for it. A chain is *whole* if each of its frames called the next
//! inner one, as far as the code shows, and the outermost is a [`Root`]: a place that nothing calls.
//! It is *broken* if the code shows that a frame is missing or wrong, or if the walk ended before a
//! root, for a known cause. Where the code is not there, or does not say, it is unknown.

mod code;
mod flow;
mod forgotten;
mod known;
#[cfg(test)]
pub(crate) mod one_row;
mod root;
mod top;

#[cfg(test)]
mod tests;

pub use forgotten::Forgotten;
pub use root::Root;

pub(crate) use code::{has_frame_pointer, is_called_by_entry};
pub(crate) use known::Known;
pub(crate) use root::{is_near_root, is_start_code, is_thread_start};
pub(crate) use top::is_canonical;

use crate::precise::is_shifted;
use code::{Before, Facts, Place, Tables};
use std::fmt;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Chain, End, How, Link};
use unwind_sim_unwind::image;
use unwind_sim_unwind::reason::{Code, Reason};

/// Whether a chain has all frames of its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// It has, and ends where nothing called.
    Yes(Root),
    /// It has not.
    No(Break),
    /// It is not known.
    Unknown(Doubt),
}

/// What is wrong with a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Break {
    /// The innermost frame that is to blame, counted from 0.
    pub frame: usize,
    /// Its address.
    pub pc: CodeAddress,
    /// What is wrong.
    pub what: Fault,
}

/// The ways in which a chain is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The walk ended with this reason, at a frame that has a caller.
    Ended(Reason),
    /// The registers are not those of the sampled instruction, but of after it, so that the first
    /// step had no rule that fits. What else is wrong with the chain follows from that.
    AfterInstruction,
    /// rbp is 0 in a frame that has a caller, and nothing says that its code keeps it as a frame pointer.
    FramePointersEnd,
    /// The step from this frame followed rbp, which is not the frame pointer of the code there.
    NoFramePointer,
    /// The return address of this frame is not behind a call.
    NotBehindCall,
    /// The call before the next frame's return address leads elsewhere than to this function.
    OtherFunction,
    /// The code of this frame has loaded rsp with the address of another stack, and its row counts from
    /// rsp as if it had not.
    OtherStack,
    /// Frames follow the one that nothing called.
    BeyondRoot(Root),
    /// The rule of a coroutine's first frame gives it a caller, so that walks run over the end of its
    /// stack: its author did not mark the end. No frame is missing.
    Unmarked,
}

/// Why it is not known whether a chain is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// The innermost frame about which it is not known, counted from 0.
    pub frame: usize,
    /// Its address.
    pub pc: CodeAddress,
    /// Why.
    pub why: Why,
}

/// The reasons for which it is not known whether a chain is whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Why {
    /// The code is not there: its file is missing, or it was generated and not recorded.
    NoCode,
    /// The step from this frame followed rbp, and nothing says whether that is its frame pointer.
    FramePointer,
    /// The frame was found by a scan of the stack.
    Guess,
    /// The file may be another one than the one that ran.
    OtherFile,
    /// The word in the place of the return address is 0, or memory ends there, and nothing says
    /// whether this is the end of a stack.
    StackEnd,
}

impl Whole {
    /// Whether it has all frames.
    pub const fn is_yes(&self) -> bool {
        matches!(self, Whole::Yes(_))
    }

    /// The stable name of how the chain ends, for JSON: `root`, `broken` or `unknown`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Whole::Yes(_) => "root",
            Whole::No(_) => "broken",
            Whole::Unknown(_) => "unknown",
        }
    }

    /// The reason code, given that with which the walk ended.
    pub const fn code(&self, ended: Code) -> Code {
        match self {
            Whole::Yes(_) => Code::RootReached,
            Whole::Unknown(_) => Code::EndUnknown,
            Whole::No(fault) => match fault.what {
                Fault::Ended(reason) => match reason {
                    Reason::RootReached => Code::NotAtRoot,
                    reason => reason.code(),
                },
                Fault::AfterInstruction => Code::AfterInstruction,
                Fault::FramePointersEnd => Code::NotAtRoot,
                Fault::NoFramePointer => Code::NoFramePointer,
                Fault::Unmarked => ended,
                Fault::NotBehindCall
                | Fault::OtherFunction
                | Fault::OtherStack
                | Fault::BeyondRoot(_) => match ended {
                    Code::RootReached => Code::WrongReturnAddress,
                    ended => ended,
                },
            },
        }
    }
}

impl Why {
    /// In words, of a frame.
    pub const fn description(self) -> &'static str {
        match self {
            Why::NoCode => "its code is not there",
            Why::FramePointer => "nothing says whether its code has a frame pointer",
            Why::OtherFile => "its file may not be the one that ran",
            Why::Guess => "it was found by a scan of the stack",
            Why::StackEnd => "the word where its return address would be is none",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Ended(Reason::RootReached) | Fault::FramePointersEnd => {
                f.write_str("frame pointers end here, but not the stack")
            }
            Fault::Ended(reason) => reason.fmt(f),
            Fault::AfterInstruction => {
                f.write_str("the registers are those of after the sampled instruction")
            }
            Fault::NoFramePointer => f.write_str("rbp is not the frame pointer of this code"),
            Fault::NotBehindCall => f.write_str("the return address is not behind a call"),
            Fault::OtherFunction => {
                f.write_str("the caller calls another function: frames are missing")
            }
            Fault::OtherStack => {
                f.write_str("the code runs on another stack, and its row counts from rsp")
            }
            Fault::Unmarked => f.write_str("the stack ends here, but no row says so"),
            Fault::BeyondRoot(root) => write!(f, "nothing called {root}, but frames follow"),
        }
    }
}

/// How a frame was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// By a row, or as the start.
    Row,
    /// By following rbp.
    FramePointer,
    /// By a scan.
    Guess,
    /// By what says nothing of it: an unwinder of somebody else, a recording.
    Other,
}

/// A frame of a chain that is to be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its address.
    pub pc: CodeAddress,
    /// Its stack pointer; 0 if unknown.
    pub sp: u64,
    /// How it was found.
    pub by: By,
}

impl Seen {
    /// The frames of a chain.
    pub fn of_chain(chain: &Chain) -> Vec<Seen> {
        let steps = chain
            .steps()
            .filter(|step| !matches!(step.how, How::SampledIp));
        let seen = |step: unwind_sim_unwind::chain::Step<'_>| Seen {
            pc: step.pc,
            sp: step.sp,
            by: match step.how {
                How::Rule { row, .. } if row.rule().by_frame_pointer => By::FramePointer,
                How::Start | How::SampledIp | How::Rule { .. } => By::Row,
                How::Guess => By::Guess,
                How::Branch { .. } | How::External => By::Other,
            },
        };
        steps.map(seen).collect()
    }

    /// The frames of a walk that kept only where they are; all were found alike.
    pub fn of_links(links: &[Link], by: By) -> impl Iterator<Item = Seen> {
        links.iter().enumerate().map(move |(index, link)| Seen {
            pc: if index == 0 || !link.is_return {
                CodeAddress::Instruction(link.pc)
            } else {
                CodeAddress::Return(link.pc)
            },
            sp: link.sp.unwrap_or(0),
            by: if index == 0 { By::Row } else { by },
        })
    }

    /// The frames of a chain of addresses that the kernel made by frame pointers.
    pub fn of_addresses(addresses: &[u64]) -> Vec<Seen> {
        let seen = |(index, &address)| Seen {
            pc: match index {
                0 => CodeAddress::Instruction(address),
                _ => CodeAddress::Return(address),
            },
            sp: 0,
            by: if index == 0 {
                By::Row
            } else {
                By::FramePointer
            },
        };
        addresses.iter().enumerate().map(seen).collect()
    }
}

/// Judges a chain of user code that ended as `end` says. `None` if it has no frame.
///
/// What a file shows that may be another one than ran is no ground to call a chain whole; where it
/// certainly is another one, it is no ground for anything.
///
/// Chains of the kernel's unwinders are judged by the states of that kernel, and those of branch
/// records by their number; neither is asked here.
pub fn judge(view: &View<'_>, frames: &[Seen], end: &End, cache: &mut Cache) -> Option<Whole> {
    let whole = by_code(view, frames, end, cache)?;
    let start = frames.first()?.pc;
    let is_sampled = start == CodeAddress::Instruction(view.live().rip());
    let whole = match whole {
        Whole::No(_) if is_sampled && is_shifted(&view.live(), view.space) => {
            broken(0, start, Fault::AfterInstruction)
        }
        whole => whole,
    };
    let other = match (whole, doubtful(view, frames)) {
        (Whole::Yes(_), other) => other.map(|(doubt, _)| doubt),
        (_, Some((doubt, image::Doubt::Certain))) => Some(doubt),
        _ => None,
    };
    Some(other.map_or(whole, Whole::Unknown))
}

/// The first frame whose file may be another one than the one that ran, and how sure that is.
pub(crate) fn doubtful(view: &View<'_>, frames: &[Seen]) -> Option<(Doubt, image::Doubt)> {
    let mut frames = frames.iter().enumerate();
    frames.find_map(|(frame, &Seen { pc, .. })| {
        let mapping = view.space.find(pc.symbol_address())?;
        let why = Why::OtherFile;
        let doubt = mapping.image.as_ref()?.doubt()?;
        Some((Doubt { frame, pc, why }, doubt))
    })
}

/// Judges a chain by what the code shows.
fn by_code(view: &View<'_>, frames: &[Seen], end: &End, cache: &mut Cache) -> Option<Whole> {
    let mut unclear = None;
    let whole = by_links(view, frames, end, cache, &mut unclear)?;
    let Some(step) = unclear else {
        return Some(whole);
    };
    Some(match whole {
        Whole::No(found) => match found.what {
            Fault::NoFramePointer | Fault::FramePointersEnd => whole,
            // The first step by rbp of which nothing says that it may be one led astray.
            Fault::NotBehindCall
            | Fault::OtherFunction
            | Fault::OtherStack
            | Fault::BeyondRoot(_)
            | Fault::Ended(Reason::NotText { .. }) => {
                broken(step.frame, step.pc, Fault::NoFramePointer)
            }
            Fault::Ended(_) | Fault::Unmarked | Fault::AfterInstruction => Whole::Unknown(step),
        },
        Whole::Yes(_) | Whole::Unknown(_) => Whole::Unknown(step),
    })
}

/// Judges a chain as if each step by rbp from code that does not say whether it has a frame pointer
/// were right; the first such step becomes `unclear`.
fn by_links(
    view: &View<'_>,
    frames: &[Seen],
    end: &End,
    cache: &mut Cache,
    unclear: &mut Option<Doubt>,
) -> Option<Whole> {
    let mut tables = Tables::new(view, cache);
    let last = frames.len().checked_sub(1)?;

    let mut inner = None;
    for (index, frame) in frames.iter().enumerate() {
        let facts = tables.facts(frame.pc);
        if let Some(found) = link(&mut tables, inner, (index, frame), &facts, unclear) {
            return Some(found);
        }

        // Nothing calls a root, so no frame may follow it.
        match root::of(&facts, frame.pc) {
            // The goroutine that called this may still have its frames, on another stack.
            Some(Root::Switch) if index == last => {
                return Some(unknown(index, frame.pc, Why::StackEnd));
            }
            Some(root) if index == last => return Some(Whole::Yes(root)),
            // Other start code may have called the start of a language's own thread: there may be
            // more.
            None | Some(Root::RuntimeThread) => {}
            Some(root) => return Some(broken(index, frame.pc, Fault::BeyondRoot(root))),
        }

        inner = Some((frame, facts));
    }

    let (frame, facts) = inner?;
    Some(at_end(view, &mut tables, (last, frame, &facts), end))
}

const fn broken(frame: usize, pc: CodeAddress, what: Fault) -> Whole {
    Whole::No(Break { frame, pc, what })
}

const fn unknown(frame: usize, pc: CodeAddress, why: Why) -> Whole {
    Whole::Unknown(Doubt { frame, pc, why })
}

/// What is wrong, or not known, with the step from the frame `inner` to this one.
fn link(
    tables: &mut Tables<'_, '_>,
    inner: Option<(&Seen, Facts)>,
    (index, frame): (usize, &Seen),
    facts: &Facts,
    unclear: &mut Option<Doubt>,
) -> Option<Whole> {
    let Some((callee, inner)) = inner else {
        // The sample's own pc is what it is.
        return None;
    };

    let at = index - 1;

    // A step by rbp is right only if the code inside had a frame pointer; a guess never proves one.
    match frame.by {
        By::Guess => return Some(unknown(index, frame.pc, Why::Guess)),
        By::FramePointer => match inner.frame_pointer {
            Some(true) => {}
            Some(false) => return Some(broken(at, callee.pc, Fault::NoFramePointer)),
            None => {
                let (frame, pc, why) = (at, callee.pc, missing(&inner));
                if why != Why::FramePointer {
                    return Some(unknown(frame, pc, why));
                }
                unclear.get_or_insert(Doubt { frame, pc, why });
            }
        },
        By::Row | By::Other => {}
    }

    // No call made an exact pc: a signal or an interrupt stopped the code there.
    if frame.pc.is_instruction() {
        return None;
    }

    match facts.before {
        Before::Unknown if facts.place == Place::Nowhere => {
            Some(broken(index, frame.pc, Fault::NotBehindCall))
        }
        // The step that led there is right, and nothing says otherwise.
        Before::Unknown if facts.frame_pointer == Some(true) => None,
        Before::Unknown => Some(unknown(index, frame.pc, Why::NoCode)),
        Before::NoCall if facts.is_trampoline || root::of(facts, frame.pc).is_some() => None,
        // Go makes return addresses that no call pushed: in its signal handler, and where it
        // switches stacks.
        Before::NoCall if tables.is_made(callee.pc, frame.pc) => None,
        Before::NoCall if tables.is_on_other_stack(callee.pc) => {
            Some(broken(at, callee.pc, Fault::OtherStack))
        }
        Before::NoCall => Some(broken(index, frame.pc, Fault::NotBehindCall)),
        // The code does not say where it led.
        Before::IndirectCall => None,
        Before::Call(_) if callee.pc.is_instruction() && at > 0 => None,
        Before::Call(target) => match tables.may_lead(frame.pc, target, callee.pc) {
            true => None,
            // The call was that of the function for which this frame stands.
            false if tables.is_stand_in(callee.pc) => None,
            false if tables.is_on_other_stack(callee.pc) => {
                Some(broken(at, callee.pc, Fault::OtherStack))
            }
            false => Some(broken(at, callee.pc, Fault::OtherFunction)),
        },
    }
}

/// Why nothing is known about the code of a frame.
const fn missing(facts: &Facts) -> Why {
    match facts.place {
        Place::Code => Why::FramePointer,
        Place::Nowhere | Place::NoCode => Why::NoCode,
    }
}

/// Judges the end of a chain whose frames are right, and whose last frame is no root that its code
/// tells.
fn at_end(
    view: &View<'_>,
    tables: &mut Tables<'_, '_>,
    (index, frame, facts): (usize, &Seen, &Facts),
    end: &End,
) -> Whole {
    let reason = end.reason;
    let may_be_top = match reason {
        Reason::NotAtRoot => true,
        // What no address is was not left there by who made the stack.
        Reason::NotText { address } => is_canonical(address),
        Reason::RootReached => facts.frame_pointer == Some(true),
        Reason::Memory(error) => top::is_beyond(view, frame.sp, error.address()),
        _ => false,
    };

    // Before anything is blamed: the end of a coroutine's stack, which nothing marks, looks like a
    // broken walk.
    let is_there = facts.place != Place::Nowhere;
    if may_be_top && is_there && top::is_top(view, tables, frame.sp) {
        return match reason {
            Reason::NotText { .. } | Reason::Memory(_) => broken(index, frame.pc, Fault::Unmarked),
            _ => Whole::Yes(Root::Coroutine),
        };
    }

    match reason {
        Reason::NotText { .. }
        | Reason::NotAtRoot
        | Reason::Memory(_)
        | Reason::SpDidNotAdvance { .. }
            if frame.by != By::FramePointer && tables.is_on_other_stack(frame.pc) =>
        {
            broken(index, frame.pc, Fault::OtherStack)
        }
        // rbp was 0, which says that there is no caller; but the code here is not that of a root.
        Reason::RootReached if facts.place == Place::Code => {
            let what = match facts.frame_pointer {
                Some(true) => Fault::Ended(reason),
                Some(false) | None => Fault::FramePointersEnd,
            };
            broken(index, frame.pc, what)
        }
        Reason::RootReached => unknown(index, frame.pc, missing(facts)),
        Reason::NotAtRoot => unknown(index, frame.pc, Why::StackEnd),
        reason => broken(index, frame.pc, Fault::Ended(reason)),
    }
}

/// The last bytes of code before `at`, an address of the image itself; at most so many.
pub(crate) fn code_before(image: &unwind_sim_unwind::image::Image, at: u64, most: usize) -> &[u8] {
    flow::before(image, at, most)
}
