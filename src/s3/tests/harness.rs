//! A whole front over a real store in a temporary directory, and a client that signs.

use std::rc::Rc;
use std::sync::Arc;

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;

use crate::arena::{Arena, ArenaSettings};
use crate::blob::BlobFiles;
use crate::catalog::Catalog;
use crate::catalog::sqlite::{SqliteCatalog, SqliteSettings};
use crate::clock::{Clock, ManualClock};
use crate::digest::sha256;
use crate::log::{LogSettings, SegmentReader};
use crate::model::{AccessKey, OwnerId, Proposal, User};
use crate::rng::Rng;
use crate::s3::auth::{AuthSettings, Verifier};
use crate::s3::{S3FrontSettings, S3Limits, S3State, router};
use crate::store::{ObjectStore, Shared, StoreSettings};
use crate::sys::mapping::{LockWanted, PagesWanted};
use crate::sys::uring::{self, UringEngine};

const REGION: &str = "us-east-1";
const DATE: &str = "20260102T030405Z";
/// The clock of the tests: DATE.
const NOW_MS: i64 = 1_767_323_045_000;

/// A front with the users `alice` and `bob` and the bucket `tst` of alice.
pub struct Front {
    answers: crate::http::connection::Front,
}

/// One request in the making.
pub struct Call<'f> {
    front: &'f Front,
    user: &'static str,
    method: Method,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Body,
    sha256: Option<String>,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    call: String,
}

/// Runs `test` on a ring with a front over an empty store.
pub fn with_front<F>(test: impl FnOnce(Front) -> F)
where
    F: Future<Output = ()>,
{
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    let run = uring::run(async move {
        let front = Front::start(root).await;
        front.put("/tst").send().await.expect(200);
        test(front).await;
    });
    run.expect("io_uring");
}

impl Front {
    async fn start(root: std::path::PathBuf) -> Front {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let settings = SqliteSettings {
            path: root.join("catalog.sqlite"),
            log_dir: root.join("log"),
            log: LogSettings { segment_bytes: 8 << 20, flush: false },
            readers: 1,
            index_bytes_max: 1 << 20,
            queue_max: 64,
            group_max: 64,
        };
        let catalog = SqliteCatalog::open(settings, clock.clone(), Rng::seeded(5));
        let catalog = catalog.expect("a catalog");
        for name in ["alice", "bob"] {
            add_user(&*catalog, name).await;
        }
        let arena = Arena::new(ArenaSettings {
            head_bytes: 32 << 20,
            packed_bytes: 8 << 20,
            pages: PagesWanted::Small,
            prefault: false,
            lock: LockWanted::No,
            ..ArenaSettings::default()
        });
        let settings = StoreSettings { hash_threads: 1, ..StoreSettings::default() };
        let (shared, _abandoned) =
            Shared::new(settings, catalog, arena.expect("memory"), Rng::seeded(7))
                .expect("threads");
        let engine = Rc::new(UringEngine::new());
        let blobs = BlobFiles::new(engine.clone(), root.join("blobs"));
        let segments = Rc::new(SegmentReader::new(engine, root.join("log")));
        let auth = AuthSettings {
            region: REGION.into(),
            accept_any_region: false,
            sigv2: true,
            external_host: None,
        };
        let state = S3State {
            store: ObjectStore::new(shared, blobs, segments),
            settings: S3FrontSettings {
                region: REGION.into(),
                domains: vec!["s3.test".into()],
                limits: S3Limits {
                    body_idle: std::time::Duration::from_millis(100),
                    ..S3Limits::default()
                },
            },
            verifier: Verifier::new(auth, clock.clone()),
            clock: clock.clone() as Arc<dyn Clock>,
            rng: Rng::seeded(3),
        };
        Front { answers: router(state) }
    }

    /// A request by alice; `target` is a raw path with a query whose names are sorted.
    pub fn call(&self, method: Method, target: &str) -> Call<'_> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Call {
            front: self,
            user: "alice",
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers: Vec::new(),
            body: Body::empty(),
            sha256: None,
        }
    }

    pub fn get(&self, target: &str) -> Call<'_> {
        self.call(Method::GET, target)
    }

    pub fn head(&self, target: &str) -> Call<'_> {
        self.call(Method::HEAD, target)
    }

    pub fn put(&self, target: &str) -> Call<'_> {
        self.call(Method::PUT, target).body("")
    }

    pub fn post(&self, target: &str) -> Call<'_> {
        self.call(Method::POST, target).body("")
    }

    pub fn delete(&self, target: &str) -> Call<'_> {
        self.call(Method::DELETE, target)
    }
}

