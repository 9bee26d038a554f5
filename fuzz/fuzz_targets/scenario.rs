//! `cargo fuzz run scenario`; the body is `unwind_sim_fuzz::scenario`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(scenario);
