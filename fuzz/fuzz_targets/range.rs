//! The Range header: a part is never empty and lies inside the object.
#![no_main]

use goblin_store::s3::range::{Requested, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &[u8])| {
    let (size, value) = input;
    match parse(value, size) {
        Requested::Whole => {}
        Requested::Part { first, len } => {
            assert!(len > 0);
            assert!(first.checked_add(len).is_some_and(|end| end <= size));
        }
        Requested::Unsatisfiable => assert!(value.contains(&b'-')),
    }
});
