//! `cargo fuzz run check`; the body is `unwind_sim_fuzz::check`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(check);
