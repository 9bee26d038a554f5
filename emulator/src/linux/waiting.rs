//! The threads that wait, for a report of a deadlock: what each waits for, and who could end it.

use super::end::WaitTarget;
use super::files::{Kind, Shared};
use super::handle::HandleKind;
use super::kernel::Kernel;
use super::locks::Holder;
use super::numbers as nr;
use super::process::Process;
use super::task::Task;
use super::threads::{Thread, Wait};
use crate::address_space::{Access, Permissions};
use crate::state::State;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// Maximum number of descriptors that are named for one thread.
const FILES_MAX: usize = 64;

/// A thread that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The thread.
    pub task: Task,
    /// Its name (`comm`).
    pub name: String,
    /// The file name of its program.
    pub program: String,
    /// The call in which it waits; empty for a stopped thread that waits in none.
    pub call: &'static str,
    /// What would end this.
    pub what: WaitsFor,
    /// Its registers, after the `syscall`.
    pub state: State,
}

/// What a thread waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Someone who wakes a futex.
    Futex {
        /// Its address.
        address: u64,
        /// The word at that address.
        value: Option<u32>,
        /// The thread that holds the lock, if it is one whose form is known.
        owner: Option<Owner>,
    },
    /// The end of another thread of the process.
    Thread(u32),
    /// A child that ends, stops or continues: this one, one of a process group, or any.
    Child(WaitTarget),
    /// The child of `vfork`, which uses the parent's memory.
    Borrower(u32),
    /// A signal.
    Signal,
    /// One of these files.
    Files(Vec<WaitFile>),
    /// A lock of a file, which others hold.
    Lock(WaitFile),
    /// The values of System V semaphores: the number of their set.
    Semaphores(u32),
    /// Room or a message in a System V queue: its number.
    Queue(u32),
    /// Something else.
    Other,
    /// The signal that continues the process, which this one stopped.
    Stopped(u8),
    /// Its tracer, the thread of this number, for which it has stopped.
    Tracer(u32),
}

/// The owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The thread's number.
    pub thread: u32,
    /// How it is known.
    pub known: OwnerKnown,
}

/// How the owner of a lock is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerKnown {
    /// The word holds its number, as the kernel defines it for locks with priority inheritance and
    /// for robust ones.
    Word,
    /// `__owner` of what looks like a `pthread_mutex_t` of glibc on x86-64
    /// (`sysdeps/x86/nptl/bits/struct_mutex.h`, glibc 2.41).
    Glibc,
}

/// A file for which a thread waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitFile {
    /// The descriptor.
    pub descriptor: u64,
    /// What it is: `pipe`, `socket`, or a path.
    pub what: String,
    /// For a pipe, the processes that have its other end; for a lock, those that hold it.
    pub others: Option<Vec<u32>>,
}

fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

impl WaitsFor {
    /// A stable name for machines.
    pub fn as_str(&self) -> &'static str {
        match self {
            WaitsFor::Futex { .. } => "futex",
            WaitsFor::Thread(_) => "thread",
            WaitsFor::Child(_) => "child",
            WaitsFor::Borrower(_) => "vfork",
            WaitsFor::Signal => "signal",
            WaitsFor::Files(_) => "file",
            WaitsFor::Lock(_) => "lock",
            WaitsFor::Semaphores(_) => "semaphores",
            WaitsFor::Queue(_) => "queue",
            WaitsFor::Other => "other",
            WaitsFor::Stopped(_) => "stopped",
            WaitsFor::Tracer(_) => "tracer",
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitsFor::Futex {
                address,
                value,
                owner,
            } => {
                write!(f, "the futex at {address:#x}")?;

                // The word may be in memory that is gone by now.
                if let Some(value) = value {
                    write!(f, ", value {value:#x}")?;
                }

                match owner {
                    Some(Owner { thread, known }) => {
                        // What the kernel defines needs no remark; glibc's layout is a guess.
                        let how = match known {
                            OwnerKnown::Word => "",
                            OwnerKnown::Glibc => " (__owner of a pthread_mutex_t)",
                        };
                        write!(f, ", held by thread {thread}{how}")
                    }
                    None => Ok(()),
                }
            }
            WaitsFor::Thread(thread) => write!(f, "the end of thread {thread}"),
            WaitsFor::Child(WaitTarget::Any) => write!(f, "any child"),
            WaitsFor::Child(WaitTarget::Number(number)) => write!(f, "child {number}"),
            WaitsFor::Child(WaitTarget::Group(group)) => {
                write!(f, "a child of process group {group}")
            }
            WaitsFor::Borrower(child) => write!(f, "execve or the end of its vfork child {child}"),
            WaitsFor::Signal => write!(f, "a signal"),
            WaitsFor::Files(files) => {
                for (index, file) in files.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{file}")?;
                }

                // `poll` without files, or of what cannot become ready, waits for a signal.
                if files.is_empty() {
                    write!(f, "a signal")
                } else {
                    Ok(())
                }
            }
            WaitsFor::Lock(file) => {
                let WaitFile {
                    descriptor, what, ..
                } = file;
                write!(f, "a lock of descriptor {descriptor} ({what})")?;

                match file.others.as_deref() {
                    Some(others @ [_, ..]) => write!(f, ", held by process {}", list(others)),
                    _ => Ok(()),
                }
            }
            WaitsFor::Semaphores(set) => write!(f, "the semaphores of set {set}"),
            WaitsFor::Queue(queue) => write!(f, "message queue {queue}"),
            WaitsFor::Other => write!(f, "something else"),
            WaitsFor::Stopped(signal) => {
                write!(f, "SIGCONT: signal {signal} stopped the process")
            }
            WaitsFor::Tracer(tracer) => write!(f, "its tracer, thread {tracer}, which stopped it"),
        }
    }
}

