//! Access lists: who gets in beside the owner.

use super::harness::OK;
use super::with_front;

#[test]
fn a_request_without_a_signature_gets_what_lists_allow() {
    with_front(|front| async move {
        let open = |target: &str| front.put(target).header("x-amz-acl", "public-read");
        open("/open").send().await.expect(OK);
        open("/open/k").body("hello").send().await.expect(OK);
        front.put("/open/mine").body("x").send().await.expect(OK);
        let get = |target: &str| front.get(target).anonymous();
        assert_eq!(get("/open/k").send().await.expect(OK).text(), "hello");
        assert_eq!(get("/open").send().await.expect(OK).elements("Key"), ["k", "mine"]);
        get("/open/gone").send().await.expect_error(404, "NoSuchKey");
        let denied = [
            get("/"),
            get("/open/mine"),
            get("/open?acl"),
            get("/open/k?acl"),
            get("/tst"),
            get("/tst/gone"),
            front.put("/open/n").anonymous().body("x"),
            front.put("/new-one").anonymous(),
            front.delete("/open/k").anonymous(),
            front.delete("/open").anonymous(),
        ];
        for call in denied {
            call.send().await.expect_error(403, "AccessDenied");
        }
        let shaped = get("/open/k?response-content-type=text%2Fhtml").send().await;
        shaped.expect_error(400, "InvalidRequest");
        let other = get("/open/k").header("x-amz-expected-bucket-owner", "bob-canonical");
        other.send().await.expect_error(403, "AccessDenied");
    });
}

#[test]
fn lists_are_set_shown_and_taken_back() {
    with_front(|front| async move {
        front.put("/tst/k").body("hello").send().await.expect(OK);
        let set = |target: &str, acl: &str| front.put(target).header("x-amz-acl", acl);
        set("/tst?acl", "public-read-write").send().await.expect(OK);
        set("/tst/k?acl", "authenticated-read").send().await.expect(OK);
        front.get("/tst/k").anonymous().send().await.expect_error(403, "AccessDenied");
        front.get("/tst/k").user("bob").send().await.expect(OK);
        let shown = front.get("/tst?acl").send().await.expect(OK);
        assert_eq!(shown.elements("Permission"), ["FULL_CONTROL", "READ", "WRITE"]);
        let document = front.get("/tst/k?acl").send().await.expect(OK).text();
        assert!(document.contains("global/AuthenticatedUsers</URI>"), "{document}");
        // What others write is theirs to read, and the bucket owner's.
        front.put("/tst/b").user("bob").body("x").send().await.expect(OK);
        front.get("/tst/b").user("bob").send().await.expect(OK);
        front.get("/tst/b").send().await.expect(OK);
        front.put("/tst?acl").user("bob").header("x-amz-acl", "private").send().await.expect(403);
        front.post("/tst/u?uploads").user("bob").send().await.expect(OK);
        let uploads = front.get("/tst?uploads").send().await.expect(OK);
        assert_eq!(
            uploads.element("Initiator"),
            "<ID>bob-canonical</ID><DisplayName>BOB</DisplayName>"
        );
        // The document that was shown can be sent back.
        front.put("/tst/k?acl").body(document).send().await.expect(OK);
        front.get("/tst/k").user("bob").send().await.expect(OK);
        front.put("/tst/c").header("x-amz-copy-source", "tst/k").send().await.expect(OK);
        front.get("/tst/c").user("bob").send().await.expect_error(403, "AccessDenied");
        set("/tst/k?acl", "private").send().await.expect(OK);
        front.get("/tst/k").user("bob").send().await.expect_error(403, "AccessDenied");
        front.put("/tst").send().await.expect(OK);
        front.get("/tst").user("bob").send().await.expect_error(403, "AccessDenied");
    });
}

#[test]
fn who_may_write_may_not_remove_versions() {
    with_front(|front| async move {
        front.put("/tst?acl").header("x-amz-acl", "public-read-write").send().await.expect(OK);
        let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        front.put("/tst?versioning").body(enabled).send().await.expect(OK);
        let put = front.put("/tst/k").body("kept").send().await.expect(OK);
        let id = put.header("x-amz-version-id").to_owned();
        let target = format!("/tst/k?versionId={id}");
        front.delete(&target).user("bob").send().await.expect_error(403, "AccessDenied");
        let document = format!(
            "<Delete><Object><Key>k</Key><VersionId>{id}</VersionId></Object>\
             <Object><Key>k</Key></Object></Delete>"
        );
        let md5 = super::requests::md5_of(&document);
        let batch = front.post("/tst?delete").user("bob").header("content-md5", &md5);
        let answer = batch.body(document).send().await.expect(OK);
        assert_eq!(answer.elements("Code"), ["AccessDenied"]);
        assert_eq!(answer.elements("DeleteMarker"), ["true"]);
        assert_eq!(front.get(&target).send().await.expect(OK).text(), "kept");
    });
}

#[test]
fn what_no_canned_form_says_is_refused() {
    with_front(|front| async move {
        front.put("/tst?acl").send().await.expect_error(400, "MissingSecurityHeader");
        let odd = front.put("/tst?acl").header("x-amz-acl", "open").send().await;
        odd.expect_error(400, "InvalidArgument");
        let grant = front.put("/tst/k").header("x-amz-grant-read", "id=bob").send().await;
        grant.expect_error(501, "NotImplemented");
        let gone = front.put("/tst/gone?acl").header("x-amz-acl", "private").send().await;
        gone.expect_error(404, "NoSuchKey");
    });
}
