//! Decision domains of the kubelet, one module each; shared helpers are `pods`.

pub mod pods;
