//! Entity tags and the conditions of reads and copies.
//!
//! Pure. Conditions on writes are read in `headers` and decided at the commit.
//!
//! **Source** RFC 9110, 13.1 and 13.2.2: tags beat dates, and dates that are none are ignored.

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName};

use super::error::{S3Error, S3ErrorCode};
use super::time::parse_http_date;
use crate::model::{EtagMatch, ObjectVersion};

/// What the conditions of a read come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadDecision {
    Proceed,
    /// 304
    NotModified,
    /// 412, with the header's name.
    Failed(&'static str),
}

/// The names under which one set of conditions is sent.
struct Names {
    if_match: HeaderName,
    if_none_match: HeaderName,
    if_modified_since: HeaderName,
    if_unmodified_since: HeaderName,
}

/// Judges If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since of a read.
pub fn decide_read(headers: &HeaderMap, version: &ObjectVersion) -> ReadDecision {
    const NAMES: Names = Names {
        if_match: IF_MATCH,
        if_none_match: IF_NONE_MATCH,
        if_modified_since: IF_MODIFIED_SINCE,
        if_unmodified_since: IF_UNMODIFIED_SINCE,
    };
    decide(headers, version, &NAMES)
}

/// Judges `x-amz-copy-source-if-*`. **Errors** `PreconditionFailed`.
pub fn check_copy_source(headers: &HeaderMap, version: &ObjectVersion) -> Result<(), S3Error> {
    const NAMES: Names = Names {
        if_match: HeaderName::from_static("x-amz-copy-source-if-match"),
        if_none_match: HeaderName::from_static("x-amz-copy-source-if-none-match"),
        if_modified_since: HeaderName::from_static("x-amz-copy-source-if-modified-since"),
        if_unmodified_since: HeaderName::from_static("x-amz-copy-source-if-unmodified-since"),
    };
    require(headers, version, &NAMES, "x-amz-copy-source-")
}

/// Judges `x-amz-rename-source-if-*`. **Errors** `PreconditionFailed`.
pub fn check_rename_source(headers: &HeaderMap, version: &ObjectVersion) -> Result<(), S3Error> {
    const NAMES: Names = Names {
        if_match: HeaderName::from_static("x-amz-rename-source-if-match"),
        if_none_match: HeaderName::from_static("x-amz-rename-source-if-none-match"),
        if_modified_since: HeaderName::from_static("x-amz-rename-source-if-modified-since"),
        if_unmodified_since: HeaderName::from_static("x-amz-rename-source-if-unmodified-since"),
    };
    require(headers, version, &NAMES, "x-amz-rename-source-")
}

/// Judges the four conditions of a write that has them all, RenameObject.
///
/// **Errors** `PreconditionFailed`.
pub fn check_destination(headers: &HeaderMap, version: &ObjectVersion) -> Result<(), S3Error> {
    const NAMES: Names = Names {
        if_match: IF_MATCH,
        if_none_match: IF_NONE_MATCH,
        if_modified_since: IF_MODIFIED_SINCE,
        if_unmodified_since: IF_UNMODIFIED_SINCE,
    };
    require(headers, version, &NAMES, "")
}

/// Every condition must hold; `prefix` stands before the name of one that does not.
fn require(
    headers: &HeaderMap,
    version: &ObjectVersion,
    names: &Names,
    prefix: &str,
) -> Result<(), S3Error> {
    let failed = match decide(headers, version, names) {
        ReadDecision::Proceed => return Ok(()),
        ReadDecision::Failed(condition) => condition,
        ReadDecision::NotModified if headers.contains_key(&names.if_none_match) => "If-None-Match",
        ReadDecision::NotModified => "If-Modified-Since",
    };
    Err(S3Error::new(S3ErrorCode::PreconditionFailed)
        .detail("Condition", format!("{prefix}{failed}")))
}

fn decide(headers: &HeaderMap, version: &ObjectVersion, names: &Names) -> ReadDecision {
    let modified = version.modified_ms.div_euclid(1000);
    if let Some(tags) = tags(headers, &names.if_match) {
        if !tags.matches(&version.etag) {
            return ReadDecision::Failed("If-Match");
        }
    } else if date(headers, &names.if_unmodified_since).is_some_and(|secs| modified > secs) {
        return ReadDecision::Failed("If-Unmodified-Since");
    }
    if let Some(tags) = tags(headers, &names.if_none_match) {
        if tags.matches(&version.etag) {
            return ReadDecision::NotModified;
        }
    } else if date(headers, &names.if_modified_since).is_some_and(|secs| modified <= secs) {
        return ReadDecision::NotModified;
    }
    ReadDecision::Proceed
}

/// True unless an If-Range header names another version, so that its range is not applied.
pub fn if_range_holds(headers: &HeaderMap, version: &ObjectVersion) -> bool {
    let Some(value) = headers.get(IF_RANGE) else { return true };
    let text = String::from_utf8_lossy(value.as_bytes());
    match parse_http_date(&text) {
        Some(secs) => version.modified_ms.div_euclid(1000) == secs,
        // A weak tag never matches: RFC 9110, 13.1.5.
        None => !text.trim_start().starts_with("W/") && parse_list(&text).matches(&version.etag),
    }
}

