//! What shows stacks to a reader: [`picture`] draws one, [`demo`] has built-in ones, [`quiz`] judges a
//! reader's chain, `report` shows a timeline or findings as a page for a browser, and `stepper` goes
//! through a timeline in a terminal. [`cast`] makes an image of a terminal session.
//!
//! Nothing here computes a verdict or writes lines for machines: that is `unwind-sim-view`.
#![forbid(unsafe_code)]

pub mod cast;
pub mod demo;
pub mod picture;
pub mod quiz;
#[cfg(all(test, feature = "report"))]
#[path = "../tests/common/random.rs"]
mod random;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "terminal")]
pub mod stepper;
