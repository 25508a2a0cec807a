//! The query string: kept raw, decoded once into pairs.
//!
//! Pure. Owns how a query is decoded; it knows no parameter's meaning.

use super::error::{S3Error, S3ErrorCode};
use super::host::percent_decode;

/// The decoded query of a request, in the order received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    raw: String,
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Decodes `raw`, what stands behind the `?`. A `+` is a space, as signers and browsers have
    /// it; a name without `=` has an empty value.
    ///
    /// **Errors** `InvalidURI` for a broken escape or text that is not UTF-8.
    pub fn parse(raw: &str) -> Result<Query, S3Error> {
        let mut pairs = Vec::with_capacity(raw.bytes().filter(|byte| *byte == b'&').count() + 1);
        for (name, value) in split(raw) {
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Query { raw: raw.to_owned(), pairs })
    }

    /// As received.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// The same pairs as `pairs`, as received.
    pub fn raw_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        split(&self.raw)
    }

    /// All pairs in the order received, decoded.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The value of the first parameter of that name; empty when it has none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Whether there is a parameter of that name, as for sub-resources such as `uploads`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

fn split(raw: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = raw.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

fn decode(text: &str) -> Result<String, S3Error> {
    if !text.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Ok(text.to_owned());
    }
    percent_decode(&text.replace('+', " "))
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| S3ErrorCode::InvalidURI.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_names_values_and_bare_names() {
        let query = Query::parse("uploads&prefix=a%20b+c%2Bd&x=1=2&&prefix=second&e=").unwrap();
        assert_eq!(query.get("uploads"), Some(""));
        assert_eq!(query.get("prefix"), Some("a b c+d"));
        assert_eq!(query.get("x"), Some("1=2"));
        assert!(query.has("e"));
        assert!(!query.has("Uploads"));
        assert_eq!(query.pairs().len(), 5);
        assert_eq!(Query::parse("").unwrap(), Query::default());
    }

    #[test]
    fn sig_02_a_plain_semicolon_is_data() {
        let query = Query::parse("response-content-disposition=attachment;filename%3D%22t%22");
        let query = query.unwrap();
        assert_eq!(query.get("response-content-disposition"), Some("attachment;filename=\"t\""));
    }

    #[test]
    fn broken_escapes_are_refused() {
        for raw in ["a=%", "a=%2", "a=%zz", "%ff=1", "a=%C3%28"] {
            assert_eq!(Query::parse(raw).unwrap_err().code(), S3ErrorCode::InvalidURI, "{raw}");
        }
    }
}
