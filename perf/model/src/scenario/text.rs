//! Schedules as scenarios, and the output of runs.

use super::HANDLERS;
use super::branches_text::branches_text;
use crate::action::Action;
use crate::fuzz::Schedule;
use crate::oracle::{Joined, join};
use crate::programs::BUILT_IN;
use crate::programs::programs_text;
use crate::record::{Body, Record};
use crate::registers::{FakeRegs, Registers};
use crate::setup::{EventSetup, Form, Kind, RfcBuffer, UserUnwind};
use crate::stack::{Leaf, StackId, StackSource};
use crate::world::World;
use std::fmt::Write as _;
use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_lbr::Layout;

/// The most words of a chain that are shown.
const WORDS_MAX: usize = 12;

/// The output of a run: its log, each sample as our stitcher gives it out and whether that is
/// right, the same for perf's stitcher (for the form of 2023, its own), and the broken rules.
pub fn output(world: &World) -> String {
    let mut out = world.log_text();
    let other = match world.setup().form {
        Form::Upstream | Form::Before => Mode::Perf72,
        Form::Rfc2023 => Mode::Rfc2023,
    };
    let own = join(world, Mode::Own);
    samples(&mut out, Mode::Own, &own.joined);
    samples(&mut out, other, &join(world, other).joined);
    registers(&mut out, world.records());
    out.push_str(&branches_text(world, &own.joined));
    out.push_str(&programs_text(world, &own.walks));
    for violation in &own.violations {
        let (rule, what) = (violation.rule.as_str(), &violation.what);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "broken: {rule}, at {}: {what}", violation.time);
    }
    out
}

fn samples(out: &mut String, mode: Mode, all: &[Joined]) {
    let _ = writeln!(out, "{}:", mode.as_str());
    for joined in all {
        let stitched = &joined.stitched;
        let _ = write!(
            out,
            "  sample {} of {}: {}, {}:",
            joined.number,
            stitched.tid,
            joined.outcome.as_str(),
            stitched.how.as_str()
        );
        for word in stitched.chain.iter().take(WORDS_MAX) {
            let _ = write!(out, " {word:x}");
        }
        let more = stitched.chain.len().saturating_sub(WORDS_MAX);
        let _ = match more {
            0 => writeln!(out),
            more => writeln!(out, " .. {more} more"),
        };
    }
}

/// The registers of samples that have them.
fn registers(out: &mut String, records: &[Record]) {
    let of_sample = |record: &Record| match record.body {
        Body::Sample {
            number,
            registers: Some(registers),
            ..
        } => Some((number, registers)),
        _ => None,
    };

    // The title is written only if there is something below it.
    // Only events that ask for them have registers.
    let mut all = records.iter().filter_map(of_sample).peekable();
    if all.peek().is_some() {
        out.push_str("registers:\n");
    }

    for (
        number,
        Registers {
            ip,
            sp,
            bp,
            cs,
            flags,
        },
    ) in all
    {
        let _ = writeln!(
            out,
            "  sample {number}: ip {ip:x}, sp {sp:x}, bp {bp:x}, cs {cs:x}, flags {flags:x}"
        );
    }
}

/// The text with its `=` lines replaced by `output`.
pub fn bless(text: &str, output: &str) -> String {
    let mut out: String = text
        .lines()
        .filter(|line| !line.starts_with('='))
        .fold(String::new(), |out, line| out + line + "\n");
    for line in output.lines() {
        out.push_str(if line.is_empty() { "=" } else { "= " });
        out.push_str(line);
        out.push('\n');
    }
    out
}

impl Schedule {
    /// This schedule as a scenario, without expected output.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        let setup = &self.setup;

        // Directives come in an order in which each finds what it names.
        lines.push(format!("form {}", setup.form.as_str()));
        lines.push(format!("cpus {}", setup.cpus));

        if let Some(mutant) = setup.mutant {
            lines.push(format!("mutant {}", mutant.as_str()));
        }
        if setup.unwind == UserUnwind::Sframe {
            lines.push("unwind sframe".to_owned());
        }
        if setup.rfc_buffer == RfcBuffer::OnStack {
            lines.push("rfc-buffer on-stack".to_owned());
        }
        lines.push(format!("samples-per-tick {}", setup.samples_per_tick));
        if setup.timer_tracepoint {
            lines.push("timer-tracepoint".to_owned());
        }

