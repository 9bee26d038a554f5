//! `cargo fuzz run walk`; the body is `unwind_sim_fuzz::walk`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(walk);
