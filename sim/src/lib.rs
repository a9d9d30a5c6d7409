//! sim layer.
