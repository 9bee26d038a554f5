//! `cargo fuzz run eh_frame`; the body is `unwind_sim_fuzz::eh_frame`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(eh_frame);
