//! Locks of files: those of `flock`, and those of `fcntl`, which cover ranges and belong to a
//! process or to an open file. Not here: the calls, and waiting (`calls::locks`).
//!
//! Source: Linux 6.12 `fs/locks.c`.

use super::task::Task;
use std::collections::BTreeMap;

/// The last byte that a lock can cover: locks up to the end of a file end here.
pub(super) const LAST: u64 = i64::MAX as u64;
/// How many locks are followed to find a deadlock (`MAX_DEADLK_ITERATIONS`).
const CHAIN_MAX: u32 = 10;

/// A file: device and inode number, or what stands for it.
pub(super) type FileId = (u64, u64);

/// The holder of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    Process(u32),
    /// An open file, by the number of its handle.
    Open(u32),
}

/// A lock of `fcntl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lock {
    pub(super) holder: Holder,
    pub(super) writes: bool,
    /// The first and the last byte.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Lock {
    fn overlaps(&self, other: &Lock) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn conflicts(&self, other: &Lock) -> bool {
        self.holder != other.holder && (self.writes || other.writes) && self.overlaps(other)
    }
}

/// The locks of a file.
#[derive(Clone, Debug, Default)]
struct FileLocks {
    /// Grouped by holder, those who came first first; sorted by range.
    ranges: Vec<Lock>,
    /// `flock`: the open files, and whether they are alone.
    whole: Vec<(u32, bool)>,
}

/// All locks.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    files: BTreeMap<FileId, FileLocks>,
    /// What threads wait for with locks of their process.
    waiting: BTreeMap<Task, (FileId, Lock)>,
}

impl Locks {
    /// The first lock that excludes another one.
    pub(super) fn conflict(&self, file: FileId, wanted: &Lock) -> Option<Lock> {
        let locks = &self.files.get(&file)?.ranges;
        locks.iter().find(|lock| lock.conflicts(wanted)).copied()
    }

    /// Replaces what the holder has in the range of `lock` by it, or by nothing if `unlocks`.
    pub(super) fn set(&mut self, file: FileId, lock: Lock, unlocks: bool) {
        let all = &mut self.files.entry(file).or_default().ranges;

        // Where the holder's locks are: locks are grouped by holder, the first holder first.
        let place = all.iter().position(|other| other.holder == lock.holder);
        let place = place.unwrap_or(all.len());

        let mut own: Vec<Lock> = Vec::new();
        all.retain(|other| {
            let is_own = other.holder == lock.holder;
            if is_own {
                own.push(*other);
            }
            !is_own
        });

        let mut new: Vec<Lock> = Vec::new();
        for old in own {
            if !old.overlaps(&lock) {
                new.push(old);
                continue;
            }

            // What is outside of the new range stays locked as it was.
            if old.first < lock.first {
                let last = lock.first - 1;
                new.push(Lock { last, ..old });
            }
            if old.last > lock.last {
                let first = lock.last + 1;
                new.push(Lock { first, ..old });
            }
        }

        if !unlocks {
            new.push(lock);
        }

        new.sort_by_key(|lock| lock.first);
        // Neighbours of the same kind become one.
        new.dedup_by(|next, before| {
            let joins = next.writes == before.writes && next.first == before.last.saturating_add(1);
            if joins {
                before.last = next.last;
            }
            joins
        });

        all.splice(place..place, new);
        self.forget_unlocked(file);
    }

    /// Takes a lock of the whole file, after the open file's old one was dropped. False if others
    /// exclude it.
    pub(super) fn set_whole(&mut self, file: FileId, open: u32, alone: Option<bool>) -> bool {
        let all = &mut self.files.entry(file).or_default().whole;
        if alone.is_some_and(|alone| all.contains(&(open, alone))) {
            return true;
        }
        all.retain(|(other, _)| *other != open);
        let is_free = match alone {
            None => true,
            Some(alone) => !all.iter().any(|(_, other)| alone || *other),
        };
        if let Some(alone) = alone.filter(|_| is_free) {
            all.push((open, alone));
        }
        self.forget_unlocked(file);
        is_free
    }

    fn forget_unlocked(&mut self, file: FileId) {
        let is_unlocked = |locks: &FileLocks| locks.ranges.is_empty() && locks.whole.is_empty();
        if self.files.get(&file).is_some_and(is_unlocked) {
            self.files.remove(&file);
        }
    }

    /// `/proc/locks`.
    pub(super) fn text(&self) -> String {
        let mut rows = Vec::new();
        for (&(device, inode), file) in &self.files {
            let place = format!("{:02x}:{:02x}:{inode}", device >> 8 & 0xfff, device & 0xff);
            let kind = |writes| if writes { "WRITE" } else { "READ " };

            for lock in &file.ranges {
                let (class, holder) = match lock.holder {
                    Holder::Process(number) => ("POSIX ", i64::from(number)),
                    // Locks of open files belong to no process (`lock_get_status`).
                    Holder::Open(_) => ("OFDLCK", -1),
                };
                let last = match lock.last {
                    LAST => "EOF".to_owned(),
                    last => last.to_string(),
                };

                let (kind, first) = (kind(lock.writes), lock.first);
                rows.push(format!(
                    "{class} ADVISORY  {kind} {holder} {place} {first} {last}"
                ));
            }

            // `flock` locks the whole file; alone is `LOCK_EX`.
            for (_, alone) in &file.whole {
                rows.push(format!("FLOCK  ADVISORY  {} 0 {place} 0 EOF", kind(*alone)));
            }
        }

        let rows = rows.into_iter().zip(1..);
        rows.map(|(row, number)| format!("{number}: {row}\n"))
            .collect()
    }

