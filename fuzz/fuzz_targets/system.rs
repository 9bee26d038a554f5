//! `cargo fuzz run system`; the body is `unwind_sim_fuzz::system`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(system);
