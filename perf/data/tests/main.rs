//! Tests of the package from outside: files of perf's and files that its writer made.

mod common;
#[path = "../../../tests/common/random.rs"]
mod random;
#[path = "../../../tests/common/skip.rs"]
mod skip;

#[cfg(feature = "zstd")]
mod authority;
mod hostile;
mod lbr_stitch;
mod stitch;
mod stitch_properties;
mod synthetic;
mod writer;
