//! System V semaphores.
//!
//! Source: Linux 6.12 `ipc/sem.c`, `include/uapi/linux/sem.h`.

use super::shm::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, set_owner};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::ipc::{NOWAIT, READ, Semaphore, Semaphores, WRITE};
use crate::linux::numbers as nr;
use crate::linux::threads::WaitCondition;

const GETPID: u32 = 11;
const GETVAL: u32 = 12;
const GETALL: u32 = 13;
const GETNCNT: u32 = 14;
const GETZCNT: u32 = 15;
const SETVAL: u32 = 16;
const SETALL: u32 = 17;
const SEM_STAT: u32 = 18;
const SEM_INFO: u32 = 19;
const SEM_STAT_ANY: u32 = 20;
/// Flag of an operation: undone when the process ends.
const UNDO: u32 = 0x1000;
/// `SEMMNI` and `SEMMSL`.
const SETS_MAX: usize = 32000;
/// `SEMOPM`.
const OPERATIONS_MAX: u64 = 500;
/// `SEMVMX`.
const VALUE_MAX: i32 = 32767;

/// `struct sembuf`.
#[derive(Clone, Copy)]
struct Operation {
    semaphore: usize,
    add: i32,
    flags: u32,
}

/// What operations on a set do.
enum SemopResult {
    /// The new values, and those to add at the end of the process.
    Done(Vec<Semaphore>, Vec<i32>),
    /// The first operation that has to wait.
    Waits(Operation),
}

/// Tries all operations on a set; they are done together or not at all.
fn attempt(
    set: &Semaphores,
    undo: Vec<i32>,
    operations: &[Operation],
    process: u32,
) -> Answer<SemopResult> {
    // On copies: if one has to wait, none is done.
    let (mut all, mut undo) = (set.all.clone(), undo);
    undo.resize(all.len(), 0);

    for &operation in operations {
        let semaphore = &mut all[operation.semaphore];
        let value = semaphore.value + operation.add;

        // An operation of 0 waits for 0; no value may become negative (semop(2)).
        if operation.add == 0 && value != 0 || value < 0 {
            return Ok(SemopResult::Waits(operation));
        }

        if value > VALUE_MAX {
            return Err(Errno::ERANGE);
        }
        if operation.flags & UNDO != 0 {
            let undone = undo[operation.semaphore] - operation.add;
            // `SEMAEM`: the kernel keeps an adjustment in a `short`.
            if !(-VALUE_MAX - 1..=VALUE_MAX).contains(&undone) {
                return Err(Errno::ERANGE);
            }
            undo[operation.semaphore] = undone;
        }

        *semaphore = Semaphore { value, process };
    }
    Ok(SemopResult::Done(all, undo))
}

impl Kernel {
    pub(super) fn sys_semget(&mut self, key: u64, count: u64, flags: u64) -> Answer {
        let (key, count, flags) = (key as u32, count as i32, flags as u32);
        // Before the key is looked up (`ksys_semget`): SEMMSL is 32000, as SEMMNI.
        let count = usize::try_from(count)
            .ok()
            .filter(|&count| count <= SETS_MAX);
        let count = count.ok_or(Errno::EINVAL)?;

        // A set that there is may have more semaphores, but not fewer (semget(2)).
        let check = |set: &Semaphores| {
            if count > set.all.len() {
                Err(Errno::EINVAL)
            } else {
                Ok(())
            }
        };

        let identity = self.files.own.identity.clone();
        let times = [0, self.seconds()];
        let sets = &mut self.system.ipc.semaphores;
        if let Some(number) = sets.find(key, flags, &identity, check)? {
            return Ok(number.into());
        }

        // 0 asks for a set that there is (semget(2)).
        if count == 0 {
            return Err(Errno::EINVAL);
        }

        let set = Semaphores {
            all: vec![Semaphore::default(); count],
            times,
        };
        Ok(sets.add(key, flags, &identity, SETS_MAX, set)?.into())
    }

    fn operations_at(&self, at: u64, count: u64) -> Answer<Vec<Operation>> {
        let operation = |index: u64| {
            let [a, b, c, d, e, f] = self.bytes::<6>(at.wrapping_add(6 * index))?;
            Ok(Operation {
                semaphore: u16::from_le_bytes([a, b]).into(),
                add: i16::from_le_bytes([c, d]).into(),
                flags: u16::from_le_bytes([e, f]).into(),
            })
        };
        (0..count).map(operation).collect()
    }

