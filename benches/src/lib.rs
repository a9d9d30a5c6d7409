//! benches layer.
