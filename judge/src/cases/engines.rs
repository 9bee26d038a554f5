//! Two engines' runs of one case held against each other.
//!
//! Programs, libraries and stacks lie elsewhere in each, so addresses are compared by where they
//! point to: on a stack, by the distance to a CFA above. Two things are not the same: what a
//! function that aligns its stack skips; and how large the frames are that hold all that the
//! processor has (`XSAVE`), of signals and of the loader. Frames of that kind, and all others that
//! are not of the case's own program, are called elastic here.

use super::sample::{Point, Recorded};
use unwind_sim_recordings::model::{Region, Sample};
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind};

/// What differs, line by line.
pub(super) fn differences(one: &Recorded, other: &Recorded) -> Vec<String> {
    let points = one.points.iter().zip(&other.points);
    let name = &one.case.name;
    points.filter_map(|(a, b)| difference(name, a, b)).collect()
}

fn difference(name: &str, a: &Point, b: &Point) -> Option<String> {
    let (one, other) = (Side::new(name, a), Side::new(name, b));
    let told = |what: String| Some(format!("  {}: {what}", a.key));
    let (x, y) = (&one.sample.truth, &other.sample.truth);
    let (frames, others) = (x.frames(), y.frames());
    if frames.len() != others.len() || x.is_complete() != y.is_complete() {
        let (n, m) = (frames.len(), others.len());
        return told(format!("{n} true frames here, {m} there"));
    }
    let mut indices = 0..frames.len();
    indices.find_map(|index| {
        let what = one.differs(&other, index)?;
        told(format!("true frame {index}: {what}"))
    })
}

/// What functions align their stacks to at most, bytes.
const ALIGNMENT_MAX: u64 = 64;
/// What every stack is aligned to (psABI 3.2.2).
const STACK_ALIGNMENT: u64 = 16;
const PAGE: u64 = 4096;

/// Where a value of a register, or a pc, points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place<'a> {
    /// Into an image: its file, and the address there.
    Image(&'a str, u64),
    /// So far below the CFA of this true frame: the nearest above with an elastic frame, or none,
    /// outside of it.
    Stack(usize, u64),
    /// Into an elastic frame.
    Elastic,
    /// Into a recorded stack, above all frames.
    Above,
    /// It is the number of the process.
    Process,
    /// Elsewhere, or it is no address.
    Elsewhere(u64),
}

struct Side<'a> {
    sample: &'a Sample<'static>,
    space: &'a AddressSpace,
    /// The program's file.
    name: &'a str,
    /// All CFAs, ascending.
    cfas: Vec<Cfa>,
}

/// The CFA of a true frame.
#[derive(Clone, Copy)]
struct Cfa {
    address: u64,
    /// The one from which distances are counted, and whose it is; none if the frame is elastic.
    outermost: Option<(u64, usize)>,
}

