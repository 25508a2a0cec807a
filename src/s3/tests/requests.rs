//! What every request has: ids, errors, methods, owners, probes.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Method;

use super::harness::OK;
use super::with_front;

#[test]
fn every_answer_has_an_id_and_head_errors_have_no_body() {
    with_front(|front| async move {
        let missing = front.get("/tst/none").send().await.expect_error(404, "NoSuchKey");
        assert_eq!(missing.element("RequestId"), missing.header("x-amz-request-id"));
        assert_eq!(missing.element("Resource"), "/tst/none");
        assert_eq!(missing.header("content-type"), "application/xml");
        let ok = front.get("/").send().await.expect(OK);
        assert!(!ok.header("x-amz-request-id").is_empty() && !ok.header("x-amz-id-2").is_empty());
        for target in ["/tst/none", "/none/k", "/none"] {
            let head = front.head(target).send().await.expect(404);
            assert!(head.body.is_empty(), "{target}");
        }
    });
}

#[test]
fn nobody_reaches_anothers_bucket() {
    with_front(|front| async move {
        front.put("/tst/k").body("x").send().await.expect(OK);
        front.put("/bobs").user("bob").send().await.expect(OK);
        for call in [
            front.get("/tst/k"),
            front.put("/tst/k").body("y"),
            front.delete("/tst/k"),
            front.get("/tst"),
            front.delete("/tst"),
            front.get("/tst?acl"),
            front.put("/bobs/k").header("x-amz-copy-source", "tst/k"),
        ] {
            call.user("bob").send().await.expect_error(403, "AccessDenied");
        }
        front.put("/tst").user("bob").send().await.expect_error(409, "BucketAlreadyExists");
        front.put("/tst").send().await.expect(OK);
        let other = front.get("/tst/k").header("x-amz-expected-bucket-owner", "bob-canonical");
        other.send().await.expect_error(403, "AccessDenied");
        assert_eq!(front.get("/tst/k").send().await.expect(OK).text(), "x");
    });
}

#[test]
fn http_05_a_refused_body_is_drained_or_the_connection_closes() {
    with_front(|front| async move {
        let small = front.put("/none/k").body(vec![0; 1000]).send().await;
        let small = small.expect_error(404, "NoSuchBucket");
        assert_eq!(small.header("connection"), "");
        let large = front.put("/none/k").body(vec![0; 300_000]).send().await.expect(404);
        assert_eq!(large.header("connection"), "close");
        let stalled = stream::pending::<Result<Bytes, std::io::Error>>();
        let put = front.put("/none/k").raw_body(Body::from_stream(stalled));
        let stalled = put.header("content-length", 10).send().await.expect(404);
        assert_eq!(stalled.header("connection"), "close");
        let waits = front.put("/none/k").body("x").header("expect", "100-continue");
        assert_eq!(waits.send().await.expect(404).header("connection"), "close");
    });
}

#[test]
fn methods_and_subresources_that_are_not_served() {
    with_front(|front| async move {
        let patch = front.call(Method::PATCH, "/tst/k").send().await;
        patch.expect_error(405, "MethodNotAllowed");
        for call in [
            front.put("/tst?replication"),
            front.put("/tst?inventory"),
            front.put("/tst/k?encryption"),
        ] {
            let answer = call.send().await.expect_error(501, "NotImplemented");
            assert!(answer.element("Message").contains(char::is_uppercase));
        }
        let encrypted = front.put("/tst/k").header("x-amz-server-side-encryption", "AES256");
        encrypted.send().await.expect_error(501, "NotImplemented");
    });
}

