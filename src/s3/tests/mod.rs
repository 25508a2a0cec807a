//! The front as a whole, driven without sockets over a real store.

mod acl;
mod conditions;
mod configuration;
mod harness;
mod integrity;
mod listing;
mod multipart;
mod objects;
mod requests;

use harness::with_front;
