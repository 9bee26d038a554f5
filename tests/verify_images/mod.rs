//! `verify` on test programs that replace their own code: a finding belongs to the image that was
//! mapped at the time, and has the code that its page promises.

mod codes;
mod folder;
mod images;
mod jumps;
