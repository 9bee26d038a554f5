//! `cargo fuzz run command_line`; the body is `unwind_sim_fuzz::command_line`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(command_line);
