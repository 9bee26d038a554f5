//! The content of the text files in `/proc/PID`.
//!
//! Source: Linux 6.12 `fs/proc/array.c`, `fs/proc/base.c`, `fs/proc/fd.c`.

use super::text::TICK;
use crate::address_space::PAGE_SIZE;
use crate::linux::Kernel;
use crate::linux::files::{OwnFiles, Text, terminal_device};
use crate::linux::identity::Ids;
use crate::linux::others::Init;
use crate::linux::process::{Process, Zombie};
use crate::linux::scheduling::Scheduling;
use crate::linux::signals::{OwnSignals, SIG_DFL, SIG_IGN, SIGNALS, Signals, bit};
use crate::linux::task::Task;
use crate::linux::threads::Thread;

/// A thread, with what its process has.
struct ThreadView<'a> {
    process: &'a Process,
    thread: &'a Thread,
    signals: &'a OwnSignals,
    files: &'a OwnFiles,
}

impl Kernel {
    fn subject(&self, task: Task) -> Option<ThreadView<'_>> {
        let mut all = self.all_processes();
        let process = all.find(|process| process.number == task.process)?;
        let files = self.files.of_process(task.process)?;
        let (thread, signals) = match process.others.get(&task.thread) {
            Some(other) => (&other.thread, &other.signals),
            None => (&process.thread, &process.signals.own),
        };
        Some(ThreadView {
            process,
            thread,
            signals,
            files,
        })
    }

    pub(super) fn process_text(&self, text: Text, task: Task) -> Vec<u8> {
        let list = |all: &[Vec<u8>]| all.iter().flat_map(|t| [&t[..], b"\0"].concat()).collect();

        if task == Init::TASK {
            return init_text(text, &self.system.init.scheduling);
        }

        let Some(subject) = self.subject(task) else {
            let mut ended = self.system.ended.iter();
            let ended = ended.find(|ended| ended.number == task.process);
            return ended.map_or_else(Vec::new, |ended| ended_text(text, ended));
        };

        let process = subject.process;
        match text {
            Text::Auxv => process.layout.auxv.clone(),
            Text::Cmdline => list(&process.args),
            Text::Environ => list(&process.env),
            Text::Comm => [&subject.thread.name[..], b"\n"].concat(),
            Text::Maps => self.maps(process),
            Text::Smaps => self.smaps(process),
            Text::SmapsRollup => self.smaps_rollup(process),
            Text::Stat => self.stat(&subject, task).into_bytes(),
            Text::Status => self.status(&subject, task),
            Text::Statm => {
                // In pages.
                let (size, resident) = self.sizes(process);
                format!("{size} {resident} 0 0 0 {resident} 0\n").into_bytes()
            }
            Text::Limits => limits(process).into_bytes(),
            Text::Descriptor(fd) => descriptor(subject.files, fd).into_bytes(),
            // The root of the one hierarchy of version 2 (cgroups(7)).
            Text::Cgroup => b"0::/\n".to_vec(),
            // The initial user namespace: every number stands for itself.
            Text::IdMap => b"         0          0 4294967295\n".to_vec(),
            Text::Io => b"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n\
                cancelled_write_bytes: 0\n"
                .to_vec(),
            // Time on the processor, time spent waiting, number of turns.
            Text::Schedstat => format!("{} 0 0\n", self.usage(process).time).into_bytes(),
            Text::Mounts => b"/dev/root / ext4 rw,relatime 0 0\nproc /proc proc rw,relatime 0 0\n\
                tmpfs /dev/shm tmpfs rw,relatime 0 0\n"
                .to_vec(),
            Text::Mountinfo => b"21 1 8:1 / / rw,relatime - ext4 /dev/root rw\n\
                22 21 0:20 / /proc rw,relatime - proc proc rw\n\
                23 21 0:31 / /dev/shm rw,relatime - tmpfs tmpfs rw\n"
                .to_vec(),
            _ => Vec::new(),
        }
    }

    /// The mapped and the resident pages of a process.
    fn sizes(&self, process: &Process) -> (u64, u64) {
        let memory = &self.machine.core.memory;
        let areas = memory.areas_in(process.space);
        let mapped: u64 = areas.map(|(range, _)| range.end - range.start).sum();
        (mapped / PAGE_SIZE, self.resident(process) / PAGE_SIZE)
    }

    /// The state of a thread: its letter and its name.
    fn state(&self, subject: &ThreadView, task: Task) -> (char, &'static str) {
        if task == self.task() {
            ('R', "running")
        } else if subject.thread.stopped_for().is_some() {
            ('t', "tracing stop")
        } else if subject.process.stops(subject.thread) {
            ('T', "stopped")
        } else if subject.thread.has_ended {
            ('Z', "zombie")
        } else if subject.thread.wait.is_some() {
            ('S', "sleeping")
        } else {
            ('R', "running")
        }
    }

    fn stat(&self, subject: &ThreadView, task: Task) -> String {
        let process = subject.process;

        let name = String::from_utf8_lossy(&subject.thread.name);
        let (state, _) = self.state(subject, task);
        let Process {
            parent,
            group,
            session,
            ..
        } = process;

        let is_thread = task.thread != task.process;
        // A thread's own folder shows only its time, that of the process the sum.
        let time = if is_thread {
            subject.thread.time
        } else {
            self.usage(process).time
        };
        // In hundredths of a second (`USER_HZ`).
        let (time, children) = (time / TICK, process.children.time / TICK);

        let Scheduling {
            policy,
            priority: real_time,
            nice,
            ..
        } = subject.thread.scheduling;

        // As `task_prio` counts.
        let priority = match real_time {
            0 => 20 + nice,
            priority => -1 - priority.cast_signed(),
        };

        let threads = process.others.len() + 1;
        let (begun, limit) = (process.begun / TICK, u64::MAX);
        let (size, resident) = self.sizes(process);
        let size = size * PAGE_SIZE;

        let (stack, heap) = (process.layout.stack.end, process.layout.heap);

        // Only the thread's own, as `do_task_stat` prints it.
        let pending = process.signals.pending_sets(subject.signals).0;
        let (ignored, caught) = actions(&process.signals);
        let blocked = subject.signals.blocked;
        let exit_signal = process.exit_signal;

        // The terminal, and its foreground.
        let (device, foreground) = match process.terminal {
            Some(number) => {
                let terminal = self.objects.terminal(number);
                let foreground = terminal.map_or(0, |terminal| terminal.group);
                (terminal_device(number), i64::from(foreground))
            }
            None => (0, -1),
        };

        // The fields of `do_task_stat` (`fs/proc/array.c`); 4194304 is `PF_RANDOMIZE`.
        format!(
            "{} ({name}) {state} {parent} {group} {session} {device} {foreground} 4194304 0 0 0 0 {time} 0 \
             {children} 0 {priority} {nice} {threads} 0 {begun} {size} {resident} {limit} 0 0 \
             {stack} 0 0 {pending} {blocked} {ignored} {caught} 0 0 0 {exit_signal} 0 {real_time} {policy} 0 0 0 0 0 \
             {heap} 0 0 0 0 0\n",
            task.thread,
        )
    }

    fn status(&self, subject: &ThreadView, task: Task) -> Vec<u8> {
        let ids = |ids: Ids| {
            let Ids {
                real,
                effective,
                saved,
                file,
            } = ids;
            format!("{real}\t{effective}\t{saved}\t{file}")
        };

        let process = subject.process;
        let identity = &subject.files.identity;
        let (letter, state) = self.state(subject, task);
        let name = String::from_utf8_lossy(&subject.thread.name);

        // In kB; a page has 4.
        let (size, resident) = self.sizes(process);
        let (size, resident) = (size * 4, resident * 4);
        let groups: String = identity.groups.iter().map(|g| format!("{g} ")).collect();
        let (ignored, caught) = actions(&process.signals);

        // `CAP_LAST_CAP` is 40.
        let set = |has: bool| if has { (1_u64 << 41) - 1 } else { 0 };
        let permitted = set(identity.capabilities.permitted);
        let effective = set(identity.capabilities.effective);

        let (number, thread) = (process.number, task.thread);
        let stack = process.layout.stack.end - process.layout.stack.start;

        // `SigPnd` is the thread's, `ShdPnd` that of the process.
        let (own, shared) = process.signals.pending_sets(subject.signals);
        let traced = subject.thread.traced.as_ref();
        let tracer = traced.map_or(0, |traced| traced.tracer.process);
        let queued = own.count_ones() + shared.count_ones();

        // The lines of `proc_pid_status` (`fs/proc/array.c`), in its order.
        let text = format!(
            "Name:\t{name}\nUmask:\t{:04o}\nState:\t{letter} ({state})\nTgid:\t{number}\nNgid:\t0\n\
             Pid:\t{thread}\nPPid:\t{}\nTracerPid:\t{tracer}\nUid:\t{}\nGid:\t{}\nFDSize:\t{}\n\
             Groups:\t{groups}\nNStgid:\t{number}\nNSpid:\t{thread}\nNSpgid:\t{}\nNSsid:\t{}\n\
             VmPeak:\t{size:8} kB\nVmSize:\t{size:8} kB\nVmLck:\t{:8} kB\nVmPin:\t{:8} kB\n\
             VmHWM:\t{resident:8} kB\nVmRSS:\t{resident:8} kB\nRssAnon:\t{resident:8} kB\n\
             RssFile:\t{:8} kB\nRssShmem:\t{:8} kB\nVmData:\t{resident:8} kB\nVmStk:\t{:8} kB\n\
             VmExe:\t{:8} kB\nVmLib:\t{:8} kB\nVmPTE:\t{:8} kB\nVmSwap:\t{:8} kB\n\
             CoreDumping:\t0\nTHP_enabled:\t1\nThreads:\t{}\nSigQ:\t{queued}/1024\n\
             SigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{:016x}\nSigIgn:\t{ignored:016x}\n\
             SigCgt:\t{caught:016x}\nCapInh:\t{:016x}\nCapPrm:\t{permitted:016x}\n\
             CapEff:\t{effective:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{}\n\
             Seccomp:\t0\nSeccomp_filters:\t0\nCpus_allowed:\t1\nCpus_allowed_list:\t0\n\
             Mems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t0\n\
             nonvoluntary_ctxt_switches:\t0\n",
            subject.files.umask,
            process.parent,
            ids(identity.user),
            ids(identity.group),
            subject.files.table.room(),
            process.group,
            process.session,
            0,
            0,
            0,
            0,
            stack / 1024,
            0,
            0,
            0,
            0,
            process.others.len() + 1,
            subject.signals.blocked,
            0,
            (1_u64 << 41) - 1,
            0,
            u8::from(process.settings.no_new_privileges),
        );

        text.into_bytes()
    }
}

