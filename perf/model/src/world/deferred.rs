//! The deferred unwind of a task, as in `kernel/unwind/deferred.c` (Linux 6.19 to 7.2): the
//! request, the cookie, the mask, the cache. It is divided into steps, as an NMI may come between
//! any two. `sample` and `kernel` run them.

/// The task work is queued (`UNWIND_PENDING`).
const PENDING: u64 = 1;
/// The cache was used (`UNWIND_USED`).
const USED: u64 = 2;
/// The bit of perf's `struct unwind_work`.
const PERF: u64 = 4;

/// `struct unwind_task_info`.
#[derive(Clone, Debug, Default)]
pub(super) struct Info {
    /// `unwind_mask`.
    mask: u64,
    /// `id.cpu`: the CPU of the first request, plus one; 0 for none.
    cpu: u32,
    /// `id.cnt`: the count of that CPU, always odd; 0 for none.
    count: u32,
    /// The frames found in this stay in the kernel; allocated at the first use and kept.
    cache: Option<Cache>,
}

/// `struct unwind_cache`.
#[derive(Clone, Debug, Default)]
struct Cache {
    /// `entries`, with `nr_entries` for its length.
    entries: Vec<u64>,
    /// `unwind_completed`: works whose function was called in this stay.
    completed: u64,
}

impl Info {
    /// The cookie: count and CPU in one word.
    pub(super) fn cookie(&self) -> u64 {
        u64::from(self.count) << 32 | u64::from(self.cpu)
    }

    pub(super) const fn is_pending(&self) -> bool {
        self.mask & PENDING != 0
    }

    /// The task work begins and is no longer pending. Returns the mask of requests.
    pub(super) const fn take_pending(&mut self) -> u64 {
        let asked = self.mask;
        self.mask &= !PENDING;
        asked
    }

    pub(super) const fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// The frames found before in this stay; allocates their memory at the first use.
    pub(super) fn cached(&mut self) -> &[u64] {
        &self.cache.get_or_insert_default().entries
    }

    /// Stores the frames that were found.
    pub(super) fn store(&mut self, entries: &[u64]) {
        if let Some(cache) = self.cache.as_mut() {
            cache.entries.clear();
            cache.entries.extend_from_slice(entries);
        }
        self.mask |= USED;
    }

    /// Whether perf's function is to be called for `asked`: not again in the same stay.
    pub(super) fn is_asked(&self, asked: u64, is_first: bool) -> bool {
        let completed = self.cache.as_ref().filter(|_| is_first);
        asked & !completed.map_or(0, |cache| cache.completed) & PERF != 0
    }

    /// Perf's function was called.
    pub(super) const fn complete(&mut self) {
        if let Some(cache) = self.cache.as_mut() {
            cache.completed |= PERF;
        }
    }
}

/// The next step of a request (`unwind_deferred_request`, including `get_cookie`). Interrupts are
/// disabled throughout; NMIs are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Check for a cookie; without one, read the CPU's counter.
    Start,
    /// Compare and exchange the cookie's count with 0: an NMI may have been first.
    Assign(u32),
    /// Store the CPU's counter, if the exchange succeeded.
    Count(u32),
    /// Store the CPU.
    Cpu,
    /// Test whether the work's bit is already set.
    Test,
    /// Set the bit together with PENDING, and test whether it was the first.
    Claim,
    /// Add the task work.
    Queue,
    /// Done.
    Done,
}

