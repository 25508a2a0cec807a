//! Tag sets, in documents (`<Tagging><TagSet><Tag><Key/><Value/></Tag>...`) and in headers.
//!
//! Pure. Owns which tags are lawful and how a set is written; where a set is kept is not its
//! business.
//!
//! **Source** AWS S3 API reference, PutBucketTagging; AWS general reference, "Tag naming limits".

use super::error::{S3Error, S3ErrorCode};
use super::query::Query;
use super::xml::{self, XmlWriter};

const KEY_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;

/// Reads a document with at most `max` tags; `of` names what they are tags of, for the message.
/// The tags come in the order of their keys.
///
/// **Errors** `MalformedXML`; `InvalidTag` for a key or value that is none, or a key that stands
/// twice; `BadRequest` for more than `max`.
pub fn parse(document: &[u8], max: usize, of: &str) -> Result<Vec<(String, String)>, S3Error> {
    let root = xml::parse(document)?;
    root.expect_name("Tagging")?;
    root.expect_children(&["TagSet"])?;
    let malformed = || S3Error::new(S3ErrorCode::MalformedXML);
    let [set] = root.children.as_slice() else { return Err(malformed()) };
    set.expect_children(&["Tag"])?;
    if set.children.len() > max {
        let message = format!("{of} tags cannot be greater than {max}");
        return Err(S3Error::new(S3ErrorCode::BadRequest).message(message));
    }
    let mut tags = Vec::with_capacity(set.children.len());
    for tag in &set.children {
        tag.expect_children(&["Key", "Value"])?;
        let key = tag.child_text("Key").ok_or_else(malformed)?;
        let value = tag.child_text("Value").ok_or_else(malformed)?;
        if tag.children.len() != 2 {
            return Err(malformed());
        }
        tags.push((key.to_owned(), value.to_owned()));
    }
    in_order(tags)
}

/// Reads the `x-amz-tagging` header, `key=value&key=value` percent-encoded, with at most `max` tags
/// of an object. The tags come in the order of their keys.
///
/// **Errors** `InvalidArgument` for what is not so encoded, `InvalidTag`, `BadRequest` for more.
/// **Source** AWS S3 API reference, PutObject.
pub fn parse_header(text: &str, max: usize) -> Result<Vec<(String, String)>, S3Error> {
    let query = Query::parse(text).map_err(|_| {
        S3Error::new(S3ErrorCode::InvalidArgument)
            .message(
                "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query \
                 parameters without tag name duplicates.",
            )
            .argument("x-amz-tagging", text)
    })?;
    if query.pairs().len() > max {
        let message = format!("Object tags cannot be greater than {max}");
        return Err(S3Error::new(S3ErrorCode::BadRequest).message(message));
    }
    in_order(query.pairs().to_vec())
}

fn in_order(mut tags: Vec<(String, String)>) -> Result<Vec<(String, String)>, S3Error> {
    tags.iter().try_for_each(|(key, value)| check(key, value))?;
    tags.sort();
    if tags.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(invalid("Cannot provide multiple Tags with the same key"));
    }
    Ok(tags)
}

/// The document of a set.
pub fn to_xml(tags: &[(String, String)]) -> String {
    let mut xml = XmlWriter::document("Tagging", 128 + 96 * tags.len());
    xml.open("TagSet");
    for (key, value) in tags {
        xml.open("Tag");
        xml.element("Key", key);
        xml.element("Value", value);
        xml.close("Tag");
    }
    xml.close("TagSet");
    xml.finish()
}

fn check(key: &str, value: &str) -> Result<(), S3Error> {
    let lawful = |text: &str, max| text.chars().count() <= max && text.chars().all(is_lawful);
    if key.is_empty() || !lawful(key, KEY_CHARS_MAX) {
        return Err(invalid("The TagKey you have provided is invalid"));
    }
    if !lawful(value, VALUE_CHARS_MAX) {
        return Err(invalid("The TagValue you have provided is invalid"));
    }
    if key.starts_with("aws:") {
        return Err(invalid("System tags cannot be added/updated by requester"));
    }
    Ok(())
}

/// Letters, digits and white space of any script, and `_ . : / = + - @`.
fn is_lawful(c: char) -> bool {
    c.is_alphanumeric() || (c.is_whitespace() && !c.is_control()) || "_.:/=+-@".contains(c)
}

fn invalid(message: &'static str) -> S3Error {
    S3Error::new(S3ErrorCode::InvalidTag).message(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, S3ErrorCode> {
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        parse(to_xml(&pairs).as_bytes(), 3, "Bucket").map_err(|error| error.code())
    }

    #[test]
    fn sets_are_checked_and_ordered() {
        let ordered = of(&[("b", "é /=+-@"), ("a", "")]).expect("lawful");
        assert_eq!(ordered[0], ("a".to_owned(), String::new()));
        assert_eq!(of(&[]), Ok(Vec::new()));
        let (long, longer) = ("k".repeat(128), "k".repeat(129));
        assert!(of(&[(&long, &"v".repeat(256))]).is_ok());
        let invalid = Err(S3ErrorCode::InvalidTag);
        assert_eq!(of(&[(&longer, "")]), invalid);
        assert_eq!(of(&[("a", &"v".repeat(257))]), invalid);
        assert_eq!(of(&[("", "v")]), invalid);
        assert_eq!(of(&[("a", "1"), ("a", "2")]), invalid);
        assert_eq!(of(&[("aws:a", "1")]), invalid);
        assert_eq!(of(&[("a<b", "1")]), invalid);
        let many = [("a", ""), ("b", ""), ("c", ""), ("d", "")];
        assert!(of(&many[..3]).is_ok());
        assert_eq!(of(&many), Err(S3ErrorCode::BadRequest));
    }

    #[test]
    fn a_header_is_decoded_and_checked() {
        let tags = parse_header("d&a=1&b%20c=%C3%A9", 10).expect("lawful");
        let want = [("a", "1"), ("b c", "é"), ("d", "")];
        assert_eq!(tags, want.map(|(k, v)| (k.to_owned(), v.to_owned())));
        for wrong in ["a=1&a=2", "=1", "a=%FF", "a=%3C", "a&b&c&d&e&f&g&h&i&j&k"] {
            assert!(parse_header(wrong, 10).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_documents_are_malformed() {
        for text in [
            "<Tagging/>",
            "<TagSet/>",
            "<Tagging><TagSet/><TagSet/></Tagging>",
            "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
            "<Tagging><TagSet><Tag><Key>a</Key><Key>b</Key><Value/></Tag></TagSet></Tagging>",
            "<Tagging><TagSet><Other/></TagSet></Tagging>",
        ] {
            let error = parse(text.as_bytes(), 3, "Bucket").expect_err(text);
            assert_eq!(error.code(), S3ErrorCode::MalformedXML, "{text}");
        }
    }
}
