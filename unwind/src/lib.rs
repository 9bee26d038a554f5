//! What an unwinder is: registers, memory as a trait, rules, table readers, the walk, and the
//! shadow-stack tracker that knows the truth. No I/O, no `unsafe`, no clock, no threads.
//!
//! An unwinder works in two phases. A [`finder::Finder`] *finds a rule* for an address in its
//! table; [`walk::walk`] *applies* it ([`rule::Rule`] is the one normal form that every table
//! compiles to). [`unwinder::Unwinder`] is what all of them look like from outside, the guess,
//! the LBR and the user's own included.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod address;
pub mod apply;
pub mod cache;
pub mod chain;
pub mod derived;
pub mod dwarf;
pub mod elf;
pub mod event;
pub mod finder;
pub mod fp;
pub mod frame;
pub mod guess;
pub mod image;
pub mod kernel;
pub mod lbr;
pub mod memory;
pub mod orc;
pub mod reason;
pub mod regs;
pub mod row;
pub mod rule;
pub mod sframe;
pub mod start;
pub mod step;
pub mod truth;
pub mod unwinder;
pub mod verdict;
pub mod walk;
