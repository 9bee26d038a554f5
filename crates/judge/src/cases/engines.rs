//! Compares the runs of a case on two engines.
//!
//! Programs, libraries and stacks have different addresses in each run, so addresses are compared
//! by what they point to; on a stack, by their distance from a CFA above. Two things differ
//! legitimately: the bytes that a function skips to align its stack, and the size of frames that
//! hold the whole state of the processor (`XSAVE`), such as those of signals and of the loader.
//! These frames, and all others that are not of the case's own program, are called elastic here.

use super::sample::{Point, Recorded};
use unwind_sim_recordings::model::{Region, Sample};
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind};

/// The differences, one per line.
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

/// The largest alignment of a stack that functions use, in bytes.
const ALIGNMENT_MAX: u64 = 64;
/// The alignment of every stack (psABI 3.2.2), in bytes.
const STACK_ALIGNMENT: u64 = 16;
const PAGE: u64 = 4096;

/// What the value of a register, or a pc, points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place<'a> {
    /// An image: its file, and the address in it.
    Image(&'a str, u64),
    /// A stack: the index of a true frame, and the distance below its CFA. The frame is the nearest
    /// one above whose outer frame is elastic or absent.
    Stack(usize, u64),
    /// An elastic frame.
    Elastic,
    /// A recorded stack, above all frames.
    Above,
    /// The process id.
    Process,
    /// Anything else, or not an address.
    Elsewhere(u64),
}

struct Side<'a> {
    sample: &'a Sample<'static>,
    space: &'a AddressSpace,
    /// The program's file.
    name: &'a str,
    /// All CFAs, in ascending order.
    cfas: Vec<Cfa>,
}

/// The CFA of a true frame.
#[derive(Clone, Copy)]
struct Cfa {
    address: u64,
    /// The CFA from which distances are counted, and the index of its frame; `None` if the frame is
    /// elastic.
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

        // A run on another engine has another pid.
        if value == u64::from(self.sample.pid) {
            return Place::Process;
        }

        let Some(stack) = self.stack(value) else {
            return Place::Elsewhere(value);
        };

        // A place on the stack is counted from a CFA: the stacks of two engines are not at the same
        // addresses.
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

    /// What differs in frame `index`.
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

        // The pc first: in other code, all else may differ as well.
        if let Some(what) = told("pc", frame.pc, other_frame.pc) {
            return Some(what);
        }

        let (size, other_size) = (self.size(index), other.size(index));

        // A function that aligns its frame skips other bytes where the stack is at another address.
        let same_size = match (size, other_size) {
            (Some(a), Some(b)) => a.abs_diff(b) < ALIGNMENT_MAX,
            (a, b) => a.is_some() == b.is_some(),
        };

        if !same_size {
            return Some(format!("bytes to the next CFA: {size:x?}, {other_size:x?}"));
        }

        // Registers last, because a wrong frame has other registers, too.
        let (Some(saved), Some(others)) = (frame.saved, other_frame.saved) else {
            let unequal = frame.saved.is_some() != other_frame.saved.is_some();
            return unequal.then(|| "registers are known on one side only".to_owned());
        };

        let values = saved.into_iter().zip(others);
        let mut regs = Reg::CALLEE_SAVED.into_iter().zip(values);
        regs.find_map(|(reg, (a, b))| told(reg.as_str(), a, b))
    }

    /// The distance from the CFA of frame `index` to that of its caller; `None` if the caller is
    /// elastic or on another stack.
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
        // Mappings differ by whole pages, and stacks by what the kernel puts above them.
        (Place::Elsewhere(a), Place::Elsewhere(b)) => {
            let differ = a.wrapping_sub(b);
            a > PAGE && b > PAGE && differ.is_multiple_of(STACK_ALIGNMENT)
        }
        (one, other) => one == other,
    }
}
