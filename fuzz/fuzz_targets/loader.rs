//! `cargo fuzz run loader`; the body is `unwind_sim_fuzz::loader`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(loader);
