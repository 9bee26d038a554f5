//! Tests of the command line and of several packages together.
//!
//! They are one program, because each program would be linked with every package: the suite had 95
//! of them, and linking took longer than most ran. Not here: `cases` and `programs`, which have a
//! test for each of their files, and `tidy`, which needs none of the packages.

mod common;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod bpf_events_kernel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod bpf_kernel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ci_examples;
#[cfg(unix)]
mod cli;
mod completions;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod counting;
#[cfg(all(checkout, unix))]
mod docs_commands;
mod formats;
mod ground;
mod kernel_boot;
mod kernel_tables;
mod kernel_traces;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod large;
mod lbr;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod lockstep;
#[cfg(unix)]
mod own_unwinders;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod peer_unwinders;
mod perf_fields;
mod perf_options;
mod perf_script;
mod profile;
mod quick_compare;
#[cfg(checkout)]
mod random_programs;
#[cfg(all(feature = "report", unix))]
mod report;
mod scenarios;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod scrub;
#[cfg(all(unix, feature = "serve"))]
mod serve;
#[cfg(target_arch = "x86_64")]
mod slot_stores;
#[cfg(all(unix, feature = "terminal"))]
mod step;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tables_against_verify;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tables_check;
mod tables_convert;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tables_diff;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tables_dump;
mod tables_generate;
mod tables_rows;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tables_sweep;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod thousand;
mod threads;
mod verify;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod verify_conventions;
mod verify_images;
mod verify_programs;
mod verify_slots;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod workload;
