//! `cargo fuzz run bpf_object`; the body is `unwind_sim_fuzz::bpf_object`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(bpf_object);
