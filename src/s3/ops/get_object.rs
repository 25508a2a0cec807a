//! GET and HEAD /bucket/key: everything but the bytes is the same for both.
//!
//! The hot path of the server: for an object whose version and head are in RAM nothing here waits.

use super::prelude::*;
use crate::s3::body::{object_body, source_of};
use crate::s3::etag::{self, ReadDecision};
use crate::s3::range::{self, Requested};
use crate::store::StoreError;

const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");

/// **Source** AWS S3 API reference, GetObject.
pub async fn get_object(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = find(s3, request).await?;
    let selection = match plan(request, &version)? {
        Plan::Answer(response) => return Ok(response),
        Plan::Send(selection) => selection,
    };
    let bytes = s3.store.read(&version, selection.first, selection.len).await?;
    let mut response = head_of(request, &version, &selection)?;
    if let (Some(source), Some(trace)) = (source_of(&bytes), request.trace) {
        trace.served_from(source);
    }
    *response.body_mut() = object_body(bytes, selection.len);
    Ok(response)
}

/// **Source** AWS S3 API reference, HeadObject.
pub async fn head_object(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = find(s3, request).await?;
    match plan(request, &version)? {
        Plan::Answer(response) => Ok(response),
        Plan::Send(selection) => head_of(request, &version, &selection),
    }
}

/// What a read is answered with.
enum Plan {
    /// Without bytes: 304.
    Answer(Response),
    Send(Selection),
}

/// The bytes that a read gets.
struct Selection {
    first: u64,
    len: u64,
    /// 206 with Content-Range.
    partial: bool,
    /// The index of the part that the request named.
    part: Option<usize>,
}

/// The version that the request names, unless it is a delete marker.
pub async fn find(s3: &S3State, request: &S3Request<'_>) -> Result<Arc<ObjectVersion>, S3Error> {
    let named = request.version_id()?;
    // What was judged is what is served: a version that came since may have other rights.
    let found = match &request.judged {
        Some(judged) => Ok(judged.clone()),
        None => s3.store.lookup(request.bucket()?.id, request.key()?, named).await,
    };
    let version = found.map_err(|error| match error {
        StoreError::NoSuchKey => S3Error::from(error)
            .header(DELETE_MARKER, HeaderValue::from_static("false"))
            .detail("Key", request.key.as_ref().map_or("", Key::as_str)),
        error => S3Error::from(error),
    })?;
    if version.delete_marker {
        return Err(is_delete_marker(request, &version, named.is_some()));
    }
    Ok(version)
}

/// What a read of a delete marker gets: as if the key were not there, or, when the marker itself
/// is named, that it can only be deleted.
///
/// **Source** AWS S3 user guide, "Working with delete markers".
fn is_delete_marker(request: &S3Request<'_>, marker: &ObjectVersion, named: bool) -> S3Error {
    let id = response::header_value(&marker.version_id.to_string());
    let modified = response::displayed(crate::s3::time::http_date(marker.modified_ms));
    let error = if named {
        S3Error::new(S3ErrorCode::MethodNotAllowed)
            .detail(
                "Method",
                if request.operation == Operation::HeadObject { "HEAD" } else { "GET" },
            )
            .detail("ResourceType", "DeleteMarker")
            .header(http::header::ALLOW, HeaderValue::from_static("DELETE"))
            .header(http::header::LAST_MODIFIED, modified)
    } else {
        let key = request.key.as_ref().map_or("", Key::as_str);
        S3Error::new(S3ErrorCode::NoSuchKey).detail("Key", key)
    };
    error
        .header(DELETE_MARKER, HeaderValue::from_static("true"))
        .header(HeaderName::from_static("x-amz-version-id"), id)
}

/// Judges the conditions, then the part number or the range.
fn plan(request: &S3Request<'_>, version: &ObjectVersion) -> Result<Plan, S3Error> {
    let headers = &request.headers;
    match etag::decide_read(headers, version) {
        ReadDecision::Proceed => {}
        ReadDecision::NotModified => {
            let mut response = response::empty(StatusCode::NOT_MODIFIED);
            response::add_validators(response.headers_mut(), version);
            response::add_version_of(response.headers_mut(), request.bucket()?, version);
            return Ok(Plan::Answer(response));
        }
        ReadDecision::Failed(condition) => {
            return Err(
                S3Error::new(S3ErrorCode::PreconditionFailed).detail("Condition", condition)
            );
        }
    }
    if let Some(number) = request.query.get("partNumber") {
        return part_selection(request, version, number).map(Plan::Send);
    }
    let whole = Selection { first: 0, len: version.size, partial: false, part: None };
    let range = headers.get(RANGE).filter(|_| etag::if_range_holds(headers, version));
    let Some(range) = range else { return Ok(Plan::Send(whole)) };
    match range::parse(range.as_bytes(), version.size) {
        Requested::Whole => Ok(Plan::Send(whole)),
        Requested::Part { first, len } => {
            Ok(Plan::Send(Selection { first, len, partial: true, part: None }))
        }
        Requested::Unsatisfiable => Err(unsatisfiable(range, version.size)),
    }
}

