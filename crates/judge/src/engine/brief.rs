//! Outcomes without frames, for a comparison of many samples, which only counts.

use super::{Engine, Judged, Outcome, Setting, from, sound, stack_of, unsupported};
use crate::unjudged::Unjudged;
use crate::whole::{self, By, Seen};
use unwind_sim_recordings::view::{MemoryView, View};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Chain, End, Link, Links};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::memory::Regions;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::start::{Start, Variant};
use unwind_sim_unwind::step::first_doubt;
use unwind_sim_unwind::verdict::{Claim, Verdict, true_links};
use unwind_sim_unwind::walk::{WalkTarget, walk};

/// What the walks of one sample share, and room for the frames of one walk.
pub struct Desk<'a> {
    view: View<'a>,
    /// The memory that a walk can read.
    seen: Regions<'a>,
    /// All memory of the sound sample, if that is more.
    all: Option<Regions<'a>>,
    room: Room,
}

/// Memory that is used again for every sample.
#[derive(Debug, Default)]
pub struct Room {
    found: Links,
    truth: Vec<Link>,
    /// The index of the first of these true frames.
    from: Option<usize>,
    /// The walk that others are judged by.
    reference: Links,
    /// Its start, and the code with which it ended: US001 if it is whole.
    reference_end: Option<(Variant, Code)>,
}

impl<'a> Desk<'a> {
    /// A desk for the walks of this sample.
    pub fn new(view: &View<'a>, setting: &Setting, mut room: Room) -> Desk<'a> {
        (room.from, room.reference_end) = (None, None);
        let is_all = setting.view == MemoryView::Cpu && view.pristine.is_none();
        Desk {
            view: *view,
            seen: view.memory(setting.view),
            all: (!is_all).then(|| sound(view).memory()),
            room,
        }
    }

    /// The start of a walk.
    fn start(&self, variant: Variant, setting: &Setting) -> Result<Start, Reason> {
        let regs = &self.view.sample.regs;
        regs.start(variant, setting.frame_pointer_kernel, &self.seen)
    }

    /// Walks from `start` and puts the frames into `out`.
    fn links(
        &self,
        finder: &dyn Finder,
        start: &Start,
        setting: &Setting,
        cache: &mut Cache,
        out: &mut Links,
    ) -> End {
        out.0.clear();
        let place = WalkTarget {
            space: self.view.space,
            memory: &self.seen,
        };
        walk(finder, &place, start, &setting.limits, cache, out)
    }

    /// The code with which the reference walk ended; US001 if it is whole.
    fn ended(
        &self,
        reference: &Engine,
        links: &Links,
        skip: bool,
        end: &End,
        cache: &mut Cache,
    ) -> Code {
        if self.view.sample.kernel.is_some() {
            return end.reason.code();
        }
        let by = match reference
            .finder()
            .is_some_and(|f| f.name().starts_with("fp"))
        {
            true => By::FramePointer,
            false => By::Row,
        };
        let frames: Vec<Seen> =
            Seen::of_links(&links.0[usize::from(skip).min(links.0.len())..], by).collect();
        let whole = whole::judge(&self.view, &frames, end, cache);
        let code = end.reason.code();
        whole.map_or(code, |whole| whole.code(code))
    }

    /// The room, for the next sample.
    pub fn into_room(self) -> Room {
        self.room
    }
}

impl Engine {
    /// Like [`Engine::examine`], but the outcome's chain may have no frames.
    pub fn verdict(
        &self,
        desk: &mut Desk<'_>,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
    ) -> Outcome {
        match self.counted(&desk.view) {
            // What the truth does not say, the frames do.
            Some(finder) if desk.view.sample.truth.is_complete() => {
                brief(finder, desk, variant, setting, cache)
            }
            Some(_) => self.examine(&desk.view, variant, setting, cache),
            None => self.examine(&desk.view, variant, setting, cache),
        }
    }

