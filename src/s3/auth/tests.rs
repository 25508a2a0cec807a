//! Known answers of AWS's documentation, and the cases SIG-01 to SIG-09.

use std::time::{Duration, UNIX_EPOCH};

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use http::{HeaderName, HeaderValue};

use super::*;
use crate::clock::ManualClock;
use crate::digest::sha256;
use crate::model::{AccessKey, OwnerId, User};
use crate::s3::time::parse_amz_date;

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const DATE: &str = "20130524T000000Z";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// One request under test; the defaults are those of AWS's examples.
struct Case {
    method: &'static str,
    host: &'static str,
    path: String,
    query: String,
    headers: Vec<(&'static str, String)>,
    /// Seconds from the request's date to the server's clock.
    late_secs: i64,
    date: &'static str,
    settings: AuthSettings,
    virtual_bucket: Option<&'static str>,
}

impl Case {
    fn new(method: &'static str, path: &str, query: &str) -> Case {
        Case {
            method,
            host: "examplebucket.s3.amazonaws.com",
            path: path.to_owned(),
            query: query.to_owned(),
            headers: Vec::new(),
            late_secs: 0,
            date: DATE,
            settings: AuthSettings {
                region: "us-east-1".into(),
                accept_any_region: false,
                sigv2: true,
                external_host: None,
            },
            virtual_bucket: None,
        }
    }

    fn header(mut self, name: &'static str, value: &str) -> Case {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Adds the documentation's Authorization header.
    fn signed(self, signed_headers: &str, signature: &str) -> Case {
        let credential = format!("{ACCESS_KEY}/20130524/us-east-1/s3/aws4_request");
        self.header(
            "authorization",
            &format!(
                "AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={signed_headers},\
                 Signature={signature}"
            ),
        )
    }

    /// Signs a header request whose canonical path, query and header lines the test spells out.
    fn sign(self, path: &str, query: &str, lines: &str, payload_hash: &str) -> Case {
        let names: Vec<&str> = lines.lines().filter_map(|line| line.split(':').next()).collect();
        let names = names.join(";");
        let request = format!("{}\n{path}\n{query}\n{lines}\n{names}\n{payload_hash}", self.method);
        let signature = signature_of(&request, self.date);
        self.signed(&names, &signature)
    }

    fn verify(&self) -> Result<Authenticated, S3Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        }
        let now = parse_amz_date(self.date).unwrap() + self.late_secs;
        let clock = Arc::new(ManualClock::new(now * 1000));
        let verifier = Verifier::new(self.settings.clone(), clock);
        let query = Query::parse(&self.query).unwrap();
        let request = AuthRequest {
            method: self.method,
            host: self.host,
            raw_path: &self.path,
            query: &query,
            headers: &headers,
            virtual_bucket: self.virtual_bucket,
        };
        verifier.verify(&request, &lookup)
    }

    #[track_caller]
    fn passes(&self) -> Authenticated {
        let done = self.verify().unwrap();
        assert!(matches!(done.identity, Identity::Key(_)));
        done
    }

    #[track_caller]
    fn fails(&self, code: S3ErrorCode) -> S3Error {
        let error = self.verify().unwrap_err();
        assert_eq!(error.code(), code, "{error:?}");
        error
    }
}

fn lookup(access_key: &str) -> Option<KeyPair> {
    let user = User {
        id: "u".into(),
        canonical_id: OwnerId::new("c"),
        display_name: "u".into(),
        email: String::new(),
        disabled: false,
    };
    let key = AccessKey {
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET.into(),
        user: "u".into(),
        disabled: false,
    };
    (access_key == ACCESS_KEY).then(|| Arc::new((key, user)))
}

fn signature_of(canonical_request: &str, date: &str) -> String {
    let secs = u64::try_from(parse_amz_date(date).unwrap()).unwrap();
    let key =
        generate_signing_key(SECRET, UNIX_EPOCH + Duration::from_secs(secs), "us-east-1", "s3");
    let day = &date[..8];
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{date}\n{day}/us-east-1/s3/aws4_request\n{}",
        hex::encode(sha256(canonical_request.as_bytes()))
    );
    calculate_signature(key, to_sign.as_bytes())
}