/// The sets of ignored and of handled signals.
fn actions(signals: &Signals) -> (u64, u64) {
    let mut sets = (0, 0);
    for signal in 1..=SIGNALS {
        match signals.action(signal).handler {
            SIG_DFL => {}
            SIG_IGN => sets.0 |= bit(signal),
            _ => sets.1 |= bit(signal),
        }
    }
    sets
}

/// What is left of a process that has ended.
fn ended_text(text: Text, ended: &Zombie) -> Vec<u8> {
    let Zombie {
        number,
        parent,
        group,
        session,
        exit_signal,
        name,
        begun,
        usage,
        status,
        ..
    } = ended;

    let name = String::from_utf8_lossy(name);
    let (time, begun) = (usage.time / TICK, begun / TICK);

    match text {
        Text::Comm => format!("{name}\n"),
        Text::Statm => "0 0 0 0 0 0 0\n".into(),
        Text::Stat => {
            // Fields 26 to 37, `exit_signal`, and fields 39 to 51 (proc_pid_stat(5)).
            let zeros = [" 0".repeat(12), format!(" {exit_signal}"), " 0".repeat(13)].concat();
            // 4194308 is `PF_RANDOMIZE | PF_EXITING`.
            format!(
                "{number} ({name}) Z {parent} {group} {session} 0 -1 4194308 0 0 0 0 {time} 0 0 0 \
                 20 0 1 0 {begun} 0 0 {}{zeros} {status}\n",
                u64::MAX
            )
        }
        Text::Status => format!(
            "Name:\t{name}\nState:\tZ (zombie)\nTgid:\t{number}\nNgid:\t0\nPid:\t{number}\n\
             PPid:\t{parent}\nTracerPid:\t0\nThreads:\t1\n"
        ),
        // All other texts need memory or files, which are gone.
        _ => String::new(),
    }
    .into_bytes()
}

