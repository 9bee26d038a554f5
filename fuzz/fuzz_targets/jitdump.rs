//! `cargo fuzz run jitdump`; the body is `unwind_sim_fuzz::jitdump`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(jitdump);