impl fmt::Display for WaitFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "descriptor {} ({}", self.descriptor, self.what)?;
        match self.others.as_deref() {
            None => {}
            Some([]) => write!(f, ", nobody has its other end")?,
            Some(others) => write!(f, ", other end: process {}", list(others))?,
        }
        write!(f, ")")
    }
}

/// Code that is mapped from a file.
#[derive(Clone, Debug)]
pub struct MappedCode {
    /// Its addresses.
    pub range: Range<u64>,
    /// Its permissions.
    pub permissions: Permissions,
    /// The path below the root.
    pub path: Rc<[u8]>,
    /// The offset in the file at which it starts, bytes.
    pub offset: u64,
}

impl Kernel {
    /// Calls `visit` for each thread that waits, by number, while it is the running one. If the run
    /// ended because none can go on, these are all. The run cannot go on afterwards.
    pub fn visit_waiting(&mut self, visit: &mut dyn FnMut(&Waiting, &Kernel)) {
        let mut tasks: Vec<Task> = Vec::new();
        for process in self.all_processes().filter(|process| !process.has_ended) {
            let others = process.others.values().map(|other| &other.thread);
            let waits = |thread: &&Thread| {
                !thread.has_ended && (thread.wait.is_some() || process.stops(thread))
            };
            let waiting = others.chain([&process.thread]).filter(waits);
            tasks.extend(waiting.map(|thread| Task {
                process: process.number,
                thread: thread.number,
            }));
        }
        tasks.sort_unstable();
        for task in tasks {
            if task != self.task() {
                self.switch_to(task);
            }
            let waiting = self.describe();
            visit(&waiting, self);
        }
    }

    /// The executable mappings of files in the running process.
    pub fn mapped_code(&self) -> Vec<MappedCode> {
        let mut all = Vec::new();
        for (range, file) in self.process.layout.files() {
            let mut at = range.start;
            while at < range.end {
                let Some((part, area)) = self.machine.core.memory.area(at) else {
                    break;
                };
                let end = part.end.min(range.end);
                if area.permissions().allow(Access::Execute) {
                    all.push(MappedCode {
                        range: at..end,
                        permissions: area.permissions(),
                        path: file.path.clone(),
                        offset: file.offset + (at - range.start),
                    });
                }
                at = end;
            }
        }
        all
    }

    /// What the running thread waits for.
    fn describe(&self) -> Waiting {
        let thread = &self.process.thread;
        let program = &self.files.own.program;
        let program = program.rsplit(|&byte| byte == b'/').next();
        let call = thread.wait.as_ref();
        let call = call.and_then(|wait| nr::name(wait.made.number));
        Waiting {
            task: self.task(),
            name: String::from_utf8_lossy(&thread.name).into_owned(),
            program: String::from_utf8_lossy(program.unwrap_or_default()).into_owned(),
            call: call.unwrap_or(""),
            what: match (thread.stopped_for(), self.process.stopped, &thread.wait) {
                (Some(tracer), ..) => WaitsFor::Tracer(tracer.thread),
                (None, Some(signal), _) if thread.traced.is_none() => WaitsFor::Stopped(signal),
                (None, _, Some(wait)) => self.waits_for(wait),
                (None, _, None) => WaitsFor::Other,
            },
            state: self.machine.core.state.clone(),
        }
    }

