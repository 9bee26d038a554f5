//! perf.data: user registers and stacks as samples, mappings and tasks as events.
//!
//! Records are taken in the order of time, as the recorder's rounds allow, so memory does not
//! grow with the file. perf's own callchain is kept as it was recorded, with the kernel's part and
//! the markers between them, beside the sample.
//!
//! Branch records in call-stack mode are kept too (`perf record --call-graph lbr`); a sample that
//! has them may lack registers. Not here: the file format (`unwind_sim_perf_data`), kernel stacks.

use super::error::ImportError;
use super::item::{ImportOptions, Imported, Output, Sink, Skip};
use crate::files::MappingRequest;
use crate::model::{Event, Item, RecordedChain, Region, RegionRole, Sample};
use crate::trace::BRANCHES_MAX;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use unwind_sim_perf_data::callchain::Context;
use unwind_sim_perf_data::regs::{self, RegsAbi};
use unwind_sim_perf_data::{MmapIdentity, Record, branch_sample_type, feature, misc};
use unwind_sim_perf_data::{PerfFile, Stop};
use unwind_sim_unwind::lbr::{Branch, BranchStack};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// `PROT_EXEC`
const PROT_EXEC: u32 = 4;
/// `PERF_RECORD_MISC_MMAP_DATA`: not executable.
const MISC_MMAP_DATA: u16 = 1 << 13;

/// Imports a perf.data file, of file or pipe mode, compressed or not.
///
/// # Errors
/// If it is no such file, or was recorded on another machine than x86-64.
pub fn import(
    bytes: &[u8],
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let file = PerfFile::parse(bytes).map_err(ImportError::Perf)?;
    let arch = file.features().string(feature::ARCH).ok().flatten();
    if arch.is_some_and(|arch| arch != b"x86_64") {
        return Err(ImportError::PerfArch);
    }
    let mut importer = Importer {
        output: Output::new(options, sink),
        ring_depth: file.features().branch_records().unwrap_or(0),
        build_ids: HashMap::new(),
    };
    for problem in file.problems() {
        importer.problem(ImportError::Perf(*problem));
    }
    for build_id in file.build_ids() {
        match build_id {
            Ok(build_id) => importer.build_id(&build_id),
            Err(error) => importer.problem(ImportError::Perf(error)),
        }
    }
    let summary = file.for_each_ordered(|event| importer.event(&event));
    let mut output = importer.output;
    if summary.skipped != 0 {
        output.skip(Skip::Damaged, summary.skipped);
    }
    let problems = &mut output.imported.problems;
    problems.extend(summary.first_skipped.map(ImportError::Perf));
    if let Stop::Error(error) = summary.stop {
        problems.push(ImportError::Perf(error));
    }
    Ok(output.finish())
}

/// An import under way.
struct Importer<'o, 's> {
    output: Output<'o, 's>,
    /// Entries of a ring of branch records; 0 if the file does not say.
    ring_depth: u32,
    /// Path to build id, as noted at the end of the recording.
    build_ids: HashMap<Vec<u8>, Vec<u8>>,
}

impl Importer<'_, '_> {
    fn problem(&mut self, error: ImportError) {
        self.output.imported.problems.push(error);
    }

    fn build_id(&mut self, build_id: &unwind_sim_perf_data::BuildId<'_>) {
        if !build_id.kernel {
            let path = build_id.path.to_vec();
            self.build_ids
                .entry(path)
                .or_insert_with(|| build_id.id.to_vec());
        }
    }

