//! HTTP connections, shared by every HTTP front.
//!
//! Owns accepting, the life of a connection, its timeouts, and what is logged and counted about a
//! request. It knows nothing of S3: a front is a function that it calls. Runs on the worker
//! threads; connections stay on the thread that accepted them.
//!
//! ```text
//!   accept --> connection (hyper http1 over client_io) --> front         
//!                 |  watchdog: header and idle time         |
//!                 +-- body: counts both ways, trace <-------+
//! ```

pub mod accept;
mod body;
mod client_io;
pub mod connection;
pub mod trace;

#[cfg(test)]
mod tests;
