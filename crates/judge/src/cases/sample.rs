//! A case that was run, with its sample points.

use super::built::{Built, Engine};
use super::failure::CaseFailure;
use super::{kernel, run};
use crate::case::{Base, Case, Frame, Machine, Operand, PointKey, Target};
use std::path::Path;
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::trace::Trace;
use unwind_sim_recordings::view::View;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::truth::{TrueKind, Truth};
use unwind_sim_unwind::verdict::expected_from;

/// A sample point that was reached.
#[derive(Debug)]
pub struct Point {
    /// Its name.
    pub key: PointKey,
    /// The true chain that the author states.
    pub stated: crate::case::Chain,
    /// The sample, corrupted as the header says.
    pub sample: Sample<'static>,
    /// The sample as it was taken.
    pub pristine: Sample<'static>,
    /// The world at that time.
    pub world: World,
}

/// A case that was run.
#[derive(Debug)]
pub struct Recorded {
    /// The case.
    pub case: Case,
    /// The points, in the order of the file; an `each` line gives one for each instruction.
    pub points: Vec<Point>,
}

impl Recorded {
    /// Runs a case that was built, with its wrong tables if `defect` is set.
    pub(super) fn new(
        built: &Built,
        engine: Engine,
        defect: bool,
    ) -> Result<Recorded, CaseFailure> {
        let case = &built.case;

        // Both programs have the same code; only their tables differ.
        let program = match (&built.defect, defect) {
            (Some(program), true) => program,
            _ => &built.program,
        };

        let mut points = Vec::new();
        if case.header.machine == Machine::Kernel {
            points = kernel::run(case, &program.path, built.processor, &built.limits)?;
            for point in &mut points {
                let corrupted = corrupt(case, &program.path, point);
                corrupted.map_err(|e| CaseFailure::run(case, e))?;
            }
            return Ok(Recorded {
                case: case.clone(),
                points,
            });
        }

        let run = run::run(case, &program.path, engine, built.processor, &built.limits)?;
        for stated in &case.samples {
            // A point that is never reached would prove nothing, and the case would pass.
            let Some(number) = run.number_of(&stated.key) else {
                return Err(CaseFailure::run(
                    case,
                    format!("{} was never reached", stated.key),
                ));
            };

            let damaged = |e: unwind_sim_recordings::trace::TraceError| CaseFailure::run(case, e);
            let pristine = run.trace.sample(number).map_err(damaged)?.into_owned();

            // The header's corruptions change `sample` alone: engines are compared by what they
            // recorded.
            let mut point = Point {
                key: stated.key.clone(),
                stated: stated.chain.clone(),
                sample: pristine.clone(),
                pristine,
                world: run.trace.world_at(number).map_err(damaged)?,
            };

            let corrupted = corrupt(case, &program.path, &mut point);
            corrupted.map_err(|e| CaseFailure::run(case, e))?;
            points.push(point);
        }

        Ok(Recorded {
            case: case.clone(),
            points,
        })
    }