/// The tags of a header; several lines count as one list.
pub fn tags(headers: &HeaderMap, name: &HeaderName) -> Option<EtagMatch> {
    let mut values = headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()));
    let first = values.next()?;
    let joined = values.fold(first.into_owned(), |all, next| all + "," + &next);
    Some(parse_list(&joined))
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    headers.get(name).and_then(|value| value.to_str().ok()).and_then(parse_http_date)
}

/// A list of tags, quoted or bare, weak or strong; `*` is any.
pub fn parse_list(text: &str) -> EtagMatch {
    // The tags of objects hold no comma, so that splitting there is exact for every tag of ours.
    let items: Vec<_> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.contains(&"*") {
        return EtagMatch::Any;
    }
    let bare = |item: &str| {
        let strong = item.strip_prefix("W/").unwrap_or(item);
        strong.trim_matches('"').to_owned()
    };
    EtagMatch::Tags(items.into_iter().map(bare).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ETag, Lsn, ObjectMetadata, OwnerId, VersionId};
    use http::HeaderValue;

    const TAG: &str = "\"5d41402abc4b2a76b9719d911017c592\"";
    const BEFORE: &str = "Wed, 31 Dec 2025 00:00:00 GMT";
    const AFTER: &str = "Sat, 03 Jan 2026 00:00:00 GMT";

    /// Modified on 2 January 2026.
    fn version() -> ObjectVersion {
        let mut md5 = [0; 16];
        hex::decode_to_slice(TAG.trim_matches('"'), &mut md5).expect("hex");
        ObjectVersion {
            lsn: Lsn(1),
            version_id: VersionId::NULL,
            delete_marker: false,
            size: 5,
            modified_ms: 1_767_312_000_500,
            etag: ETag { md5, parts: 0 },
            owner: OwnerId::new("o"),
            metadata: ObjectMetadata::default(),
            checksum: None,
            parts: Vec::new(),
            extents: Vec::new(),
        }
    }

    fn check(headers: &[(&HeaderName, &str)], want: ReadDecision) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).expect("a header value"));
        }
        assert_eq!(decide_read(&map, &version()), want, "{headers:?}");
    }

    #[test]
    fn cond_03_tags_beat_dates() {
        let failed = ReadDecision::Failed;
        for (tag, tag_holds) in [(TAG, true), ("\"x\"", false)] {
            for date in [BEFORE, AFTER, "yesterday"] {
                let want = if tag_holds { ReadDecision::Proceed } else { failed("If-Match") };
                check(&[(&IF_MATCH, tag), (&IF_UNMODIFIED_SINCE, date)], want);
                let want =
                    if tag_holds { ReadDecision::NotModified } else { ReadDecision::Proceed };
                check(&[(&IF_NONE_MATCH, tag), (&IF_MODIFIED_SINCE, date)], want);
            }
        }
        check(&[(&IF_UNMODIFIED_SINCE, BEFORE)], failed("If-Unmodified-Since"));
        check(&[(&IF_UNMODIFIED_SINCE, AFTER)], ReadDecision::Proceed);
        check(&[(&IF_MODIFIED_SINCE, BEFORE)], ReadDecision::Proceed);
        check(&[(&IF_MODIFIED_SINCE, AFTER)], ReadDecision::NotModified);
        check(&[(&IF_MODIFIED_SINCE, "Fri, 02 Jan 2026 00:00:00 GMT")], ReadDecision::NotModified);
        check(&[(&IF_MODIFIED_SINCE, "soon")], ReadDecision::Proceed);
    }

    #[test]
    fn cond_05_lists_stars_bare_and_weak_tags() {
        let bare = TAG.trim_matches('"');
        check(&[(&IF_NONE_MATCH, &format!("\"x\", {TAG}"))], ReadDecision::NotModified);
        check(&[(&IF_NONE_MATCH, "\"x\""), (&IF_NONE_MATCH, TAG)], ReadDecision::NotModified);
        check(&[(&IF_MATCH, "*")], ReadDecision::Proceed);
        check(&[(&IF_NONE_MATCH, "*")], ReadDecision::NotModified);
        check(&[(&IF_MATCH, bare)], ReadDecision::Proceed);
        check(&[(&IF_NONE_MATCH, &format!("W/{TAG}"))], ReadDecision::NotModified);
    }

    #[test]
    fn if_range_applies_the_range_to_the_same_version_only() {
        let check = |value: &'static str, want| {
            let mut map = HeaderMap::new();
            map.insert(IF_RANGE, HeaderValue::from_static(value));
            assert_eq!(if_range_holds(&map, &version()), want, "{value}");
        };
        check(TAG, true);
        check("\"x\"", false);
        check("W/\"5d41402abc4b2a76b9719d911017c592\"", false);
        check("Fri, 02 Jan 2026 00:00:00 GMT", true);
        check(BEFORE, false);
        assert!(if_range_holds(&HeaderMap::new(), &version()));
    }
}
