//! `cargo fuzz run elf`; the body is `unwind_sim_fuzz::elf`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(elf);
