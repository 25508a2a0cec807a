//! Object lock in headers and documents.
//!
//! Pure. Owns what is lawful there and how it is written; what a lock allows is decided at the
//! commit, not here.
//!
//! **Source** AWS S3 API reference, PutObjectLockConfiguration, PutObjectRetention,
//! PutObjectLegalHold; AWS S3 user guide, "Object Lock".

use http::{HeaderMap, HeaderName, HeaderValue};

use super::error::{S3Error, S3ErrorCode};
use super::headers::text;
use super::response::header_value;
use super::time::{iso_date, parse_iso_ms};
use super::xml::{self, Element, XmlWriter};
use crate::model::lock::{DefaultRetention, ObjectLock, Retention, RetentionMode, RetentionPeriod};
use crate::model::{Bucket, ObjectMetadata, User};

const MODE: HeaderName = HeaderName::from_static("x-amz-object-lock-mode");
const UNTIL: HeaderName = HeaderName::from_static("x-amz-object-lock-retain-until-date");
const LEGAL_HOLD: HeaderName = HeaderName::from_static("x-amz-object-lock-legal-hold");
/// The longest default, as AWS has it.
const DAYS_MAX: u32 = 36_500;
const YEARS_MAX: u32 = 100;

/// True when a write asks for a lock.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    [MODE, UNTIL, LEGAL_HOLD].iter().any(|name| headers.contains_key(name))
}

/// The lock that a write asks for: a retention and a legal hold.
///
/// **Errors** `InvalidArgument` for an unknown mode or state, for what is no time, and for a mode
/// without a time or the other way round.
pub fn of_write(headers: &HeaderMap) -> Result<(Option<Retention>, Option<bool>), S3Error> {
    let invalid = |name: HeaderName, message: &'static str| {
        let value = text(headers, name.as_str()).unwrap_or_default();
        S3Error::new(S3ErrorCode::InvalidArgument).message(message).argument(name.as_str(), value)
    };
    let legal_hold = match text(headers, LEGAL_HOLD.as_str()) {
        None => None,
        Some("ON") => Some(true),
        Some("OFF") => Some(false),
        Some(_) => {
            return Err(invalid(LEGAL_HOLD, "Legal Hold must be either of 'ON' or 'OFF'"));
        }
    };
    let (mode, until) = (headers.get(MODE), headers.get(UNTIL));
    if mode.is_none() && until.is_none() {
        return Ok((None, legal_hold));
    }
    let both = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be \
                supplied";
    let mode = mode.ok_or_else(|| invalid(MODE, both))?;
    let until = until.ok_or_else(|| invalid(UNTIL, both))?;
    let mode = mode.to_str().ok().and_then(RetentionMode::parse);
    let mode = mode.ok_or_else(|| invalid(MODE, "Unknown wormMode directive."))?;
    let until_ms = until.to_str().ok().and_then(parse_iso_ms).ok_or_else(|| {
        invalid(UNTIL, "The retain until date must be provided in ISO 8601 format")
    })?;
    Ok((Some(Retention { mode, until_ms }), legal_hold))
}

/// Adds what a version's lock is.
pub fn add_headers(headers: &mut HeaderMap, metadata: &ObjectMetadata) {
    if let Some(retention) = &metadata.retention {
        headers.insert(MODE, HeaderValue::from_static(retention.mode.name()));
        headers.insert(UNTIL, header_value(&iso_date(retention.until_ms)));
    }
    if let Some(on) = metadata.legal_hold {
        headers.insert(LEGAL_HOLD, HeaderValue::from_static(hold_name(on)));
    }
}

/// True when the caller bypasses governance retentions: asks for it, and owns the bucket.
pub fn bypasses(headers: &HeaderMap, caller: &User, bucket: &Bucket) -> bool {
    let asked = text(headers, "x-amz-bypass-governance-retention");
    asked.is_some_and(|value| value.eq_ignore_ascii_case("true"))
        && caller.canonical_id == bucket.owner
}

fn hold_name(on: bool) -> &'static str {
    if on { "ON" } else { "OFF" }
}

