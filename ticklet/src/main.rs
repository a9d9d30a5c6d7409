//! The ticklet binary.
fn main() {}
