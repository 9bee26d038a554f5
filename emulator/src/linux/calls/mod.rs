//! System calls: the dispatcher; one file for each group of calls.

mod at;
mod clock_set;
mod compare;
mod connect;
mod control;
mod copying;
mod descriptors;
mod epoll;
mod fifo;
mod folders;
mod futex;
mod futex_waitv;
mod identity;
mod inotify;
mod internet;
mod io;
mod locks;
mod mapped;
mod maps;
mod memory;
mod messages;
mod mq;
mod msg;
mod msgctl;
mod names;
mod netlink;
mod objects;
mod others_memory;
mod pidfd;
mod pipe_size;
mod poll;
mod priority;
mod privileges;
mod proc;
mod process_memory;
mod ptrace;
mod ready;
mod remap;
mod scheduling;
mod seccomp;
mod sem;
mod shm;
mod sigio;
mod signal;
mod sockets;
mod sockopt;
mod splice;
mod stat;
mod system;
mod tasks;
mod terminal;
mod terminal_control;
mod text;
mod thread_names;
mod time;
mod transfer;
mod xattr;

pub(super) use at::AT_FDCWD;
use at::{AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW};

use super::errno::{Answer, Errno};
use super::files::o;
use super::kernel::Kernel;
use super::numbers as nr;
use super::outcome::Notice;

/// Whether a call belongs to a part that a kernel can be built without, and that this one is built
/// without: io_uring, several memory nodes, key rings, Landlock, BPF, userfaultfd.
fn is_not_built_in(number: u64) -> bool {
    matches!(
        number,
        nr::io_uring_setup..=nr::io_uring_register
            | nr::mbind..=nr::get_mempolicy
            | nr::migrate_pages
            | nr::move_pages
            | nr::set_mempolicy_home_node
            | nr::add_key..=nr::keyctl
            | nr::landlock_create_ruleset..=nr::landlock_restrict_self
            | nr::bpf
            | nr::userfaultfd
    )
}

/// Calls once more if the host exchanged a file for another one between looking it up and using
/// it, as Linux does (Linux 6.12 `include/linux/namei.h`, `retry_estale`).
pub(super) fn retry_stale(mut call: impl FnMut() -> Answer) -> Answer {
    match call() {
        Err(Errno::ESTALE) => call(),
        answer => answer,
    }
}

/// The flags with which `creat` opens.
const CREAT: u32 = o::CREAT | o::WRONLY | o::TRUNC;

impl Kernel {
    /// Executes a system call.
    pub(super) fn answer(&mut self, number: u64, args: [u64; 6]) -> Answer {
        let answer = retry_stale(|| self.answer_once(number, args));
        for refusal in self.files.take_refused() {
            self.notice(Notice::FileSystem(refusal));
        }
        if let Some(what) = self.files.take_missed() {
            self.notice(Notice::Part(what));
        }
        answer
    }