        // The directives of branch records say nothing without any.
        if self.events.iter().any(|event| event.branch_stack) {
            lines.push(format!("lbr-storage {}", setup.lbr_storage.as_str()));
            lines.push(format!("lbr-depth {}", setup.lbr_depth.entries()));
            if setup.lbr_layout != Layout::default() {
                lines.push(format!("lbr-layout {}", setup.lbr_layout.as_str()));
            }
        }

        if setup.software_branches {
            lines.push("software-branches".to_owned());
        }
        lines.extend(setup.cgroups.iter().map(|cgroup| {
            let tids = cgroup.tids.iter().map(|tid| format!(" {tid}"));
            format!("cgroup {}{}", cgroup.name, tids.collect::<String>())
        }));

        if setup.overflow_tracepoint {
            lines.push("overflow-tracepoint".to_owned());
        }
        if setup.fake_regs != FakeRegs::default() {
            lines.push(format!("fake-regs {}", setup.fake_regs.as_str()));
        }

        // Events may name handlers.
        lines.extend(self.programs.iter().map(|request| {
            let program = request.program.as_deref().unwrap_or_default();
            let word = if request.walks { "walker" } else { "handler" };
            let line = format!("{word} {} {} {program}", request.name, request.path);
            line.trim_end().to_owned()
        }));
        lines.extend(self.events.iter().map(|event| self.event_text(event)));

        // Stacks before tasks: a task names the one that it starts on.
        match &self.stacks {
            None => lines.push("stacks numbered".to_owned()),
            Some(stacks) => lines.extend(stacks.all().map(|(name, frames)| {
                let frames = frames.iter().map(|frame| format!(" {frame:#x}"));
                format!("stack {name}{}", frames.collect::<String>())
            })),
        }

        // A task without a stack is a kernel thread.
        for (tid, stack) in &self.tasks {
            lines.push(match stack {
                Some(stack) => format!("task {tid} {}", self.stack_name(*stack)),
                None => format!("kthread {tid}"),
            });
        }

        // Steps of one CPU in a row become one line with a number.
        let mut steps: Option<(u16, u64)> = None;
        for action in &self.actions {
            if let Action::Step { cpu } = *action {
                match &mut steps {
                    Some((on, times)) if *on == cpu => *times += 1,
                    _ => {
                        lines.extend(steps.take().map(step_text));
                        steps = Some((cpu, 1));
                    }
                }
                continue;
            }
            lines.extend(steps.take().map(step_text));
            lines.push(self.action_text(*action));
        }

