fn main() { println!("built by cargo"); }