    /// Calls `take` with point `index` as a view.
    pub fn with_view<T>(&self, index: usize, take: impl FnOnce(&View<'_>) -> T) -> T {
        let point = &self.points[index];
        let space = point.world.space(point.sample.pid);
        let pristine = Some(&point.pristine);
        take(&View {
            number: index as u64,
            sample: &point.sample,
            space,
            pristine,
            stitched: &[],
            world: Some(&point.world),
        })
    }

    /// Whether code that is not the case's own, such as the C library, is mapped at this point. Its
    /// start-up code has left words on the stack even if none of its functions is active.
    pub(super) fn has_system_code(&self, index: usize) -> bool {
        let point = &self.points[index];
        let mappings = point.world.space(point.sample.pid).mappings();
        let files = mappings
            .iter()
            .filter_map(|m| m.image.as_ref())
            .map(|i| unwind_sim_recordings::names::file_name(i.name()));
        files
            .into_iter()
            .any(|file| file != self.case.name && file != "[vdso]" && file != "[vsyscall]")
    }

    /// Where the author's chains and the shadow stack disagree, one per line.
    pub fn truth_differences(&self) -> Vec<String> {
        (0..self.points.len())
            .filter_map(|i| self.truth_difference(i))
            .collect()
    }

    fn truth_difference(&self, index: usize) -> Option<String> {
        let point = &self.points[index];
        let space = point.world.space(point.sample.pid);
        let truth = &point.sample.truth;

        // docs/case-format.md: at a fake point, the chain begins with the fetching function's
        // caller.
        let mark = point
            .key
            .own
            .as_ref()
            .map(|_| point.pristine.regs.sampled.rsp());

        let live = point.sample.regs.live().copied().unwrap_or_default();
        let from = expected_from(truth, live.rsp(), mark);
        let found = named(space, truth, from);

        let stated = &point.stated.frames;
        let stated_frames = fitting(&found, stated);

        // A chain with `< ...` states only its inner frames; any other one has to end with the
        // truth.
        let fits = stated_frames.is_some_and(|count| {
            !point.stated.complete || (truth.is_complete() && found.len() == count)
        });

        (!fits).then(|| {
            format!(
                "  {}: the shadow stack has {}{}, the file says {}{}",
                point.key,
                join(found.iter().map(|f| f.name.clone())),
                if truth.is_complete() { "" } else { " < ?" },
                join(stated.iter().map(ToString::to_string)),
                if point.stated.complete { "" } else { " < ..." },
            )
        })
    }

    /// The points as a trace.
    ///
    /// # Errors
    /// If they exceed what a trace can hold.
    pub fn to_trace(&self) -> Result<Trace, CaseFailure> {
        run::to_trace(self)
    }
}

/// A chain in one line; of a long chain only the start.
fn join(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN_MAX: usize = 24;
    let more = names.len().saturating_sub(SHOWN_MAX);
    let shown = names.take(SHOWN_MAX).collect::<Vec<_>>().join(" < ");
    if more == 0 {
        shown
    } else {
        format!("{shown} < ({more} more)")
    }
}

/// How many of the found frames match the stated ones; `None` if they do not match.
fn fitting(found: &[Named], stated: &[Frame]) -> Option<usize> {
    let mut count = 0;
    for (index, frame) in stated.iter().enumerate() {
        if !found.get(count)?.fits(frame) {
            return None;
        }
        count += 1;
        if let Frame::Images(_) = frame {
            // The following frames of the image match too, unless the next stated frame matches
            // them.
            let next = stated.get(index + 1);
            count += found[count..]
                .iter()
                .take_while(|f| f.fits(frame) && !next.is_some_and(|n| f.fits(n)))
                .count();
        }
    }
    Some(count)
}

/// A true frame by name.
struct Named {
    name: String,
    image: String,
    is_signal: bool,
}

impl Named {
    fn fits(&self, stated: &Frame) -> bool {
        match stated {
            Frame::Function(name) => !self.is_signal && self.name == *name,
            Frame::Image(prefix) if prefix == "anon" => self.image.is_empty(),
            Frame::Image(prefix) | Frame::Images(prefix) => self.image.starts_with(prefix.as_str()),
            Frame::Signal => self.is_signal,
        }
    }
}

fn named(space: &AddressSpace, truth: &Truth, from: usize) -> Vec<Named> {
    let frames = truth.frames();
    let name = |i: usize| {
        let pc = frames[i].address();
        let is_signal = frames
            .get(i + 1)
            .is_some_and(|f| f.kind == TrueKind::Interrupted);

        // A trampoline is returned to, but there is no call before it.
        let at = if is_signal {
            pc.value()
        } else {
            pc.symbol_address()
        };

        let mapping = space.find(at);
        let image = mapping.and_then(|m| m.image.as_ref());
        let symbol = mapping.and_then(|m| m.image.as_ref()?.symbol(m.svma(at)));
        let file = image.map_or("", |i| unwind_sim_recordings::names::file_name(i.name()));

        let unnamed = || {
            if file.is_empty() {
                format!("{at:#x}")
            } else {
                format!("[{file}]")
            }
        };

        Named {
            name: if is_signal {
                "<signal>".to_owned()
            } else {
                symbol.map_or_else(unnamed, |s| s.name.clone())
            },
            // The name `[vdso]` has brackets, and so has every image in a stated chain.
            image: file.trim_matches(['[', ']']).to_owned(),
            is_signal,
        }
    };

    (from..frames.len()).map(name).collect()
}

/// Applies the header's corruptions.
fn corrupt(case: &Case, program: &Path, point: &mut Point) -> Result<(), String> {
    // All values are of the sample as it was recorded, whatever the order of the header's lines.
    let before = point.sample.regs.live().copied().unwrap_or_default();
    let space = point.world.space(point.sample.pid);
    let value = |operand: &Operand| {
        let base = match &operand.base {
            Base::Zero => Some(0),
            Base::Register(reg) => before.get(*reg),
            Base::Symbol(name) => address_of(space, program, name),
        };
        base.map(|b| b.wrapping_add(operand.offset))
            .ok_or_else(|| format!("no value for {:?}", operand.base))
    };

    for corruption in case
        .header
        .corruptions
        .iter()
        .filter(|c| c.point == point.key)
    {
        let new = value(&corruption.value)?;
        match &corruption.target {
            Target::Memory(address) => {
                let address = value(address)?;

                // A change that no walk can see would let the case pass for no reason.
                if !patch(&mut point.sample, address, new) {
                    return Err(format!("memory: {address:#x} is not in the recorded stack"));
                }
            }
            Target::Register(reg) => live_regs(&mut point.sample).set(*reg, new),
            Target::Sampled(reg) => point.sample.regs.sampled.set(*reg, new),
        }
    }

    // After the corruptions: a register that is both set and forgotten is not there.
    for forgotten in case
        .header
        .forgotten
        .iter()
        .filter(|f| f.point == point.key)
    {
        for &reg in &forgotten.registers {
            live_regs(&mut point.sample).forget(reg);
        }
    }

    Ok(())
}

fn live_regs<'s>(sample: &'s mut Sample<'_>) -> &'s mut unwind_sim_unwind::regs::Regs {
    if sample.regs.is_fake() {
        sample.regs.own.get_or_insert_default()
    } else {
        &mut sample.regs.sampled
    }
}

/// The address of a symbol of the program, code or data.
fn address_of(space: &AddressSpace, program: &Path, name: &str) -> Option<u64> {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(program).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let path = program.to_string_lossy();
    let bias = space
        .mappings()
        .iter()
        .find(|m| m.name == path)
        .map_or(0, |m| m.bias);
    Some(file.symbol_by_name(name)?.address().wrapping_add(bias))
}

fn patch(sample: &mut Sample<'_>, address: u64, value: u64) -> bool {
    sample.regions.iter_mut().any(|region| {
        let start = usize::try_from(address.wrapping_sub(region.address)).ok();
        let bytes = region.bytes.to_mut();
        let word = start.and_then(|s| bytes.get_mut(s..s.checked_add(8)?));
        word.map(|w| w.copy_from_slice(&value.to_le_bytes()))
            .is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Chain;

    /// How many of the found frames, written `image:function`, match `stated`.
    fn fits(found: &str, stated: &str) -> Option<usize> {
        let frame = |word: &str| {
            let (image, name) = word.split_once(':').expect("an image");
            Named {
                name: name.to_owned(),
                image: image.to_owned(),
                is_signal: false,
            }
        };
        let found: Vec<Named> = found.split_whitespace().map(frame).collect();
        fitting(&found, &Chain::parse(stated).expect("a chain").frames)
    }

    #[test]
    fn as_many_frames_of_a_library_as_the_system_has() {
        let stated = "main < [libc]+ < _start";
        let fit = |found| fits(found, stated);
        assert_eq!(fit("a:main libc.so.6:one a:_start"), Some(3));
        assert_eq!(fit("a:main libc.so.6:one libc.so.6:two a:_start"), Some(4));
        assert_eq!(fit("a:main a:_start"), None, "one at least");
        assert_eq!(fit("a:main libc.so.6:one"), None);
        assert_eq!(fit("a:main libc.so.6:one ld.so:x a:_start"), None);
        // Frames after the stated ones are not counted.
        assert_eq!(fit("a:main libc:one a:_start a:more"), Some(3));
        // Frames of the image may be stated by name after the others.
        assert_eq!(fits("l:one l:two l:last", "[l]+ < last"), Some(3));
        assert_eq!(fits("l:one l:two l:last", "[l]+ < [l]"), Some(2));
        assert_eq!(fits("l:one l:two", "[l]"), Some(1));
    }
}
