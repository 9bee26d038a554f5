//! The static proof, on code whose right verdicts are known without it.

mod build;
mod compiled;
mod conventions;
mod expect;
mod fixtures;
mod ground;
mod kernel;
mod mutation;
mod random_c;
mod tables;
