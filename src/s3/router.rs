//! From an HTTP request to an operation and back: the one pipeline of the front.
//!
//! ```text
//!   target and query -> operation -> authenticate -> bucket -> authorise -> operation -> answer
//! ```
//!
//! Owns the order. The caller is known and allowed before the body's first byte is polled, which
//! is also when hyper sends 100-continue. A request that is refused with its body unread leaves a
//! clean connection: the rest is drained within bounds, else the connection closes. Runs on the
//! worker's thread; the futures below are not `Send`.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, SERVER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::authorise::{Asked, authorise, looks_at_object};
use super::body::RequestBody;
use super::cors;
use super::error::{S3Error, S3ErrorCode};
use super::host::Target;
use super::operation::{Operation, Scope, Support, identify};
use super::ops;
use super::query::Query;
use super::request::S3Request;
use super::state::S3State;
use crate::http::connection::Front;
use crate::http::trace::RequestTrace;
use crate::model::{Bucket, ObjectVersion, User, VersionId};
use crate::store::StoreError;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");

/// The S3 front of one worker. It answers every path: Host, raw path and query decide.
pub fn router(state: S3State) -> Front {
    let state = Rc::new(state);
    Rc::new(move |request: Request| {
        let state = Rc::clone(&state);
        async move { answer(&state, request).await }.boxed_local()
    })
}

/// What is known of a request before its caller is.
struct Parsed {
    target: Target,
    query: Query,
    operation: Operation,
}

