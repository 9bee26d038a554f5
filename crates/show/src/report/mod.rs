//! Results as one page for a browser, or as one image, which needs no network and no other file.
//!
//! [`timeline`] shows the states of a run or recording and [`findings`] what `verify --json` or
//! `tables check --json` found. A page shows its model and computes nothing but sums. What matters
//! (the first state, all findings) is plain HTML; `page.js` unpacks the rest. The page's
//! Content-Security-Policy allows this one script, by its hash, and one style. [`drawing()`] writes one
//! state as an image, and [`embedded`] one with its neighbours.

mod assets;
mod causes;
mod controls;
mod drawing;
mod findings;
mod flame;
mod input;
mod matrix;
mod page;
mod pieces;
mod stack;
mod state;
mod tally;
mod timeline;
mod words;

pub use drawing::{EMBEDDED, Embedded, drawing, embedded};
pub use findings::findings;
pub use input::LinesError;
pub use timeline::{Pick, TimelineError, timeline};

/// What a page shows and what it leaves out.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PageSummary {
    /// The number of states or findings that the page shows.
    pub shown: u64,
    /// The number of others in the input, if it is known.
    pub left_out: Option<u64>,
    /// The size of the page, bytes.
    pub bytes: usize,
}
