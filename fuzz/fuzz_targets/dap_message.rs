//! `cargo fuzz run dap_message`; the body is `unwind_sim_fuzz::dap_message`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(dap_message);