fn malformed() -> S3Error {
    S3Error::new(S3ErrorCode::MalformedXML)
}

/// A `<Retention>`; an empty one takes the retention off.
///
/// **Errors** `MalformedXML`.
pub fn retention_of(document: &[u8]) -> Result<Option<Retention>, S3Error> {
    let root = xml::parse(document)?;
    root.expect_name("Retention")?;
    root.expect_children(&["Mode", "RetainUntilDate"])?;
    match (root.child_text("Mode"), root.child_text("RetainUntilDate")) {
        (None, None) => Ok(None),
        (Some(mode), Some(until)) => {
            let mode = RetentionMode::parse(mode).ok_or_else(malformed)?;
            let until_ms = parse_iso_ms(until).ok_or_else(malformed)?;
            Ok(Some(Retention { mode, until_ms }))
        }
        _ => Err(malformed()),
    }
}

pub fn retention_xml(retention: &Retention) -> String {
    let mut xml = XmlWriter::document("Retention", 256);
    xml.element("Mode", retention.mode.name());
    xml.element("RetainUntilDate", &iso_date(retention.until_ms));
    xml.finish()
}

/// A `<LegalHold>`. **Errors** `MalformedXML`.
pub fn legal_hold_of(document: &[u8]) -> Result<bool, S3Error> {
    let root = xml::parse(document)?;
    root.expect_name("LegalHold")?;
    root.expect_children(&["Status"])?;
    match root.child_text("Status") {
        Some("ON") => Ok(true),
        Some("OFF") => Ok(false),
        _ => Err(malformed()),
    }
}

pub fn legal_hold_xml(on: bool) -> String {
    let mut xml = XmlWriter::document("LegalHold", 128);
    xml.element("Status", hold_name(on));
    xml.finish()
}

/// An `<ObjectLockConfiguration>`.
///
/// **Errors** `MalformedXML`, `InvalidRetentionPeriod` for a period that is not positive or longer
/// than AWS allows.
pub fn configuration_of(document: &[u8]) -> Result<ObjectLock, S3Error> {
    let root = xml::parse(document)?;
    root.expect_name("ObjectLockConfiguration")?;
    root.expect_children(&["ObjectLockEnabled", "Rule"])?;
    if root.child_text("ObjectLockEnabled").is_some_and(|text| text != "Enabled") {
        return Err(malformed());
    }
    let Some(rule) = root.child("Rule") else { return Ok(ObjectLock::default()) };
    rule.expect_children(&["DefaultRetention"])?;
    let default = rule.child("DefaultRetention").ok_or_else(malformed)?;
    default_of(default).map(|default| ObjectLock { default: Some(default) })
}

fn default_of(element: &Element<'_>) -> Result<DefaultRetention, S3Error> {
    element.expect_children(&["Mode", "Days", "Years"])?;
    let mode = element.child_text("Mode").and_then(RetentionMode::parse).ok_or_else(malformed)?;
    let count = |text: &str, max: u32| {
        let number: i64 = text.trim().parse().map_err(|_| malformed())?;
        let number = u32::try_from(number).ok().filter(|n| (1..=max).contains(n));
        number.ok_or_else(|| S3Error::new(S3ErrorCode::InvalidRetentionPeriod))
    };
    let period = match (element.child_text("Days"), element.child_text("Years")) {
        (Some(days), None) => RetentionPeriod::Days(count(days, DAYS_MAX)?),
        (None, Some(years)) => RetentionPeriod::Years(count(years, YEARS_MAX)?),
        _ => return Err(malformed()),
    };
    Ok(DefaultRetention { mode, period })
}

