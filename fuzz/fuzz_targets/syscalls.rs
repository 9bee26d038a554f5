//! `cargo fuzz run syscalls`; the body is `unwind_sim_fuzz::syscalls`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(syscalls);
