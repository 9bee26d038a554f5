//! The fuzz targets, as functions of bytes that run on any toolchain.
//!
//! A target fails by a panic: in the code under test, or of a property checked here. Each target
//! has saved inputs in `corpus/NAME`; `cargo test` runs them, and mutated copies of them. Not here:
//! the loop that generates inputs, which is cargo-fuzz's.
#![forbid(unsafe_code)]

mod captures;
pub mod command_line;
mod conversions;
mod debuggers;
mod files;
mod generated;
mod handlers;
mod input;
mod kernels;
mod machine;
mod proofs;
#[path = "../tests/common/random.rs"]
mod random;
mod scenarios;
mod stitches;
mod syscalls;
mod system;
mod tables;
mod texts;
mod walks;

pub use captures::capture;
pub use command_line::command_line;
pub use conversions::convert;
pub use debuggers::{dap_message, gdb_packet};
pub use files::{core, elf, loader, perfdata, trace, vmcore};
pub use generated::{gdb_jit, jitdump, perf_map};
pub use handlers::bpf_object;
pub use kernels::kernel_image;
pub use machine::machine;
pub use proofs::{check, generate};
pub use scenarios::scenario;
pub use stitches::stitch;
pub use syscalls::syscalls;
pub use system::system;
pub use tables::{eh_frame, orc, sframe};
pub use texts::case;
pub use walks::{expression, walk};

#[cfg(test)]
mod corpora;

/// The main program of a target: libFuzzer's, or one that runs the files passed to it.
#[macro_export]
macro_rules! program {
    ($target:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::$target(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            for path in std::env::args_os().skip(1) {
                $crate::$target(&std::fs::read(path)?);
            }
            Ok(())
        }
    };
}