/// AWS's "GET Object" example.
fn get_object() -> Case {
    Case::new("GET", "/test.txt", "")
        .header("range", "bytes=0-9")
        .header("x-amz-content-sha256", EMPTY)
        .header("x-amz-date", DATE)
        .signed(
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        )
}

#[test]
fn documented_get_object() {
    let done = get_object().passes();
    assert_eq!(done.scheme, Scheme::HeaderV4);
    assert_eq!(done.payload.sha256().map(hex::encode).as_deref(), Some(EMPTY));
}

#[test]
fn documented_put_object() {
    let hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    Case::new("PUT", "/test%24file.text", "")
        .header("date", "Fri, 24 May 2013 00:00:00 GMT")
        .header("x-amz-date", DATE)
        .header("x-amz-storage-class", "REDUCED_REDUNDANCY")
        .header("x-amz-content-sha256", hash)
        .signed(
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        )
        .passes();
}

#[test]
fn documented_lifecycle_and_list() {
    let cases = [
        ("lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ("prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ];
    for (query, signature) in cases {
        Case::new("GET", "/", query)
            .header("x-amz-date", DATE)
            .header("x-amz-content-sha256", EMPTY)
            .signed("host;x-amz-content-sha256;x-amz-date", signature)
            .passes();
    }
}

/// AWS's presigned example, with its life in seconds and a signature that fits it.
fn presigned(date: &str, expires: &str) -> Case {
    let credential = format!("{ACCESS_KEY}%2F{}%2Fus-east-1%2Fs3%2Faws4_request", &date[..8]);
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={date}&\
         X-Amz-Expires={expires}&X-Amz-SignedHeaders=host"
    );
    let request = format!(
        "GET\n/test.txt\n{query}\nhost:examplebucket.s3.amazonaws.com\n\nhost\nUNSIGNED-PAYLOAD"
    );
    let signature = signature_of(&request, date);
    Case::new("GET", "/test.txt", &format!("{query}&X-Amz-Signature={signature}"))
}

#[test]
fn documented_presigned_url() {
    let case = presigned(DATE, "86400");
    let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    assert!(case.query.ends_with(signature), "{}", case.query);
    let done = case.passes();
    assert_eq!(done.scheme, Scheme::PresignedV4);
    assert!(matches!(done.payload, Payload::Unsigned));
}

#[test]
fn sig_01_life_of_a_presigned_url() {
    let at = |expires: &str, late_secs| Case { late_secs, ..presigned(DATE, expires) };
    at("3600", 20 * 60).passes();
    at("3600", 3600).passes();
    let error = at("3600", 3601).fails(S3ErrorCode::AccessDenied);
    assert_eq!(error.client_message(), "Request has expired");
    at("3600", 7200).fails(S3ErrorCode::AccessDenied);
    at("604800", 604_799).passes();
    at("604801", 0).fails(S3ErrorCode::AuthorizationQueryParametersError);
    at("0", 0).fails(S3ErrorCode::AccessDenied);
    at("-7", 0).fails(S3ErrorCode::AccessDenied);
    at("soon", 0).fails(S3ErrorCode::AuthorizationQueryParametersError);
    at("3600", -3600).fails(S3ErrorCode::AccessDenied);
    at("3600", -14 * 60).passes();
}

#[test]
fn presigned_urls_need_all_parameters() {
    let whole = presigned(DATE, "3600");
    for name in ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"] {
        let kept: Vec<&str> =
            whole.query.split('&').filter(|p| !p.starts_with(&format!("X-Amz-{name}="))).collect();
        Case::new("GET", "/test.txt", &kept.join("&"))
            .fails(S3ErrorCode::AuthorizationQueryParametersError);
    }
    let mut altered = presigned(DATE, "3600");
    altered.query.push_str("&versionId=x");
    altered.fails(S3ErrorCode::SignatureDoesNotMatch);
}