    fn event(&mut self, event: &unwind_sim_perf_data::Event<'_>) -> ControlFlow<()> {
        let out = |this: &mut Self, event| this.output.item(Item::Event(event));
        match event.record {
            Record::Sample(sample) => self.sample(&sample),
            Record::Mmap(mmap) => self.mmap(&mmap, event.raw.misc),
            Record::Comm(comm) => {
                let Some((pid, tid)) = ids(comm.pid, comm.tid) else {
                    return ControlFlow::Continue(());
                };
                if comm.exec {
                    out(self, Event::Exec { pid })?;
                }
                let name = text(comm.name);
                out(self, Event::Comm { pid, tid, name })
            }
            Record::Fork(task) => {
                let (Some((pid, tid)), Some((parent_pid, _))) =
                    (ids(task.pid, task.tid), ids(task.ppid, task.ptid))
                else {
                    return ControlFlow::Continue(());
                };
                out(
                    self,
                    Event::Fork {
                        pid,
                        tid,
                        parent_pid,
                    },
                )
            }
            Record::Exit(task) => match ids(task.pid, task.tid) {
                Some((pid, tid)) => out(self, Event::Exit { pid, tid }),
                None => ControlFlow::Continue(()),
            },
            Record::Lost { lost, .. } | Record::LostSamples { lost } => {
                self.output.skip(Skip::Lost, lost);
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn mmap(&mut self, mmap: &unwind_sim_perf_data::Mmap<'_>, misc: u16) -> ControlFlow<()> {
        let mode = misc & misc::CPUMODE_MASK;
        let user = matches!(mode, misc::CPUMODE_USER | 0);
        let Some((pid, _)) = ids(mmap.pid, mmap.tid).filter(|_| user) else {
            return ControlFlow::Continue(());
        };
        let range = mmap.address..mmap.address.saturating_add(mmap.length);
        let executable = misc & MISC_MMAP_DATA == 0
            && (mmap.identity == MmapIdentity::Path || mmap.protection & PROT_EXEC != 0);
        if !executable {
            // What was there before is no longer executable.
            return self.output.item(Item::Event(Event::Unmap { pid, range }));
        }
        let name = text(mmap.path);
        let build_id = match mmap.identity {
            MmapIdentity::BuildId(id) => id,
            _ => self.build_ids.get(mmap.path).map_or(&[][..], Vec::as_slice),
        };
        let (image, bias) = self.output.finder.mapping_for(&MappingRequest {
            pid,
            name: &name,
            range: range.clone(),
            file_offset: mmap.file_offset,
            executable,
            build_id,
        });
        let image = match image {
            Some(image) => {
                let (index, flow) = self.output.index(image);
                flow?;
                Some(index)
            }
            None => None,
        };
        self.output.item(Item::Event(Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        }))
    }

    fn sample(&mut self, sample: &unwind_sim_perf_data::Sample<'_>) -> ControlFlow<()> {
        match convert(sample, self.ring_depth) {
            Ok(sample) => self.output.item(Item::Sample(sample)),
            Err(skip) => {
                self.output.skip(skip, 1);
                ControlFlow::Continue(())
            }
        }
    }
}

/// One sample in our model; borrows the stack.
fn convert<'a>(
    sample: &unwind_sim_perf_data::Sample<'a>,
    ring_depth: u32,
) -> Result<Sample<'a>, Skip> {
    let mode = sample.cpumode();
    if matches!(
        mode,
        misc::CPUMODE_GUEST_KERNEL | misc::CPUMODE_GUEST_USER | misc::CPUMODE_HYPERVISOR
    ) {
        return Err(Skip::Guest);
    }
    let (pid, tid) = (sample.pid().unwrap_or(-1), sample.tid().unwrap_or(-1));
    let (pid, tid) = ids(pid, tid)
        .filter(|ids| ids.0 != 0)
        .ok_or(Skip::NoProcess)?;
    let damaged = |_| Skip::Damaged;
    let branches = branch_stack(sample, ring_depth)?;
    let (user, stack) = match sample.user_regs_and_stack().map_err(damaged)? {
        Some((user, stack)) => (Some(user), Some(stack)),
        None => (sample.user_regs().map_err(damaged)?, None),
    };
    let regs = match user {
        Some(user) => registers(&user)?,
        None if branches.is_some() => user_ip(sample)?,
        None => return Err(Skip::NoRegisters),
    };
    let regions = stack
        .filter(|stack| !stack.bytes.is_empty())
        .map(|stack| Region {
            role: RegionRole::Stack,
            bounds: 0..0,
            next_sp: 0,
            address: regs.rsp(),
            bytes: Cow::Borrowed(stack.bytes),
        });
    let chain = sample.callchain().map_err(damaged)?;
    let chain = chain.filter(|chain| !chain.is_empty());
    Ok(Sample {
        pid,
        tid,
        time: sample.time().unwrap_or(0),
        regs: SampleRegs::hardware(regs),
        regions: regions.into_iter().collect(),
        truth: Truth::Unknown,
        recorded: chain
            .map(|chain| RecordedChain {
                source: "perf".into(),
                ips: chain.words().collect(),
            })
            .into_iter()
            .collect(),
        branches: branches.into_iter().collect(),
        kernel: None,
    })
}

/// The branch records, if the event asked for the call-stack mode.
fn branch_stack(
    sample: &unwind_sim_perf_data::Sample<'_>,
    depth: u32,
) -> Result<Option<BranchStack>, Skip> {
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
    // No processor has as many.
    if entries.len() > BRANCHES_MAX {
        return Err(Skip::Damaged);
    }
    Ok(Some(BranchStack {
        depth,
        hw_index: stack.hw_index,
        entries,
    }))
}

/// What a sample without registers knows of user space: its ip, or the first one of the user part
/// of its callchain.
fn user_ip(sample: &unwind_sim_perf_data::Sample<'_>) -> Result<Regs, Skip> {
    let own = sample
        .ip()
        .filter(|_| sample.cpumode() == misc::CPUMODE_USER);
    let chain = sample.callchain().map_err(|_| Skip::Damaged)?;
    let of_chain = || chain?.frames_of(Context::User).next();
    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rip, own.or_else(of_chain).ok_or(Skip::NoRegisters)?);
    Ok(regs)
}

/// The registers that both sides know; vector and segment registers are left out.
fn registers(user: &regs::SampleRegs<'_>) -> Result<Regs, Skip> {
    match user.abi {
        RegsAbi::Bits64 => {}
        RegsAbi::None => return Err(Skip::KernelThread),
        RegsAbi::Bits32 => return Err(Skip::Bits32),
        RegsAbi::Unknown(_) => return Err(Skip::UnknownAbi),
    }
    let mut out = Regs::UNKNOWN;
    for (number, value) in user.iter() {
        let reg = match number {
            regs::PERF_REG_X86_FLAGS => Some(Reg::Rflags),
            regs::PERF_REG_X86_CS => Some(Reg::Cs),
            _ => regs::dwarf_number(number).and_then(Reg::from_dwarf),
        };
        if let Some(reg) = reg {
            out.set(reg, value);
        }
    }
    if out.get(Reg::Rip).is_none() || out.get(Reg::Rsp).is_none() {
        return Err(Skip::NoIpOrSp);
    }
    Ok(out)
}

/// Process and thread as numbers of our model; the kernel's -1 is none.
fn ids(pid: i32, tid: i32) -> Option<(u32, u32)> {
    Some((u32::try_from(pid).ok()?, u32::try_from(tid).ok()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
