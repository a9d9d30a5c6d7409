//! components layer.
