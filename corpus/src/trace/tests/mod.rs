//! Tests of the whole format: writer against reader, and both against bytes made by hand.

mod damage;
mod golden;
mod random;
mod support;
mod writing;
