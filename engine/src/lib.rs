//! engine layer.
