//! Every request's bytes, made before the measured pass: nothing is formatted or signed during it.

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use crate::content::Content;
use crate::plan::{Object, Op, Plan};
use crate::sigv4::{EMPTY_SHA256, PRESIGNED_SECS_MAX, Request, Signer, UNSIGNED_PAYLOAD, encode};

/// How requests say who sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sign {
    /// SigV4 in the Authorization header.
    Header,
    /// SigV4 in the URL.
    Presigned,
    /// Not at all: an anonymous request, or a server that is not S3.
    None,
}

/// What a signature in the header covers of an upload's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Payload {
    /// Nothing (UNSIGNED-PAYLOAD).
    Unsigned,
    /// All of it, by its SHA-256.
    Signed,
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port` as it stands in the Host header.
    pub host: String,
    /// Percent-encoded path before a key, with slashes at both ends.
    pub base: String,
}

impl Target {
    /// Parses `http://HOST:PORT/PATH`; PATH is a bucket, or a directory of a static server.
    pub fn parse(url: &str) -> Result<Target> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("the URL must begin with http://, TLS is not spoken here: {url}");
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || path.contains(['?', '#', ' ']) {
            bail!("want http://HOST:PORT/PATH, not {url}");
        }
        let path = path.trim_end_matches('/');
        let base = if path.is_empty() { "/".to_owned() } else { format!("/{path}/") };
        Ok(Target { host: host.to_owned(), base })
    }

    /// The address to connect to.
    pub fn address(&self) -> String {
        let has_port = self.host.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
        if has_port { self.host.clone() } else { format!("{}:80", self.host) }
    }
}

/// How all requests of a run are made.
pub struct Style {
    pub target: Target,
    pub sign: Sign,
    pub payload: Payload,
    /// Needed unless `sign` is `None`.
    pub signer: Option<Signer>,
    /// Extra header fields: lower-case names, in order.
    pub headers: Vec<(String, String)>,
}

impl Style {
    /// The head of one request, up to and with the empty line.
    pub fn head(&self, op: Op, key: &str, body_bytes: u64, body_sha256: &str) -> String {
        let path = format!("{}{}", self.target.base, encode(key, true));
        self.head_for_path(op.method(), &path, body_bytes, body_sha256)
    }

    /// The same for any path, such as a bucket's.
    pub fn head_for_path(&self, method: &str, path: &str, body: u64, sha256: &str) -> String {
        let host = &self.target.host;
        let request = Request { method, host, path, headers: &self.headers, payload: sha256 };
        let mut target = path.to_owned();
        let mut fields = String::new();
        match (&self.signer, self.sign) {
            (Some(signer), Sign::Header) => fields = signer.header_lines(&request),
            (Some(signer), Sign::Presigned) => {
                let query = signer.presigned_query(&request, PRESIGNED_SECS_MAX);
                target = format!("{path}?{query}");
            }
            _ => {}
        }
        for (name, value) in &self.headers {
            fields.push_str(&format!("{name}: {value}\r\n"));
        }
        if method == "PUT" {
            fields.push_str(&format!("Content-Length: {body}\r\n"));
        }
        format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
    }
}

/// The heads of all requests of a plan, one after the other in memory.
pub struct Requests {
    bytes: &'static [u8],
    /// For GET and for PUT: where each object's head begins and ends; empty when not in the plan.
    ranges: [Vec<(u64, u32)>; 2],
}

impl Requests {
    pub fn build(plan: &Plan, style: &Style, content: &Content) -> Requests {
        let mut bytes = Vec::new();
        let ranges = [Op::Get, Op::Put].map(|op| {
            if !plan.rows.iter().any(|row| row.op == op) {
                return Vec::new();
            }
            let one = |(number, object): (usize, &Object)| {
                let (body, sha256) = payload_of(op, number as u32, object, style, content);
                let head = style.head(op, &object.key, body, &sha256);
                let at = bytes.len() as u64;
                bytes.extend_from_slice(head.as_bytes());
                (at, head.len() as u32)
            };
            plan.objects.iter().enumerate().map(one).collect()
        });
        Requests { bytes: Vec::leak(bytes), ranges }
    }

