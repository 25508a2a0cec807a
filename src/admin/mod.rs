//! Administration: metrics, health, users and keys, on listeners of their own.
//!
//! Owns what an operator may ask and change while the server runs. It never serves S3 and never
//! runs on a worker thread, so that it answers while the workers are busy.

pub mod api;
pub mod directory;