    fn waits_for(&self, wait: &Wait) -> WaitsFor {
        let [a, b, c, d, ..] = wait.made.args;
        match wait.made.number {
            nr::futex => self.waits_for_futex(a),
            // The meanings of the number: wait4(2).
            nr::wait4 => WaitsFor::Child(match a as i32 {
                -1 => WaitTarget::Any,
                0 => WaitTarget::Group(self.process.group),
                group @ ..0 => WaitTarget::Group(group.unsigned_abs()),
                number => WaitTarget::Number(number.cast_unsigned()),
            }),
            nr::waitid => {
                let which = self.waited_for(a as u32, b);
                WaitsFor::Child(which.map_or(WaitTarget::Any, |(which, _)| which))
            }
            // Only after the child was created does a `vfork` wait; its number is the answer that
            // is kept.
            nr::fork | nr::vfork | nr::clone | nr::clone3 => WaitsFor::Borrower(wait.done as u32),
            nr::pause | nr::rt_sigsuspend | nr::rt_sigtimedwait => WaitsFor::Signal,
            nr::poll | nr::ppoll => {
                // `struct pollfd` has 8 bytes: the descriptor, and two sets of events.
                let descriptor = |index| self.u32_at(a.wrapping_add(8 * index)).ok();
                let all = (0..b).map_while(descriptor);

                // A negative descriptor is ignored (poll(2)).
                self.files_of(all.filter(|&fd| fd as i32 >= 0).map(u64::from))
            }
            nr::select | nr::pselect6 => {
                let sets = [b, c, d];
                let is_in = |fd: u64| {
                    sets.iter().any(|&set| {
                        // A set is an array of words with 64 bits each.
                        let word = self.u64_at(set.wrapping_add(fd / 64 * 8));
                        set != 0 && word.is_ok_and(|word| word >> (fd % 64) & 1 != 0)
                    })
                };

                // The program may name more descriptors than there can be.
                let count = a.min(self.files.own.table.room());
                self.files_of((0..count).filter(|&fd| is_in(fd)))
            }
            nr::fcntl | nr::flock => self.waits_for_lock(a, wait.made.number == nr::flock),
            nr::semop | nr::semtimedop => WaitsFor::Semaphores(a as u32),
            nr::msgsnd | nr::msgrcv => WaitsFor::Queue(a as u32),
            nr::sendfile if self.own_file(a).is_some() => self.files_of([a, b].into_iter()),
            nr::splice => self.files_of([a, c].into_iter()),
            // All other calls that wait for a file have its descriptor first.
            _ if self.own_file(a).is_some() => self.files_of([a].into_iter()),
            _ => WaitsFor::Other,
        }
    }

    fn own_file(&self, descriptor: u64) -> Option<Shared> {
        self.files.own.table.get_named(descriptor).ok()
    }

    fn files_of(&self, descriptors: impl Iterator<Item = u64>) -> WaitsFor {
        let file = |descriptor| {
            let open = self.own_file(descriptor)?;
            let what = match &open.borrow().kind {
                // A FIFO has a name, which says more.
                Kind::Pipe(end) if end.reads() && !open.borrow().has_name() => {
                    "read end of a pipe".to_owned()
                }
                Kind::Pipe(_) if !open.borrow().has_name() => "write end of a pipe".to_owned(),
                Kind::Object(handle) if handle.sort != HandleKind::Terminal => {
                    handle.sort.name().trim_end_matches(':').to_owned()
                }
                Kind::Stdin => "standard input".to_owned(),
                Kind::Stdout => "standard output".to_owned(),
                Kind::Stderr => "standard error".to_owned(),
                _ => String::from_utf8_lossy(&open.borrow().path).into_owned(),
            };

            let others = self.other_ends(&open);
            Some(WaitFile {
                descriptor,
                what,
                others,
            })
        };

        // `poll` may wait for thousands.
        WaitsFor::Files(descriptors.filter_map(file).take(FILES_MAX).collect())
    }

