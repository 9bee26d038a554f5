//! `cargo fuzz run expression`; the body is `unwind_sim_fuzz::expression`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(expression);
