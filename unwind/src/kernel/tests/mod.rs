//! The kernel's unwinders on a small kernel of ours: every end, every stack, every version's
//! difference. That they do what running kernels do is for recordings to show.

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
