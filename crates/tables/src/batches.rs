//! Work on many functions by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// What `each` gives for every number of `todo`, in no order. Each thread has a worker of its own, and
/// takes `batch` numbers at once. Where fewer than `threads` threads can be had, or are of use, fewer
/// do the same.
pub(crate) fn work<W, T: Send>(
    todo: &[usize],
    (threads, batch): (usize, usize),
    worker: impl Fn() -> W + Sync,
    each: impl Fn(&mut W, usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut worker = worker();
        let mut done = Vec::new();
        loop {
            // `Relaxed` is enough: the number says whose batch it is, and nothing else is handed
            // over.
            let first = next.fetch_add(batch, Ordering::Relaxed);

            // Behind the end of the list there is nothing to take, however often a thread asks.
            let taken = todo.get(first..).unwrap_or_default();
            if taken.is_empty() {
                return done;
            }
            done.extend(taken.iter().take(batch).map(|&n| each(&mut worker, n)));
        }
    };

    // The thread that asks works, too, and no thread is started that would find nothing to do.
    let useful = threads.min(todo.len().div_ceil(batch));
    std::thread::scope(|scope| {
        // A thread that cannot be started is no error: the others do its work.
        let others = (1..useful).map_while(|_| Builder::new().spawn_scoped(scope, run).ok());
        let others: Vec<_> = others.collect();
        let mut done = run();
        for other in others {
            match other.join() {
                Ok(theirs) => done.extend(theirs),
                // A panic goes on in the thread that asked.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    })
}
