//! Reading the setup of a scenario.

use super::error::{ScenarioError, ScenarioErrorKind};
use super::{LineWords, Reader};
use crate::mutant::Mutant;
use crate::registers::FakeRegs;
use crate::setup::{
    CPUS_MAX, CgroupSetup, EVENTS_MAX, EventSetup, Form, Kind, PMU_PERIOD_MIN, RfcBuffer,
    TASKS_MAX, UserUnwind, timer_period,
};
use unwind_sim_perf_lbr::{Depth, Layout, Storage};

/// The largest ring, bytes.
const RING_BYTES_MAX: u64 = 1 << 24;
/// The most cgroups.
const CGROUPS_MAX: usize = 64;

/// The directives of the setup.
pub(super) const THERE_IS: [&str; 21] = [
    "form",
    "cpus",
    "mutant",
    "unwind",
    "rfc-buffer",
    "samples-per-tick",
    "lbr-storage",
    "lbr-depth",
    "lbr-layout",
    "software-branches",
    "cgroup",
    "timer-tracepoint",
    "overflow-tracepoint",
    "fake-regs",
    "handler",
    "walker",
    "event",
    "stack",
    "stacks",
    "task",
    "kthread",
];

impl Reader {
    /// Reads a directive of the setup.
    pub(super) fn there_is(
        &mut self,
        word: &str,
        words: &mut LineWords<'_>,
    ) -> Result<(), ScenarioError> {
        // A directive counts for what follows it, so the order of lines matters.
        let setup = &mut self.scenario.schedule.setup;

        match word {
            "form" => {
                let name = words.need("a form")?;
                let form = [Form::Rfc2023, Form::Before, Form::Upstream]
                    .into_iter()
                    .find(|f| f.as_str() == name);
                setup.form = words.not(form, "a form: rfc2023, linux-6.18, upstream")?;
            }
            "cpus" => {
                let cpus = words.number("a number of CPUs", u64::from(CPUS_MAX))? as u16;
                setup.cpus = words.not((cpus > 0).then_some(cpus), "a number of CPUs")?;
            }
            "mutant" => {
                let name = words.need("a mutant")?;
                setup.mutant = Some(words.not(Mutant::from_name(name), "a mutant")?);
            }
            // How user frames are found, which some events do not allow.
            "unwind" => {
                setup.unwind = match words.need("fp or sframe")? {
                    "fp" => UserUnwind::FramePointer,
                    "sframe" => UserUnwind::Sframe,
                    _ => return words.not(None, "fp or sframe"),
                }
            }
            // Where the form of 2023 keeps the frames that it finds.
            "rfc-buffer" => {
                setup.rfc_buffer = match words.need("allocated or on-stack")? {
                    "allocated" => RfcBuffer::Allocated,
                    "on-stack" => RfcBuffer::OnStack,
                    _ => return words.not(None, "allocated or on-stack"),
                }
            }
            // Above this the kernel throttles the event.
            "samples-per-tick" => {
                let number = words.number("a number of samples", u64::from(u32::MAX))?;
                setup.samples_per_tick = number as u32;
            }
            "timer-tracepoint" => setup.timer_tracepoint = true,
            "overflow-tracepoint" => setup.overflow_tracepoint = true,
            "fake-regs" => {
                let name = words.need("a version")?;
                let known = FakeRegs::from_name(name);
                let what = "a version: v5.1, v5.1-frame-pointer, v5.2";
                setup.fake_regs = words.not(known, what)?;
            }
            "handler" | "walker" => return self.handler(words, word == "walker"),
            "lbr-storage" => {
                let name = words.need("a storage")?;
                setup.lbr_storage =
                    words.not(Storage::from_name(name), "a storage: cpu, task, cgroup")?;
            }
            // Only depths that a processor has.
            "lbr-depth" => {
                let depth = words.number("a depth", 32)? as usize;
                let known = Depth::ALL
                    .into_iter()
                    .find(|known| known.entries() == depth);
                setup.lbr_depth = words.not(known, "a depth: 8, 16, 32")?;
            }
            "lbr-layout" => {
                let name = words.need("a layout")?;
                // The architectural layout has as many entries as the ring: `lbr-depth` comes
                // before.
                let entries = setup.lbr_depth.entries() as u32;
                let all = [Layout::V2020, Layout::V6_18, Layout::Architectural(entries)];
                let known = all.into_iter().find(|layout| layout.as_str() == name);
                setup.lbr_layout = words.not(known, "a layout: 2020, 6.18, architectural")?;
            }
            "software-branches" => setup.software_branches = true,
            "cgroup" => return self.cgroup(words),
            "event" => return self.event(words),
            "stack" => return self.stack(words),
            // Numbered stacks need no definition.
            "stacks" => {
                let word = words.need("numbered")?;
                words.not((word == "numbered").then_some(()), "numbered")?;
                self.numbered = true;
            }
            // What is left are tasks and kernel threads.
            _ => {
                let tid = words.tid()?;
                let tasks = &self.scenario.schedule.tasks;
                if tasks.iter().any(|&(known, _)| known == tid) {
                    return Err(words.error(ScenarioErrorKind::Taken("task")));
                }
                if tasks.len() >= TASKS_MAX {
                    return Err(words.error(ScenarioErrorKind::TooMany("tasks")));
                }
                let stack = match word {
                    "task" => Some(self.find_stack(words)?),
                    _ => None,
                };
                self.scenario.schedule.tasks.push((tid, stack));
            }
        }
        Ok(())
    }

