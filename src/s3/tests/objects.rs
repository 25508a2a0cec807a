//! Put, get, head, delete, copy; ranges; metadata.

use super::harness::{Front, OK};
use super::with_front;

/// Bytes that differ at every offset of a block.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

#[test]
fn objects_of_all_sizes_come_back() {
    with_front(|front| async move {
        for len in [0, 1, 4095, 4097, 300 << 10, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20] {
            let bytes = pattern(len);
            let put = front.put("/tst/k").body(bytes.clone()).send().await.expect(OK);
            let get = front.get("/tst/k").send().await.expect(OK);
            assert!(get.body == bytes, "{len} bytes");
            assert_eq!(get.header("content-length"), len.to_string());
            assert_eq!(get.header("etag"), put.header("etag"));
            let head = front.head("/tst/k").send().await.expect(OK);
            assert_eq!(head.header("content-length"), len.to_string());
            assert!(head.body.is_empty());
            for name in ["etag", "last-modified", "content-type", "accept-ranges"] {
                assert_eq!(head.header(name), get.header(name), "{name}");
                assert!(!head.header(name).is_empty(), "{name}");
            }
        }
    });
}

#[test]
fn ranges_cross_from_ram_to_disk() {
    with_front(|front| async move {
        let bytes = pattern((3 << 20) + 7);
        front.put("/tst/k").body(bytes.clone()).send().await.expect(OK);
        let size = bytes.len();
        let seam = 1 << 20;
        for (first, last) in [(0, 0), (seam - 1, seam), (seam, seam), (5, size - 1), (0, size - 1)]
        {
            let range = format!("bytes={first}-{last}");
            let get = front.get("/tst/k").header("range", range).send().await.expect(206);
            assert!(get.body == bytes[first..=last], "{first}-{last}");
            assert_eq!(get.header("content-range"), format!("bytes {first}-{last}/{size}"));
        }
        let tail = front.get("/tst/k").header("range", "bytes=-9").send().await.expect(206);
        assert!(tail.body == bytes[size - 9..]);
        let beyond = format!("bytes={size}-");
        let refused = front.get("/tst/k").header("range", beyond).send().await;
        let refused = refused.expect_error(416, "InvalidRange");
        assert_eq!(refused.header("content-range"), format!("bytes */{size}"));
        let several = front.get("/tst/k").header("range", "bytes=0-1,4-5").send().await;
        assert_eq!(several.expect(OK).body.len(), size);
    });
}

#[test]
fn http_01_an_empty_object_has_no_ranges() {
    with_front(|front| async move {
        front.put("/tst/k").send().await.expect(OK);
        for range in ["bytes=0-", "bytes=0-0", "bytes=-5", "bytes=-0"] {
            let get = front.get("/tst/k").header("range", range).send().await.expect(416);
            assert_eq!(get.header("content-range"), "bytes */0", "{range}");
        }
    });
}

#[test]
fn metadata_comes_back_and_overrides_apply() {
    with_front(|front| async move {
        let put = front.put("/tst/k").body("x").header("content-type", "text/plain");
        let put = put.header("cache-control", "max-age=5").header("x-amz-meta-a", "1");
        let put = put.header("content-encoding", "gzip,aws-chunked");
        let put = put.header("x-amz-storage-class", "STANDARD_IA").header("x-amz-tagging", "a=b");
        put.send().await.expect(OK);
        let head = front.head("/tst/k").send().await.expect(OK);
        for (name, value) in [
            ("content-type", "text/plain"),
            ("cache-control", "max-age=5"),
            ("x-amz-meta-a", "1"),
            ("content-encoding", "gzip"),
            ("x-amz-storage-class", "STANDARD_IA"),
            ("x-amz-tagging-count", "1"),
        ] {
            assert_eq!(head.header(name), value, "{name}");
        }
        let target = "/tst/k?response-content-disposition=attachment%3Bfilename%3D%22t%22";
        let get = front.get(target).send().await.expect(OK);
        assert_eq!(get.header("content-disposition"), "attachment;filename=\"t\"");
        let tags = front.get("/tst/k?tagging").send().await.expect(OK);
        assert_eq!((tags.element("Key"), tags.element("Value")), ("a".into(), "b".into()));
    });
}

