//! `verify`: runs a program in the emulated machine and compares every row of every table with the
//! shadow stack, at every executed instruction.
//!
//! There are three checks (`checker`): the row of the innermost frame at each instruction; the row
//! of the caller at each call, with the registers that a walk has there; and walks of the whole
//! stack. A check is skipped only if its outcome cannot have changed.

mod blocks;
mod checker;
mod claim;
mod code;
mod coverage;
pub mod deadlock;
mod departures;
mod findings;
#[cfg(any(test, feature = "fixture"))]
#[doc(hidden)]
pub mod fixture;
mod frames;
mod generated;
pub mod groups;
mod images;
mod kernel;
mod late;
pub mod listing;
mod log;
mod marks;
mod memory;
mod merged;
mod numbered;
mod overwritten;
mod places;
mod repeats;
mod run;
mod shown;
mod stores;
mod walks;
mod work;

pub use checker::{Checker, Results, Tally};
pub use coverage::{Coverage, Executed};
pub use departures::Bounds;
pub use findings::{Check, Finding};
pub use generated::Function as GeneratedFunction;
pub use images::Images;
pub use kernel::{
    Beside, KernelRun, KernelWalked, KernelWalks, NmiPlan, NmiResults, Reliability, WalkFinding,
    WalkTally, run_kernel, unexpected_walks,
};
pub use memory::MemoryUse;
pub use numbered::UNWINDERS_MAX;
pub use places::{NOWHERE, PlaceId, Places};
pub use run::{Request, Run, VerifyError, run, unexpected};
pub use stores::{Slot, SlotStore, SlotStores, Writer};
pub use walks::Disagreement;
pub use work::Work;
