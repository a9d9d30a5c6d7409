//! trace layer.