    fn answer_once(&mut self, number: u64, args: [u64; 6]) -> Answer {
        let [a, b, c, d, e, f] = args;
        // Every call sees what the program has stored to shared mappings of files.
        self.store_files();
        match number {
            // Files by descriptor.
            nr::read => self.sys_read(a, b, c, None),
            nr::write => self.sys_write(a, b, c, None),
            nr::pread64 => self.sys_read(a, b, c, Some(d)),
            nr::pwrite64 => self.sys_write(a, b, c, Some(d)),
            nr::readv => self.sys_readv(a, b, c, None),
            nr::writev => self.sys_writev(a, b, c, None),
            nr::preadv => self.sys_readv(a, b, c, Some(d)),
            nr::pwritev => self.sys_writev(a, b, c, Some(d)),
            // Calls that differ only in an older or a newer form share a function: the older one
            // has fixed arguments.
            nr::close => self.files.own.table.close(a),
            nr::close_range => self.sys_close_range(a, b, c),
            nr::lseek => self.sys_lseek(a, b, c),
            nr::dup => self.sys_dup(a),
            nr::dup2 => self.sys_dup2(a, b, None),
            nr::dup3 => self.sys_dup2(a, b, Some(c)),
            nr::fcntl => self.sys_fcntl(a, b, c),
            nr::ioctl => self.sys_ioctl(a, b, c),
            nr::pipe => self.sys_pipe(a, 0),
            nr::pipe2 => self.sys_pipe(a, b),
            nr::eventfd2 => self.sys_eventfd(a, b),
            nr::eventfd => self.sys_eventfd(a, 0),
            nr::memfd_create => self.sys_memfd(a, b),
            nr::splice => self.sys_splice(args),
            nr::sendfile => self.sys_sendfile(a, b, c, d),
            nr::copy_file_range => self.sys_copy_file_range(args),
            nr::preadv2 => self.sys_readv2(args, false),
            nr::pwritev2 => self.sys_readv2(args, true),
            nr::sync_file_range => self.sys_sync_range(a, b, c, d),
            nr::syncfs => self.files.own.table.get(a).map(|_| 0),
            nr::ftruncate => self.sys_ftruncate(a, b),
            nr::fallocate => self.sys_fallocate(a, b, c, d),
            nr::fsync | nr::fdatasync => self.sys_fsync(a),
            nr::flock => self.sys_flock(a, b),
            nr::fadvise64 => self.sys_fadvise(a, c, d),
            nr::readahead => self.sys_readahead(a),
            // Nothing is cached that would have to be written.
            nr::sync => Ok(0),
            nr::getdents64 => self.sys_getdents64(a, b, c),
            // The four differ in the types of their arguments and in the signal mask.
            nr::poll | nr::ppoll | nr::select | nr::pselect6 => self.sys_poll(number, args),
            nr::epoll_create => self.sys_epoll_create(a),
            nr::epoll_create1 => self.sys_epoll_create1(a),
            nr::epoll_ctl => self.sys_epoll_ctl(a, b, c, d),
            nr::epoll_wait | nr::epoll_pwait | nr::epoll_pwait2 => {
                self.sys_epoll_wait(number, args)
            }
            nr::timerfd_create => self.sys_timerfd_create(a, b),
            nr::timerfd_settime => self.sys_timerfd_settime(a, b, c, d),
            nr::timerfd_gettime => self.sys_timerfd_gettime(a, b),
            nr::signalfd => self.sys_signalfd(a, b, c, 0),
            nr::signalfd4 => self.sys_signalfd(a, b, c, d),
            nr::inotify_init => self.sys_inotify_init(0),
            nr::inotify_init1 => self.sys_inotify_init(a),
            nr::inotify_add_watch => self.sys_inotify_add(a, b, c),
            nr::inotify_rm_watch => self.sys_inotify_remove(a, b),
            nr::pidfd_open => self.sys_pidfd_open(a, b),
            nr::pidfd_send_signal => self.sys_pidfd_send_signal(a, b, c, d),
            nr::pidfd_getfd => self.sys_pidfd_getfd(a, b, c),

            // Files by name.
            nr::open => self.sys_open(AT_FDCWD, a, b, c),
            nr::openat => self.sys_open(a, b, c, d),
            nr::openat2 => self.sys_openat2(a, b, c, d),
            // `*at` calls name a folder by descriptor; the others start from the working folder.
            nr::mknod => self.sys_mknod(AT_FDCWD, a, b, c),
            nr::mknodat => self.sys_mknod(a, b, c, d),
            nr::utime => self.sys_utimes(AT_FDCWD, a, b, false),
            nr::utimes => self.sys_utimes(AT_FDCWD, a, b, true),
            nr::futimesat => self.sys_utimes(a, b, c, true),
            nr::creat => self.sys_open(AT_FDCWD, a, CREAT.into(), b),
            nr::stat => self.sys_stat(AT_FDCWD, a, b, 0),
            nr::lstat => self.sys_stat(AT_FDCWD, a, b, AT_SYMLINK_NOFOLLOW),
            nr::fstat => self.sys_fstat(a, b),
            nr::newfstatat => self.sys_stat(a, b, c, d),
            nr::statx => self.sys_statx(a, b, c, d, e),
            nr::statfs => self.sys_statfs(a, b),
            nr::fstatfs => self.sys_fstatfs(a, b),
            nr::access => self.sys_access(AT_FDCWD, a, b, 0),
            nr::faccessat => self.sys_access(a, b, c, 0),
            nr::faccessat2 => self.sys_access(a, b, c, d),
            nr::readlink => self.sys_readlink(AT_FDCWD, a, b, c),
            nr::readlinkat => self.sys_readlink(a, b, c, d),
            nr::getcwd => self.sys_getcwd(a, b),
            nr::chdir => self.sys_chdir(a),
            nr::chroot => self.sys_chroot(a),
            nr::fchdir => self.sys_fchdir(a),
            nr::mkdir => self.sys_mkdir(AT_FDCWD, a, b),
            nr::mkdirat => self.sys_mkdir(a, b, c),
            nr::rmdir => self.sys_unlink(AT_FDCWD, a, AT_REMOVEDIR),
            nr::unlink => self.sys_unlink(AT_FDCWD, a, 0),
            nr::unlinkat => self.sys_unlink(a, b, c),
            nr::rename => self.sys_rename(AT_FDCWD, a, AT_FDCWD, b, 0),
            nr::renameat => self.sys_rename(a, b, c, d, 0),
            nr::renameat2 => self.sys_rename(a, b, c, d, e),
            nr::link => self.sys_link(AT_FDCWD, a, AT_FDCWD, b, 0),
            nr::linkat => self.sys_link(a, b, c, d, e),
            nr::symlink => self.sys_symlink(a, AT_FDCWD, b),
            nr::symlinkat => self.sys_symlink(a, b, c),
            nr::truncate => self.sys_truncate(a, b),
            nr::chmod => self.sys_chmod(AT_FDCWD, a, b),
            nr::fchmodat => self.sys_chmod(a, b, c),
            nr::fchmodat2 => self.sys_fchmodat2(a, b, c, d),
            nr::fchmod => self.sys_fchmod(a, b),
            nr::chown => self.sys_chown(AT_FDCWD, a, b, c, 0),
            nr::lchown => self.sys_chown(AT_FDCWD, a, b, c, AT_SYMLINK_NOFOLLOW),
            nr::fchownat => self.sys_chown(a, b, c, d, e),
            nr::fchown => self.sys_fchown(a, b, c),
            nr::utimensat => self.sys_utimens(a, b, c, d),
            nr::setxattr..=nr::fremovexattr => self.sys_xattr(number, args),

            // Memory.
            nr::mmap => self.sys_mmap(a, b, c, d, e, f),
            nr::munmap => self.sys_munmap(a, b),
            nr::mprotect => self.sys_mprotect(a, b, c),
            nr::mremap => self.sys_mremap(a, b, c, d, e),
            nr::madvise => self.sys_madvise(a, b, c),
            nr::brk => self.sys_brk(a),
            nr::msync => self.sys_msync(a, b, c),
            nr::mlock | nr::munlock => self.sys_mlock(a, b, 0, number == nr::mlock),
            nr::mlock2 => self.sys_mlock(a, b, c, true),
            nr::mlockall => self.sys_mlockall(a),
            // Memory is never swapped out, so a lock of it changes nothing.
            nr::munlockall => Ok(0),
            nr::mincore => self.sys_mincore(a, b, c),
            nr::process_vm_readv => self.sys_process_vm(args, false),
            nr::process_vm_writev => self.sys_process_vm(args, true),

            // Signals.
            nr::rt_sigaction => self.sys_sigaction(a, b, c, d),
            nr::rt_sigprocmask => self.sys_sigprocmask(a, b, c, d),
            nr::rt_sigpending => self.sys_sigpending(a, b),
            nr::rt_sigsuspend => self.sys_sigsuspend(a, b),
            nr::rt_sigtimedwait => self.sys_sigtimedwait(a, b, c, d),
            // It restores rax, so its answer is the value of that register.
            nr::rt_sigreturn => Ok(self.sigreturn()),
            nr::sigaltstack => self.sys_sigaltstack(a, b),
            nr::kill => self.sys_kill(a, b),
            nr::tkill => self.sys_tkill(a, b),
            nr::tgkill => self.sys_tgkill(a, b, c),
            nr::rt_sigqueueinfo => self.sys_sigqueue(a, b, c),
            nr::rt_tgsigqueueinfo => self.sys_tgsigqueue(a, b, c, d),
            nr::pause => self.sys_pause(),

            // Time.
            nr::clock_gettime => self.sys_clock_gettime(a, b),
            nr::clock_settime => self.sys_clock_settime(a, b),
            nr::settimeofday => self.sys_settimeofday(a, b),
            nr::adjtimex => self.sys_adjtimex(a),
            nr::clock_getres => self.sys_clock_getres(a, b),
            nr::gettimeofday => self.sys_gettimeofday(a, b),
            nr::time => self.sys_time(a),
            nr::times => self.sys_times(a),
            // On `CLOCK_REALTIME`, without flags.
            nr::nanosleep => self.sys_nanosleep(0, 0, a, b),
            nr::clock_nanosleep => self.sys_nanosleep(a, b, c, d),
            nr::getitimer => self.sys_getitimer(a, b),
            nr::setitimer => self.sys_setitimer(a, b, c),
            nr::alarm => self.sys_alarm(a),
            nr::timer_create => self.sys_timer_create(a, b, c),
            nr::timer_settime => self.sys_timer_settime(a, b, c, d),
            nr::timer_gettime => self.sys_timer_gettime(a, b),
            nr::timer_getoverrun => self.sys_timer_getoverrun(a),
            nr::timer_delete => self.sys_timer_delete(a),

            // System V IPC.
            nr::shmget => self.sys_shmget(a, b, c),
            nr::shmat => self.sys_shmat(a, b, c),
            nr::shmdt => self.sys_shmdt(a),
            nr::shmctl => self.sys_shmctl(a, b, c),
            nr::semget => self.sys_semget(a, b, c),
            // A pointer of 0 for the time-out means none.
            nr::semop => self.sys_semop(a, b, c, 0),
            nr::semtimedop => self.sys_semop(a, b, c, d),
            nr::semctl => self.sys_semctl(args),
            nr::msgget => self.sys_msgget(a, b),
            nr::msgsnd => self.sys_msgsnd(a, b, c, d),
            nr::msgrcv => self.sys_msgrcv(args),
            nr::msgctl => self.sys_msgctl(a, b, c),

            // POSIX message queues.
            nr::mq_open => self.sys_mq_open(a, b, c, d),
            nr::mq_unlink => self.sys_mq_unlink(a),
            nr::mq_timedsend => self.sys_mq_send(args),
            nr::mq_timedreceive => self.sys_mq_receive(args),
            nr::mq_notify => self.sys_mq_notify(a, b),
            nr::mq_getsetattr => self.sys_mq_attributes(a, b, c),

            // The process.
            nr::exit => self.sys_exit(a),
            nr::exit_group => self.sys_exit_group(a),
            nr::ptrace => self.sys_ptrace(a, b, c, d),
            nr::execve => self.execve(a, b, c),
            nr::execveat => self.sys_execveat(args),
            nr::clone => self.sys_clone(args),
            nr::clone3 => self.sys_clone3(a, b),
            nr::unshare => self.sys_unshare(a),
            // `fork` and `vfork` are `clone` with fixed flags.
            nr::fork => self.sys_fork(0),
            nr::vfork => self.sys_fork(tasks::VFORK),
            nr::seccomp => self.sys_seccomp(a, b, c),
            nr::wait4 => self.sys_wait4(a, b, c, d),
            nr::waitid => self.sys_waitid(args),
            nr::futex => self.sys_futex(args),
            nr::futex_waitv => self.sys_futex_waitv(args),
            nr::kcmp => self.sys_kcmp(args),
            nr::name_to_handle_at => self.sys_name_to_handle(args),
            nr::open_by_handle_at => self.sys_open_by_handle(a, b),
            _ => match self.answer_about_itself(number, args) {
                Some(answer) => answer,
                None if nr::is_of_sockets(number) => self.answer_socket(number, args),
                // A kernel without the option answers the same, so a program is not misled.
                None if is_not_built_in(number) => Err(Errno::ENOSYS),
                // Reported: from here on, the program may behave as it never does on Linux.
                None => {
                    self.notice(Notice::Call(number, nr::name(number)));
                    Err(Errno::ENOSYS)
                }
            },
        }
    }

