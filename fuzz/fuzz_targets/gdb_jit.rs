//! `cargo fuzz run gdb_jit`; the body is `unwind_sim_fuzz::gdb_jit`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(gdb_jit);
