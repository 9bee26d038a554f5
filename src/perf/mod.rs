//! What the subcommands `perf run`, `perf fuzz` and `perf bpf` do: the model of sampling and its BPF
//! programs, with stacks and samples of recordings. What `perf script` and `perf stitch` write is in
//! `view`.

pub mod bpf;
pub mod fuzz;
pub mod run;
mod sources;
