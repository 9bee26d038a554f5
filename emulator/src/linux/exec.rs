//! `execve`: finds the program and its interpreter, and loads them.
//!
//! Source: Linux 6.12 `fs/exec.c`, `fs/binfmt_script.c`, `fs/binfmt_elf.c`.

use super::calls::AT_FDCWD;
use super::clock::{Owner, Timer};
use super::delivery::frame;
use super::errno::{Answer, Errno};
use super::files::{Attributes, Kind, Node, Refusal, ResolvedPath, S_IFMT, S_IFREG};
use super::kernel::Kernel;
use super::layout::{FileMapping, Layout};
use super::observer::Event;
use super::options::ProcessOptions;
use super::outcome::Notice;
use super::signals::SIGCHLD;
use super::task::Task;
use super::threads::Thread;
use crate::address_space::Content;
use crate::isa::cpuid;
use crate::load::{self, ElfFile, LoadError, LoadErrorKind, LoadOptions};
use crate::processor::Feature;
use crate::state::State;
use crate::state::reg;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes of a script that are read (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE_MAX: u64 = 256;
/// How often a script's interpreter may be a script itself.
const SCRIPTS_MAX: usize = 5;
/// The set-user-ID bit.
const S_ISUID: u32 = 0o4000;
/// Size of the largest program, bytes.
const PROGRAM_MAX: u64 = 1 << 30;

/// Why a program could not be started.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {what}", EscapedPath(.path))]
pub struct StartError {
    /// The file, as a path below the root.
    pub path: Vec<u8>,
    /// What is wrong with the file.
    pub what: StartErrorKind,
}

/// A path as a person reads it, without controls; bytes that are not UTF-8 as `\xff`.
struct EscapedPath<'a>(&'a [u8]);

impl std::fmt::Display for EscapedPath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    write!(f, "{}", c.escape_default())?
                } else {
                    write!(f, "{c}")?
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// The kinds of [`StartError`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartErrorKind {
    /// It is on a file system of the host that the program must not see.
    #[error("the program must not see {0}")]
    Refused(Refusal),
    /// There is no such file.
    #[error("no such file")]
    NotFound,
    /// It is not a regular file that may be executed.
    #[error("not an executable file")]
    NotExecutable,
    /// It cannot be read, or is larger than 1 GiB.
    #[error("cannot be read, or is larger than 1 GiB")]
    NotReadable,
    /// More than five scripts whose interpreters are scripts.
    #[error("more than {SCRIPTS_MAX} scripts in a row, each the interpreter of the one before")]
    Scripts,
    /// It cannot be loaded.
    #[error(transparent)]
    Load(LoadError),
    /// The working directory is not a directory.
    #[error("the working directory is not a directory")]
    Directory,
}

impl StartError {
    /// The error number that `execve` returns.
    pub(super) fn errno(&self) -> Errno {
        match &self.what {
            StartErrorKind::NotFound => Errno::ENOENT,
            StartErrorKind::NotExecutable
            | StartErrorKind::Directory
            | StartErrorKind::Refused(_) => Errno::EACCES,
            StartErrorKind::NotReadable => Errno::EIO,
            StartErrorKind::Scripts => Errno::ELOOP,
            StartErrorKind::Load(_) => Errno::ENOEXEC,
        }
    }
}

/// A loaded program with its state, before the old program is discarded.
struct LoadedProgram {
    state: State,
    layout: Layout,
    events: Vec<Event>,
    path: Vec<u8>,
}

