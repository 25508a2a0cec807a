//! What DataFusion, Delta and Iceberg programs do to a store: the conformance functions that the
//! `object_store` crate exports, run against an endpoint.
//!
//! Reads `AWS_ENDPOINT`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`. The first
//! argument is an existing, empty bucket. Each function panics on the first wrong answer, so the
//! exit status tells; the last line printed counts the functions that passed.

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStore as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum, S3ConditionalPut, S3CopyIfNotExists};
use object_store::integration as check;

fn store(bucket: &str, change: impl Fn(AmazonS3Builder) -> AmazonS3Builder) -> AmazonS3 {
    let builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_allow_http(true)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_copy_if_not_exists(S3CopyIfNotExists::Header("If-None-Match".into(), "*".into()));
    change(builder).build().expect("the environment names an endpoint and keys")
}

/// Some functions leave objects behind that others do not expect.
async fn clear(s3: &AmazonS3) {
    let paths = s3.list(None).map_ok(|meta| meta.location).boxed();
    let deleted = s3.delete_stream(paths).try_collect::<Vec<_>>().await;
    deleted.expect("the bucket can be emptied");
}

#[tokio::main]
async fn main() {
    let bucket = std::env::args().nth(1).expect("usage: object-store-check BUCKET");
    let s3 = store(&bucket, |b| b);
    let mut passed = 0;
    macro_rules! run {
        ($($call:expr),+ $(,)?) => {
            $(
                println!("{}", stringify!($call).split('(').next().unwrap_or_default());
                $call.await;
                clear(&s3).await;
                passed += 1;
            )+
        };
    }
    run!(
        check::put_get_delete_list(&s3),
        check::get_opts(&s3),
        check::list_uses_directories_correctly(&s3),
        check::list_with_delimiter(&s3),
        check::list_with_offset_exclusivity(&s3),
        check::list_paginated(&s3, &s3),
        check::rename_and_copy(&s3),
        check::stream_get(&s3),
        check::copy_if_not_exists(&s3),
        check::copy_rename_nonexistent_object(&s3),
        check::multipart(&s3, &s3),
        check::multipart_with_opts(&s3, &s3),
        check::multipart_put_part_out_of_order(&s3, &s3),
        check::multipart_race_condition(&s3, true),
        check::multipart_out_of_order(&s3),
        check::put_get_delete_list(&store(&bucket, |b| b.with_unsigned_payload(true))),
        check::put_get_delete_list(&store(&bucket, |b| b.with_checksum_algorithm(Checksum::SHA256))),
        check::put_get_delete_list(
            &store(&bucket, |b| b.with_checksum_algorithm(Checksum::CRC64NVME))
        ),
        check::put_get_attributes(&s3),
        check::put_opts(&s3, true),
    );
    let missing = check::get_nonexistent_object(&s3, None).await;
    assert!(matches!(missing, Err(object_store::Error::NotFound { .. })), "{missing:?}");
    println!("{} passed, 0 failed", passed + 1);
}
