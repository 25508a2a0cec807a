//! The Authorization header: without the secret nobody becomes anybody.
#![no_main]

use std::sync::Arc;

use goblin_store::clock::ManualClock;
use goblin_store::s3::auth::{AuthRequest, AuthSettings, Identity, Verifier};
use goblin_store::s3::query::Query;
use goblin_store_fuzz::lookup;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8], &str)| {
    let (authorization, date, path) = input;
    let mut headers = HeaderMap::new();
    let Ok(authorization) = HeaderValue::from_bytes(authorization) else { return };
    headers.insert("authorization", authorization);
    if let Ok(date) = HeaderValue::from_bytes(date) {
        headers.insert("x-amz-date", date);
    }
    let settings = AuthSettings {
        region: "us-east-1".into(),
        accept_any_region: true,
        sigv2: true,
        external_host: Some("s3.test".into()),
    };
    // 24 May 2013, the day of the seeds.
    let verifier = Verifier::new(settings, Arc::new(ManualClock::new(1_369_353_600_000)));
    let query = Query::default();
    let request = AuthRequest {
        method: "GET",
        host: "localhost:9000",
        raw_path: path,
        query: &query,
        headers: &headers,
        virtual_bucket: None,
    };
    if let Ok(done) = verifier.verify(&request, &lookup) {
        assert!(matches!(done.identity, Identity::Anonymous));
    }
});
