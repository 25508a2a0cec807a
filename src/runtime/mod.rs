//! Threads: pinned workers, each with its own runtime, and how they stop.
//!
//! Owns which processor a worker runs on and the order of a shutdown. It knows nothing of what the
//! workers do.

pub mod shutdown;
pub mod worker;
