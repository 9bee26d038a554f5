//! Tests of the machine from outside: whole programs, memory, snapshots.

#[path = "common/random.rs"]
mod random;
#[path = "common/skip.rs"]
mod skip;

mod fused;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;
mod snapshots;
mod spaces;
mod system;
