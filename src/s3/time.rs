//! The date forms that S3 speaks: HTTP dates, the basic ISO form of SigV4, the extended one of XML.
//!
//! Pure. A text that is no date is `None`, never an error: what that means depends on the header.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

/// `2026-01-02T03:04:05.000Z`, as listings and documents show times.
///
/// **Units** Milliseconds since the Unix epoch.
pub fn iso_date(ms: i64) -> String {
    let t = utc(ms);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        t.year(),
        u8::from(t.month()),
        t.day(),
        t.hour(),
        t.minute(),
        t.second(),
        t.millisecond()
    )
}

/// `Fri, 02 Jan 2026 03:04:05 GMT`; times before 1970 or after 9999 show as the nearest that fits.
///
/// **Source** RFC 9110, 5.6.7 (IMF-fixdate).
pub fn http_date(ms: i64) -> impl fmt::Display {
    const MAX_SECS: u64 = 253_402_300_799;
    let secs = u64::try_from(ms.div_euclid(1000)).unwrap_or(0).min(MAX_SECS);
    httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(secs))
}

/// Whole seconds since the Unix epoch of an HTTP date in any of its three forms.
///
/// **Source** RFC 9110, 5.6.7.
pub fn parse_http_date(text: &str) -> Option<i64> {
    let at: SystemTime = httpdate::parse_http_date(text.trim()).ok()?;
    i64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Whole seconds since the Unix epoch of an RFC 2822 date with a zone offset, which old clients
/// send as `Date`.
///
/// **Source** RFC 5322, 3.3.
pub fn parse_mail_date(text: &str) -> Option<i64> {
    use time::format_description::well_known::Rfc2822;
    OffsetDateTime::parse(text.trim(), &Rfc2822).ok().map(OffsetDateTime::unix_timestamp)
}

/// Whole seconds since the Unix epoch of `20260102T030405Z`.
///
/// **Shape** Exactly 16 characters. **Source** AWS SigV4, "Date and time stamp".
pub fn parse_amz_date(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(8)?;
    let clock = rest.strip_prefix('T')?.strip_suffix('Z')?;
    if clock.len() != 6 {
        return None;
    }
    let two = |at: usize| digits(clock.get(at..at + 2)?).and_then(|n| u8::try_from(n).ok());
    let time = Time::from_hms(two(0)?, two(2)?, two(4)?).ok()?;
    Some(PrimitiveDateTime::new(parse_day(date)?, time).assume_utc().unix_timestamp())
}

/// Whole seconds since the Unix epoch of an extended ISO 8601 time, such as
/// `2026-01-02T03:04:05.000Z`.
pub fn parse_iso_date(text: &str) -> Option<i64> {
    use time::format_description::well_known::Rfc3339;
    OffsetDateTime::parse(text.trim(), &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

/// The same in milliseconds.
pub fn parse_iso_ms(text: &str) -> Option<i64> {
    use time::format_description::well_known::Rfc3339;
    let time = OffsetDateTime::parse(text.trim(), &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

/// `20260102T030405Z` of a time in whole seconds since the Unix epoch.
pub fn amz_date(secs: i64) -> String {
    let t = utc(secs.saturating_mul(1000));
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        t.year(),
        u8::from(t.month()),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    )
}

/// Whether `text` is a day as `20260102`.
pub fn is_day(text: &str) -> bool {
    parse_day(text).is_some()
}

fn parse_day(text: &str) -> Option<Date> {
    if text.len() != 8 {
        return None;
    }
    let year = i32::try_from(digits(text.get(..4)?)?).ok()?;
    let month = Month::try_from(u8::try_from(digits(text.get(4..6)?)?).ok()?).ok()?;
    Date::from_calendar_date(year, month, u8::try_from(digits(text.get(6..)?)?).ok()?).ok()
}

/// A number of ASCII digits only: no sign, no space.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn utc(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .to_offset(UtcOffset::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_767_323_045_678;

    #[test]
    fn forms_of_one_moment() {
        assert_eq!(iso_date(MS), "2026-01-02T03:04:05.678Z");
        assert_eq!(http_date(MS).to_string(), "Fri, 02 Jan 2026 03:04:05 GMT");
        assert_eq!(amz_date(MS / 1000), "20260102T030405Z");
        assert_eq!(parse_amz_date("20260102T030405Z"), Some(MS / 1000));
        assert_eq!(parse_http_date("Fri, 02 Jan 2026 03:04:05 GMT"), Some(MS / 1000));
        assert_eq!(parse_http_date("Friday, 02-Jan-26 03:04:05 GMT"), Some(MS / 1000));
        assert_eq!(parse_http_date("Fri Jan  2 03:04:05 2026"), Some(MS / 1000));
        assert_eq!(parse_mail_date("Fri, 02 Jan 2026 04:04:05 +0100"), Some(MS / 1000));
        assert_eq!(parse_iso_date("2026-01-02T03:04:05.678Z"), Some(MS / 1000));
    }

    #[test]
    fn what_is_no_date_is_none() {
        let wrong = [
            "",
            "Bad Date",
            "20260102",
            "20260102T030405",
            "20260102T0304056Z",
            "20261302T030405Z",
            "20260230T030405Z",
            "20260102T240000Z",
            "+0260102T030405Z",
            "2026010éT03040Z",
            "20260102T+30405Z",
            "20260102t030405z",
        ];
        for text in wrong {
            assert_eq!(parse_amz_date(text), None, "{text}");
            assert_eq!(parse_http_date(text), None, "{text}");
            assert_eq!(parse_iso_date(text), None, "{text}");
        }
        assert!(is_day("20240229"));
        assert!(!is_day("20230229"));
    }

    #[test]
    fn extremes_do_not_panic() {
        for ms in [i64::MIN, -1, 0, i64::MAX] {
            iso_date(ms);
            http_date(ms);
            amz_date(ms);
        }
        assert_eq!(http_date(-5).to_string(), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(parse_amz_date("19500707T215304Z"), Some(-614_916_416));
        assert!(parse_amz_date("99990707T215304Z").is_some());
    }
}