        // The last steps have no action behind them.
        lines.extend(steps.map(step_text));
        lines.push(String::new());
        lines.join("\n")
    }

    fn stack_name(&self, stack: StackId) -> String {
        match &self.stacks {
            Some(stacks) => stacks.name(stack),
            None => crate::stack::Numbered.name(stack),
        }
    }

    fn action_text(&self, action: Action) -> String {
        // The words are those that `happens` reads.
        let event = |event: u16| &self.events[usize::from(event)].name;
        match action {
            Action::Step { cpu } => step_text((cpu, 1)),
            Action::Run { cpu, ns } => format!("run {cpu} {ns}"),
            Action::Stack { cpu, stack, leaf } => {
                // Without a word, the thread is in the body of its function.
                let leaf = match leaf {
                    Leaf::Body => "",
                    Leaf::Entry => " entry",
                    Leaf::AfterPush => " behind-push",
                };
                format!("user {cpu} {}{leaf}", self.stack_name(stack))
            }
            Action::Syscall { cpu } => format!("syscall {cpu}"),
            Action::Kernel { cpu, address } => format!("kernel {cpu} {address:#x}"),
            Action::Leave { cpu } => format!("leave {cpu}"),
            Action::Finish { cpu } => format!("finish {cpu}"),
            Action::Sample { cpu, event: e } => format!("sample {cpu} {}", event(e)),
            Action::Irq { cpu } => format!("irq {cpu}"),
            Action::Softirq { cpu } => format!("softirq {cpu}"),
            Action::Expire { cpu, event: e } => format!("expire {cpu} {}", event(e)),
            Action::Switch { cpu, tid } => format!("switch {cpu} {tid}"),
            Action::SwitchBegin { cpu, tid } => format!("switch-begin {cpu} {tid}"),
            Action::Open { cpu, event: e } => format!("open {cpu} {}", event(e)),
            Action::Close { cpu, event: e } => format!("close {cpu} {}", event(e)),
            Action::Fork { cpu, child } => format!("fork {cpu} {child}"),
            Action::Exec { cpu, stack } => format!("exec {cpu} {}", self.stack_name(stack)),
            Action::Exit { cpu } => format!("exit {cpu}"),
            Action::Oops { cpu } => format!("oops {cpu}"),
            Action::Signal { tid, stack } => format!("signal {tid} {}", self.stack_name(stack)),
            Action::Uprobe { cpu } => format!("uprobe {cpu}"),
            Action::Read { cpu } => format!("read {cpu}"),
            Action::NoMemory { tid } => format!("no-memory {tid}"),
            Action::Install {
                cpu,
                event: e,
                handler,
            } => {
                format!("install {cpu} {} {}", event(e), self.handler_name(handler))
            }
        }
    }

    fn handler_name(&self, handler: u16) -> &str {
        let own = self.programs.iter().map(|request| request.name.as_str());
        let mut all = HANDLERS.iter().chain(&BUILT_IN).copied().chain(own);
        let name = usize::from(handler).checked_sub(1);
        name.and_then(|at| all.nth(at)).unwrap_or("none")
    }

    /// The line of an event.
    fn event_text(&self, event: &EventSetup) -> String {
        let cgroups = &self.setup.cgroups;
        let mut text = format!("event {} {}", event.name, event.kind.as_str());

        // Only counters and timers have a period.
        if let Some(frequency) = event.frequency {
            let _ = write!(text, " freq {frequency}");
        } else if matches!(event.kind, Kind::Pmu | Kind::Timer) {
            let _ = write!(text, " period {}", event.period);
        }

        // For one thread, for a cgroup, or for all CPUs.
        if let Some(tid) = event.tid {
            let _ = write!(text, " tid {tid}");
        }
        if let Some(cgroup) = event.cgroup.and_then(|at| cgroups.get(usize::from(at))) {
            let _ = write!(text, " cgroup {}", cgroup.name);
        }

        // Flags that are on by default are written when they are off.
        for (is_set, word) in [
            (event.inherit, " inherit"),
            (!event.has_callchain, " no-callchain"),
            (!event.defer_callchain, " no-defer"),
            (event.defer_output, " defer-output"),
            (event.exclude_user, " exclude-user"),
            (event.exclude_kernel, " exclude-kernel"),
            (event.exclude_idle, " exclude-idle"),
            (event.identified != [true; 3], " not-identified"),
            (event.regs_intr, " regs-intr"),
            (event.branch_stack, " branch-stack"),
            (event.is_opened_later, " opened-later"),
        ] {
            text.push_str(if is_set { word } else { "" });
        }

        // Only what differs from the default is written.
        let default = EventSetup::default();
        for (value, usual, word) in [
            (
                u32::from(event.max_stack),
                u32::from(default.max_stack),
                "max-stack",
            ),
            (event.stack_user, default.stack_user, "stack-user"),
            (event.ring_bytes, default.ring_bytes, "ring"),
        ] {
            if value != usual {
                let _ = write!(text, " {word} {value}");
            }
        }

        if event.config1 != 0 {
            let _ = write!(text, " config1 {:#x}", event.config1);
        }
        if let Some(handler) = event.program {
            let _ = write!(text, " program {}", self.handler_name(handler));
        }
        text
    }
}

fn step_text((cpu, times): (u16, u64)) -> String {
    if times == 1 {
        format!("step {cpu}")
    } else {
        format!("step {cpu} {times}")
    }
}
