//! The kernel's unwinders on a small hand-made kernel: every end, every stack, the differences
//! between versions. Recordings show that they match running kernels.

mod addresses;
mod chains;
mod code;
mod fp;
mod hijack;
mod lookup;
mod names;
mod orc;
mod orc_steps;
mod parts;
mod support;
mod traces;
mod unwinder;
mod user;
