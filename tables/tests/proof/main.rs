//! The static proof, on code whose right verdicts are known without it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod build;
mod compiled;
mod expect;
mod fixtures;
mod ground;
mod kernel;
mod mutation;
mod random_c;

#[path = "../common/skip.rs"]
mod skip;
