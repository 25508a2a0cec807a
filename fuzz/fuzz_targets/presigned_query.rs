//! Presigned URLs of both versions: without the secret nobody becomes anybody.
#![no_main]

use std::sync::Arc;

use goblin_store::clock::ManualClock;
use goblin_store::s3::auth::{AuthRequest, AuthSettings, Identity, Verifier};
use goblin_store::s3::query::Query;
use goblin_store_fuzz::lookup;
use http::HeaderMap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|raw: &str| {
    let Ok(query) = Query::parse(raw) else { return };
    assert!(query.pairs().len() <= raw.matches('&').count() + 1);
    let settings = AuthSettings {
        region: "us-east-1".into(),
        accept_any_region: true,
        sigv2: true,
        external_host: None,
    };
    // 24 May 2013, the day of the seeds.
    let verifier = Verifier::new(settings, Arc::new(ManualClock::new(1_369_353_600_000)));
    let headers = HeaderMap::new();
    let request = AuthRequest {
        method: "GET",
        host: "examplebucket.s3.amazonaws.com",
        raw_path: "/test.txt",
        query: &query,
        headers: &headers,
        virtual_bucket: None,
    };
    if let Ok(done) = verifier.verify(&request, &lookup) {
        assert!(matches!(done.identity, Identity::Anonymous));
    }
});
