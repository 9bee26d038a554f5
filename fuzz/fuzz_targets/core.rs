//! `cargo fuzz run core`; the body is `unwind_sim_fuzz::core`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(core);