impl Request {
    /// Runs the step on `cpu`, whose counter is `counter`. Returns the next one. The caller adds
    /// the task work at [`Request::Queue`].
    pub(super) fn step(self, info: &mut Info, cpu: usize, counter: &mut u32) -> Self {
        match self {
            Self::Start if info.cpu != 0 => Self::Test,
            // The count is odd, so it is never 0, which means no cookie.
            Self::Start => Self::Assign(counter.wrapping_add(2) | 1),
            Self::Assign(count) if info.count == 0 => {
                info.count = count;
                Self::Count(count)
            }
            // An NMI was first: its count stays, and this one is not stored.
            Self::Assign(_) => Self::Cpu,
            Self::Count(count) => {
                *counter = count;
                Self::Cpu
            }
            Self::Cpu => {
                info.cpu = cpu as u32 + 1;
                Self::Test
            }
            Self::Test if info.mask & PERF != 0 => Self::Done,
            Self::Test => Self::Claim,
            Self::Claim => {
                // One atomic operation: only the first to set a bit queues the work.
                let old = info.mask;
                info.mask |= PENDING | PERF;
                if old & (PENDING | PERF) != 0 {
                    Self::Done
                } else {
                    Self::Queue
                }
            }
            Self::Queue | Self::Done => Self::Done,
        }
    }
}

/// The next step of the reset on the way out of the kernel (`unwind_reset_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// Clear the mask, unless nothing was requested or the task work must run again.
    Mask,
    /// Clear the cookie. An NMI between [`Reset::Mask`] and this step gets the cookie that is about
    /// to be cleared.
    Cookie,
    /// Empty the cache.
    Cache,
    /// Done.
    Done,
}

impl Reset {
    pub(super) fn step(self, info: &mut Info, keep_cookie: bool, keep_cache: bool) -> Self {
        match self {
            // A work that is still pending will need the cookie and the cache.
            Self::Mask if info.mask == 0 || info.mask & PENDING != 0 => Self::Done,
            Self::Mask => {
                info.mask = 0;
                Self::Cookie
            }
            Self::Cookie => {
                if !keep_cookie {
                    (info.cpu, info.count) = (0, 0);
                }
                Self::Cache
            }
            Self::Cache => {
                // The memory is kept for the next stay.
                if let Some(cache) = info.cache.as_mut() {
                    if !keep_cache {
                        cache.entries.clear();
                    }
                    cache.completed = 0;
                }
                Self::Done
            }
            Self::Done => Self::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(info: &mut Info, cpu: usize, counter: &mut u32) -> bool {
        let (mut at, mut queued) = (Request::Start, false);
        while at != Request::Done {
            queued |= at == Request::Queue;
            at = at.step(info, cpu, counter);
        }
        queued
    }

    #[test]
    fn cookies_count_by_two_on_each_cpu() {
        let (mut info, mut counter) = (Info::default(), 0);
        for count in [3, 5, 7] {
            assert!(request(&mut info, 0, &mut counter));
            assert_eq!(info.cookie(), count << 32 | 1);
            assert!(!request(&mut info, 0, &mut counter), "the bit is set");
            info.mask = PERF;
            assert!(!request(&mut info, 0, &mut counter), "late");
            let mut reset = Reset::Mask;
            while reset != Reset::Done {
                reset = reset.step(&mut info, false, false);
            }
        }
    }

    /// An NMI before every step of a request: both end with one cookie, and one task work.
    #[test]
    fn r000_4_an_nmi_in_a_request_shares_its_cookie() {
        for nmi_before in 0..8 {
            let (mut info, mut counter, mut queued) = (Info::default(), 8, 0);
            let (mut at, mut steps, mut cookie) = (Request::Start, 0, None);
            while at != Request::Done {
                if steps == nmi_before {
                    queued += u32::from(request(&mut info, 2, &mut counter));
                    cookie = Some(info.cookie());
                }
                queued += u32::from(at == Request::Queue);
                at = at.step(&mut info, 2, &mut counter);
                steps += 1;
            }
            assert_eq!(info.cookie() >> 32 & 1, 1);
            assert!(
                cookie.is_none_or(|cookie| cookie == info.cookie()),
                "{nmi_before}"
            );
            assert_eq!((queued, info.cpu), (1, 3), "{nmi_before}");
        }
    }

    #[test]
    fn a_pending_unwind_keeps_everything() {
        let (mut info, mut counter) = (Info::default(), 0);
        request(&mut info, 0, &mut counter);
        let cookie = info.cookie();
        assert_eq!(Reset::Mask.step(&mut info, false, false), Reset::Done);
        assert_eq!(info.cookie(), cookie);
    }
}
