//! The static proof, on code whose right verdicts are known without it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod build;
mod expect;
mod fixtures;

#[path = "../../../tests/common/skip.rs"]
#[expect(dead_code, reason = "nothing is skipped yet")]
mod skip;
