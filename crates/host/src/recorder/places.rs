//! Mappings and places: reports changes of a process' mappings, locates the names to sample at, and
//! decides which breakpoints they need.

use super::sample;
use super::session::Session;
use super::task::{FetchedRegs, Name, Phase, Process, Role, sample_regs};
use super::{Event, Next};
use crate::error::HostError;
use crate::plan::Point;
use unwind_sim_emulator_native::maps::Maps;
use unwind_sim_emulator_native::ptrace::Registers;
use unwind_sim_unwind::start::SampleRegs;

/// The names to locate.
pub(crate) fn names(from: Option<&str>, points: &[Point]) -> Vec<Name> {
    let name = |text: &str, role| Name {
        text: text.to_owned(),
        role,
    };
    let mut out: Vec<Name> = from.map(|f| name(f, Role::From)).into_iter().collect();
    for (index, point) in points.iter().enumerate() {
        out.push(name(&point.name, Role::Sample(index)));
        out.extend(point.own.as_deref().map(|own| name(own, Role::Own(index))));
    }
    out
}

/// A name that can be located without symbols: the first argument of the first call after the entry
/// (`__libc_start_main`, Linux Standard Base 5.0, baselib).
pub(crate) const MAIN: &str = "main";

/// `AT_ENTRY`: the entry of the program itself, which runs after the dynamic linker (Linux
/// `include/uapi/linux/auxvec.h`).
pub(crate) const AT_ENTRY: u64 = 9;
/// `AT_RANDOM`: the address of 16 random bytes, from which libc makes its stack canary and the key
/// with which it mangles pointers.
pub(crate) const AT_RANDOM: u64 = 25;

/// An entry of the auxiliary vector of a process.
pub(crate) fn auxiliary(pid: i32, key: u64) -> Option<u64> {
    let auxv = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    auxv.chunks_exact(16)
        .find(|pair| word(&pair[..8]) == Some(key))
        .and_then(|pair| word(&pair[8..]))
}

