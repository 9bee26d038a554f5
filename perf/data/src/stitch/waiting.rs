//! perf's method: a list of waiting samples that is searched when a record arrives.
//!
//! The algorithm is that of `evlist__deliver_deferred_callchain()` and related functions in
//! `tools/perf/util/session.c` (Linux 7.2). A record removes every sample of its thread from the
//! list, in order; samples with the record's cookie get the frames, others are delivered unchanged.
//! At the end, the rest is delivered unchanged. The proposal of November 2023 had no cookies, so
//! every sample of the thread gets the frames. Reproduced exactly, including its defects.

use std::collections::HashMap;

use super::{DeliveredSamples, Item, ItemKind, MissingReason, Stitch, Stitched, deferral};
use crate::callchain::PERF_CONTEXT_USER_DEFERRED;

/// A sample on the list.
#[derive(Debug)]
struct WaitingSample {
    /// Its position in the list.
    place: u64,
    key: u64,
    time: Option<u64>,
    chain: Vec<u64>,
}

/// The list of waiting samples. Unbounded, like perf's.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Must the cookie match?
    by_cookie: bool,
    /// The list, split by thread, since only samples of the record's thread are examined.
    threads: HashMap<i32, Vec<WaitingSample>>,
    next_place: u64,
}

impl Waiting {
    pub(super) fn new(by_cookie: bool) -> Self {
        Self {
            by_cookie,
            threads: HashMap::new(),
            next_place: 0,
        }
    }

    pub(super) fn push(&mut self, item: Item, out: &mut DeliveredSamples) {
        let Item {
            key,
            time,
            tid,
            what,
            ..
        } = item;

        match what {
            ItemKind::Sample { defer, chain, .. } => {
                // The place keeps the order of arrival over all threads, which the end of the file
                // needs.
                if defer && self.is_deferred(&chain) {
                    let place = self.next_place;
                    self.next_place += 1;
                    self.threads.entry(tid).or_default().push(WaitingSample {
                        place,
                        key,
                        time,
                        chain,
                    });
                } else {
                    out.give(Stitched {
                        key,
                        time,
                        tid,
                        cookie: None,
                        chain,
                        how: Stitch::NotDeferred,
                    });
                }
            }
            ItemKind::Record { cookie, frames } => {
                // Both methods answer every waiting sample of the thread, even those of another
                // cookie.
                let waiting = self.threads.remove(&tid).unwrap_or_default();
                let mut used = false;
                for entry in waiting {
                    let same = !self.by_cookie || cookie_of(&entry.chain) == cookie;
                    used |= same;
                    give(entry, tid, same.then_some((key, &frames[..])), out);
                }
                out.counts.orphans += u64::from(!used);
            }
            // These methods look at nothing else.
            ItemKind::Fork
            | ItemKind::Exit
            | ItemKind::Exec
            | ItemKind::Vdso
            | ItemKind::Lost { .. } => {}
        }
    }

    fn is_deferred(&self, chain: &[u64]) -> bool {
        deferral(chain).is_some_and(|found| found.cookie.is_some() || !self.by_cookie)
    }

    pub(super) fn finish(&mut self, out: &mut DeliveredSamples) {
        let mut rest: Vec<(i32, WaitingSample)> = std::mem::take(&mut self.threads)
            .into_iter()
            .flat_map(|(tid, entries)| entries.into_iter().map(move |entry| (tid, entry)))
            .collect();
        rest.sort_unstable_by_key(|(_, entry)| entry.place);
        for (tid, entry) in rest {
            let WaitingSample {
                key, time, chain, ..
            } = entry;
            out.give(Stitched {
                key,
                time,
                tid,
                cookie: cookie_of(&chain),
                chain,
                how: Stitch::Missing(MissingReason::End),
            });
        }
    }
}

fn cookie_of(chain: &[u64]) -> Option<u64> {
    deferral(chain).and_then(|found| found.cookie)
}

/// Delivers a sample because of a record, with the record's frames or without.
fn give(entry: WaitingSample, tid: i32, frames: Option<(u64, &[u64])>, out: &mut DeliveredSamples) {
    let WaitingSample {
        key,
        time,
        mut chain,
        ..
    } = entry;

    // Read before the chain is changed.
    let cookie = cookie_of(&chain);
    let how = match frames {
        None => Stitch::Missing(MissingReason::OtherCookie),
        Some((record, frames)) => {
            // The cookie is removed, the marker stays.
            if let Some(found) = deferral(&chain) {
                chain.truncate(found.kernel);
                chain.push(PERF_CONTEXT_USER_DEFERRED);
            }

            // The record's frames have no marker of their own.
            chain.extend_from_slice(frames);
            if frames.is_empty() {
                Stitch::Empty { record }
            } else {
                Stitch::Stitched { record }
            }
        }
    };

    out.give(Stitched {
        key,
        time,
        tid,
        cookie,
        chain,
        how,
    });
}

#[cfg(test)]
mod tests;
