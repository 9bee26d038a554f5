//! `cargo fuzz run generate`; the body is `unwind_sim_fuzz::generate`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(generate);