pub fn configuration_xml(lock: &ObjectLock) -> String {
    let mut xml = XmlWriter::document("ObjectLockConfiguration", 512);
    xml.element("ObjectLockEnabled", "Enabled");
    if let Some(default) = &lock.default {
        xml.open("Rule");
        xml.open("DefaultRetention");
        xml.element("Mode", default.mode.name());
        match default.period {
            RetentionPeriod::Days(days) => xml.number("Days", days.into()),
            RetentionPeriod::Years(years) => xml.number("Years", years.into()),
        }
        xml.close("DefaultRetention");
        xml.close("Rule");
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(inner: &str) -> Result<ObjectLock, S3ErrorCode> {
        let enabled = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>";
        let text = format!("<ObjectLockConfiguration>{enabled}{inner}</ObjectLockConfiguration>");
        configuration_of(text.as_bytes()).map_err(|error| error.code())
    }

    fn rule(inner: &str) -> Result<ObjectLock, S3ErrorCode> {
        configuration(&format!("<Rule><DefaultRetention>{inner}</DefaultRetention></Rule>"))
    }

    #[test]
    fn configurations_are_read_and_written() {
        assert_eq!(configuration(""), Ok(ObjectLock::default()));
        let lock = rule("<Mode>GOVERNANCE</Mode><Days>1</Days>").expect("lawful");
        assert_eq!(configuration_of(configuration_xml(&lock).as_bytes()).ok(), Some(lock));
        let until = lock.default.map(|default| default.from(1_000).until_ms);
        assert_eq!(until, Some(86_401_000));
        let lock = rule("<Mode>COMPLIANCE</Mode><Years>100</Years>").expect("lawful");
        assert_eq!(configuration_of(configuration_xml(&lock).as_bytes()).ok(), Some(lock));
    }

    #[test]
    fn wrong_configurations_are_refused() {
        for inner in [
            "<Mode>GOVERNANCE</Mode>",
            "<Days>1</Days>",
            "<Mode>governance</Mode><Days>1</Days>",
            "<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>",
            "<Mode>GOVERNANCE</Mode><Days>one</Days>",
        ] {
            assert_eq!(rule(inner), Err(S3ErrorCode::MalformedXML), "{inner}");
        }
        assert_eq!(configuration("<Rule/>"), Err(S3ErrorCode::MalformedXML));
        for period in ["<Days>0</Days>", "<Years>-1</Years>", "<Days>36501</Days>"] {
            let found = rule(&format!("<Mode>GOVERNANCE</Mode>{period}"));
            assert_eq!(found, Err(S3ErrorCode::InvalidRetentionPeriod), "{period}");
        }
    }

    #[test]
    fn documents_of_versions_are_read_and_written() {
        let retention = Retention { mode: RetentionMode::Compliance, until_ms: 1_900_000_000_123 };
        let written = retention_xml(&retention);
        assert_eq!(retention_of(written.as_bytes()).ok(), Some(Some(retention)));
        assert_eq!(retention_of(b"<Retention/>").ok(), Some(None));
        assert!(retention_of(b"<Retention><Mode>GOVERNANCE</Mode></Retention>").is_err());
        for on in [true, false] {
            assert_eq!(legal_hold_of(legal_hold_xml(on).as_bytes()).ok(), Some(on));
        }
        assert!(legal_hold_of(b"<LegalHold><Status>on</Status></LegalHold>").is_err());
    }

    #[test]
    fn headers_come_in_pairs() {
        let read = |pairs: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(name, HeaderValue::from_static(value));
            }
            of_write(&headers)
        };
        let until = (UNTIL, "2030-01-01T00:00:00Z");
        let (retention, hold) =
            read(&[(MODE, "GOVERNANCE"), until.clone(), (LEGAL_HOLD, "ON")]).expect("lawful");
        assert_eq!(retention.map(|r| r.until_ms), Some(1_893_456_000_000));
        assert_eq!(hold, Some(true));
        for wrong in [
            vec![(MODE, "GOVERNANCE")],
            vec![until.clone()],
            vec![(MODE, "governance"), until],
            vec![(MODE, "GOVERNANCE"), (UNTIL, "tomorrow")],
            vec![(LEGAL_HOLD, "on")],
        ] {
            let error = read(&wrong).expect_err("refused");
            assert_eq!(error.code(), S3ErrorCode::InvalidArgument, "{wrong:?}");
        }
    }
}
