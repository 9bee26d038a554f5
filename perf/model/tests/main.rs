//! Tests of the model from outside: scenarios, BPF programs, and what perf reads of its runs.

#[path = "common/random.rs"]
mod random;
#[path = "common/skip.rs"]
mod skip;

mod bpf_handlers;
mod bpf_insns;
mod bpf_object;
mod bpf_rings;
mod hostile_scenarios;
mod model;
mod model_perf;
mod stitch_model;
mod walks;