impl Kernel {
    /// Starts the program at a path below the root; it may be a script.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_arch = "x86_64"))] {
    /// use unwind_sim_emulator::linux::{Kernel, Outcome, ProcessOptions};
    ///
    /// let options = ProcessOptions {
    ///     args: vec![b"echo".to_vec(), b"hello".to_vec()],
    ///     ..ProcessOptions::default()
    /// };
    /// let mut kernel = Kernel::start(b"/bin/echo", options).expect("a program for x86-64");
    ///
    /// // An observer in place of `()` sees each instruction.
    /// assert_eq!(kernel.run(10_000_000, &mut ()), Outcome::Exited(0));
    /// assert_eq!(kernel.stdout(), b"hello\n");
    /// println!("{} instructions", kernel.executed());
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the program, its interpreter or the working directory cannot be used.
    pub fn start(path: &[u8], options: ProcessOptions) -> Result<Kernel, StartError> {
        let (cwd, args, env) = (
            options.cwd.clone(),
            options.args.clone(),
            options.env.clone(),
        );
        let mut process = Kernel::new(options);
        process.files.trust_program(&cwd, path);
        let resolved = process.files.find(b"/", &cwd, true);
        let resolved = resolved
            .ok()
            .filter(|resolved| resolved.node.is_directory());
        process.files.own.cwd = match resolved {
            Some(resolved) => resolved.path,
            None => {
                let refused = process.files.last_refused();
                let what = refused.map_or(StartErrorKind::Directory, StartErrorKind::Refused);
                return Err(StartError { path: cwd, what });
            }
        };
        process.exec(path, None, args, env)?;
        Ok(process)
    }

    /// Replaces the running program by the one at a path, or by one that was found under that name.
    ///
    /// # Errors
    /// If the program cannot be started; then nothing has changed.
    pub(super) fn exec(
        &mut self,
        path: &[u8],
        found: Option<ResolvedPath>,
        args: Vec<Vec<u8>>,
        env: Vec<Vec<u8>>,
    ) -> Result<(), StartError> {
        let (mut file, mut args) = (path.to_vec(), args);
        let (mut scripts, mut found) = (0, found);

        let (resolved, program) = loop {
            let (resolved, program) = match found.take() {
                Some(resolved) => self.read_executable(&file, resolved)?,
                None => self.program(&file)?,
            };

            let Some((interpreter, argument)) = script(&program) else {
                break (resolved, program);
            };

            // Scripts that name each other would never end.
            scripts += 1;
            if scripts > SCRIPTS_MAX {
                let path = path.to_vec();
                let what = StartErrorKind::Scripts;
                return Err(StartError { path, what });
            }

            // `load_script`: the interpreter, its one argument, and the script's name in place of
            // the first argument.
            let mut all = vec![interpreter.clone()];
            all.extend(argument);
            all.push(std::mem::replace(&mut file, interpreter));
            all.extend(args.into_iter().skip(1));
            args = all;
        };

        let prepared = self.prepare(&resolved.path, &program, path, &args, &env)?;

        // From here on nothing can fail: the old program is gone.
        let old = std::mem::replace(&mut self.process.space, self.machine.core.memory.id());
        self.release(old);
        self.machine
            .set_state(&prepared.state, self.machine.executed());

        // The child of a `vfork` has memory of its own from here on.
        self.process.borrows = false;
        self.process.exit_signal = SIGCHLD;
        self.process.has_executed = true;
        self.process.layout = prepared.layout;

        // Whether it is observed may depend on its name.
        let paths = [path, &prepared.path];
        let observed = self.observed.after_exec(self.process.observed, paths);
        if observed != self.process.observed {
            self.process.observed = observed;
            self.system.events.push(Event::Observed(observed));
        }

        self.system.events.extend(prepared.events);

        // As it was called, not as the link or script is resolved (Linux 6.18, fs/exec.c).
        let name = path.rsplit(|&b| b == b'/').next();
        let name = name.unwrap_or_default();

        self.count_time();
        let (mut ended, time) = (0, self.process.thread.time);
        // The other threads end with the old program (execve(2)).
        for (thread, other) in std::mem::take(&mut self.process.others) {
            // Its first thread's number is that of this one from here on.
            if thread != self.process.number {
                self.note_missed_event(&other.thread);
                self.tell_end_of_thread(&other.thread, 0);
            }
            ended += other.thread.time;
            self.system.events.push(Event::ThreadEnded(Task {
                process: self.process.number,
                thread,
            }));
        }

        let number = self.process.number;
        self.files.own.opening.clear();
        self.system.futexes.retain(|waiter| !waiter.is_of(number));

        // The tracer learns the thread's old number (ptrace(2), PTRACE_EVENT_EXEC).
        let before = self.process.thread.number;
        let traced = self.process.thread.traced.take();
        let last_call = self.process.thread.last_call;
        let filters = std::mem::take(&mut self.process.thread.filters);

        // The schedule knows threads by number, and this one gets that of the process.
        let executed = self.executed();
        self.system.schedule.renumbered(number, executed);
        let scheduling = self.process.thread.scheduling;

        // The thread keeps what execve(2) preserves: tracer, filters, scheduling.
        self.process.thread = Thread::new(number, name[..name.len().min(15)].to_vec());
        self.process.thread.filters = filters;
        self.process.thread.scheduling = scheduling;
        (self.process.thread.traced, self.process.thread.last_call) = (traced, last_call);

        self.process.first_tracer = None;
        self.process.thread.time = time;
        self.keep_time(ended);

        // /proc/PID/exe.
        self.files.own.program = prepared.path;
        self.files.own.threads = BTreeSet::from([number]);
        self.files.own.table.close_on_exec();

        // The handlers are gone with the old code (execve(2)).
        self.process.signals.exec();
        self.files.own.identity.exec();
        // `PR_SET_PDEATHSIG` stays: only a program that gains privileges loses it (`begin_new_exec`), and
        // none does here.
        self.process.settings.barriers = 0;
        self.process.thread.rseq = None;
        self.process.settings.dumpable = 1;

        // Only the timers of `timer_create` end with the program (execve(2)).
        let is_posix = |timer: &Timer| matches!(timer.owner, Owner::Posix(_));
        self.clock
            .timers
            .retain(|timer| timer.process != number || !is_posix(timer));

        (self.process.args, self.process.env) = (Rc::new(args), Rc::new(env));
        self.trace_exec(before);
        Ok(())
    }

