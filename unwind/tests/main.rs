//! Tests of the package from outside, on files of this machine and of the corpus.

mod common;
#[path = "../../tests/common/random.rs"]
mod random;

mod dwarf_gimli;
mod dwarf_readelf;
mod dwarf_walk;
mod elf_files;
mod orc;
mod row_bytes;
mod sframe;
mod sframe_orc_derived;
mod sframe_orc_walk;
mod small_values;
mod verdict_rules;
