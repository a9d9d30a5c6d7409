//! systems layer.
