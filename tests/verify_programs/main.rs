//! `verify` on C programs: code that they generate, and stacks that they make, switch and share.

#[path = "../common/skip.rs"]
mod skip;

mod generated;
mod moved;
mod programs;
mod stacks;
