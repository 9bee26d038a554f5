//! Names of the addresses in stacks, from the process' mappings at the time of the sample and the
//! symbols of its files, as in `perf script`.

use std::collections::HashMap;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::callchain::{Context, Entry};
use unwind_sim_perf_data::{Event, Record, Sample};
use unwind_sim_perf_script::Tasks;
use unwind_sim_perf_script::symbols::{Files, Places, Symbols};
use unwind_sim_view::symbol_files::HELPER;

/// The kernel, in place of a process.
const KERNEL: i32 = -1;

/// The names of the addresses that occur in a recording's samples.
pub(super) struct Names {
    tasks: Tasks,
    files: Files,
    /// For each address: process and name.
    known: HashMap<u64, Vec<(i32, String)>>,
}

impl Names {
    pub(super) fn new(file: &PerfFile<'_>, mut places: Places) -> Names {
        let kernel = file.build_ids().filter_map(Result::ok).find(|id| id.kernel);
        places.kernel_build_id = kernel.map(|id| id.id.to_vec());
        Names {
            tasks: Tasks::new(file),
            files: Files::new(places, HELPER),
            known: HashMap::new(),
        }
    }

    /// Updates the tasks, and learns the addresses of samples.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        let misc = event.raw.misc;
        match &event.record {
            Record::Comm(comm) => self.tasks.comm(comm),
            Record::Mmap(mmap) => self.tasks.mmap(mmap, misc),
            Record::Fork(task) => self.tasks.fork(task, misc),
            Record::Exit(task) => self.tasks.exit(task),
            Record::Ksymbol(symbol) => self.tasks.ksymbol(symbol),
            Record::Sample(sample) => self.sample(sample),
            _ => {}
        }
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let (pid, tid) = (sample.pid().unwrap_or(-1), sample.tid().unwrap_or(-1));
        self.tasks.thread(pid, tid);
        let Ok(Some(chain)) = sample.callchain() else {
            return;
        };
        for entry in chain.entries().take(chain.len()) {
            match entry {
                Entry::Frame {
                    context: Context::User,
                    address,
                } => self.learn(pid, tid, address),
                Entry::Frame {
                    context: Context::Kernel,
                    address,
                } => self.learn(KERNEL, tid, address),
                _ => {}
            }
        }
    }

    fn learn(&mut self, pid: i32, tid: i32, address: u64) {
        let known = self.known.entry(address).or_default();
        if known.iter().any(|(of, _)| *of == pid) {
            return;
        }

        // An address means something else in every process, but the same in all for the kernel.
        let map = match pid {
            KERNEL => self.tasks.kernel_map(address, &mut self.files),
            _ => {
                let maps = self.tasks.maps(tid);
                // Mappings are sorted and do not overlap: only the last one that starts at or below
                // it can hold the address.
                let after = maps.partition_point(|map| map.start <= address);
                let map = after.checked_sub(1).and_then(|at| maps.get(at));
                map.filter(|map| address < map.end).copied()
            }
        };

        let Some(map) = map else {
            return;
        };

        let object = self.tasks.object(map.object);
        let at = address.wrapping_add(map.bias);
        let symbol = object.and_then(|object| self.files.symbol(&object, at));

        // As `perf script` prints an address without a symbol, with the file in brackets.
        let name = match symbol {
            Some(symbol) => String::from_utf8_lossy(symbol.name).into_owned(),
            None => {
                let object = self.tasks.object_name(map.object);
                format!("[unknown] ({})", String::from_utf8_lossy(&object))
            }
        };

        known.push((pid, name));
    }

    /// The name of an address in a process; without a process, if all that have it agree.
    pub(super) fn name(&self, address: u64, pid: Option<u32>) -> Option<&str> {
        let known = self.known.get(&address)?;
        let mut fit = known.iter().filter(|(of, _)| {
            *of == KERNEL || pid.is_none_or(|pid| u32::try_from(*of).is_ok_and(|of| of == pid))
        });
        let (_, first) = fit.next()?;
        fit.all(|(_, name)| name == first).then_some(first)
    }
}
