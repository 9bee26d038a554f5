//! `cargo fuzz run stitch`; the body is `unwind_sim_fuzz::stitch`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(stitch);
