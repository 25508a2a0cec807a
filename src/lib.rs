//! GoblinStore: an S3-compatible object store for one strong machine.
//!
//! See ARCHITECTURE.md for the map. Dependencies point down only:
//! fronts (`s3`, `admin`) -> `store` -> `catalog` -> {`log`, `blob`, `arena`} -> `sys` and leaves.

pub mod admin;
pub mod arena;
pub mod blob;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod config;
pub mod digest;
pub mod doctor;
pub mod http;
pub mod limits;
pub mod log;
pub mod logging;
pub mod maintenance;
pub mod metrics;
pub mod model;
pub mod rng;
pub mod runtime;
pub mod s3;
pub mod sabotage;
pub mod server;
#[cfg(test)]
mod soak;
pub mod store;
pub mod sys;