    /// Finds an executable file.
    fn program(&mut self, path: &[u8]) -> Result<(ResolvedPath, Content), StartError> {
        let error = |what| StartError {
            path: path.to_vec(),
            what,
        };
        let cwd = &self.files.own.cwd;
        let resolved = self.files.find(cwd, path, true);
        let resolved = resolved.map_err(|_| {
            let refused = self.files.last_refused();
            error(refused.map_or(StartErrorKind::NotFound, StartErrorKind::Refused))
        })?;
        self.read_executable(path, resolved)
    }

    /// The content of an executable file, which messages call `path`.
    fn read_executable(
        &mut self,
        path: &[u8],
        resolved: ResolvedPath,
    ) -> Result<(ResolvedPath, Content), StartError> {
        let error = |what| StartError {
            path: path.to_vec(),
            what,
        };

        let attributes = self.files.attributes(&resolved);
        let Attributes { mode, size, .. } = attributes;
        let is_other = attributes.uid != self.files.own.identity.user.effective;

        // A set-user-ID program would have other rights here; it runs with those of its caller, and
        // that is reported.
        if mode & S_ISUID != 0 && is_other && !self.process.settings.no_new_privileges {
            self.notice(Notice::Part("programs that run as their owner"));
        }

        // The execute permission is bit 0.
        if mode & S_IFMT != S_IFREG || !self.files.allows(&attributes, 1) {
            return Err(error(StartErrorKind::NotExecutable));
        }

        let program = match &resolved.node {
            _ if size > PROGRAM_MAX => Err(Errno::EIO),
            Node::Memory(inode) => Ok(inode.borrow().data().content()),
            // A descriptor runs what it has open.
            Node::Open(open) => {
                let most = self.limits.bytes();
                match &open.borrow().kind {
                    Kind::Host(file) => self.files.content(file, most),
                    _ => Err(Errno::EACCES),
                }
            }
            Node::Host(seen) => {
                let most = self.limits.bytes();
                self.files.read_program(&resolved.path, seen, most)
            }
            _ => Err(Errno::EACCES),
        };

        let program = program.map_err(|_| error(StartErrorKind::NotReadable))?;
        Ok((resolved, program))
    }

