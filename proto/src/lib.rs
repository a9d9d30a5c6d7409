//! proto layer.
