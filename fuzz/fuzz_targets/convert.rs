//! `cargo fuzz run convert`; the body is `unwind_sim_fuzz::convert`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(convert);