    /// The verdict on the chain by that of `reference`, which is walked once for each sample and
    /// start. The outcome's chain has no frames. `None` if the walk of either has more to it than
    /// frames.
    pub(crate) fn verdict_against(
        &self,
        (reference, reference_cache): (&Engine, &mut Cache),
        desk: &mut Desk<'_>,
        variant: Variant,
        setting: &Setting,
        cache: &mut Cache,
    ) -> Option<Outcome> {
        // If one of them has more to it than frames, both are walked again with all details.
        let (finder, other) = (self.counted(&desk.view)?, reference.counted(&desk.view)?);

        // Taken out of the desk, because `links` borrows the desk while it fills the room.
        let mut room = std::mem::take(&mut desk.room);

        // All columns are compared with one walk of the reference, so it is kept with its start.
        let start = desk.start(variant, setting);
        let links = |finder, cache: &mut Cache, out: &mut Links| match &start {
            Ok(start) => desk.links(finder, start, setting, cache, out),
            Err(reason) => {
                out.0.clear();
                (*reason).into()
            }
        };
        // The sampled ip is reported before the walk.
        let skip = start.as_ref().is_ok_and(|start| start.sampled_ip.is_some());

        let known = room.reference_end.filter(|(of, _)| *of == variant);
        let (_, ended) = known.unwrap_or_else(|| {
            let end = links(other, reference_cache, &mut room.reference);
            (
                variant,
                desk.ended(reference, &room.reference, skip, &end, reference_cache),
            )
        });
        room.reference_end = Some((variant, ended));

        // Each has a cache of its own: two unwinders may have different rows for one address.
        let end = links(finder, cache, &mut room.found);

        // `counted` admits only table walks without a fallback: these do not guess.
        let claim = Claim {
            frames: &room.found.0,
            end: &end,
            guessed: false,
            refused: false,
        };

        // If the reference ended early, nothing is known of the frames further out.
        let is_complete = ended == Code::RootReached;
        let (verdict, ground) = claim.judge(&room.reference.0, is_complete);
        let why = Unjudged::ReferenceEnded(ended);

        // Back, for the next unwinder on this sample.
        desk.room = room;
        Some(Outcome {
            chain: Chain::ended(end),
            verdict,
            ground,
            unjudged: (verdict == Verdict::Unjudged).then_some(why),
            from: from(&desk.view, variant),
            diagnosis: None,
            whole: None,
        })
    }

    /// The finder, if nothing but the frames counts: the events of a fallback are counted, and a
    /// kernel's chain is judged by its end too.
    fn counted(&self, view: &View<'_>) -> Option<&dyn Finder> {
        match self {
            Engine::Table(finder)
                if finder.fallback().is_none() && view.sample.kernel.is_none() =>
            {
                Some(&**finder)
            }
            _ => None,
        }
    }
}

fn brief(
    finder: &dyn Finder,
    desk: &mut Desk<'_>,
    variant: Variant,
    setting: &Setting,
    cache: &mut Cache,
) -> Outcome {
    let start = match desk.start(variant, setting) {
        Ok(start) => start,
        Err(reason) => return unsupported(reason),
    };

    // Taken out and put back: `links` writes into it and borrows all of the desk.
    let mut found = std::mem::take(&mut desk.room.found);
    let end = desk.links(finder, &start, setting, cache, &mut found);
    desk.room.found = found;

    let Desk {
        view,
        seen,
        all,
        room,
    } = desk;

    let from = from(view, variant);

    // The true frames depend on the sample and on where the walk starts, not on the unwinder.
    if room.from != Some(from) {
        room.from = Some(from);
        room.truth.clear();
        room.truth.extend(true_links(&view.sample.truth, from));
    }

    let claim = Claim {
        frames: &room.found.0,
        end: &end,
        guessed: false,
        refused: false,
    };
    let truth = &view.sample.truth;
    let (verdict, ground) = claim.judge(&room.truth, truth.is_complete());

    let chain = Chain::ended(end);
    let sound = sound(view);
    let all = all.as_ref().unwrap_or(seen);

    // A right chain may come from a wrong rule; the detailed walk is needed only if one is
    // doubtful.
    if verdict == Verdict::Ok
        && let Some(live) = sound.regs.live()
    {
        let place = WalkTarget {
            space: view.space,
            memory: all,
        };
        let frames = from..truth.frames().len();
        if first_doubt(finder, &place, (truth, live), frames, cache).is_none() {
            return Outcome {
                chain,
                verdict,
                ground,
                unjudged: None,
                from,
                diagnosis: None,
                whole: None,
            };
        }
    }

    let judged = Judged {
        chain,
        verdict,
        ground,
        from,
        left_wrong: false,
    };

    let stack = stack_of(view, &start, &*seen, setting);
    judged.diagnosed(view, &stack, all, variant, Some(finder), cache)
}