/// What there is to say of `init`, which has no memory and no files.
fn init_text(text: Text, scheduling: &Scheduling) -> Vec<u8> {
    let (name, nice) = (Init::NAME, scheduling.nice);
    // As an unknown user is shown (`overflowuid`).
    let uid = 65534;
    match text {
        Text::Comm => format!("{name}\n"),
        Text::Statm => "0 0 0 0 0 0 0\n".into(),
        Text::Stat => {
            let zeros = [" 0".repeat(12), " 17".into(), " 0".repeat(14)].concat();
            format!(
                "1 ({name}) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 {} {nice} 1 0 0 0 0 {}{zeros}\n",
                20 + nice,
                u64::MAX
            )
        }
        Text::Status => format!(
            "Name:\t{name}\nUmask:\t0000\nState:\tS (sleeping)\nTgid:\t1\nNgid:\t0\nPid:\t1\nPPid:\t0\n\
             TracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nFDSize:\t64\nGroups:\t \nThreads:\t1\n"
        ),
        _ => String::new(),
    }
    .into_bytes()
}

/// `/proc/PID/limits`.
fn limits(process: &Process) -> String {
    // In the order of the resources' numbers (`lnames` in `fs/proc/base.c`).
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];

    let number = |value: u64| match value {
        // `RLIM_INFINITY`.
        u64::MAX => "unlimited".to_owned(),
        value => value.to_string(),
    };
    let row = |((name, unit), [soft, hard]): ((&str, &str), [u64; 2])| {
        let (soft, hard) = (number(soft), number(hard));
        format!("{name:<25} {soft:<20} {hard:<20} {unit:<10}\n")
    };

    let title = "Limit                     Soft Limit           Hard Limit           Units     \n";
    let rows = NAMES.into_iter().zip(process.resources).map(row);
    std::iter::once(title.to_owned()).chain(rows).collect()
}

/// `/proc/PID/fdinfo/N`.
fn descriptor(files: &OwnFiles, fd: u64) -> String {
    let Ok(slot) = files.table.slot(fd) else {
        return String::new();
    };
    let open = slot.open.borrow();
    let flags = open.flags | if slot.close_on_exec { 0o200_0000 } else { 0 };
    let (_, inode) = open.lock_key();
    format!(
        "pos:\t{}\nflags:\t0{flags:o}\nmnt_id:\t21\nino:\t{inode}\n",
        open.position
    )
}