async fn add_user(catalog: &dyn Catalog, name: &str) {
    let user = User {
        id: name.into(),
        canonical_id: OwnerId::new(&format!("{name}-canonical")),
        display_name: name.to_uppercase(),
        email: String::new(),
        disabled: false,
    };
    catalog.commit(Proposal::PutUser { user }).await.expect("a user");
    let key = AccessKey {
        access_key: name.into(),
        secret_key: format!("{name}-secret"),
        user: name.into(),
        disabled: false,
    };
    catalog.commit(Proposal::PutAccessKey { key }).await.expect("a key");
}

impl<'f> Call<'f> {
    pub fn user(mut self, user: &'static str) -> Self {
        self.user = user;
        self
    }

    /// A request without a signature.
    pub fn anonymous(self) -> Self {
        self.user("")
    }

    pub fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// A body with its length.
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        self.headers.retain(|(name, _)| name != "content-length");
        self.body = Body::from(bytes.clone());
        self.header("content-length", bytes.len())
    }

    /// A body of unknown length.
    pub fn raw_body(mut self, body: Body) -> Self {
        self.headers.retain(|(name, _)| name != "content-length");
        self.body = body;
        self
    }

    /// An aws-chunked body as SDKs send it over TLS: unsigned, with a checksum behind it.
    pub fn chunked(self, framed: &str, size: u64) -> Self {
        let mut call = self.body(framed.to_owned());
        call.sha256 = Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER".into());
        call.header("content-encoding", "aws-chunked").header("x-amz-decoded-content-length", size)
    }

    pub fn sha256(mut self, text: &str) -> Self {
        self.sha256 = Some(text.into());
        self
    }

    pub async fn send(mut self) -> Answer {
        let payload = self.sha256.take().unwrap_or_else(|| "UNSIGNED-PAYLOAD".into());
        self.headers.push(("host".into(), "localhost:9000".into()));
        if !self.user.is_empty() {
            self.headers.push(("x-amz-content-sha256".into(), payload.clone()));
            self.headers.push(("x-amz-date".into(), DATE.into()));
            let authorization = self.authorization(&payload);
            self.headers.push(("authorization".into(), authorization));
        }
        let target = match self.query.as_str() {
            "" => self.path.clone(),
            query => format!("{}?{query}", self.path),
        };
        let label = format!("{} {target}", self.method);
        let mut request = Request::builder().method(self.method).uri(target);
        for (name, value) in &self.headers {
            request = request.header(name, value.as_bytes());
        }
        let request = request.body(self.body);
        let answer = (self.front.answers)(request.expect("a request")).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body, call: label }
    }

    fn authorization(&self, payload: &str) -> String {
        let mut names: Vec<_> = self
            .headers
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .filter(|name| name == "host" || name.starts_with("x-amz-"))
            .collect();
        names.sort();
        names.dedup();
        let line = |name: &String| {
            let values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
            let joined: Vec<_> = values.map(|(_, value)| value.trim().to_owned()).collect();
            format!("{name}:{}\n", joined.join(","))
        };
        let lines: String = names.iter().map(line).collect();
        let mut pairs: Vec<_> = self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
            .collect();
        pairs.sort();
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{}\n{payload}",
            self.method,
            self.path,
            pairs.join("&"),
            names.join(";")
        );
        let scope = format!("{}/{REGION}/s3/aws4_request", &DATE[..8]);
        let hash = hex::encode(sha256(canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{DATE}\n{scope}\n{hash}");
        let secret = format!("{}-secret", self.user);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(NOW_MS as u64);
        let key = generate_signing_key(&secret, time, REGION, "s3");
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={}, Signature={}",
            self.user,
            names.join(";"),
            calculate_signature(key, text.as_bytes())
        )
    }
}

impl Answer {
    /// Checks the status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}: {}", self.call, self.text());
        self
    }

    /// Checks status and code of an error document.
    #[track_caller]
    pub fn expect_error(self, status: u16, code: &str) -> Answer {
        let answer = self.expect(status);
        assert_eq!(answer.element("Code"), code, "{}: {}", answer.call, answer.text());
        answer
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }

    /// Text of the first element of that name.
    pub fn element(&self, name: &str) -> String {
        self.elements(name).into_iter().next().unwrap_or_default()
    }

    /// Texts of all elements of that name, as they stand in the document.
    pub fn elements(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let text = self.text();
        let after = text.split(open.as_str()).skip(1);
        after.filter_map(|rest| rest.split_once(close.as_str())).map(|(t, _)| t.into()).collect()
    }
}

/// For tests that look at statuses alone.
pub const OK: u16 = StatusCode::OK.as_u16();