    /// # Panics
    /// When the plan that this was built from has no such operation.
    pub fn head(&self, op: Op, object: u32) -> &'static [u8] {
        let (at, bytes) = self.ranges[op as usize][object as usize];
        &self.bytes[at as usize..at as usize + bytes as usize]
    }
}

fn payload_of(
    op: Op,
    number: u32,
    object: &Object,
    style: &Style,
    content: &Content,
) -> (u64, String) {
    match op {
        Op::Get => (0, EMPTY_SHA256.to_owned()),
        Op::Put if style.payload == Payload::Unsigned || style.sign != Sign::Header => {
            (object.bytes, UNSIGNED_PAYLOAD.to_owned())
        }
        Op::Put => {
            let mut hash = Sha256::new();
            content.for_each(number, object.bytes, |piece| hash.update(piece));
            (object.bytes, hex::encode(hash.finalize()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use aws_credential_types::Credentials;
    use aws_sigv4::http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign,
    };
    use aws_sigv4::sign::v4::SigningParams;

    use super::*;

    fn style(sign: Sign) -> Style {
        Style {
            target: Target::parse("http://127.0.0.1:9000/bucket").expect("a URL"),
            sign,
            payload: Payload::Unsigned,
            signer: Some(Signer::new("AKID", "secret/+", "eu-west-1", "20261207T110000Z")),
            headers: vec![("x-amz-acl".into(), "public-read".into())],
        }
    }

    #[test]
    fn urls_become_targets() {
        let target = style(Sign::None).target;
        assert_eq!((target.host.as_str(), target.base.as_str()), ("127.0.0.1:9000", "/bucket/"));
        let bare = Target::parse("http://localhost").expect("a URL");
        assert_eq!((bare.address(), bare.base), ("localhost:80".into(), "/".into()));
        assert!(Target::parse("https://localhost/").is_err());
        assert!(Target::parse("http:///bucket").is_err());
    }

    #[test]
    fn a_plain_request_is_what_rfc_9112_says() {
        let head = style(Sign::None).head(Op::Put, "a b", 5, UNSIGNED_PAYLOAD);
        assert_eq!(
            head,
            "PUT /bucket/a%20b HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nx-amz-acl: public-read\r\n\
             Content-Length: 5\r\n\r\n"
        );
    }

    /// The SDK's signer, an independent implementation, comes to the same signature.
    #[test]
    fn the_sdk_signs_the_same() {
        let identity = Credentials::new("AKID", "secret/+", None, None, "test").into();
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let params = SigningParams::builder()
            .identity(&identity)
            .region("eu-west-1")
            .name("s3")
            // 2026-12-07 11:00:00 UTC
            .time(SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_641_200))
            .settings(settings)
            .build()
            .expect("complete")
            .into();
        let request = SignableRequest::new(
            "PUT",
            "http://127.0.0.1:9000/bucket/k%20%2B",
            [("x-amz-acl", "public-read"), ("host", "127.0.0.1:9000")].into_iter(),
            SignableBody::UnsignedPayload,
        )
        .expect("a request");
        let signed = sign(request, &params).expect("signs");
        let head = style(Sign::Header).head(Op::Put, "k +", 5, UNSIGNED_PAYLOAD);
        assert!(head.contains(&format!("Signature={}\r\n", signed.signature())), "{head}");
    }

    #[test]
    fn signed_payloads_carry_the_bodys_hash() {
        let content = Content::new(1);
        let objects = vec![Object { key: "k".into(), bytes: 9 }];
        let rows = vec![crate::plan::Row { op: Op::Put, object: 0 }];
        let style = Style { payload: Payload::Signed, ..style(Sign::Header) };
        let requests = Requests::build(&Plan { objects, rows }, &style, &content);
        let head = std::str::from_utf8(requests.head(Op::Put, 0)).expect("text");
        let hash = hex::encode(Sha256::digest(content.piece(0, 0, 9)));
        assert!(head.contains(&format!("x-amz-content-sha256: {hash}\r\n")), "{head}");
    }
}