#[test]
fn presigned_parameters_stand_for_headers() {
    let query = Query::parse(
        "X-Amz-Signature=1&x-amz-meta-a=b&X-Amz-Acl=private&x-amz-checksum-crc32=AAAAAA==&\
         x-amz-sdk-checksum-algorithm=CRC32&x-amz-meta-own=query&x-id=PutObject",
    )
    .unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-meta-own", HeaderValue::from_static("header"));
    let moved = presigned::hoisted(&query, &headers, &[]);
    let mut names: Vec<_> = moved.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["x-amz-acl", "x-amz-meta-a"]);
}

/// A signed GET whose wire form differs from the canonical one.
fn get_as(path: &str, query: &str, canonical_path: &str, canonical_query: &str) -> Case {
    let lines = format!(
        "host:examplebucket.s3.amazonaws.com\nx-amz-content-sha256:{EMPTY}\nx-amz-date:{DATE}\n"
    );
    Case::new("GET", path, query)
        .header("x-amz-content-sha256", EMPTY)
        .header("x-amz-date", DATE)
        .sign(canonical_path, canonical_query, &lines, EMPTY)
}

#[test]
fn sig_02_and_list_10_queries_are_decoded_then_encoded() {
    let disposition = "response-content-disposition=attachment%3Bfilename%3D%22t%20t.txt%22";
    for wire in [
        disposition,
        "response-content-disposition=attachment;filename%3D%22t%20t.txt%22",
        "response-content-disposition=attachment%3bfilename=%22t+t.txt%22",
    ] {
        get_as("/k", wire, "/k", disposition).passes();
    }
    get_as("/", "marker=level1/8e%25%25F", "/", "marker=level1%2F8e%25%25F").passes();
}

#[test]
fn sig_04_unusual_escapes_of_the_path() {
    get_as("/t/%61.txt", "", "/t/a.txt", "").passes();
    get_as("/t/%2b", "", "/t/%2B", "").passes();
    get_as("/t/!*()'", "", "/t/%21%2A%28%29%27", "").passes();
    get_as("/t/a+b", "", "/t/a%20b", "").fails(S3ErrorCode::SignatureDoesNotMatch);
    get_as("/t//a/../x/%2E", "", "/t//a/../x/.", "").passes();
}

#[test]
fn old_curl_signs_the_query_as_typed() {
    get_as("/", "prefix=x&delete", "/", "prefix=x&delete").passes();
    get_as("/", "prefix=x&delete", "/", "delete=&prefix=y")
        .fails(S3ErrorCode::SignatureDoesNotMatch);
}

#[test]
fn a_missing_payload_hash_is_that_of_an_empty_body() {
    let lines = format!("host:examplebucket.s3.amazonaws.com\nx-amz-date:{DATE}\n");
    let done = Case::new("GET", "/k", "")
        .header("x-amz-date", DATE)
        .sign("/k", "", &lines, EMPTY)
        .passes();
    assert_eq!(done.payload.sha256().map(hex::encode).as_deref(), Some(EMPTY));
}

#[test]
fn sig_05_many_headers_repeats_and_spaces() {
    let mut lines = String::from("host:examplebucket.s3.amazonaws.com\n");
    let mut case = Case::new("PUT", "/k", "");
    for n in 10..70 {
        let name: &'static str = Box::leak(format!("x-amz-meta-h{n}").into_boxed_str());
        case = case.header(name, "v  v").header(name, " w ");
        lines.push_str(&format!("{name}:v v,w\n"));
    }
    let long = "x".repeat(1900);
    case = case.header("x-amz-meta-long", &long).header("x-amz-date", DATE);
    case = case.header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    lines.push_str(&format!("x-amz-meta-long:{long}\nx-amz-date:{DATE}\n"));
    lines.push_str("x-amz-content-sha256:UNSIGNED-PAYLOAD\n");
    case.sign("/k", "", &lines, "UNSIGNED-PAYLOAD").passes();
}

