//! `cargo fuzz run orc`; the body is `unwind_sim_fuzz::orc`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(orc);
