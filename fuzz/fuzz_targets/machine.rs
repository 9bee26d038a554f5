//! `cargo fuzz run machine`; the body is `unwind_sim_fuzz::machine`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(machine);
