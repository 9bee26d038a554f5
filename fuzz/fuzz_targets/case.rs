//! `cargo fuzz run case`; the body is `unwind_sim_fuzz::case`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(case);
