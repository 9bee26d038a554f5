//! Tests of the workshop from outside: compiled programs, kernels, damaged files.

#[path = "common/made.rs"]
mod made;
#[path = "common/random.rs"]
mod random;
#[path = "common/skip.rs"]
mod skip;

mod bug_table;
mod convert;
mod damage;
mod diff;
mod generate;
mod index;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod proof;
mod readelf;
