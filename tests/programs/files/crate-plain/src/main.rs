//! A program for cargo to build.
fn main() { println!("built by cargo"); }
