//! What the listing operations share: their parameters, page positions and rows.
//!
//! Pure. Keys are UTF-8 and ordered as bytes; nothing here knows directories.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::model::{Checksum, ObjectVersion, OwnerId, User};
use crate::s3::error::{S3Error, S3ErrorCode};
use crate::s3::query::Query;
use crate::s3::response::{checksum_text, quoted_etag};
use crate::s3::xml::{XmlWriter, iso_date};
use crate::store::ListObjects;

/// The most rows of one page, of every listing, as AWS has it.
pub const ROWS_MAX: usize = 1000;

/// How names stand in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameEncoding {
    /// As they are, with XML escapes.
    Plain,
    /// `encoding-type=url`
    Url,
}

/// Parameters that all listings of keys have.
#[derive(Clone, Debug)]
pub struct ListParameters {
    pub prefix: String,
    pub delimiter: String,
    pub rows_max: usize,
    pub encoding: NameEncoding,
}

impl ListParameters {
    /// Reads them; `count` is the name of the row limit (`max-keys`, `max-uploads`).
    ///
    /// **Errors** `InvalidArgument` for a limit that is no number or negative and for an unknown
    /// encoding.
    pub fn new(query: &Query, count: &str) -> Result<ListParameters, S3Error> {
        Ok(ListParameters {
            prefix: text(query, "prefix"),
            delimiter: text(query, "delimiter"),
            rows_max: rows_max(query, count)?,
            encoding: encoding(query)?,
        })
    }

    /// What the catalog is asked for, from `after` on.
    pub fn ask(&self, after: Position) -> ListObjects {
        ListObjects {
            prefix: self.prefix.clone(),
            delimiter: self.delimiter.clone(),
            after: after.name,
            after_is_prefix: after.is_prefix,
            limit: self.rows_max,
        }
    }

    /// `name` as this listing shows names.
    pub fn show(&self, xml: &mut XmlWriter, element: &str, name: &str) {
        match self.encoding {
            NameEncoding::Plain => xml.element(element, name),
            NameEncoding::Url => xml.element(element, &url_encode(name)),
        }
    }

    /// The elements at the top that echo the parameters.
    pub fn echo(&self, xml: &mut XmlWriter) {
        self.show(xml, "Prefix", &self.prefix);
        self.echo_rest(xml);
    }

    /// The same without the prefix.
    pub fn echo_rest(&self, xml: &mut XmlWriter) {
        if !self.delimiter.is_empty() {
            self.show(xml, "Delimiter", &self.delimiter);
        }
        if self.encoding == NameEncoding::Url {
            xml.element("EncodingType", "url");
        }
    }

    pub fn common_prefix(&self, xml: &mut XmlWriter, prefix: &str) {
        xml.open("CommonPrefixes");
        self.show(xml, "Prefix", prefix);
        xml.close("CommonPrefixes");
    }

    /// True when `name` is a whole common prefix of this listing, so that a page which ended with
    /// it goes on behind everything under it.
    pub fn is_common_prefix(&self, name: &str) -> bool {
        !self.delimiter.is_empty()
            && name.strip_prefix(&self.prefix).is_some_and(|rest| {
                rest.find(&self.delimiter).map(|at| at + self.delimiter.len()) == Some(rest.len())
            })
    }
}

/// Where a page starts: behind a key, or behind all that lies under a common prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub name: String,
    pub is_prefix: bool,
}

impl Position {
    pub fn after_key(name: &str) -> Position {
        Position { name: name.to_owned(), is_prefix: false }
    }

    pub fn after_prefix(name: &str) -> Position {
        Position { name: name.to_owned(), is_prefix: true }
    }

    /// The opaque text of a continuation token.
    pub fn to_token(&self) -> String {
        let kind = if self.is_prefix { b'p' } else { b'k' };
        URL_SAFE_NO_PAD.encode([&[kind], self.name.as_bytes()].concat())
    }

    /// **Errors** `InvalidArgument` for what `to_token` did not make.
    pub fn from_token(token: &str) -> Result<Position, S3Error> {
        let decoded =
            URL_SAFE_NO_PAD.decode(token).ok().and_then(|raw| String::from_utf8(raw).ok());
        let position = decoded.as_deref().and_then(|text| {
            let is_prefix = match text.as_bytes().first()? {
                b'p' => true,
                b'k' => false,
                _ => return None,
            };
            Some(Position { name: text[1..].to_owned(), is_prefix })
        });
        position.ok_or_else(|| {
            S3Error::new(S3ErrorCode::InvalidArgument)
                .message("The continuation token provided is incorrect")
                .argument("continuation-token", token)
        })
    }
}