impl<'a> Side<'a> {
    fn new(name: &'a str, point: &'a Point) -> Side<'a> {
        let sample = &point.pristine;
        let mut side = Side {
            sample,
            space: point.world.space(sample.pid),
            name,
            cfas: Vec::new(),
        };
        side.cfas = side.cfas();
        side
    }

    fn cfas(&self) -> Vec<Cfa> {
        let frames = self.frames().iter().enumerate();
        let mut cfas: Vec<_> = frames.map(|(index, f)| (f.cfa, index)).collect();
        cfas.sort_unstable();
        let mut out = Vec::with_capacity(cfas.len());
        let mut outer: Option<Cfa> = None;
        for (address, index) in cfas.into_iter().rev() {
            let stack = self.stack(address).map(|r| &r.bounds);
            let goes_on = |o: &Cfa| stack.is_some_and(|bounds| bounds.contains(&o.address));
            let outermost = outer.filter(goes_on).and_then(|o| o.outermost);
            let outermost = outermost.unwrap_or((address, index));
            let cfa = Cfa {
                address,
                outermost: (!self.is_elastic(index)).then_some(outermost),
            };
            out.push(cfa);
            outer = Some(cfa);
        }
        out.reverse();
        out
    }

    fn frames(&self) -> &'a [TrueFrame] {
        self.sample.truth.frames()
    }

    fn stack(&self, address: u64) -> Option<&'a Region<'static>> {
        let mut stacks = self.sample.regions.iter();
        stacks.find(|r| r.bounds.contains(&address))
    }

    fn place(&self, value: u64) -> Place<'a> {
        if let Some(mapping) = self.space.find(value)
            && mapping.image.is_some()
        {
            return Place::Image(
                unwind_sim_recordings::names::file_name(&mapping.name),
                mapping.svma(value),
            );
        }
        if value == u64::from(self.sample.pid) {
            return Place::Process;
        }
        let Some(stack) = self.stack(value) else {
            return Place::Elsewhere(value);
        };
        let first = self.cfas.partition_point(|cfa| cfa.address < value);
        let above = self.cfas.get(first);
        match above.filter(|cfa| stack.bounds.contains(&cfa.address)) {
            None => Place::Above,
            Some(cfa) => match cfa.outermost {
                Some((top, index)) => Place::Stack(index, top - value),
                None => Place::Elastic,
            },
        }
    }

    fn is_elastic(&self, index: usize) -> bool {
        let frames = self.frames();
        let outer = frames.get(index + 1);
        let is_restorer = outer.is_some_and(|f| f.kind == TrueKind::Interrupted);
        let own = |address| {
            let mapping = self.space.find(address);
            mapping.is_some_and(|m| unwind_sim_recordings::names::file_name(&m.name) == self.name)
        };
        is_restorer || !frames.get(index).is_some_and(|f| own(f.pc))
    }

    /// What frame `index` is not the same in.
    fn differs(&self, other: &Side<'_>, index: usize) -> Option<String> {
        let (frame, other_frame) = (&self.frames()[index], &other.frames()[index]);
        if frame.kind != other_frame.kind {
            return Some(format!("{:?}, {:?}", frame.kind, other_frame.kind));
        }
        let told = |what: &str, a: u64, b: u64| {
            let (x, y) = (self.place(a), other.place(b));
            let same = a == b || are_same(x, y);
            (!same).then(|| format!("{what} is {a:#x} ({x:x?}), {b:#x} ({y:x?})"))
        };
        if let Some(what) = told("pc", frame.pc, other_frame.pc) {
            return Some(what);
        }
        let (size, other_size) = (self.size(index), other.size(index));
        let same_size = match (size, other_size) {
            (Some(a), Some(b)) => a.abs_diff(b) < ALIGNMENT_MAX,
            (a, b) => a.is_some() == b.is_some(),
        };
        if !same_size {
            return Some(format!("bytes to the next CFA: {size:x?}, {other_size:x?}"));
        }
        let (Some(saved), Some(others)) = (frame.saved, other_frame.saved) else {
            let unequal = frame.saved.is_some() != other_frame.saved.is_some();
            return unequal.then(|| "registers are known on one side only".to_owned());
        };
        let values = saved.into_iter().zip(others);
        let mut regs = Reg::CALLEE_SAVED.into_iter().zip(values);
        regs.find_map(|(reg, (a, b))| told(reg.as_str(), a, b))
    }

    /// From the CFA of frame `index` to that of the next one outside of it; none if that is
    /// elastic, or on another stack.
    fn size(&self, index: usize) -> Option<u64> {
        let frames = self.frames();
        let (frame, outer) = (frames.get(index)?, frames.get(index + 1)?);
        let stack = self.stack(frame.cfa)?;
        let counts = !self.is_elastic(index + 1) && stack.bounds.contains(&outer.cfa);
        counts.then(|| outer.cfa.wrapping_sub(frame.cfa))
    }
}

fn are_same(one: Place<'_>, other: Place<'_>) -> bool {
    match (one, other) {
        (Place::Stack(a, x), Place::Stack(b, y)) => a == b && x.abs_diff(y) < ALIGNMENT_MAX,
        // Mappings differ by whole pages, the stack by what the kernel puts above it.
        (Place::Elsewhere(a), Place::Elsewhere(b)) => {
            let differ = a.wrapping_sub(b);
            a > PAGE && b > PAGE && differ.is_multiple_of(STACK_ALIGNMENT)
        }
        (one, other) => one == other,
    }
}
