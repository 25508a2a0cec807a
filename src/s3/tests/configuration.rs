//! Configuration documents of buckets: stored, shown, removed, and what they do.

use super::harness::{Call, Front, OK};
use super::with_front;
use http::Method;

const RULES: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>https://page</AllowedOrigin>\
    <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>\
    <AllowedHeader>*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>\
    <MaxAgeSeconds>3000</MaxAgeSeconds></CORSRule></CORSConfiguration>";

/// A PUT with the digest that these operations demand.
pub fn checked<'f>(front: &'f Front, target: &str, document: &str) -> Call<'f> {
    use base64::Engine as _;
    let sha256 = crate::digest::sha256(document.as_bytes());
    let sha256 = base64::engine::general_purpose::STANDARD.encode(sha256);
    front.put(target).body(document.to_owned()).header("x-amz-checksum-sha256", sha256)
}

#[test]
fn documents_come_and_go() {
    with_front(|front| async move {
        let tags = "<Tagging><TagSet><Tag><Key>b</Key><Value>1</Value></Tag></TagSet></Tagging>";
        let cases = [
            ("/tst?cors", RULES, OK, "NoSuchCORSConfiguration", "<ExposeHeader>ETag</"),
            ("/tst?tagging", tags, 204, "NoSuchTagSet", "<Key>b</Key><Value>1</Value>"),
        ];
        for (target, document, status, missing, shown) in cases {
            front.get(target).send().await.expect_error(404, missing);
            front.put(target).body(document).send().await.expect_error(400, "InvalidRequest");
            checked(&front, target, "<Other/>").send().await.expect_error(400, "MalformedXML");
            checked(&front, target, document).send().await.expect(status);
            let text = front.get(target).send().await.expect(OK).text();
            assert!(text.contains(shown), "{text}");
            front.get(target).user("bob").send().await.expect_error(403, "AccessDenied");
            front.delete(target).user("bob").send().await.expect_error(403, "AccessDenied");
            front.delete(target).send().await.expect(204);
            front.delete(target).send().await.expect(204);
            front.get(target).send().await.expect_error(404, missing);
        }
    });
}

#[test]
fn cors_01_pages_of_allowed_origins_see_answers() {
    with_front(|front| async move {
        let ask = |origin, method| {
            front
                .call(Method::OPTIONS, "/tst/k")
                .anonymous()
                .header("origin", origin)
                .header("access-control-request-method", method)
                .header("access-control-request-headers", "content-type,X-Amz-Date")
        };
        ask("https://page", "PUT").send().await.expect_error(403, "AccessForbidden");
        checked(&front, "/tst?cors", RULES).send().await.expect(OK);
        let allowed = ask("https://page", "PUT").send().await.expect(OK);
        for (name, value) in [
            ("access-control-allow-origin", "https://page"),
            ("access-control-allow-methods", "GET, PUT"),
            ("access-control-allow-headers", "content-type, x-amz-date"),
            ("access-control-expose-headers", "ETag"),
            ("access-control-max-age", "3000"),
            ("access-control-allow-credentials", "true"),
        ] {
            assert_eq!(allowed.header(name), value, "{name}");
        }
        assert!(allowed.header("vary").starts_with("Origin"));
        ask("https://other", "PUT").send().await.expect_error(403, "AccessForbidden");
        let refused = ask("https://page", "DELETE").send().await;
        let refused = refused.expect_error(403, "AccessForbidden");
        assert_eq!(refused.header("access-control-allow-origin"), "");
        ask("https://page", "PATCH").send().await.expect_error(400, "BadRequest");

        let put = front.put("/tst/k").body("x").header("origin", "https://page");
        let put = put.send().await.expect(OK);
        assert_eq!(put.header("access-control-expose-headers"), "ETag");
        let plain = front.get("/tst/k").send().await.expect(OK);
        assert_eq!(plain.header("access-control-allow-origin"), "");
        assert!(plain.header("vary").starts_with("Origin"));
        let other = front.get("/tst/k").header("origin", "https://other").send().await.expect(OK);
        assert_eq!(other.header("access-control-allow-origin"), "");
        // A page may read why it was refused, also when nobody knows who asks.
        for call in [front.get("/tst/gone"), front.get("/tst/k").anonymous()] {
            let refused = call.header("origin", "https://page").send().await;
            assert!([403, 404].contains(&refused.status));
            assert_eq!(refused.header("access-control-allow-origin"), "https://page");
        }
    });
}

#[test]
fn settings_that_ask_for_nothing_are_taken_and_others_refused_by_name() {
    with_front(|front| async move {
        let accelerate =
            "<AccelerateConfiguration><Status>Enabled</Status></AccelerateConfiguration>";
        let empty = front.get("/tst?accelerate").send().await.expect(OK);
        assert_eq!(empty.element("Status"), "");
        checked(&front, "/tst?accelerate", accelerate).send().await.expect(OK);
        let wrong = accelerate.replace("Enabled", "On");
        checked(&front, "/tst?accelerate", &wrong).send().await.expect_error(400, "MalformedXML");
        let shown = front.get("/tst?accelerate").send().await.expect(OK);
        assert_eq!(shown.element("Status"), "Enabled");
        let payer = |who| {
            format!(
                "<RequestPaymentConfiguration><Payer>{who}</Payer></RequestPaymentConfiguration>"
            )
        };
        for (target, document, status, code) in [
            ("/tst?requestPayment", payer("BucketOwner"), OK, ""),
            ("/tst?requestPayment", payer("Requester"), 501, "NotImplemented"),
            ("/tst?requestPayment", payer("Me"), 400, "MalformedXML"),
            ("/tst?logging", "<BucketLoggingStatus/>".to_owned(), OK, ""),
            (
                "/tst?logging",
                "<BucketLoggingStatus><LoggingEnabled/></BucketLoggingStatus>".to_owned(),
                501,
                "NotImplemented",
            ),
            ("/tst?notification", "<NotificationConfiguration/>".to_owned(), OK, ""),
            (
                "/tst?notification",
                "<NotificationConfiguration><TopicConfiguration/></NotificationConfiguration>"
                    .to_owned(),
                501,
                "NotImplemented",
            ),
        ] {
            let answer = checked(&front, target, &document).send().await.expect(status);
            assert_eq!(answer.element("Code"), code, "{target} {document}");
        }
    });
}