    /// `semop` and `semtimedop`; the time is 0 for none.
    pub(super) fn sys_semop(&mut self, number: u64, at: u64, count: u64, time: u64) -> Answer {
        let count = u64::from(count as u32);

        let until = match time {
            0 => None,
            at => {
                let now = self.clock.real();
                Some(now.saturating_add(self.duration_at(at)?))
            }
        };

        if count < 1 || (number as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        if count > OPERATIONS_MAX {
            return Err(Errno::E2BIG);
        }

        let operations = self.operations_at(at, count)?;
        let task = self.task();
        self.system.ipc.waiting.remove(&task);
        let (number, process) = (number as u32, self.process.number);

        // Who only waits for zero needs no permission to write.
        let changes = operations.iter().any(|operation| operation.add != 0);
        let wanted = if changes { WRITE } else { READ };
        let identity = &self.files.own.identity;
        let sets = &self.system.ipc.semaphores;
        let (owner, set) = match sets.get(number) {
            // It was removed while this waited.
            Err(Errno::EINVAL) if self.has_waited() => return Err(Errno::EIDRM),
            found => found?,
        };

        // EFBIG: the number is past the end of the set (semop(2)).
        if operations
            .iter()
            .any(|operation| operation.semaphore >= set.all.len())
        {
            return Err(Errno::EFBIG);
        }

        if !owner.allows(identity, wanted) {
            return Err(Errno::EACCES);
        }

        let undo = self.system.ipc.undo.get(&(process, number));
        let undo = undo.cloned().unwrap_or_default();
        let blocked = match attempt(set, undo, &operations, process)? {
            SemopResult::Done(all, undo) => {
                let seconds = self.seconds();
                let (_, set) = self.system.ipc.semaphores.get_mut(number)?;
                set.all = all;
                set.times[0] = seconds;
                if operations
                    .iter()
                    .any(|operation| operation.flags & UNDO != 0)
                {
                    self.system.ipc.undo.insert((process, number), undo);
                }
                return Ok(0);
            }
            SemopResult::Waits(operation) => operation,
        };

        if blocked.flags & NOWAIT != 0 {
            return Err(Errno::EAGAIN);
        }

        // GETNCNT and GETZCNT count those that wait.
        let waits_for = (number, blocked.semaphore, blocked.add == 0);
        self.system.ipc.waiting.insert(task, waits_for);
        let ended = self.wait_until(until, WaitCondition::Change)?;
        self.system.ipc.waiting.remove(&task);

        // `semop` is never restarted (signal(7)).
        Err(if ended { Errno::EINTR } else { Errno::EAGAIN })
    }

    /// Threads that wait for a semaphore to be 0, or not to be.
    fn waiters(&mut self, number: u32, semaphore: usize, for_zero: bool) -> u64 {
        let waiting = self.system.ipc.waiting.clone();
        let mut count = 0;
        for (task, what) in waiting {
            let thread = self.thread_mut(task.process, task.thread);
            let wait = thread.and_then(|thread| thread.wait.as_ref());
            let is_there =
                wait.is_some_and(|wait| matches!(wait.made.number, nr::semop | nr::semtimedop));
            count += u64::from(is_there && what == (number, semaphore, for_zero));
        }
        count
    }

    pub(super) fn sys_semctl(&mut self, args: [u64; 6]) -> Answer {
        let [number, semaphore, command, arg, ..] = args;
        let (number, command) = (number as u32, command as u32);
        // Before the command is looked at (`ksys_semctl`).
        if number.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }

        let identity = self.files.own.identity.clone();
        match command {
            IPC_INFO | SEM_INFO => {
                const LIMIT: u32 = 1_024_000_000;
                let sets = &self.system.ipc.semaphores;
                // SEM_INFO puts what is in use into `semusz` and `semaem` (semctl(2)).
                let (used, last) = match command {
                    // `SEMUSZ` and `SEMAEM` of `linux/sem.h`.
                    IPC_INFO => (20, VALUE_MAX.cast_unsigned()),
                    _ => {
                        let all: usize = sets.iter().map(|(_, _, set)| set.all.len()).sum();
                        (sets.len() as u32, all as u32)
                    }
                };

                // `struct seminfo`: semmap, semmni, semmns, semmnu, semmsl, semopm, semume, semusz,
                // semvmx, semaem.
                let max = SETS_MAX as u32;
                let words = [LIMIT, max, LIMIT, LIMIT, max, 500, 500, used, 32767, last];
                let bytes = words.map(u32::to_le_bytes);
                self.put(arg, bytes.as_flattened())?;
                Ok(self.system.ipc.semaphores.index_max().into())
            }
            IPC_STAT | SEM_STAT | SEM_STAT_ANY => {
                let sets = &self.system.ipc.semaphores;
                let (number, owner, set) = sets.named(number, command != IPC_STAT)?;
                if command != SEM_STAT_ANY && !owner.allows(&identity, READ) {
                    return Err(Errno::EACCES);
                }

                // The fields of `struct semid64_ds` after `sem_perm`; on x86 a free word follows
                // each time.
                let [used, changed] = set.times.map(i64::cast_unsigned);
                let words = [used, 0, changed, 0, set.all.len() as u64, 0, 0];
                let owner = *owner;
                self.put(arg, &owner.bytes())?;
                self.put_words(arg.wrapping_add(48), &words)?;

                Ok(if command == IPC_STAT {
                    0
                } else {
                    number.into()
                })
            }
            IPC_SET | IPC_RMID => {
                // A `struct semid64_ds`: 48 bytes of `sem_perm` and seven words.
                let new = match command {
                    IPC_SET => Some(self.bytes::<104>(arg)?),
                    _ => None,
                };

                let seconds = self.seconds();
                let (owner, set) = self.system.ipc.semaphores.get_mut(number)?;
                if !owner.may_control(&identity) {
                    return Err(Errno::EPERM);
                }

                match new {
                    Some(new) => {
                        set_owner(owner, &new)?;
                        set.times[1] = seconds;
                    }
                    None => {
                        self.system.ipc.semaphores.remove(number);
                        self.system.ipc.undo.retain(|&(_, set), _| set != number);
                    }
                }
                Ok(0)
            }
            GETALL | SETALL => self.semctl_all(number, command, arg),
            GETVAL | GETPID | GETNCNT | GETZCNT | SETVAL => {
                self.semctl_one(number, semaphore, command, arg)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn semctl_all(&mut self, number: u32, command: u32, arg: u64) -> Answer {
        let identity = self.files.own.identity.clone();
        let wanted = if command == GETALL { READ } else { WRITE };

        let sets = &self.system.ipc.semaphores;
        let (_, set) = sets.usable(number, &identity, wanted)?;

        if command == GETALL {
            let values = set.all.iter();
            // At most 32767 (SEMVMX), so they fit.
            let values: Vec<u8> = values
                .flat_map(|s| (s.value as u16).to_le_bytes())
                .collect();
            return self.put(arg, &values).map(|()| 0);
        }

        let mut bytes = vec![0; 2 * set.all.len()];
        self.get(arg, &mut bytes)?;

        // An array of `unsigned short` (semctl(2)).
        let (pairs, _) = bytes.as_chunks::<2>();
        let values: Vec<i32> = pairs
            .iter()
            .map(|&pair| u16::from_le_bytes(pair).into())
            .collect();

        // All are checked before one is set.
        if values.iter().any(|&value| value > VALUE_MAX) {
            return Err(Errno::ERANGE);
        }

        let (seconds, process) = (self.seconds(), self.process.number);
        let (_, set) = self.system.ipc.semaphores.get_mut(number)?;
        for (semaphore, value) in set.all.iter_mut().zip(values) {
            *semaphore = Semaphore { value, process };
        }
        set.times[1] = seconds;

        // SETALL and SETVAL forget what processes would undo (semctl(2)).
        self.system.ipc.undo.retain(|&(_, set), _| set != number);
        Ok(0)
    }

    fn semctl_one(&mut self, number: u32, semaphore: u64, command: u32, arg: u64) -> Answer {
        let identity = self.files.own.identity.clone();
        let wanted = if command == SETVAL { WRITE } else { READ };
        let value = arg as i32;

        let sets = &self.system.ipc.semaphores;
        let (owner, set) = sets.get(number)?;
        if command == SETVAL && !(0..=VALUE_MAX).contains(&value) {
            return Err(Errno::ERANGE);
        }

        let index = usize::try_from(semaphore as i32).ok();
        let index = index.filter(|&index| index < set.all.len());
        // `semctl_setval` looks at the number first.
        if command == SETVAL && index.is_none() {
            return Err(Errno::EINVAL);
        }

        if !owner.allows(&identity, wanted) {
            return Err(Errno::EACCES);
        }
        let index = index.ok_or(Errno::EINVAL)?;

        let Semaphore {
            value: now,
            process,
        } = set.all[index];

        match command {
            GETVAL => Ok(u64::from(now.cast_unsigned())),
            GETPID => Ok(process.into()),
            GETNCNT => Ok(self.waiters(number, index, false)),
            GETZCNT => Ok(self.waiters(number, index, true)),
            _ => {
                let (seconds, process) = (self.seconds(), self.process.number);
                let (_, set) = self.system.ipc.semaphores.get_mut(number)?;
                set.all[index] = Semaphore { value, process };

                // `sem_ctime`.
                set.times[1] = seconds;

                // SETVAL forgets what processes would undo (semctl(2)).
                for (&(_, set), undo) in &mut self.system.ipc.undo {
                    if set == number
                        && let Some(undo) = undo.get_mut(index)
                    {
                        *undo = 0;
                    }
                }
                Ok(0)
            }
        }
    }

    /// Undoes what the running process, which ends, did to semaphores with `SEM_UNDO`.
    pub(in crate::linux) fn undo_semaphores(&mut self) {
        let (seconds, process) = (self.clock.time().seconds, self.process.number);
        let ipc = &mut self.system.ipc;
        let all = std::mem::take(&mut ipc.undo);
        for ((owner, number), undo) in all {
            if owner != process {
                ipc.undo.insert((owner, number), undo);
                continue;
            }
            let Ok((_, set)) = ipc.semaphores.get_mut(number) else {
                continue;
            };
            for (semaphore, add) in set.all.iter_mut().zip(undo).filter(|(_, add)| *add != 0) {
                let value = (semaphore.value + add).clamp(0, VALUE_MAX);
                *semaphore = Semaphore { value, process };
            }
            set.times[0] = seconds;
        }
        ipc.waiting.retain(|task, _| task.process != process);
    }
}