    fn waits_for_lock(&self, descriptor: u64, is_whole: bool) -> WaitsFor {
        let Some(open) = self.own_file(descriptor) else {
            return WaitsFor::Other;
        };

        let (ranges, whole) = self.system.locks.holders(open.borrow().lock_key());

        // `flock` locks a whole file; locks of ranges know the one in the way.
        let holders = match self.system.locks.blocker(self.task()) {
            _ if is_whole => whole.into_iter().map(Holder::Open).collect(),
            Some(blocker) => vec![blocker],
            None => ranges,
        };

        let number = |file: &Shared| file.borrow().lock.as_ref().map(|handle| handle.id);
        let own = number(&open);
        let mut processes = Vec::new();

        for holder in holders {
            match holder {
                Holder::Process(process) => processes.push(process),
                // Locks of the same open file do not exclude each other.
                Holder::Open(id) if Some(id) == own => {}
                Holder::Open(id) => processes.extend(self.who_has(|file| number(file) == Some(id))),
            }
        }

        processes.sort_unstable();
        processes.dedup();
        WaitsFor::Lock(WaitFile {
            descriptor,
            what: String::from_utf8_lossy(&open.borrow().path).into_owned(),
            others: Some(processes),
        })
    }

    /// The processes that have the other end of a pipe.
    fn other_ends(&self, open: &Shared) -> Option<Vec<u32>> {
        let open = open.borrow();
        let (own, wants_reader) = match &open.kind {
            Kind::Pipe(end) => (end, !end.reads()),
            _ => return None,
        };
        let is_other = |file: &Shared| match &file.borrow().kind {
            Kind::Pipe(end) => {
                let is_wanted = if wants_reader {
                    end.reads()
                } else {
                    end.writes()
                };
                is_wanted && end.is_same(own)
            }
            _ => false,
        };
        Some(self.who_has(is_other))
    }

    /// The processes that have an open file, by number.
    fn who_has(&self, is_it: impl Fn(&Shared) -> bool) -> Vec<u32> {
        let alive = self.all_processes().filter(|process| !process.has_ended);
        let have = alive.filter(|process| {
            let own = self.files.of_process(process.number);
            own.is_some_and(|own| own.table.open().any(|(_, file)| is_it(file)))
        });
        let mut numbers: Vec<u32> = have.map(|process| process.number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn waits_for_futex(&self, address: u64) -> WaitsFor {
        let value = self.u32_at(address).ok();

        let threads = |process: &Process| {
            let others = process.others.values().map(|other| &other.thread);
            let all = others.chain([&process.thread]);
            let alive = all.filter(|thread| !thread.has_ended);
            let numbers = alive.map(|thread| (thread.number, thread.cleared_at_exit));
            numbers.collect::<Vec<_>>()
        };

        let own = threads(&self.process);
        // `pthread_join` waits for the word that the kernel clears at a thread's end.
        if let Some((thread, _)) = own.iter().find(|(_, cleared)| *cleared == address) {
            return WaitsFor::Thread(*thread);
        }

        // A number that is nobody's is not an owner: the word is something else.
        let is_alive = |number: u32| {
            let mut all = self.all_processes().filter(|process| !process.has_ended);
            all.any(|process| threads(process).iter().any(|(thread, _)| *thread == number))
        };

        // The word itself may name the owner; glibc keeps it beside the word.
        let owner = value.and_then(|value| {
            /// `FUTEX_TID_MASK` (Linux 6.12 `include/uapi/linux/futex.h`).
            const OWNER: u32 = 0x3fff_ffff;
            let word = Owner {
                thread: value & OWNER,
                known: OwnerKnown::Word,
            };

            if is_alive(word.thread) {
                Some(word)
            } else {
                self.glibc_owner(address)
                    .filter(|owner| is_alive(owner.thread))
            }
        });

        WaitsFor::Futex {
            address,
            value,
            owner,
        }
    }

    /// The owner of a `pthread_mutex_t` of glibc whose lock is at this address.
    fn glibc_owner(&self, address: u64) -> Option<Owner> {
        /// All bits of `__kind`: the type, and whether it is robust, shared, or inherits priority.
        const KINDS: u32 = 0x3ff;
        let word = |index: u64| self.u32_at(address.wrapping_add(4 * index)).ok();
        // __lock, __count, __owner, __nusers, __kind.
        let (lock, owner, users, kind) = (word(0)?, word(2)?, word(3)?, word(4)?);
        let is_one = matches!(lock, 1 | 2) && users != 0 && kind & !KINDS == 0;
        is_one.then_some(Owner {
            thread: owner,
            known: OwnerKnown::Glibc,
        })
    }
}
