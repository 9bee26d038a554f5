//! `cargo fuzz run perf_map`; the body is `unwind_sim_fuzz::perf_map`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(perf_map);