#[test]
fn key_04_keys_are_flat() {
    with_front(|front| async move {
        for key in ["p/foo/bar", "p/foo", "q/foo", "q/foo/bar"] {
            front.put(&format!("/tst/{key}")).body(key).send().await.expect(OK);
        }
        front.delete("/tst/q/foo").send().await.expect(204);
        for key in ["p/foo/bar", "p/foo", "q/foo/bar"] {
            assert_eq!(front.get(&format!("/tst/{key}")).send().await.expect(OK).text(), key);
        }
        front.get("/tst/q/foo").send().await.expect_error(404, "NoSuchKey");
        front.delete("/tst/q/foo").send().await.expect(204);
    });
}

#[test]
fn key_06_a_key_has_at_most_1024_bytes() {
    with_front(|front| async move {
        let fits = "x".repeat(1024);
        front.put(&format!("/tst/{fits}")).send().await.expect(OK);
        front.put(&format!("/tst/{fits}x")).send().await.expect_error(400, "KeyTooLongError");
    });
}

async fn put(front: &Front, key: &str, body: &'static str) {
    front.put(&format!("/tst/{key}")).body(body).send().await.expect(OK);
}

#[test]
fn copy_01_onto_itself() {
    with_front(|front| async move {
        let first = front.put("/tst/k").body("x").header("x-amz-meta-a", "1").send().await;
        let etag = first.expect(OK).header("etag").to_owned();
        let copy = || front.put("/tst/k").header("x-amz-copy-source", "tst/k");
        copy().send().await.expect_error(400, "InvalidRequest");
        let same = copy().header("x-amz-metadata-directive", "COPY");
        same.send().await.expect_error(400, "InvalidRequest");
        let replace = copy().header("x-amz-metadata-directive", "REPLACE");
        let answer = replace.header("x-amz-meta-b", "2").send().await.expect(OK);
        assert_eq!(answer.element("ETag"), etag.replace('"', "&quot;"));
        let head = front.head("/tst/k").send().await.expect(OK);
        assert_eq!((head.header("x-amz-meta-a"), head.header("x-amz-meta-b")), ("", "2"));
        copy().header("x-amz-metadata-directive", "REPLACE").send().await.expect(OK);
        copy().header("x-amz-storage-class", "STANDARD_IA").send().await.expect(OK);
        assert_eq!(front.get("/tst/k").send().await.expect(OK).text(), "x");
    });
}

#[test]
fn copy_03_sources_are_decoded_once() {
    with_front(|front| async move {
        put(&front, "etc/c%2B%2B", "plus").await;
        put(&front, "a%252Fb", "percent").await;
        for source in ["tst/etc/c%2B%2B", "/tst/etc/c%2B%2B", "%2Ftst%2Fetc%2Fc%2B%2B"] {
            let copy = front.put("/tst/copy").header("x-amz-copy-source", source);
            copy.send().await.expect(OK);
            assert_eq!(front.get("/tst/copy").send().await.text(), "plus");
        }
        let copy = front.put("/tst/copy").header("x-amz-copy-source", "tst/a%252Fb");
        copy.send().await.expect(OK);
        assert_eq!(front.get("/tst/copy").send().await.text(), "percent");
        let cases = [
            ("tst/etc/c++", 404, "NoSuchKey"),
            ("tst", 400, "InvalidArgument"),
            ("none/k", 404, "NoSuchBucket"),
        ];
        for (source, status, code) in cases {
            let copy = front.put("/tst/copy").header("x-amz-copy-source", source);
            copy.send().await.expect_error(status, code);
        }
        let named =
            front.put("/tst/copy").header("x-amz-copy-source", "tst/a%252Fb?versionId=null");
        named.send().await.expect(OK);
    });
}

#[test]
fn a_copy_takes_metadata_unless_told_otherwise() {
    with_front(|front| async move {
        let put = front.put("/tst/k").body("x").header("x-amz-meta-a", "1");
        put.header("x-amz-tagging", "t=1").send().await.expect(OK);
        front.put("/tst/c").header("x-amz-copy-source", "tst/k").send().await.expect(OK);
        let head = front.head("/tst/c").send().await.expect(OK);
        assert_eq!((head.header("x-amz-meta-a"), head.header("x-amz-tagging-count")), ("1", "1"));
        let stale = front.put("/tst/d").header("x-amz-copy-source", "tst/k");
        let stale = stale.header("x-amz-copy-source-if-match", "\"stale\"");
        stale.send().await.expect_error(412, "PreconditionFailed");
        front.get("/tst/d").send().await.expect(404);
    });
}
