//! Multipart uploads.

use super::harness::{Answer, Front, OK};
use super::with_front;

const MIN: usize = 5 << 20;

async fn create(front: &Front, key: &str) -> String {
    front.post(&format!("/tst/{key}?uploads")).send().await.expect(OK).element("UploadId")
}

async fn part(front: &Front, id: &str, number: u32, bytes: Vec<u8>) -> String {
    let target = format!("/tst/k?partNumber={number}&uploadId={id}");
    front.put(&target).body(bytes).send().await.expect(OK).header("etag").to_owned()
}

fn document(parts: &[(u32, &str)]) -> String {
    let part = |(number, etag): &(u32, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

async fn complete(front: &Front, id: &str, parts: &[(u32, &str)]) -> Answer {
    front.post(&format!("/tst/k?uploadId={id}")).body(document(parts)).send().await
}

#[test]
fn mpu_16_etags_are_what_clients_compute() {
    with_front(|front| async move {
        let id = create(&front, "k").await;
        let second = part(&front, &id, 2, b"b".to_vec()).await;
        let first = part(&front, &id, 1, vec![b'a'; MIN]).await;
        assert_eq!(first, "\"79b281060d337b9b2b84ccf390adcf74\"");
        assert_eq!(second, "\"92eb5ffee6ae2fec3ad71c777531578f\"");
        let parts = [(1, first.as_str()), (2, second.as_str())];
        let done = complete(&front, &id, &parts).await.expect(OK);
        assert_eq!(done.element("ETag"), "&quot;e5a8c5272b26fc10581a21089559b006-2&quot;");
        // A client that lost the answer asks again.
        let again = complete(&front, &id, &parts).await.expect(OK);
        assert_eq!(again.element("ETag"), done.element("ETag"));
        let get = front.get("/tst/k").send().await.expect(OK);
        assert_eq!((get.body.len(), get.body[MIN]), (MIN + 1, b'b'));
        let across = format!("bytes={}-{}", MIN - 1, MIN);
        let range = front.get("/tst/k").header("range", across).send().await.expect(206);
        assert_eq!(range.text(), "ab");
        let last = front.get("/tst/k?partNumber=2").send().await.expect(206);
        assert_eq!((last.text().as_str(), last.header("x-amz-mp-parts-count")), ("b", "2"));
        assert_eq!(last.header("content-range"), format!("bytes {MIN}-{MIN}/{}", MIN + 1));
    });
}

#[test]
fn mpu_03_part_lists_are_checked() {
    with_front(|front| async move {
        let id = create(&front, "k").await;
        let one = part(&front, &id, 1, vec![1; MIN]).await;
        let two = part(&front, &id, 2, vec![2; MIN]).await;
        let seven = part(&front, &id, 7, vec![7; 1]).await;
        let (one, two, seven) = (one.as_str(), two.trim_matches('"'), seven.as_str());
        let cases: [(&[(u32, &str)], &str); 4] = [
            (&[(2, two), (1, one)], "InvalidPartOrder"),
            (&[(1, one), (1, one)], "InvalidPartOrder"),
            (&[(1, one), (2, two), (3, two)], "InvalidPart"),
            (&[(1, one), (2, one)], "InvalidPart"),
        ];
        for (parts, code) in cases {
            complete(&front, &id, parts).await.expect_error(400, code);
        }
        complete(&front, &id, &[(1, one), (7, seven)]).await.expect(OK);
    });
}

#[test]
fn mpu_04_only_the_last_part_may_be_small() {
    with_front(|front| async move {
        let id = create(&front, "k").await;
        let small = part(&front, &id, 1, vec![1; MIN - 1]).await;
        let last = part(&front, &id, 2, vec![2]).await;
        let refused = complete(&front, &id, &[(1, &small), (2, &last)]).await;
        refused.expect_error(400, "EntityTooSmall");
        let single = complete(&front, &id, &[(2, &last)]).await.expect(OK);
        assert!(single.element("ETag").ends_with("-1&quot;"));
    });
}

#[test]
fn mpu_05_empty_part_lists_are_malformed() {
    with_front(|front| async move {
        let id = create(&front, "k").await;
        for body in ["<CompleteMultipartUpload/>", ""] {
            let target = format!("/tst/k?uploadId={id}");
            let answer = front.post(&target).body(body).send().await;
            answer.expect_error(400, "MalformedXML");
        }
        let framed = "0\r\nx-amz-checksum-crc32c:AAAAAA==\r\n\r\n";
        let put = front.put(&format!("/tst/k?partNumber=1&uploadId={id}")).chunked(framed, 0);
        let put = put.header("x-amz-trailer", "x-amz-checksum-crc32c").send().await.expect(OK);
        let etag = put.header("etag").to_owned();
        let done = complete(&front, &id, &[(1, &etag)]).await.expect(OK);
        assert_eq!(done.element("ETag"), "&quot;59adb24ef3cdbe0297f05b395827453f-1&quot;");
        let head = front.head("/tst/k").send().await.expect(OK);
        assert_eq!(head.header("content-length"), "0");
    });
}

#[test]
fn mpu_08_an_aborted_upload_is_gone() {
    with_front(|front| async move {
        let id = create(&front, "k").await;
        let etag = part(&front, &id, 1, vec![1]).await;
        front.delete(&format!("/tst/k?uploadId={id}")).send().await.expect(204);
        let late = front.put(&format!("/tst/k?partNumber=2&uploadId={id}")).body("x").send().await;
        late.expect_error(404, "NoSuchUpload");
        complete(&front, &id, &[(1, &etag)]).await.expect_error(404, "NoSuchUpload");
        let list = front.get("/tst?uploads").send().await.expect(OK);
        assert!(list.elements("Upload").is_empty());
        let again = front.delete(&format!("/tst/k?uploadId={id}")).send().await;
        again.expect_error(404, "NoSuchUpload");
    });
}

#[test]
fn mpu_11_and_12_parts_are_listed_in_pages() {
    with_front(|front| async move {
        let id = create(&front, "k").await;
        let empty = front.get(&format!("/tst/k?uploadId={id}")).send().await.expect(OK);
        assert_eq!(empty.element("PartNumberMarker"), "0");
        assert_eq!(empty.element("MaxParts"), "1000");
        assert_eq!(empty.element("IsTruncated"), "false");
        for number in 1..=4 {
            part(&front, &id, number, vec![1]).await;
        }
        let page = front.get(&format!("/tst/k?max-parts=2&uploadId={id}")).send().await.expect(OK);
        assert_eq!(page.elements("PartNumber"), ["1", "2"]);
        assert_eq!(page.element("NextPartNumberMarker"), "2");
        assert_eq!(page.element("IsTruncated"), "true");
        let rest = front.get(&format!("/tst/k?part-number-marker=2&uploadId={id}")).send().await;
        assert_eq!(rest.expect(OK).elements("PartNumber"), ["3", "4"]);
    });
}

#[test]
fn mpu_14_and_19_parts_are_copied() {
    with_front(|front| async move {
        front.put("/tst/src").body("0123456789").send().await.expect(OK);
        let id = create(&front, "k").await;
        let copy = |range: &str| {
            let target = format!("/tst/k?partNumber=1&uploadId={id}");
            let put = front.put(&target).header("x-amz-copy-source", "tst/src");
            if range.is_empty() { put } else { put.header("x-amz-copy-source-range", range) }
        };
        let wrong = [
            "0-2",
            "bytes=0",
            "bytes=abc-def",
            "bytes=0-",
            "bytes=-3",
            "bytes=0-2,3-5",
            "bytes=5-2",
        ];
        for range in wrong {
            let answer = copy(range).send().await.expect_error(400, "InvalidArgument");
            assert_eq!(answer.element("ArgumentName"), "x-amz-copy-source-range");
        }
        copy("bytes=5-10").send().await.expect_error(416, "InvalidRange");
        let whole = copy("").send().await.expect(OK);
        assert!(whole.text().contains("<CopyPartResult"));
        assert!(!whole.element("LastModified").is_empty());
        let answer = copy("bytes=2-4").send().await.expect(OK);
        complete(&front, &id, &[(1, &answer.element("ETag"))]).await.expect(OK);
        assert_eq!(front.get("/tst/k").send().await.expect(OK).text(), "234");
    });
}

#[test]
fn mpu_18_part_numbers_of_plain_objects() {
    with_front(|front| async move {
        front.put("/tst/k").body("0123456789").send().await.expect(OK);
        let whole = front.get("/tst/k?partNumber=1").send().await.expect(206);
        assert_eq!(whole.header("content-range"), "bytes 0-9/10");
        front.get("/tst/k?partNumber=2").send().await.expect_error(400, "InvalidPart");
        let both = front.get("/tst/k?partNumber=1").header("range", "bytes=1-2").send().await;
        both.expect_error(400, "InvalidRequest");
    });
}

#[test]
fn part_checksums_fold_into_the_objects() {
    with_front(|front| async move {
        for (algorithm, kind, named) in [
            ("CRC64NVME", "FULL_OBJECT", true),
            ("CRC32", "COMPOSITE", true),
            ("CRC64NVME", "FULL_OBJECT", false),
        ] {
            let create = front.post("/tst/k?uploads");
            let created = match named {
                true => {
                    create.header("x-amz-checksum-algorithm", algorithm).send().await.expect(OK)
                }
                false => create.send().await.expect(OK),
            };
            assert_eq!(created.header("x-amz-checksum-type"), if named { kind } else { "" });
            let id = created.element("UploadId");
            let one = part(&front, &id, 1, vec![1; MIN]).await;
            let two = part(&front, &id, 2, vec![2; 9]).await;
            let done = complete(&front, &id, &[(1, &one), (2, &two)]).await.expect(OK);
            assert_eq!(done.element("ChecksumType"), kind);
            let value = done.element(&format!("Checksum{algorithm}"));
            assert_eq!(value.ends_with("-2"), kind == "COMPOSITE", "{value}");
            let head = front.head("/tst/k").header("x-amz-checksum-mode", "ENABLED").send().await;
            let name = format!("x-amz-checksum-{}", algorithm.to_lowercase());
            assert_eq!(head.expect(OK).header(&name), value);
            let first = front.get("/tst/k?partNumber=2").header("x-amz-checksum-mode", "ENABLED");
            let first = first.send().await.expect(206);
            assert_eq!(first.header("x-amz-checksum-type"), kind);
            assert!(!first.header(&name).is_empty() && !first.header(&name).contains('-'));
            let parts = front.get("/tst/k?attributes");
            let parts = parts.header("x-amz-object-attributes", "ObjectParts,ObjectSize,Checksum");
            let parts = parts.send().await.expect(OK);
            assert_eq!(parts.element("PartsCount"), "2");
            assert_eq!(parts.element("ObjectSize"), (MIN + 9).to_string());
        }
    });
}

#[test]
fn a_completion_names_the_checksum_of_the_object() {
    with_front(|front| async move {
        let create = front.post("/tst/k?uploads").header("x-amz-checksum-algorithm", "SHA256");
        let id = create.send().await.expect(OK).element("UploadId");
        let etag = part(&front, &id, 1, b"hello".to_vec()).await;
        let claimed = |value: &str| {
            let list = format!(
                "<CompleteMultipartUpload><Part><ETag>{etag}</ETag><PartNumber>1</PartNumber>\
                 </Part></CompleteMultipartUpload>"
            );
            let post = front.post(&format!("/tst/k?uploadId={id}")).body(list);
            post.header("x-amz-checksum-sha256", value)
        };
        // The hash of the part's hash, computed with Python's hashlib.
        let right = "lZXJ35AHUUjrBoYDZd8zWEt1v/eCpRDGzUiDpBmDPVA=-1";
        claimed("bad").send().await.expect_error(400, "BadDigest");
        let wrong = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=-1";
        claimed(wrong).send().await.expect_error(400, "BadDigest");
        for _ in 0..2 {
            let done = claimed(right).send().await.expect(OK);
            assert_eq!(done.element("ChecksumSHA256"), right);
            assert_eq!(done.element("ChecksumType"), "COMPOSITE");
        }
    });
}

#[test]
fn uploads_are_listed() {
    with_front(|front| async move {
        for key in ["a/1", "a/2", "b"] {
            create(&front, key).await;
        }
        let page =
            front.get("/tst?delimiter=%2F&encoding-type=url&uploads").send().await.expect(OK);
        assert_eq!(page.elements("Key"), ["b"]);
        assert_eq!(page.elements("CommonPrefixes"), ["<Prefix>a/</Prefix>"]);
        assert_eq!(page.element("EncodingType"), "url");
        let first = front.get("/tst?max-uploads=1&uploads").send().await.expect(OK);
        assert_eq!(
            (first.element("NextKeyMarker"), first.element("IsTruncated")),
            ("a/1".into(), "true".into())
        );
        let target = format!(
            "/tst?key-marker=a%2F1&upload-id-marker={}&uploads",
            first.element("NextUploadIdMarker")
        );
        let rest = front.get(&target).send().await.expect(OK);
        assert_eq!(rest.elements("Key"), ["a/2", "b"]);
    });
}