#[test]
fn features_that_were_never_configured() {
    with_front(|front| async move {
        for (name, code) in [
            ("policy", "NoSuchBucketPolicy"),
            ("cors", "NoSuchCORSConfiguration"),
            ("lifecycle", "NoSuchLifecycleConfiguration"),
            ("tagging", "NoSuchTagSet"),
            ("encryption", "ServerSideEncryptionConfigurationNotFoundError"),
            ("website", "NoSuchWebsiteConfiguration"),
            ("replication", "ReplicationConfigurationNotFoundError"),
            ("object-lock", "ObjectLockConfigurationNotFoundError"),
            ("publicAccessBlock", "NoSuchPublicAccessBlockConfiguration"),
            ("ownershipControls", "OwnershipControlsNotFoundError"),
        ] {
            front.get(&format!("/tst?{name}")).send().await.expect_error(404, code);
        }
        for name in ["versioning", "logging", "notification", "accelerate", "analytics", "location"]
        {
            front.get(&format!("/tst?{name}")).send().await.expect(OK);
        }
        let acl = front.get("/tst?acl").send().await.expect(OK);
        assert_eq!(acl.element("Permission"), "FULL_CONTROL");
        assert_eq!(acl.element("ID"), "alice-canonical");
    });
}

#[test]
fn bucket_names_and_locations_are_checked() {
    with_front(|front| async move {
        for name in ["ab", "Upper", "192.168.1.1", "a..b"] {
            let answer = front.put(&format!("/{name}")).send().await;
            answer.expect_error(400, "InvalidBucketName");
        }
        let body = "<CreateBucketConfiguration><LocationConstraint>eu-west-3\
                    </LocationConstraint></CreateBucketConfiguration>";
        let elsewhere = front.put("/elsewhere").body(body).send().await;
        elsewhere.expect_error(400, "IllegalLocationConstraintException");
        let head = front.head("/tst").send().await.expect(OK);
        assert_eq!(head.header("x-amz-bucket-region"), "us-east-1");
        front.put("/tst/k").send().await.expect(OK);
        front.delete("/tst").send().await.expect_error(409, "BucketNotEmpty");
        front.delete("/tst/k").send().await.expect(204);
        front.delete("/tst").send().await.expect(204);
        front.head("/tst").send().await.expect(404);
    });
}

#[test]
fn del_01_deletes_must_come_with_a_digest() {
    with_front(|front| async move {
        let body = "<Delete><Object><Key>k</Key></Object></Delete>";
        let delete = || front.post("/tst?delete").body(body);
        front.put("/tst/k").send().await.expect(OK);
        delete().send().await.expect_error(400, "InvalidRequest");
        let wrong = delete().header("x-amz-checksum-crc32", "AAAAAA==").send().await;
        wrong.expect_error(400, "BadDigest");
        front.head("/tst/k").send().await.expect(OK);
        let right = delete().header("content-md5", md5_of(body)).send().await.expect(OK);
        assert_eq!(right.elements("Deleted"), ["<Key>k</Key>"]);
        front.head("/tst/k").send().await.expect(404);
    });
}

#[test]
fn del_03_exactly_the_named_keys_go() {
    with_front(|front| async move {
        for key in ["a%0Db", "a%0Ab", "x%3Cy%3E%26", "%20lead", "stays"] {
            front.put(&format!("/tst/{key}")).send().await.expect(OK);
        }
        let body = "<Delete><Object><Key>a&#13;b</Key></Object><Object><Key>x&lt;y&gt;&amp;</Key>\
                    </Object><Object><Key><![CDATA[ lead]]></Key></Object></Delete>";
        let delete = front.post("/tst?delete").body(body).header("content-md5", md5_of(body));
        let answer = delete.send().await.expect(OK);
        assert_eq!(answer.elements("Key"), ["a&#xD;b", "x&lt;y&gt;&amp;", " lead"]);
        let list = front.get("/tst?encoding-type=url&list-type=2").send().await.expect(OK);
        assert_eq!(list.elements("Key"), ["a%0Ab", "stays"]);
    });
}

pub(super) fn md5_of(text: &str) -> String {
    use base64::Engine as _;
    let digests = crate::digest::digest(&crate::digest::DigestRequest::default(), text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digests.md5)
}