#[test]
fn sig_06_scope() {
    let scope = |old: &str, new: &str| {
        let mut case = get_object();
        for (name, value) in &mut case.headers {
            if *name == "authorization" {
                *value = value.replace(old, new);
            }
        }
        case
    };
    let error = scope("us-east-1", "eu-x").fails(S3ErrorCode::AuthorizationHeaderMalformed);
    assert!(error.details().contains(&("Region", "us-east-1".to_owned())));
    assert_eq!(error.status(), 400);
    scope("/s3/", "/ec2/").fails(S3ErrorCode::AuthorizationHeaderMalformed);
    scope("20130524/", "20130525/").fails(S3ErrorCode::AuthorizationHeaderMalformed);
    scope("aws4_request", "aws5").fails(S3ErrorCode::AuthorizationHeaderMalformed);
    let mut any = scope("us-east-1", "eu-x");
    any.settings.accept_any_region = true;
    any.fails(S3ErrorCode::SignatureDoesNotMatch);
}

#[test]
fn sig_09_headers_that_must_be_signed() {
    for name in ["x-amz-acl", "x-amz-meta-a", "x-amz-checksum-crc32"] {
        let error = get_object().header(name, "v").fails(S3ErrorCode::AccessDenied);
        assert!(error.details().contains(&("HeadersNotSigned", name.to_owned())));
        let error = presigned(DATE, "60").header(name, "v").fails(S3ErrorCode::AccessDenied);
        assert!(error.details().contains(&("HeadersNotSigned", name.to_owned())));
    }
    let mut case = presigned(DATE, "60");
    case.query = case.query.replace("SignedHeaders=host", "SignedHeaders=range");
    let error = case.fails(S3ErrorCode::AccessDenied);
    assert!(error.details().contains(&("HeadersNotSigned", "host".to_owned())));
}

#[test]
fn headers_that_proxies_drop_are_known() {
    let lines = format!(
        "content-length:0\nexpect:100-continue\nhost:examplebucket.s3.amazonaws.com\n\
         x-amz-content-sha256:{EMPTY}\nx-amz-date:{DATE}\n"
    );
    let case = Case::new("PUT", "/k", "")
        .header("x-amz-content-sha256", EMPTY)
        .header("x-amz-date", DATE)
        .sign("/k", "", &lines, EMPTY);
    case.passes();
    let lines = lines.replace("expect:100-continue", "user-agent:gone");
    Case::new("PUT", "/k", "")
        .header("x-amz-content-sha256", EMPTY)
        .header("x-amz-date", DATE)
        .sign("/k", "", &lines, EMPTY)
        .fails(S3ErrorCode::SignatureDoesNotMatch);
}

#[test]
fn the_external_host_is_tried_when_the_received_one_fails() {
    let mut case = get_object();
    case.host = "127.0.0.1:9000";
    case.fails(S3ErrorCode::SignatureDoesNotMatch);
    case.settings.external_host = Some("examplebucket.s3.amazonaws.com".into());
    case.passes();
}

#[test]
fn times_of_header_requests() {
    let late = |late_secs| Case { late_secs, ..get_object() };
    late(15 * 60).passes();
    late(-15 * 60).passes();
    late(15 * 60 + 1).fails(S3ErrorCode::RequestTimeTooSkewed);
    late(-15 * 60 - 1).fails(S3ErrorCode::RequestTimeTooSkewed);
    let dated = |date: Option<&str>| {
        let mut case = get_object();
        case.headers.retain(|(name, _)| *name != "x-amz-date");
        match date {
            Some(date) => case.header("x-amz-date", date),
            None => case,
        }
    };
    dated(None).fails(S3ErrorCode::AccessDenied);
    dated(Some("")).fails(S3ErrorCode::AccessDenied);
    dated(Some("Bad Date")).fails(S3ErrorCode::AccessDenied);
    dated(Some("19500707T215304Z")).fails(S3ErrorCode::AccessDenied);
    dated(Some("20100707T215304Z")).fails(S3ErrorCode::RequestTimeTooSkewed);
    dated(Some("99990707T215304Z")).fails(S3ErrorCode::RequestTimeTooSkewed);
}

