//! `verify` on C programs: code that they generate, and stacks that they make, switch and share.

mod generated;
mod moved;
mod programs;
mod stacks;