fn unsatisfiable(range: &HeaderValue, size: u64) -> S3Error {
    S3Error::new(S3ErrorCode::InvalidRange)
        .detail("RangeRequested", String::from_utf8_lossy(range.as_bytes()))
        .detail("ActualObjectSize", size.to_string())
        .header(CONTENT_RANGE, response::header_value(&format!("bytes */{size}")))
}

/// The bytes of one part. An object that was not made of parts has one: itself.
///
/// **Errors** `InvalidArgument` for what is no part number, `InvalidRequest` together with a range,
/// `InvalidPart` for a part that the object does not have.
fn part_selection(
    request: &S3Request<'_>,
    version: &ObjectVersion,
    number: &str,
) -> Result<Selection, S3Error> {
    let number = crate::s3::request::parse_part_number(number)?;
    if request.headers.contains_key(RANGE) {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest)
            .message("Cannot specify both Range header and partNumber query parameter."));
    }
    let invalid = || S3Error::new(S3ErrorCode::InvalidPart);
    if version.parts.is_empty() {
        let partial = version.size > 0;
        let whole = Selection { first: 0, len: version.size, partial, part: None };
        return if number == 1 { Ok(whole) } else { Err(invalid()) };
    }
    let at = version.parts.iter().position(|part| part.number == number).ok_or_else(invalid)?;
    let first = version.parts[..at].iter().map(|part| part.size).sum();
    let len = version.parts[at].size;
    Ok(Selection { first, len, partial: len > 0, part: Some(at) })
}

/// The answer without its bytes.
fn head_of(request: &S3Request<'_>, version: &ObjectVersion, selection: &Selection) -> S3Result {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    // The usual number of headers, so that the map grows once.
    headers.reserve(16 + version.metadata.user.len());
    response::add_object_headers(headers, version);
    response::add_version_of(headers, request.bucket()?, version);
    headers.insert(CONTENT_LENGTH, response::displayed(selection.len));
    if selection.part.is_some() {
        let parts = response::displayed(version.parts.len());
        headers.insert(HeaderName::from_static("x-amz-mp-parts-count"), parts);
    }
    add_checksum(headers, request, version, selection);
    if selection.partial {
        let last = selection.first + selection.len - 1;
        let range = format_args!("bytes {}-{last}/{}", selection.first, version.size);
        headers.insert(CONTENT_RANGE, response::displayed(range));
    }
    override_headers(request, headers)?;
    if selection.partial {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// Adds the checksum, when the client asks for it: that of the object with all of it, that of a
/// part with that part. Clients verify what they receive against it, so none goes with a range.
fn add_checksum(
    headers: &mut HeaderMap,
    request: &S3Request<'_>,
    version: &ObjectVersion,
    selection: &Selection,
) {
    let mode = request.headers.get("x-amz-checksum-mode");
    if !mode.is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"enabled")) {
        return;
    }
    let Some(whole) = &version.checksum else { return };
    match selection.part.and_then(|at| version.parts[at].checksum.as_ref()) {
        Some(part) => {
            response::add_checksum_value(headers, part, 0);
            response::add_checksum_kind(headers, whole.kind);
        }
        None if selection.partial => {}
        None => response::add_checksum(headers, whole, version.etag.parts as usize),
    }
}

/// Applies `response-*` parameters.
///
/// **Errors** `InvalidRequest` for an anonymous caller, who could make others' pages of an object.
fn override_headers(request: &S3Request<'_>, headers: &mut HeaderMap) -> Result<(), S3Error> {
    const OVERRIDES: [(&str, HeaderName); 6] = [
        ("response-content-type", CONTENT_TYPE),
        ("response-content-language", CONTENT_LANGUAGE),
        ("response-expires", EXPIRES),
        ("response-cache-control", CACHE_CONTROL),
        ("response-content-disposition", CONTENT_DISPOSITION),
        ("response-content-encoding", CONTENT_ENCODING),
    ];
    let query = &request.query;
    if query.pairs().is_empty() {
        return Ok(());
    }
    for (parameter, name) in OVERRIDES {
        let Some(value) = query.get(parameter) else { continue };
        if request.caller().is_anonymous() {
            return Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
                "Request specific response headers cannot be used for anonymous GET requests.",
            ));
        }
        // A line end in the value would let a link's author write headers of his own.
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            S3Error::new(S3ErrorCode::InvalidArgument)
                .message("The value cannot stand in a response header")
                .argument(parameter, value)
        })?;
        headers.insert(name, value);
    }
    Ok(())
}