#[test]
fn date_serves_when_x_amz_date_is_absent() {
    let lines = "date:Fri, 24 May 2013 00:00:00 GMT\nhost:examplebucket.s3.amazonaws.com\n";
    Case::new("GET", "/k", "")
        .header("date", "Fri, 24 May 2013 00:00:00 GMT")
        .sign("/k", "", lines, EMPTY)
        .passes();
}

#[test]
fn authorization_headers_that_are_none() {
    let with = |text: &str| Case::new("PUT", "/k", "").header("authorization", text);
    let anonymous = with("").verify().unwrap();
    assert!(matches!(anonymous.identity, Identity::Anonymous));
    assert!(matches!(Case::new("GET", "/", "").verify().unwrap().scheme, Scheme::Anonymous));
    with("AWS4 HAHAHA").fails(S3ErrorCode::InvalidArgument);
    with("Bearer x").fails(S3ErrorCode::InvalidArgument);
    with("AWS HAHAHA").fails(S3ErrorCode::InvalidArgument);
    with("AWS4-ECDSA-P256-SHA256 x").fails(S3ErrorCode::NotImplemented);
    for text in [
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=HAHAHA",
        "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,SignedHeaders=host",
        "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,Signature=00",
        "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,SignedHeaders=host,Signature=0,x",
        "AWS4-HMAC-SHA256 Signature=0,Signature=0",
    ] {
        with(text).fails(S3ErrorCode::AuthorizationHeaderMalformed);
    }
    get_object().header("authorization", "again").fails(S3ErrorCode::InvalidArgument);
    let mut both = get_object();
    both.query = "X-Amz-Algorithm=AWS4-HMAC-SHA256".into();
    both.fails(S3ErrorCode::InvalidArgument);
}

#[test]
fn an_unknown_key_is_told_before_its_scope() {
    let case = Case::new("PUT", "/k", "").header("x-amz-date", DATE).header(
        "authorization",
        "AWS4-HMAC-SHA256 Credential=AKIAIGR7ZNNBHC5BKSUB/20150930/us-east-1/s3/aws4_request,\
         SignedHeaders=host;user-agent,Signature=FWeDfwojDSdS2Ztmpfeubhd9isU=",
    );
    case.fails(S3ErrorCode::InvalidAccessKeyId);
}

