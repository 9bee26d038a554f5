//! perf.data: user registers and stacks as samples, mappings and tasks as events.
//!
//! Records are read in time order, using the recorder's rounds, so memory does not grow with the
//! file. perf's own callchain is kept as recorded, next to the sample, with the kernel's part and
//! the context markers.
//!
//! Branch records in call-stack mode are kept too (`perf record --call-graph lbr`); a sample that
//! has them may lack registers. The file format is read by `unwind_sim_perf_data`. Kernel stacks
//! are not imported.

mod deferred;
mod generated;
mod processes;
mod registers;

pub use deferred::Deferred;
pub use processes::{EventSink, Processes, ids};
pub use registers::{UserState, refuse_guest, registers_and_stack};

use super::error::ImportError;
use super::item::{ImportOptions, Imported, Output, Sink, Skip};
use crate::files::{ImageFinder, MappingRequest};
use crate::jitdump::{Clock, Layout};
use crate::model::{
    CallchainRequest, Event, ImageIndex, Item, RecordedChain, Region, RegionRole, Sample,
};
use crate::trace::BRANCHES_MAX;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use unwind_sim_perf_data::callchain::{Callchain, Context};
use unwind_sim_perf_data::{
    self as perf, PerfFile, Record, Stop, branch_sample_type, feature, flag, misc,
};
use unwind_sim_unwind::image::Image;
use unwind_sim_unwind::lbr::{Branch, BranchStack};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// Parses a perf.data file and checks its architecture.
///
/// # Errors
/// If it is not a perf.data file, or was not recorded on x86-64.
pub fn parse(bytes: &[u8]) -> Result<PerfFile<'_>, ImportError> {
    let file = PerfFile::parse(bytes).map_err(ImportError::Perf)?;
    let arch = file.features().string(feature::ARCH).ok().flatten();
    match arch {
        Some(arch) if arch != b"x86_64" => Err(ImportError::PerfArch),
        _ => Ok(file),
    }
}

/// Imports a perf.data file in file or pipe mode, compressed or not.
///
/// # Errors
/// See [`parse`].
pub fn import(
    bytes: &[u8],
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let mut finder = ImageFinder::new(options.files.clone());
    let options = ItemOptions::default();
    Ok(items(&parse(bytes)?, &mut finder, &options, sink))
}

/// Which samples of a perf.data to take, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemOptions<'a> {
    /// Also take samples without registers if they have a user callchain.
    pub chains: bool,
    /// Give samples these chains instead of those that they were recorded with.
    pub deferred: Option<&'a Deferred>,
    /// Where to put the file offset of each sample's record before the sample is passed on.
    pub at: Option<&'a Cell<u64>>,
}

/// Imports the items of a perf.data file. Images come from `finder`, which caches them.
pub fn items(
    file: &PerfFile<'_>,
    finder: &mut ImageFinder,
    options: &ItemOptions<'_>,
    sink: &mut Sink<'_>,
) -> Imported {
    let mut output = Output::new(finder, sink);
    let mut problems: Vec<ImportError> = Vec::new();
    problems.extend(file.problems().iter().copied().map(ImportError::Perf));
    let mut processes = Processes::new(file, |error| problems.push(ImportError::Perf(error)));
    let ring_depth = file.features().branch_records().unwrap_or(0);
    // Counts all records, not only samples.
    let mut number = 0;

    // By time: each processor has its own buffer, so the file itself is not in order.
    let summary = file.for_each_ordered(|event| {
        // A user part that came later was joined to the sample with this number.
        let joined = options.deferred.and_then(|deferred| deferred.chain(number));
        number += 1;
        // Generated code that was loaded before this event is mapped first.
        processes.before(&event, &mut output)?;
        match &event.record {
            Record::Sample(sample) => match convert(sample, ring_depth, options.chains, joined) {
                Ok(converted) => {
                    if let Some(at) = options.at {
                        at.set(sample.offset());
                    }
                    output.item(Item::Sample(converted))
                }
                Err(skip) => {
                    output.skip(skip, 1);
                    ControlFlow::Continue(())
                }
            },
            _ => processes.record(&event, &mut output),
        }
    });

    if summary.skipped != 0 {
        output.skip(Skip::Damaged, summary.skipped);
    }
    // Only the first is described; all are counted.
    problems.extend(summary.first_skipped.map(ImportError::Perf));
    if let Stop::Error(error) = summary.stop {
        problems.push(ImportError::Perf(error));
    }

    output.imported.problems = problems;
    output.finish()
}

impl EventSink for Output<'_, '_> {
    fn jitdump(
        &mut self,
        request: &MappingRequest<'_>,
        has_times: &dyn Fn(Clock) -> bool,
    ) -> Option<Arc<Layout>> {
        self.finder.jitdump(request, has_times)
    }

    fn image(&mut self, image: &Arc<Image>) -> ControlFlow<(), ImageIndex> {
        let (index, flow) = self.index(image.clone());
        flow?;
        ControlFlow::Continue(index)
    }