    fn prepare(
        &mut self,
        path: &[u8],
        program: &Content,
        name: &[u8],
        args: &[Vec<u8>],
        env: &[Vec<u8>],
    ) -> Result<LoadedProgram, StartError> {
        let error = |path: &[u8], error: LoadError| StartError {
            path: path.to_vec(),
            what: StartErrorKind::Load(error),
        };

        // `PT_INTERP`: the dynamic linker is loaded with the program.
        let wanted = load::interpreter(program).map_err(|e| error(path, e))?;
        let interpreter = match &wanted {
            Some(path) => Some(self.program(path)?),
            None => None,
        };

        // `AT_RANDOM`: glibc takes the canary of stacks from it.
        let mut random = [0; 16];
        self.files.random.fill(&mut random);
        let identity = &self.files.own.identity;
        let options = LoadOptions {
            stack_size: self.stack_max(),
            random,
            path: name.to_vec(),
            uid: identity.user.real,
            gid: identity.group.real,
            // `ELF_HWCAP` is CPUID leaf 1, EDX; bit 1 of the second word is `HWCAP2_FSGSBASE`.
            hwcap: cpuid::FEATURES_EDX.into(),
            hwcap2: u64::from(self.machine.core.processor().has(Feature::Fsgsbase)) << 1,
            signal_stack: frame::size_max(&self.machine.core.processor()),
        };

        let texts = |all: &[Vec<u8>]| all.to_vec();
        let (args, env) = (texts(args), texts(env));
        let args: Vec<&[u8]> = args.iter().map(|a| &a[..]).collect();
        let env: Vec<&[u8]> = env.iter().map(|e| &e[..]).collect();
        let linker = interpreter.as_ref().map(|(_, linker)| linker);

        // The program is loaded into a space of its own: if that fails, the old one goes on.
        let memory = &mut self.machine.core.memory;
        let (old, new) = (memory.id(), memory.create());
        memory.switch_to(new);

        let loaded = load::load(memory, program, linker, &args, &env, &options);
        let loaded = loaded.map_err(|e| {
            memory.switch_to(old);
            memory.remove_space(new);
            match (e.which, &interpreter) {
                (ElfFile::Interpreter, Some((resolved, _))) => error(&resolved.path, e),
                _ => error(path, e),
            }
        })?;

        // The second one is that of `ElfFile::Interpreter`.
        let paths = [
            Rc::from(path),
            Rc::from(interpreter.map_or(Vec::new(), |(resolved, _)| resolved.path)),
        ];

        let mut layout = Layout::new(&loaded);
        let mut events = vec![Event::Started {
            stack_end: loaded.stack.end,
        }];

        for mapping in &loaded.mappings {
            let path: &Rc<[u8]> = &paths[usize::from(mapping.which == ElfFile::Interpreter)];
            let file = mapping.is_file.then(|| (path.clone(), mapping.file_offset));
            let named = file.clone();
            let named = named.map(|(path, offset)| FileMapping::of_program(path, offset));
            layout.name(mapping.range.clone(), named);
            events.push(Event::Mapped {
                range: mapping.range.clone(),
                permissions: mapping.permissions,
                file,
                again: false,
            });
        }

        if let Some((_, area)) = memory.area(loaded.rsp) {
            events.push(Event::Mapped {
                range: loaded.stack.clone(),
                permissions: area.permissions(),
                file: None,
                again: false,
            });
        }

        // `ELF_PLAT_INIT` clears the other registers.
        let mut state = State::new();
        state.rip = loaded.entry;
        state.set_gpr(reg::RSP, loaded.rsp);

        Ok(LoadedProgram {
            state,
            layout,
            events,
            path: path.to_vec(),
        })
    }

    /// `execve`.
    pub(super) fn execve(&mut self, path: u64, args: u64, env: u64) -> Answer {
        let path = self.path_at(path)?;
        // Since Linux 6.8 the file is opened before the arguments are read; what is wrong with its
        // content is found later.
        let found = self.files.find(&self.files.own.cwd, &path, true)?;
        self.may_execute(&found)?;
        let (args, env) = (self.strings(args)?, self.strings(env)?);
        let done = self.exec(&path, None, args, env);
        Kernel::executed_as(done)
    }

