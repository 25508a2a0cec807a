//! Request targets: nothing is normalised, every key keeps its bytes and its limit.
#![no_main]

use goblin_store::s3::host::{Target, percent_decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (host, path) = input;
    let domains = ["s3.test".to_owned()];
    let Ok(target) = Target::new(host, path, &domains) else { return };
    let decoded = percent_decode(path).expect("a path that was accepted decodes");
    let decoded = decoded.strip_prefix(b"/").unwrap_or(&decoded);
    let key = target.key.as_ref().map_or("", |key| key.as_str());
    assert!(key.len() <= 1024);
    let rebuilt = match (&target.bucket, target.virtual_host) {
        (Some(_), true) => key.to_owned(),
        (Some(bucket), false) if decoded.contains(&b'/') => format!("{bucket}/{key}"),
        (Some(bucket), false) => bucket.clone(),
        (None, _) => String::new(),
    };
    assert_eq!(rebuilt.as_bytes(), decoded);
});
