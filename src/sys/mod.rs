//! The only module with `unsafe`: aligned memory, direct files, io_uring, mappings, NUMA.
//!
//! Owns the boundary to the kernel. No policy, no HTTP, no SQL.

pub mod aligned_buf;
pub mod cpu;
pub mod durable;
pub mod engine;
pub mod fault;
pub mod mapping;
pub mod numa;
pub mod probe;
pub mod process;
pub mod sqlite_page;
pub mod sqlite_vfs;
pub mod uring;
