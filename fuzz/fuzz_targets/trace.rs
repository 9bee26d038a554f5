//! `cargo fuzz run trace`; the body is `unwind_sim_fuzz::trace`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(trace);
