//! linux-perf-data + framehop: from a perf.data file with stack copies to addresses.

use std::collections::HashMap;
use std::fs::File;
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::Unwinder;
use linux_perf_data::linux_perf_event_reader::constants::{
    PERF_REG_X86_BP, PERF_REG_X86_IP, PERF_REG_X86_SP,
};
use linux_perf_data::linux_perf_event_reader::{EventRecord, Mmap2Record, SampleRecord};
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use memmap2::Mmap;

use super::framehop_peer::{self, Cache, Framehop};
use super::image::{Elf, Image};
use super::snapshot::{RBP, REGS, RIP, RSP, Stack};

const PROT_EXEC: u32 = 4;

/// The images of all processes seen so far.
#[derive(Default)]
struct Processes {
    files: HashMap<String, Option<Arc<Elf>>>,
    index_by_pid: HashMap<i32, usize>,
    unwinders: Vec<Framehop>,
}

impl Processes {
    fn start(&mut self, pid: i32, unwinder: Framehop) -> usize {
        self.unwinders.push(unwinder);
        self.index_by_pid.insert(pid, self.unwinders.len() - 1);
        self.unwinders.len() - 1
    }

    fn index(&mut self, pid: i32) -> usize {
        match self.index_by_pid.get(&pid) {
            Some(index) => *index,
            None => self.start(pid, Framehop::new()),
        }
    }

    fn map(&mut self, mapping: &Mmap2Record<'_>) {
        if mapping.protection & PROT_EXEC == 0 {
            return;
        }
        let path = String::from_utf8_lossy(&mapping.path.as_slice()).into_owned();
        let elf = self.files.entry(path);
        let elf = elf
            .or_insert_with_key(|path| Elf::open(Path::new(path)))
            .clone();
        let image = elf.and_then(|e| Image::of_mapping(e, mapping.address, mapping.page_offset));
        let index = self.index(mapping.pid);
        if let Some(image) = image {
            self.unwinders[index].remove_module(image.range.start);
            self.unwinders[index].add_module(framehop_peer::module(&image));
        }
    }
}

/// The registers from which framehop starts, in the order of a snapshot.
fn start_registers(sample: &SampleRecord<'_>) -> Option<[u64; REGS]> {
    let user = sample.user_regs.as_ref()?;
    let mut regs = [0; REGS];
    regs[RIP] = user.get(PERF_REG_X86_IP)?;
    regs[RSP] = user.get(PERF_REG_X86_SP)?;
    regs[RBP] = user.get(PERF_REG_X86_BP)?;
    Some(regs)
}

/// Receives the processes, the index of the sample's process, its registers and its stack bytes.
type EachSample<'a> = &'a mut dyn FnMut(&Processes, usize, &[u64; REGS], &[u8]);

/// Reads the file and calls `each` with every sample that has registers and stack.
fn for_each_sample(path: &Path, each: EachSample<'_>) -> Result<Processes, linux_perf_data::Error> {
    let file = File::open(path)?;
    // SAFETY: the recording is finished, and nobody writes to it while the bench runs.
    let map = unsafe { Mmap::map(&file) }?;
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(Cursor::new(&map[..]))?;

    let mut processes = Processes::default();
    while let Some(record) = record_iter.next_record(&mut perf_file)? {
        let PerfFileRecord::EventRecord { record, .. } = record else {
            continue;
        };
        match record.parse()? {
            EventRecord::Mmap2(mapping) => processes.map(&mapping),
            // `execve` replaces all mappings.
            EventRecord::Comm(comm) if comm.is_execve => {
                processes.start(comm.pid, Framehop::new());
            }
            // A new thread gives a fork record, too, but it shares the mappings of its process.
            EventRecord::Fork(fork) if fork.pid != fork.ppid => {
                let parent = processes.index(fork.ppid);
                let copy = processes.unwinders[parent].clone();
                processes.start(fork.pid, copy);
            }
            EventRecord::Sample(sample) => {
                let (Some(pid), Some(regs)) = (sample.pid, start_registers(&sample)) else {
                    continue;
                };
                let Some((stack, len)) = &sample.user_stack else {
                    continue;
                };
                let stack = stack.as_slice();
                // The dump is as large as was asked for; the kernel copied only `dyn_size` bytes of
                // it.
                let len = usize::try_from(*len).unwrap_or(0).min(stack.len());
                let process = processes.index(pid);
                each(&processes, process, &regs, &stack[..len]);
            }
            _ => {}
        }
    }

    Ok(processes)
}

/// From file to addresses: reads the file, unwinds every sample, passes each chain to `each`, and
/// returns their number.
pub(crate) fn replay(
    path: &Path,
    each: &mut dyn FnMut(&[u64]),
) -> Result<u64, linux_perf_data::Error> {
    let (mut cache, mut chain, mut stacks) = (Cache::new(), Vec::new(), 0);
    for_each_sample(path, &mut |processes, process, regs, bytes| {
        chain.clear();
        let stack = Stack {
            base: regs[RSP],
            bytes,
        };
        framehop_peer::walk(
            &processes.unwinders[process],
            &mut cache,
            regs,
            stack,
            &mut chain,
        );
        each(&chain);
        stacks += 1;
    })?;
    Ok(stacks)
}

/// All samples of a file in memory, so that unwinding can be measured separately.
pub(crate) struct LoadedSamples {
    unwinders: Vec<Framehop>,
    samples: Vec<(usize, [u64; 3], Range<usize>)>,
    stacks: Vec<u8>,
}

/// Reads the file into memory.
pub(crate) fn load(path: &Path) -> Result<LoadedSamples, linux_perf_data::Error> {
    let (mut samples, mut stacks) = (Vec::new(), Vec::new());
    let processes = for_each_sample(path, &mut |_, process, regs, bytes| {
        let start = stacks.len();
        stacks.extend_from_slice(bytes);
        samples.push((
            process,
            [regs[RIP], regs[RSP], regs[RBP]],
            start..stacks.len(),
        ));
    })?;
    Ok(LoadedSamples {
        unwinders: processes.unwinders,
        samples,
        stacks,
    })
}

impl LoadedSamples {
    /// Unwinds every sample with `cache` and returns (stacks, frames).
    pub(crate) fn unwind(&self, cache: &mut Cache, chain: &mut Vec<u64>) -> (u64, u64) {
        let (mut regs, mut frames) = ([0; REGS], 0);
        for (process, [rip, rsp, rbp], range) in &self.samples {
            (regs[RIP], regs[RSP], regs[RBP]) = (*rip, *rsp, *rbp);
            chain.clear();
            let stack = Stack {
                base: *rsp,
                bytes: &self.stacks[range.clone()],
            };
            framehop_peer::walk(&self.unwinders[*process], cache, &regs, stack, chain);
            frames += std::hint::black_box(&chain).len() as u64;
        }
        (self.samples.len() as u64, frames)
    }
}
