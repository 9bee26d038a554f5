//! `cargo fuzz run capture`; the body is `unwind_sim_fuzz::capture`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(capture);
