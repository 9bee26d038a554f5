//! `cargo fuzz run vmcore`; the body is `unwind_sim_fuzz::vmcore`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(vmcore);