/// A parameter's value; empty when it is absent.
pub fn text(query: &Query, name: &str) -> String {
    query.get(name).unwrap_or_default().to_owned()
}

/// A limit on rows: absent or empty is the most there is, larger is cut.
pub fn rows_max(query: &Query, name: &str) -> Result<usize, S3Error> {
    let Some(value) = query.get(name).filter(|value| !value.is_empty()) else {
        return Ok(ROWS_MAX);
    };
    match value.parse::<i32>() {
        Ok(n) if n >= 0 => Ok((n as usize).min(ROWS_MAX)),
        _ => Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message("Provided limit is not an integer or not within the integer range")
            .argument(name, value)),
    }
}

pub fn encoding(query: &Query) -> Result<NameEncoding, S3Error> {
    match query.get("encoding-type") {
        None | Some("") => Ok(NameEncoding::Plain),
        Some(value) if value.eq_ignore_ascii_case("url") => Ok(NameEncoding::Url),
        Some(value) => Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message("Invalid Encoding Method specified in Request")
            .argument("encoding-type", value)),
    }
}

/// The encoding of `encoding-type=url`: a space is `+`, `/` stays, everything but letters, digits
/// and `-_.*` is percent-encoded. **Source** AWS's own output (case LIST-01).
pub fn url_encode(name: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(name.len() + name.len() / 2);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            _ => {
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    out
}

/// `<Owner>` or `<Initiator>`; the display name is known when the owner is the caller.
pub fn write_owner(xml: &mut XmlWriter, element: &str, owner: &OwnerId, caller: &User) {
    xml.open(element);
    xml.element("ID", owner.as_str());
    if caller.canonical_id == *owner {
        xml.element("DisplayName", &caller.display_name);
    }
    xml.close(element);
}

/// LastModified, ETag, checksum names, Size and StorageClass of a row.
pub fn write_version_facts(xml: &mut XmlWriter, version: &ObjectVersion) {
    xml.element("LastModified", &iso_date(version.modified_ms));
    xml.element("ETag", &quoted_etag(&version.etag));
    if let Some(checksum) = &version.checksum {
        xml.element("ChecksumAlgorithm", checksum.algorithm.name());
        xml.element("ChecksumType", checksum.kind.name());
    }
    xml.number("Size", version.size);
    let class = version.metadata.storage_class.as_deref().unwrap_or("STANDARD");
    xml.element("StorageClass", class);
}

/// The checksum's value and type, as results of copies and completions show them.
pub fn write_checksum(xml: &mut XmlWriter, checksum: Option<&Checksum>, parts: usize) {
    if let Some(checksum) = checksum {
        xml.element(checksum.algorithm.element(), &checksum_text(checksum, parts));
        xml.element("ChecksumType", checksum.kind.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_01_names_are_encoded_as_aws_does() {
        let cases = [
            ("a b.txt", "a+b.txt"),
            ("a+b.txt", "a%2Bb.txt"),
            ("100%.csv", "100%25.csv"),
            ("한글/x.txt", "%ED%95%9C%EA%B8%80/x.txt"),
            ("run books/", "run+books/"),
            ("c\u{1}", "c%01"),
        ];
        for (name, want) in cases {
            assert_eq!(url_encode(name), want);
        }
    }

    #[test]
    fn a_token_brings_its_position_back() {
        for position in [Position::after_key("a/é\u{1}"), Position::after_prefix("a/")] {
            assert_eq!(Position::from_token(&position.to_token()).ok(), Some(position));
        }
        for (token, right) in
            [("", false), ("?", false), ("eA", false), ("/w", false), ("aw", true)]
        {
            assert_eq!(Position::from_token(token).is_ok(), right, "{token}");
        }
    }

    #[test]
    fn a_marker_is_a_common_prefix_only_when_it_ends_at_the_first_delimiter() {
        let list = ListParameters {
            prefix: "p/".into(),
            delimiter: "/".into(),
            rows_max: 1,
            encoding: NameEncoding::Plain,
        };
        assert!(list.is_common_prefix("p/a/"));
        assert!(!list.is_common_prefix("p/a"));
        assert!(!list.is_common_prefix("p/a/b/"));
        assert!(!list.is_common_prefix("q/a/"));
        let flat = ListParameters { delimiter: String::new(), ..list };
        assert!(!flat.is_common_prefix("p/a/"));
    }
}
