//! `cargo fuzz run perfdata`; the body is `unwind_sim_fuzz::perfdata`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(perfdata);
