//! `cargo fuzz run sframe`; the body is `unwind_sim_fuzz::sframe`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(sframe);
