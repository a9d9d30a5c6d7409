//! A simulated node: the container runtime as a pure model, the same served as a CRI, and a whole node in virtual
//! time with seeded faults and checked invariants.
//!
//! Never part of a production path.

pub mod runtime;
pub mod serve;