/// Answers one request. Never fails: whatever goes wrong becomes an S3 error.
async fn answer(s3: &S3State, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let trace = parts.extensions.remove::<RequestTrace>();
    let id = match &trace {
        Some(trace) => Cow::Borrowed(trace.id()),
        None => Cow::Owned(s3.request_id()),
    };
    let declared = declared_length(&parts, &body);
    let mut body = RequestBody::new(body, declared, s3.settings.limits.body_idle);
    let is_head = parts.method == Method::HEAD;
    let expects = parts.headers.contains_key(EXPECT);
    let mut cors = HeaderMap::new();
    let outcome = serve(s3, &mut parts, trace.as_ref(), &mut body, &mut cors).await;
    let mut response = outcome.unwrap_or_else(|error| {
        log_error(&error);
        error.response(parts.uri.path(), &id, is_head).map(Body::from)
    });
    let headers = response.headers_mut();
    headers.extend(cors);
    // Both are hex digits or constants of ours, which any header may hold.
    headers.insert(REQUEST_ID, super::response::header_value(&id));
    headers.insert(HOST_ID, HeaderValue::from_static("goblin-store"));
    headers.insert(SERVER, HeaderValue::from_static("GoblinStore"));
    if !body.ended() {
        let limits = &s3.settings.limits;
        // Reading would invite a client that waits for 100-continue to send what nobody wants.
        let waits = expects && !body.polled();
        if waits || !body.drain(limits.drain_bytes_max, limits.drain_time_max).await {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    response
}

/// The pipeline. The body stays with the caller, who sees what was left of it; `cors` are headers
/// that the answer gets, whatever it is.
async fn serve(
    s3: &S3State,
    parts: &mut Parts,
    trace: Option<&RequestTrace>,
    body: &mut RequestBody,
    cors: &mut HeaderMap,
) -> Result<Response, S3Error> {
    let parsed = parse(s3, parts)?;
    let operation = parsed.operation;
    if let Some(trace) = trace {
        let bucket = parsed.target.bucket.as_deref().unwrap_or_default();
        let key_len = parsed.target.key.as_ref().map_or(0, |key| key.as_str().len());
        trace.describe(operation.name(), bucket, key_len);
    }
    // Before the caller is known: a page must be able to read why it was refused.
    let named = parsed.target.bucket.as_deref();
    let bucket_there = named.and_then(|name| s3.store.catalog().bucket(name));
    if let Some(bucket) = &bucket_there {
        *cors = cors::headers_of_answer(bucket, &parts.method, &parts.headers);
    }
    if operation == Operation::PreflightRequest {
        let names_object = parsed.target.key.is_some();
        return ops::preflight(bucket_there.as_deref(), names_object, &parts.headers);
    }
    if operation == Operation::PostObject {
        // A form carries its signature in its fields, which stand in the body.
        let name = named.unwrap_or_default();
        let bucket = bucket_there.ok_or_else(|| no_such_bucket(name))?;
        return ops::post_object(s3, &bucket, &parts.headers, body).await;
    }
    let (identity, verified) =
        s3.authenticate(parts, host_of(parts)?, &parsed.target, &parsed.query)?;
    let bucket = match &parsed.target.bucket {
        Some(name) if operation != Operation::CreateBucket => {
            Some(bucket_there.ok_or_else(|| no_such_bucket(name))?)
        }
        _ => None,
    };
    let expected = parts.headers.get("x-amz-expected-bucket-owner");
    let (caller, bucket_found) = (&identity.1, bucket.as_deref());
    let object = object_to_judge(s3, &parsed, caller, bucket_found).await?;
    let asked = Asked {
        operation,
        bucket: bucket_found,
        key: parsed.target.key.as_ref(),
        versioned: parsed.query.has("versionId"),
        object: object.as_deref(),
        expected_owner: expected,
    };
    authorise(caller, asked)?;
    if operation.info().support == Support::Refused {
        return Err(S3Error::not_implemented(operation.name()));
    }
    let headers = with_hoisted(std::mem::take(&mut parts.headers), verified.hoisted);
    let mut request = S3Request {
        operation,
        headers,
        query: parsed.query,
        bucket_name: parsed.target.bucket,
        bucket,
        key: parsed.target.key,
        identity,
        payload: verified.payload,
        body,
        trace,
        judged: object,
    };
    ops::carry_out(s3, &mut request).await
}

fn parse(s3: &S3State, parts: &Parts) -> Result<Parsed, S3Error> {
    let target = Target::new(host_of(parts)?, parts.uri.path(), &s3.settings.domains)?;
    let query = match parts.uri.query() {
        None => Query::default(),
        Some(raw) => Query::parse(raw)?,
    };
    let scope = match (&target.bucket, &target.key) {
        (None, _) => Scope::Service,
        (Some(_), None) => Scope::Bucket,
        (Some(_), Some(_)) => Scope::Object,
    };
    let operation = if parts.method == Method::OPTIONS {
        Operation::PreflightRequest
    } else {
        let names = query.pairs().iter().map(|(name, _)| name.as_str());
        let copies = parts.headers.contains_key("x-amz-copy-source");
        identify(&parts.method, scope, names, copies).map_err(|_| not_allowed(&parts.method))?
    };
    Ok(Parsed { target, query, operation })
}

/// The host that the client called.
fn host_of(parts: &Parts) -> Result<&str, S3Error> {
    match parts.headers.get(HOST) {
        Some(host) => host.to_str().map_err(|_| S3ErrorCode::BadRequest.into()),
        // A request in absolute form names its host in the line.
        None => Ok(parts.uri.authority().map_or("", |authority| authority.as_str())),
    }
}

/// Adds the parameters of a presigned URL that stand for headers. Checksums among them are left
/// out: SDKs presign that of an empty body, which says nothing about what is sent later.
fn with_hoisted(mut headers: HeaderMap, hoisted: HeaderMap) -> HeaderMap {
    for (name, value) in &hoisted {
        let text = name.as_str();
        if !text.starts_with("x-amz-checksum-") && text != "x-amz-sdk-checksum-algorithm" {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

fn not_allowed(method: &Method) -> S3Error {
    S3Error::new(S3ErrorCode::MethodNotAllowed).detail("Method", method.as_str())
}

fn no_such_bucket(name: &str) -> S3Error {
    S3Error::new(S3ErrorCode::NoSuchBucket).detail("BucketName", name)
}

/// The object whose own access list decides, for a caller who is not the bucket's owner. What is
/// not there is `None`.
async fn object_to_judge(
    s3: &S3State,
    parsed: &Parsed,
    caller: &User,
    bucket: Option<&Bucket>,
) -> Result<Option<Arc<ObjectVersion>>, S3Error> {
    let Some(bucket) = bucket.filter(|bucket| looks_at_object(parsed.operation, caller, bucket))
    else {
        return Ok(None);
    };
    let Some(key) = &parsed.target.key else { return Ok(None) };
    let version = match parsed.query.get("versionId").map(VersionId::parse) {
        Some(None) => return Ok(None),
        Some(named) => named,
        None => None,
    };
    match s3.store.lookup(bucket.id, key, version).await {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::NoSuchKey | StoreError::NoSuchVersion) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Content-Length, or the length that the body knows of itself; `None` for a body framed by
/// Transfer-Encoding and for no body at all, which `payload_size` tells apart.
fn declared_length(parts: &Parts, body: &Body) -> Option<u64> {
    let header = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match header.and_then(|text| text.parse().ok()) {
        Some(length) => Some(length),
        None => http_body::Body::size_hint(body).exact().filter(|length| *length > 0),
    }
}

/// Tells the operator what is theirs to know. A server error is an ERROR, a refusal is not.
fn log_error(error: &S3Error) {
    let code = error.code().as_str();
    let detail = error.log_message().unwrap_or_default();
    match error.status() {
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::INSUFFICIENT_STORAGE => {
            tracing::error!(code, detail, "the request failed");
        }
        _ => tracing::debug!(code, detail, "the request was refused"),
    }
}
