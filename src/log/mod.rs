//! The commit log: every committed change in order, with the bytes of small objects.
//!
//! Owns the files under `log/`. What it acknowledged survives power loss, byte for byte; what it
//! refused never comes back. It never decides a change and never knows which packed blob is still
//! referenced: the catalog does. Writers and readers stay on the thread that made them.

pub mod record;

#[cfg(test)]
mod testing;

pub use record::{Record, RecordError};
