//! Tests of the whole format: writer against reader, and both against hand-made bytes.

mod damage;
pub(super) mod forged;
mod golden;
mod random;
pub(super) mod support;
mod writing;