/// The seed of AWS's chunked upload example; the chunks are in `aws_chunked`.
#[test]
fn documented_seed_of_a_chunked_upload() {
    let mut case = Case::new("PUT", "/examplebucket/chunkObject.txt", "")
        .header("x-amz-date", DATE)
        .header("x-amz-storage-class", "REDUCED_REDUNDANCY")
        .header("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        .header("content-encoding", "aws-chunked")
        .header("x-amz-decoded-content-length", "66560")
        .header("content-length", "66824")
        .signed(
            "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;\
             x-amz-decoded-content-length;x-amz-storage-class",
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        );
    case.host = "s3.amazonaws.com";
    let Payload::Chunked { signatures: Some(mut chain), trailers: false } = case.passes().payload
    else {
        panic!("signed chunks without trailers");
    };
    let first = sha256(&[b'a'; 65536]);
    let signature = b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648";
    assert!(!chain.verify_chunk(&sha256(b""), signature));
    assert!(chain.verify_chunk(&first, signature));
}

#[test]
fn signature_version_4a_is_refused_by_name() {
    let mut case = get_object();
    case.headers[1].1 = "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD".into();
    case.fails(S3ErrorCode::NotImplemented);
}

/// AWS's "Object GET" example of signature version 2.
fn get_object_v2() -> Case {
    let mut case = Case::new("GET", "/photos/puppy.jpg", "")
        .header("date", "Tue, 27 Mar 2007 19:36:42 +0000")
        .header("authorization", &format!("AWS {ACCESS_KEY}:bWq2s1WEIj+Ydj0vQ697zp+IXMU="));
    case.host = "johnsmith.s3.amazonaws.com";
    case.virtual_bucket = Some("johnsmith");
    case.date = "20070327T193642Z";
    case
}

#[test]
fn documented_version_2_examples() {
    assert_eq!(get_object_v2().passes().scheme, Scheme::HeaderV2);
    let mut put =
        get_object_v2().header("content-type", "image/jpeg").header("content-length", "94328");
    put.method = "PUT";
    put.headers[0].1 = "Tue, 27 Mar 2007 21:15:45 +0000".into();
    put.headers[1].1 = format!("AWS {ACCESS_KEY}:MyyxeRY7whkBe+bq8fHCL/2kKUg=");
    put.date = "20070327T211545Z";
    put.passes();
    let mut list = get_object_v2();
    list.path = "/".into();
    list.query = "acl".into();
    list.headers[0].1 = "Tue, 27 Mar 2007 19:44:46 +0000".into();
    list.headers[1].1 = format!("AWS {ACCESS_KEY}:c2WLPFtWHVgbEmeEG93a4cG37dM=");
    list.date = "20070327T194446Z";
    list.passes();
    let mut url = get_object_v2();
    url.headers.clear();
    url.query = format!(
        "AWSAccessKeyId={ACCESS_KEY}&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires=1175139620"
    );
    assert_eq!(url.passes().scheme, Scheme::PresignedV2);
    url.date = "20070329T034020Z";
    url.passes();
    url.late_secs = 1;
    url.fails(S3ErrorCode::AccessDenied);
}

#[test]
fn version_2_is_refused_when_wrong_or_switched_off() {
    let mut wrong = get_object_v2();
    wrong.path = "/photos/puppy.png".into();
    wrong.fails(S3ErrorCode::SignatureDoesNotMatch);
    get_object_v2().header("x-amz-meta-a", "b").fails(S3ErrorCode::SignatureDoesNotMatch);
    let mut late = get_object_v2();
    late.late_secs = 3600;
    late.fails(S3ErrorCode::RequestTimeTooSkewed);
    let mut undated = get_object_v2();
    undated.headers.remove(0);
    undated.fails(S3ErrorCode::AccessDenied);
    let mut off = get_object_v2();
    off.settings.sigv2 = false;
    off.fails(S3ErrorCode::InvalidRequest);
}

/// What a client sent, as `botocore.json` has it.
#[derive(serde::Deserialize)]
struct Sent {
    name: String,
    method: String,
    host: String,
    path: String,
    query: String,
    headers: std::collections::BTreeMap<String, String>,
    /// The client's clock, in seconds.
    now: i64,
    virtual_bucket: Option<String>,
}

/// Requests that botocore 1.43.11 made and signed with the documentation's key: headers and
/// presigned URLs of both versions, path and virtual-host style, keys and prefixes of every kind.
#[test]
fn requests_of_botocore_verify() {
    let all: Vec<Sent> = serde_json::from_str(include_str!("botocore.json")).unwrap();
    assert!(all.len() > 50);
    for sent in &all {
        let mut headers = HeaderMap::new();
        for (name, value) in &sent.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let case = Case::new("GET", "/", "");
        let clock = Arc::new(ManualClock::new(sent.now * 1000));
        let verifier = Verifier::new(case.settings, clock);
        let verify = |path: &str| {
            let query = Query::parse(&sent.query).unwrap();
            let request = AuthRequest {
                method: &sent.method,
                host: &sent.host,
                raw_path: path,
                query: &query,
                headers: &headers,
                virtual_bucket: sent.virtual_bucket.as_deref(),
            };
            verifier.verify(&request, &lookup)
        };
        let done = verify(&sent.path).unwrap_or_else(|e| panic!("{}: {e:?}", sent.name));
        assert!(matches!(done.identity, Identity::Key(_)), "{}", sent.name);
        let other = verify(&format!("{}x", sent.path)).unwrap_err();
        assert_eq!(other.code(), S3ErrorCode::SignatureDoesNotMatch, "{}", sent.name);
    }
}
