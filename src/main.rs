//! The thin binary: allocator, flags, runtime, exit code.

fn main() {}
