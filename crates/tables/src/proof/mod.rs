//! The static proof: checks what tables say of code against what the code does.
//!
//! - [`value`], [`state`]: what is known before an instruction;
//! - [`exec`], [`access`]: what an instruction does to that;
//! - [`body`]: a function's instructions; [`jump_table`], [`lsda`], [`args_size`], [`plt`], [`no_return`], [`returning`],
//!   [`no_throw`]: where they lead;
//! - [`claim`], [`claims`], [`expression`], [`signal`]: what a row says, and whether it is so; [`mod@derive`]: what it should
//!   say;
//! - [`walk`]: follows a function along all its ways; [`ways`]: what it shares with other walkers; [`program`]: what functions know of each
//!   other; [`entry`]: how they are entered; [`verdict`]: the results.

pub mod access;
pub mod args_size;
pub mod body;
pub mod claim;
pub mod claims;
pub mod derive;
pub mod effect;
pub mod entry;
pub mod exec;
pub mod expression;
mod functions;
mod join;
pub mod jump_table;
pub mod lsda;
pub mod no_return;
pub mod no_throw;
mod packed;
pub mod plt;
pub mod program;
pub mod returning;
pub mod signal;
pub mod state;
pub mod swizzle;
pub mod value;
pub mod verdict;
pub mod walk;
pub mod ways;
mod without_code;
