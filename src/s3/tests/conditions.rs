//! Conditions on reads and writes.

use super::harness::OK;
use super::with_front;

const ETAG: &str = "\"5d41402abc4b2a76b9719d911017c592\"";

#[test]
fn cond_01_conditional_puts() {
    with_front(|front| async move {
        front.put("/tst/k").body("hello").send().await.expect(OK);
        let refused = [("if-none-match", "*"), ("if-match", "\"stale\"")];
        for (name, value) in refused {
            let put = front.put("/tst/k").body("other").header(name, value).send().await;
            put.expect_error(412, "PreconditionFailed");
        }
        let copy = front.put("/tst/k").header("x-amz-copy-source", "tst/k");
        let copy = copy.header("x-amz-metadata-directive", "REPLACE").header("if-none-match", "*");
        copy.send().await.expect_error(412, "PreconditionFailed");
        assert_eq!(front.get("/tst/k").send().await.expect(OK).text(), "hello");
        front.put("/tst/new").header("if-none-match", "*").send().await.expect(OK);
        front.put("/tst/k").body("next").header("if-match", ETAG).send().await.expect(OK);
        let absent = front.put("/tst/absent").header("if-match", ETAG).send().await;
        absent.expect_error(404, "NoSuchKey");
    });
}

#[test]
fn cond_05_reads() {
    with_front(|front| async move {
        front
            .put("/tst/k")
            .body("hello")
            .header("cache-control", "no-cache")
            .send()
            .await
            .expect(OK);
        let check = async |name: &str, value: &str, status| {
            for call in [front.get("/tst/k"), front.head("/tst/k")] {
                let answer = call.header(name, value).send().await.expect(status);
                if status == 304 {
                    assert_eq!(answer.header("etag"), ETAG);
                    assert_eq!(answer.header("cache-control"), "no-cache");
                    assert!(answer.body.is_empty() && !answer.header("last-modified").is_empty());
                }
            }
        };
        check("if-none-match", "\"x\", \"5d41402abc4b2a76b9719d911017c592\"", 304).await;
        check("if-none-match", "*", 304).await;
        check("if-none-match", "\"x\"", 200).await;
        check("if-match", "*", 200).await;
        check("if-match", "\"x\"", 412).await;
    });
}

#[test]
fn conditional_deletes() {
    with_front(|front| async move {
        front.put("/tst/k").body("hello").send().await.expect(OK);
        let stale = front.delete("/tst/k").header("if-match", "\"stale\"").send().await;
        stale.expect_error(412, "PreconditionFailed");
        let size = front.delete("/tst/k").header("x-amz-if-match-size", 4).send().await;
        size.expect_error(412, "PreconditionFailed");
        front.delete("/tst/k").header("if-match", ETAG).send().await.expect(204);
        front.delete("/tst/k").header("if-match", ETAG).send().await.expect(404);
        front.delete("/tst/k").send().await.expect(204);
    });
}