    fn find(&mut self, request: &MappingRequest<'_>) -> ControlFlow<(), (Option<ImageIndex>, u64)> {
        let (image, bias) = self.finder.mapping_for(request);
        let Some(image) = image else {
            return ControlFlow::Continue((None, bias));
        };
        let (index, flow) = self.index(image);
        flow?;
        ControlFlow::Continue((Some(index), bias))
    }

    fn event(&mut self, event: Event) -> ControlFlow<()> {
        self.item(Item::Event(event))
    }

    fn lost(&mut self, count: u64) {
        self.skip(Skip::Lost, count);
    }
}

/// Converts one sample; borrows the stack. `joined` is its chain, if the user part came later.
fn convert<'a>(
    sample: &perf::Sample<'a>,
    ring_depth: u32,
    chains: bool,
    joined: Option<&[u64]>,
) -> Result<Sample<'a>, Skip> {
    // A guest's registers belong to memory that is not recorded.
    refuse_guest(sample)?;
    let (pid, tid) = (sample.pid().unwrap_or(-1), sample.tid().unwrap_or(-1));
    // Process 0 is the kernel's idle task.
    let (pid, tid) = ids(pid, tid)
        .filter(|ids| ids.0 != 0)
        .ok_or(Skip::NoProcess)?;
    let damaged = |_| Skip::Damaged;

    // With branch records of calls, a sample needs no stack.
    let branches = branch_stack(sample, ring_depth)?;
    let chain: Option<Vec<u64>> = match joined {
        Some(joined) => Some(joined.to_vec()),
        None => {
            let own = sample.callchain().map_err(damaged)?;
            own.map(|chain| chain.words().collect())
        }
    };

    let (regs, stack, end) = match registers_and_stack(sample)? {
        Some(all) => all,
        // A chain or branch records can be shown without a stack.
        None if branches.is_some() || chains => (user_ip(sample, chain.as_deref())?, &[][..], None),
        None => return Err(Skip::NoRegisters),
    };

    let regions = (!stack.is_empty()).then(|| Region {
        role: RegionRole::Stack,
        // Where the stack begins is not recorded.
        bounds: end.map_or(0..0, |end| regs.rsp()..end),
        next_sp: 0,
        address: regs.rsp(),
        bytes: Cow::Borrowed(stack),
    });

    let chain = chain.filter(|chain| !chain.is_empty());
    Ok(Sample {
        pid,
        tid,
        time: sample.time().unwrap_or(0),
        regs: SampleRegs::hardware(regs),
        regions: regions.into_iter().collect(),
        truth: Truth::Unknown,
        recorded: chain
            .map(|ips| RecordedChain {
                source: "perf".into(),
                ips,
                request: Some(request(sample)),
            })
            .into_iter()
            .collect(),
        branches: branches.into_iter().collect(),
        kernel: None,
        process_memory: None,
    })
}

/// What the sample's event asks of the kernel for its callchain.
fn request(sample: &perf::Sample<'_>) -> CallchainRequest {
    let attr = sample.attr();
    let has = |flag: u64| attr.flags & flag != 0;
    let chain = sample.callchain().ok().flatten();
    CallchainRequest {
        kernel: !has(flag::EXCLUDE_CALLCHAIN_KERNEL),
        user: !has(flag::EXCLUDE_CALLCHAIN_USER),
        add_mark: true,
        crosstask: false,
        max_stack: u32::from(attr.sample_max_stack),
        cookie: chain.and_then(|chain| chain.deferred_cookie()),
    }
}

/// The branch records, if the event used call-stack mode.
fn branch_stack(sample: &perf::Sample<'_>, depth: u32) -> Result<Option<BranchStack>, Skip> {
    if sample.attr().branch_sample_type & branch_sample_type::CALL_STACK == 0 {
        return Ok(None);
    }
    let Some(stack) = sample.branch_stack().map_err(|_| Skip::Damaged)? else {
        return Ok(None);
    };
    let entries = stack.entries().map(|b| Branch {
        from: b.from,
        to: b.to,
    });
    let entries: Vec<Branch> = entries.take(BRANCHES_MAX + 1).collect();
    // No processor has this many.
    if entries.len() > BRANCHES_MAX {
        return Err(Skip::Damaged);
    }
    Ok(Some(BranchStack {
        depth,
        hw_index: stack.hw_index,
        entries,
    }))
}

/// The registers of a sample without user registers: its ip, or the first address in the user part
/// of its callchain.
fn user_ip(sample: &perf::Sample<'_>, chain: Option<&[u64]>) -> Result<Regs, Skip> {
    let own = sample
        .ip()
        .filter(|_| sample.cpumode() == misc::CPUMODE_USER);
    let bytes = || {
        chain
            .unwrap_or_default()
            .iter()
            .flat_map(|ip| ip.to_le_bytes())
    };
    let of_chain = || {
        let bytes: Vec<u8> = bytes().collect();
        Callchain::new(&bytes).frames_of(Context::User).next()
    };
    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rip, own.or_else(of_chain).ok_or(Skip::NoRegisters)?);
    Ok(regs)
}