    /// Whether a process has a lock.
    pub(super) fn has_any(&self, process: u32) -> bool {
        let mut all = self.files.values().flat_map(|file| &file.ranges);
        all.any(|lock| lock.holder == Holder::Process(process))
    }

    /// Drops the locks of a holder, of one file or of all. Returns whether it had any.
    pub(super) fn release(&mut self, holder: Holder, only: Option<FileId>) -> bool {
        let mut had_any = false;
        for (key, file) in &mut self.files {
            if only.is_some_and(|only| only != *key) {
                continue;
            }
            let before = file.ranges.len() + file.whole.len();
            file.ranges.retain(|lock| lock.holder != holder);
            if let Holder::Open(open) = holder {
                file.whole.retain(|(other, _)| *other != open);
            }
            had_any |= file.ranges.len() + file.whole.len() != before;
        }
        self.files
            .retain(|_, file| !file.ranges.is_empty() || !file.whole.is_empty());
        had_any
    }

    /// A thread waits for a lock, or no longer.
    pub(super) fn wait(&mut self, task: Task, wanted: Option<(FileId, Lock)>) {
        match wanted {
            Some(wanted) => self.waiting.insert(task, wanted),
            None => self.waiting.remove(&task),
        };
    }

    /// Who keeps a thread waiting for a lock of its process.
    pub(super) fn blocker(&self, task: Task) -> Option<Holder> {
        let (file, wanted) = self.waiting.get(&task)?;
        self.conflict(*file, wanted).map(|lock| lock.holder)
    }

    /// The holders of a file's locks: of ranges, and of the whole file (`flock`).
    pub(super) fn holders(&self, file: FileId) -> (Vec<Holder>, Vec<u32>) {
        let Some(all) = self.files.get(&file) else {
            return (Vec::new(), Vec::new());
        };
        let ranges = all.ranges.iter().map(|lock| lock.holder).collect();
        (ranges, all.whole.iter().map(|(open, _)| *open).collect())
    }

    /// Forgets what the threads of a process wait for.
    pub(super) fn forget_waiting(&mut self, process: u32) {
        self.waiting.retain(|task, _| task.process != process);
    }

    /// Whether the holder of a lock waits, directly or through others, for this process.
    pub(super) fn is_deadlock(&self, process: u32, blocker: &Lock) -> bool {
        let mut holder = blocker.holder;
        for _ in 0..=CHAIN_MAX {
            let Holder::Process(number) = holder else {
                return false;
            };
            let mut waiting = self.waiting.iter();
            let next = waiting.find_map(|(task, (file, wanted))| {
                if task.process == number {
                    self.conflict(*file, wanted)
                } else {
                    None
                }
            });
            let Some(next) = next else {
                return false;
            };
            if next.holder == Holder::Process(process) {
                return true;
            }
            holder = next.holder;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = (1, 2);

    fn lock(process: u32, writes: bool, first: u64, last: u64) -> Lock {
        let holder = Holder::Process(process);
        Lock {
            holder,
            writes,
            first,
            last,
        }
    }

    #[test]
    fn ranges_are_split_and_joined() {
        let mut locks = Locks::default();
        let ranges = |locks: &Locks| {
            let all = locks.files.get(&FILE).map(|file| file.ranges.clone());
            let range = |lock: Lock| (lock.writes, lock.first, lock.last);
            all.unwrap_or_default()
                .into_iter()
                .map(range)
                .collect::<Vec<_>>()
        };
        locks.set(FILE, lock(1, false, 10, 19), false);
        locks.set(FILE, lock(1, false, 20, 29), false);
        assert_eq!(ranges(&locks), [(false, 10, 29)]);
        locks.set(FILE, lock(1, true, 15, 17), false);
        assert_eq!(
            ranges(&locks),
            [(false, 10, 14), (true, 15, 17), (false, 18, 29)]
        );
        locks.set(FILE, lock(1, false, 0, LAST), true);
        assert_eq!(ranges(&locks), []);
        assert!(locks.files.is_empty());
    }

    #[test]
    fn a_chain_of_waiting_processes_is_a_deadlock_where_it_closes() {
        let mut locks = Locks::default();
        let task = |process| Task {
            process,
            thread: process,
        };
        for process in 1..=3 {
            locks.set((0, process.into()), lock(process, true, 0, LAST), false);
        }
        for process in 2..=3 {
            let wanted = ((0, u64::from(process % 3) + 1), lock(process, true, 0, 0));
            locks.wait(task(process), Some(wanted));
        }
        let blocker = locks
            .conflict((0, 2), &lock(1, true, 0, 0))
            .expect("locked");
        assert!(locks.is_deadlock(1, &blocker));
        locks.wait(task(3), None);
        assert!(!locks.is_deadlock(1, &blocker));
    }
}