    /// `cgroup NAME TID ..`
    fn cgroup(&mut self, words: &mut LineWords<'_>) -> Result<(), ScenarioError> {
        let name = words.name()?;
        let cgroups = &self.scenario.schedule.setup.cgroups;
        if cgroups.iter().any(|cgroup| cgroup.name == name) {
            return Err(words.error(ScenarioErrorKind::Taken("cgroup")));
        }
        if cgroups.len() >= CGROUPS_MAX {
            return Err(words.error(ScenarioErrorKind::TooMany("cgroups")));
        }
        let mut tids = Vec::new();
        while words.peek().is_some() {
            let tid = words.tid()?;
            if tids.contains(&tid) || self.scenario.schedule.setup.cgroup_of(tid).is_some() {
                return Err(words.error(ScenarioErrorKind::Taken("task")));
            }
            tids.push(tid);
        }
        let cgroup = CgroupSetup {
            name: name.to_owned(),
            tids,
        };
        self.scenario.schedule.setup.cgroups.push(cgroup);
        Ok(())
    }

    fn event(&mut self, words: &mut LineWords<'_>) -> Result<(), ScenarioError> {
        let events = &self.scenario.schedule.events;

        let name = words.name()?;
        if events.iter().any(|event| event.name == name) {
            return Err(words.error(ScenarioErrorKind::Taken("event")));
        }
        if events.len() >= EVENTS_MAX {
            return Err(words.error(ScenarioErrorKind::TooMany("events")));
        }

        // The kind comes second, because it decides what the other words mean.
        let kind = words.need("a kind")?;
        let what = "a kind: pmu, timer, tracepoint, software, uprobe, bpf-output";
        // Unlike the default, a scenario asks for user records explicitly.
        let mut event = EventSetup {
            name: name.to_owned(),
            kind: words.not(Kind::from_name(kind), what)?,
            defer_output: false,
            ..EventSetup::default()
        };

        while let Some(word) = words.next() {
            match word {
                "period" => event.period = words.number("a period", 1 << 40)?,
                "freq" => {
                    let frequency = words.number("a frequency", 1 << 30)?;
                    words.not((frequency > 0).then_some(()), "a frequency")?;
                    if event.kind == Kind::Pmu {
                        // The kernel starts with a period of 1.
                        (event.frequency, event.period) = (Some(frequency), PMU_PERIOD_MIN);
                    } else {
                        event.period = timer_period(frequency);
                    }
                }
                "tid" => event.tid = Some(words.tid()?),
                // A cgroup must have been defined before the event.
                "cgroup" => {
                    let name = words.need("a cgroup")?;
                    let mut all = self.scenario.schedule.setup.cgroups.iter();
                    let at = all.position(|cgroup| cgroup.name == name);
                    event.cgroup = Some(words.not(at, "a cgroup")? as u16);
                }
                "inherit" => event.inherit = true,
                "no-callchain" => event.has_callchain = false,
                "no-defer" => event.defer_callchain = false,
                "defer-output" => event.defer_output = true,
                "exclude-user" => event.exclude_user = true,
                "exclude-kernel" => event.exclude_kernel = true,
                "exclude-idle" => event.exclude_idle = true,
                "not-identified" => event.identified = [false; 3],
                "max-stack" => event.max_stack = words.number("a depth", 0xffff)? as u16,
                "regs-intr" => event.regs_intr = true,
                "config1" => event.config1 = words.number("a number", u64::MAX)?,
                // A handler that is attached when the event is opened.
                "program" => {
                    let name = words.need("a handler")?;
                    event.program = Some(words.not(self.find_handler(name), "a handler")?);
                }
                "branch-stack" => event.branch_stack = true,
                "opened-later" => event.is_opened_later = true,
                "stack-user" => event.stack_user = words.number("a size", 0xffff)? as u32,
                "ring" => event.ring_bytes = words.number("a size", RING_BYTES_MAX)? as u32,
                _ => return words.not(None, "an attribute of an event"),
            }
        }

        // A refusal names the line of its event, so lines and events go together.
        self.scenario.event_lines.push(words.line);
        self.scenario.schedule.events.push(event);
        Ok(())
    }
}
