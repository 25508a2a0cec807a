//! Checksums, digests and framing of uploads.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;

use super::harness::OK;
use super::with_front;

const VALUES: [(&str, &str); 5] = [
    ("x-amz-checksum-crc32", "NhCmhg=="),
    ("x-amz-checksum-crc32c", "mnG7TA=="),
    ("x-amz-checksum-crc64nvme", "M3eFcAZSQlc="),
    ("x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="),
    ("x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="),
];

#[test]
fn chk_01_a_checksum_is_computed_when_none_is_sent() {
    with_front(|front| async move {
        let put = front.put("/tst/k").chunked("5\r\nhello\r\n0\r\n\r\n", 5).send().await.expect(OK);
        assert_eq!(put.header("x-amz-checksum-crc64nvme"), "M3eFcAZSQlc=");
        assert_eq!(put.header("x-amz-checksum-type"), "FULL_OBJECT");
        let get = front.get("/tst/k").send().await.expect(OK);
        assert_eq!((get.text().as_str(), get.header("content-encoding")), ("hello", ""));
    });
}

#[test]
fn chk_02_trailers_are_verified_and_kept() {
    with_front(|front| async move {
        for (name, value) in VALUES {
            let framed = format!("5\r\nhello\r\n0\r\n{name}:{value}\r\n\r\n");
            let put =
                |framed: &str| front.put("/tst/k").chunked(framed, 5).header("x-amz-trailer", name);
            put(&framed).send().await.expect(OK);
            let head = front.head("/tst/k").header("x-amz-checksum-mode", "ENABLED").send().await;
            assert_eq!(head.expect(OK).header(name), value);
            let wrong = framed.replace("hello", "jello");
            put(&wrong).send().await.expect_error(400, "BadDigest");
            put("5\r\nhello\r\n0\r\n\r\n").send().await.expect(400);
            assert_eq!(front.get("/tst/k").send().await.expect(OK).text(), "hello");
        }
    });
}

#[test]
fn chk_08_the_named_algorithm_must_be_there() {
    with_front(|front| async move {
        let put = |algorithm: &str| {
            let put = front.put("/tst/k").body("hello");
            put.header("x-amz-sdk-checksum-algorithm", algorithm)
        };
        put("CRC32").header("x-amz-checksum-crc32", "NhCmhg==").send().await.expect(OK);
        put("CRC32C").header("x-amz-checksum-crc32", "NhCmhg==").send().await.expect(400);
        put("CRC32").send().await.expect(400);
    });
}

#[test]
fn chk_09_content_md5() {
    with_front(|front| async move {
        let put = |md5: &str| front.put("/tst/k").body("hello").header("content-md5", md5);
        put("XUFAKrxLKna5cZ2REBfFkg==").send().await.expect(OK);
        put("1B2M2Y8AsgTpgAmY7PhCfg==").send().await.expect_error(400, "BadDigest");
        for wrong in ["", "abc", "AAAAAAAAAAA="] {
            put(wrong).send().await.expect_error(400, "InvalidDigest");
        }
        assert_eq!(front.get("/tst/k").send().await.expect(OK).text(), "hello");
    });
}

#[test]
fn a_signed_payload_must_be_what_was_signed() {
    with_front(|front| async move {
        let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        front.put("/tst/k").body("hello").sha256(hello).send().await.expect(OK);
        let wrong = front.put("/tst/k").body("jello").sha256(hello).send().await;
        wrong.expect_error(400, "XAmzContentSHA256Mismatch");
    });
}

#[test]
fn http_10_a_short_body_is_no_object() {
    with_front(|front| async move {
        let short = front.put("/tst/k").raw_body(Body::from("hell")).header("content-length", 5);
        short.send().await.expect_error(400, "IncompleteBody");
        let broken = stream::iter([Ok(Bytes::from("hell")), Err(std::io::Error::other("gone"))]);
        let cut = front.put("/tst/k").raw_body(Body::from_stream(broken));
        cut.header("content-length", 5).send().await.expect_error(400, "IncompleteBody");
        front.put("/tst/k").chunked("5\r\nhello\r\n0\r\n\r\n", 6).send().await.expect(400);
        front.get("/tst/k").send().await.expect(404);
    });
}

#[test]
fn http_11_a_silent_body_times_out_and_closes() {
    with_front(|front| async move {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from("h"))]);
        let silent = futures_util::StreamExt::chain(first, stream::pending());
        let put = front.put("/tst/k").raw_body(Body::from_stream(silent));
        let answer = put.header("content-length", 5).send().await;
        let answer = answer.expect_error(400, "RequestTimeout");
        assert_eq!(answer.header("connection"), "close");
    });
}

#[test]
fn http_09_a_body_without_length_is_stored_whole() {
    with_front(|front| async move {
        let pieces = ["hel", "lo"].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        let put = front.put("/tst/k").raw_body(Body::from_stream(stream::iter(pieces)));
        put.header("transfer-encoding", "chunked").send().await.expect(OK);
        assert_eq!(front.get("/tst/k").send().await.expect(OK).text(), "hello");
        let none = front.put("/tst/k").raw_body(Body::empty()).send().await;
        none.expect_error(411, "MissingContentLength");
    });
}

#[test]
fn an_upload_beyond_the_limit_is_refused_before_its_body() {
    with_front(|front| async move {
        let never = stream::pending::<Result<Bytes, std::io::Error>>();
        let put = front.put("/tst/k").raw_body(Body::from_stream(never));
        let answer = put.header("content-length", (5_u64 << 30) + 1).send().await;
        let answer = answer.expect_error(400, "EntityTooLarge");
        assert_eq!(answer.header("connection"), "close");
    });
}