impl Session<'_> {
    /// Reads the mappings of `pid` again, reports changes and looks for names; `tid` is one of its
    /// stopped threads.
    pub(crate) fn refresh_maps(&mut self, pid: i32, tid: i32) -> Result<(), HostError> {
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        let new = Maps::read(pid);
        if new == process.maps {
            return Ok(());
        }
        let old = std::mem::replace(&mut process.maps, new);
        process.code.clear();
        self.report_maps(pid, &old)?;
        self.sync_breakpoints(pid, tid)
    }

    /// Reports the difference between `old` and the current mappings, and looks for names in new
    /// ones.
    pub(crate) fn report_maps(&mut self, pid: i32, old: &Maps) -> Result<(), HostError> {
        let Session {
            processes,
            recorder,
            names,
            located,
            ..
        } = self;
        let Some(process) = processes.get_mut(&pid) else {
            return Ok(());
        };
        let process_id = pid as u32;

        // First what is gone: a new mapping may lie where an old one was.
        for gone in old.without(&process.maps).filter(|m| m.execute) {
            let range = gone.range.clone();
            // Names were located here, but the code is gone.
            process.places.retain(|address, _| !range.contains(address));
            let event = Event::Unmap {
                pid: process_id,
                range,
            };
            recorder.event(&event).map_err(HostError::Recorder)?;
        }

        for mapping in process.maps.without(old).filter(|m| m.execute) {
            let event = Event::Map {
                pid: process_id,
                mapping,
                memory: &process.memory,
            };
            recorder.event(&event).map_err(HostError::Recorder)?;

            // Once found, a name is not looked for in other images.
            process.missing.retain(|&index| {
                let name = &names[index];
                let addresses = recorder.locate(mapping, &name.text);
                for &address in &addresses {
                    process.places.entry(address).or_default().push(name.role);
                }
                located[index] |= !addresses.is_empty();
                addresses.is_empty()
            });
        }

        Ok(())
    }

    /// Takes the argument of the first call after the program's entry for `main`, if no symbol
    /// names it.
    pub(crate) fn locate_main(&mut self, pid: i32, argument: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.entered = true;
        if !process.maps.find(argument).is_some_and(|m| m.execute) {
            return;
        }
        process.missing.retain(|&index| {
            let name = &self.names[index];
            if name.text == MAIN {
                process.places.entry(argument).or_default().push(name.role);
                self.located[index] = true;
            }
            name.text != MAIN
        });
    }

    /// The addresses at which a process that runs at full speed must stop.
    fn wanted_breakpoints(&self, process: &Process) -> Vec<u64> {
        let places = |wanted: fn(&Role) -> bool| {
            let of = move |(&address, roles): (&u64, &Vec<Role>)| {
                roles.iter().any(wanted).then_some(address)
            };
            process.places.iter().filter_map(of).collect()
        };
        match process.phase {
            Phase::ToEntry(entry) => vec![entry],
            Phase::Seek => places(|role| *role == Role::From),
            Phase::Record if !self.options.steps() => places(|role| *role != Role::From),
            Phase::Approach | Phase::Record => Vec::new(),
        }
    }

    /// Sets the breakpoints for the phase of `pid`, through its stopped thread `tid`.
    pub(crate) fn sync_breakpoints(&mut self, pid: i32, tid: i32) -> Result<(), HostError> {
        let Some(process) = self.processes.get(&pid) else {
            return Ok(());
        };
        let wanted = self.wanted_breakpoints(process);
        match self.processes.get_mut(&pid) {
            Some(process) => process.breakpoints.set_to(tid, &wanted),
            None => Ok(()),
        }
    }

    /// Takes the samples due at `regs.rip`, a place that `tid` is about to execute.
    pub(crate) fn at_place(&mut self, tid: i32, regs: &Registers) -> Result<(), HostError> {
        let Some(thread) = self.threads.get(&tid) else {
            return Ok(());
        };
        let Some(process) = self.processes.get(&thread.pid) else {
            return Ok(());
        };
        let Some(roles) = process.places.get(&regs.rip) else {
            return Ok(());
        };
        for role in roles.clone() {
            match role {
                Role::From => {}
                Role::Sample(index) => self.at_point(tid, index, regs)?,
                Role::Own(index) => self.at_own_point(tid, index, regs)?,
            }
        }
        Ok(())
    }

    fn at_point(&mut self, tid: i32, index: usize, regs: &Registers) -> Result<(), HostError> {
        let point = &self.options.plan.at.points()[index];
        let (fetch, has_own) = (point.fetch, point.own.is_some());
        let Some(frame) = fetch else {
            return self.sample(tid, regs, sample::hardware(regs), Some(index));
        };

        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let process = self.processes.get(&thread.pid);
        // As `perf_arch_fetch_caller_regs` makes them from the caller's frame.
        let Some(sampled) = process.and_then(|p| sample::fetch(p, regs, frame)) else {
            return Ok(());
        };

        let live = sample_regs(regs);
        // The sample is taken where the unwinder itself starts.
        if has_own {
            // An earlier call may have been left without reaching the point's second place.
            thread.armed.retain(|a| a.point != index);
            thread.armed.push(FetchedRegs {
                point: index,
                sampled,
                fetch: live,
            });
            return Ok(());
        }

        let regs_by_role = SampleRegs {
            sampled,
            fetch: Some(live),
            own: Some(live),
        };
        self.sample(tid, regs, regs_by_role, Some(index))
    }

    fn at_own_point(&mut self, tid: i32, index: usize, regs: &Registers) -> Result<(), HostError> {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let Some(at) = thread.armed.iter().position(|a| a.point == index) else {
            return Ok(());
        };
        let armed = thread.armed.remove(at);
        let regs_by_role = SampleRegs {
            sampled: armed.sampled,
            fetch: Some(armed.fetch),
            own: Some(sample_regs(regs)),
        };
        self.sample(tid, regs, regs_by_role, Some(index))
    }

    /// Takes a sample of `tid` and passes it to the recorder.
    pub(crate) fn sample(
        &mut self,
        tid: i32,
        live: &Registers,
        regs: SampleRegs,
        point: Option<usize>,
    ) -> Result<(), HostError> {
        // An earlier sample of the same stop may have reached a limit.
        if self.end.is_some() {
            return Ok(());
        }
        let Some(thread) = self.threads.get(&tid) else {
            return Ok(());
        };
        let Some(process) = self.processes.get_mut(&thread.pid) else {
            return Ok(());
        };

        let max = self.options.plan.stack_bytes;
        let mut sample = sample::take(process, thread, tid, live, regs, max);
        sample.point = point;
        // While it is stepped, real time says nothing about the program.
        sample.time = if self.options.steps() {
            self.summary.instructions
        } else {
            u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
        };
        self.summary.samples += 1;

        let next = self.recorder.sample(sample).map_err(HostError::Recorder)?;
        if next == Next::Stop {
            self.end = Some(crate::End::Recorder);
        } else if self.options.plan.max_samples == Some(self.summary.samples) {
            self.end = Some(crate::End::Limit);
        }
        Ok(())
    }
}
