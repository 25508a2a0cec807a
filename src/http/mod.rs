//! HTTP connections, shared by every HTTP front.
//!
//! Owns accepting, the life of a connection, its timeouts, and what is logged and counted about a
//! request. It knows nothing of S3: a front is an axum `Router` that it calls. Runs on the worker
//! threads; connections stay on the thread that accepted them.

pub mod trace;
