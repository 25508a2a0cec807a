//! The only module of this program with `unsafe`: the io_uring ring and the memory policy.
//!
//! Owns the boundary to the kernel. It knows sockets and bytes, never HTTP or S3.

#![allow(unsafe_code)]

pub mod memory;
pub mod ring;
