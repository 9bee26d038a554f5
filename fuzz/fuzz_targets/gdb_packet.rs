//! `cargo fuzz run gdb_packet`; the body is `unwind_sim_fuzz::gdb_packet`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(gdb_packet);