    /// `execveat`: a program by its path, its path in a folder, or its descriptor.
    pub(super) fn sys_execveat(&mut self, args: [u64; 6]) -> Answer {
        const NOFOLLOW: u32 = 0x100;
        const EMPTY_PATH: u32 = 0x1000;
        let [fd, path, args, env, flags, _] = args;
        let (flags, path) = (flags as u32, self.path_at(path)?);
        if path.is_empty() && flags & EMPTY_PATH == 0 {
            return Err(Errno::ENOENT);
        }
        if flags & !(NOFOLLOW | EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }

        let is_plain = path.starts_with(b"/") || fd as u32 == AT_FDCWD as u32;
        let found = match path.is_empty() {
            // The working directory, which cannot be executed.
            true if is_plain => return Err(Errno::EACCES),
            true => self.opened_program(fd)?,
            false => {
                let base = self.base(fd, &path)?;
                self.files.find(&base, &path, flags & NOFOLLOW == 0)?
            }
        };

        // AT_SYMLINK_NOFOLLOW (execveat(2)).
        if found.node.link(&self.files, &found.path).is_some() {
            return Err(Errno::ELOOP);
        }
        self.may_execute(&found)?;

        let (args, env) = (self.strings(args)?, self.strings(env)?);
        if is_plain {
            let done = self.exec(&path, Some(found), args, env);
            return Kernel::executed_as(done);
        }

        // The program's name is a path to the descriptor, which a script's interpreter opens.
        let number = (fd as u32).to_string();
        let mut name = [b"/dev/fd/", number.as_bytes()].concat();
        if !path.is_empty() {
            name = [&name[..], b"/", &path].concat();
        }

        // The interpreter could not open a descriptor that `execve` closes (execveat(2)).
        if self.files.own.table.slot(fd)?.close_on_exec && self.is_script(&found) {
            return Err(Errno::ENOENT);
        }

        let done = self.exec(&name, Some(found), args, env);
        Kernel::executed_as(done)
    }

    /// The program that a descriptor has open, whatever its name leads to now.
    fn opened_program(&self, fd: u64) -> Answer<ResolvedPath> {
        let open = self.files.own.table.get_named(fd)?;
        let path = match &open.borrow().kind {
            Kind::Host(_) => open.borrow().path.clone(),
            _ => return self.path_of(&open),
        };
        let node = Node::Open(open);
        Ok(ResolvedPath { path, node })
    }

    /// Checks whether a file is one that may be executed, before its content is read.
    ///
    /// # Errors
    /// `EACCES`.
    fn may_execute(&self, found: &ResolvedPath) -> Answer<()> {
        let attributes = self.files.attributes(found);
        let is_file = attributes.mode & S_IFMT == S_IFREG;
        if is_file && self.files.allows(&attributes, 1) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// Whether an executable file begins with `#!`.
    fn is_script(&mut self, found: &ResolvedPath) -> bool {
        let again = ResolvedPath {
            path: found.path.clone(),
            node: match &found.node {
                Node::Memory(inode) => Node::Memory(inode.clone()),
                Node::Host(metadata) => Node::Host(metadata.clone()),
                Node::Open(open) => Node::Open(open.clone()),
                _ => return false,
            },
        };
        let content = self.read_executable(&found.path, again);
        content.is_ok_and(|(_, content)| script(&content).is_some())
    }

    /// What `execve` returns.
    fn executed_as(done: Result<(), StartError>) -> Answer {
        match done {
            Ok(()) => Ok(0),
            Err(error) => Err(match error.what {
                StartErrorKind::Load(LoadError {
                    what: LoadErrorKind::Arguments(_),
                    ..
                }) => Errno::E2BIG,
                _ => error.errno(),
            }),
        }
    }
}

/// The interpreter and its argument, if a file begins with `#!`.
fn script(file: &Content) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let start = file.part(0..file.size().min(SCRIPT_LINE_MAX))?;
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|&b| b == b'\n').next()?;
    let is_space = |b: &u8| matches!(b, b' ' | b'\t');
    let line = trim(line);
    let end = line.iter().position(is_space).unwrap_or(line.len());
    let (path, argument) = line.split_at(end);
    let argument = trim(argument);
    if path.is_empty() {
        return None;
    }
    let argument = (!argument.is_empty()).then(|| argument.to_vec());
    Some((path.to_vec(), argument))
}

fn trim(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}