    /// Executes a call on sockets.
    fn answer_socket(&mut self, number: u64, args: [u64; 6]) -> Answer {
        let [a, b, c, d, ..] = args;
        match number {
            nr::socket => self.sys_socket(a, b, c),
            nr::socketpair => self.sys_socketpair(a, b, c, d),
            nr::bind => self.sys_bind(a, b, c),
            nr::listen => self.sys_listen(a, b),
            nr::connect => self.sys_connect(a, b, c),
            nr::accept => self.sys_accept(a, b, c, 0),
            nr::accept4 => self.sys_accept(a, b, c, d),
            nr::getsockname => self.sys_getsockname(a, b, c),
            nr::getpeername => self.sys_getpeername(a, b, c),
            nr::shutdown => self.sys_shutdown(a, b),
            nr::sendto => self.sys_sendto(args),
            nr::recvfrom => self.sys_recvfrom(args),
            nr::sendmsg => self.sys_sendmsg(a, b, c),
            nr::recvmsg => self.sys_recvmsg(a, b, c),
            nr::sendmmsg => self.sys_sendmmsg(a, b, c, d),
            nr::recvmmsg => self.sys_recvmmsg(args),
            nr::setsockopt => self.sys_setsockopt(args),
            _ => self.sys_getsockopt(args),
        }
    }
}
