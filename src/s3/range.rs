//! The Range header of a read.
//!
//! Pure. One range is served; several are answered with the whole object, and what is no range is
//! ignored, both as S3 does.
//!
//! **Source** RFC 9110, 14.1.2 and 14.2.

/// The bytes that a Range header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// All: no range, several, or none that can be understood.
    Whole,
    /// `len` bytes from `first`; at least one, all inside the object.
    Part { first: u64, len: u64 },
    /// 416: the object has no such byte.
    Unsatisfiable,
}

/// Reads a Range value for an object of `size` bytes.
pub fn parse(value: &[u8], size: u64) -> Requested {
    match spec(value) {
        None => Requested::Whole,
        Some(Spec::From { first, .. }) if first >= size => Requested::Unsatisfiable,
        Some(Spec::From { first, last }) => {
            let last = last.unwrap_or(u64::MAX).min(size - 1);
            Requested::Part { first, len: last - first + 1 }
        }
        Some(Spec::Last(0)) => Requested::Unsatisfiable,
        Some(Spec::Last(_)) if size == 0 => Requested::Unsatisfiable,
        Some(Spec::Last(count)) => {
            let len = count.min(size);
            Requested::Part { first: size - len, len }
        }
    }
}

enum Spec {
    From {
        first: u64,
        last: Option<u64>,
    },
    /// The last so many bytes.
    Last(u64),
}

/// The one range of a value; `None` when there are several or it is none.
fn spec(value: &[u8]) -> Option<Spec> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let (unit, set) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return None;
    }
    match set.trim().split_once('-')? {
        ("", count) => Some(Spec::Last(number(count)?)),
        (first, "") => Some(Spec::From { first: number(first)?, last: None }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Spec::From { first, last: Some(last) })
        }
    }
}

/// Digits only. A number that does not fit is as good as the largest: it lies behind any object.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: &str, size: u64, want: Requested) {
        assert_eq!(parse(value.as_bytes(), size), want, "{value} of {size}");
    }

    #[test]
    fn single_ranges() {
        let part = |first, len| Requested::Part { first, len };
        check("bytes=0-0", 10, part(0, 1));
        check("bytes=2-4", 10, part(2, 3));
        check("bytes=5-", 10, part(5, 5));
        check("bytes=-3", 10, part(7, 3));
        check("bytes=-30", 10, part(0, 10));
        check("bytes=8-100", 10, part(8, 2));
        check("bytes=0-99999999999999999999999", 10, part(0, 10));
        check("Bytes = 1-2", 10, part(1, 2));
        check("bytes=10-", 10, Requested::Unsatisfiable);
        check("bytes=99999999999999999999999-", 10, Requested::Unsatisfiable);
    }

    #[test]
    fn http_01_an_empty_object_has_no_range() {
        for value in ["bytes=0-", "bytes=0-0", "bytes=-5", "bytes=-0"] {
            check(value, 0, Requested::Unsatisfiable);
        }
    }

    #[test]
    fn http_02_what_is_no_range_is_ignored() {
        let values =
            ["bytes=abc", "bytes=7-3", "items=0-1", "bytes=", "bytes=1-2-3", "bytes=0-1,4-5", ""];
        for value in values {
            check(value, 10, Requested::Whole);
        }
    }

    proptest! {
        #[test]
        fn a_part_lies_inside_the_object(
            value in "bytes=[0-9]{0,3}-[0-9]{0,3}",
            size in 0u64..500,
        ) {
            if let Requested::Part { first, len } = parse(value.as_bytes(), size) {
                prop_assert!(len > 0 && first + len <= size);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&value, 7);
        }
    }
}
