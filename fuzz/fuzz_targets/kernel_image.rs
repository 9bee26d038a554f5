//! `cargo fuzz run kernel_image`; the body is `unwind_sim_fuzz::kernel_image`.
#![cfg_attr(fuzzing, no_main)]

unwind_sim_fuzz::program!(kernel_image);
