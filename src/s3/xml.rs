//! Writing and reading the XML documents of the S3 API.
//!
//! Owns escaping on the way out and every rule of what is accepted on the way in: UTF-8 only, no
//! DTD, bounded depth and size, nothing trimmed. It knows elements, not operations; the documents
//! that clients send are read in `documents`.

use std::borrow::Cow;

use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

pub use super::time::iso_date;

use super::error::{S3Error, S3ErrorCode};

/// The namespace of S3 documents.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// Deepest nesting accepted; the deepest document that S3 defines has far less.
const DEPTH_MAX: usize = 16;
/// Most elements accepted: 10,000 parts with all their fields, and room.
const ELEMENTS_MAX: usize = 150_000;

/// Builds one document. Every value goes through the same escaping.
pub struct XmlWriter {
    out: String,
    root: &'static str,
}

impl XmlWriter {
    /// A document in the S3 namespace with `root` opened. `capacity` is a guess of its bytes.
    pub fn document(root: &'static str, capacity: usize) -> XmlWriter {
        let mut writer = XmlWriter::started(root, capacity);
        writer.open_with(root, &[("xmlns", NAMESPACE)]);
        writer
    }

    /// The same without a namespace, as error documents are.
    pub fn bare_document(root: &'static str, capacity: usize) -> XmlWriter {
        let mut writer = XmlWriter::started(root, capacity);
        writer.open(root);
        writer
    }

    fn started(root: &'static str, capacity: usize) -> XmlWriter {
        let mut out = String::with_capacity(capacity);
        out.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        XmlWriter { out, root }
    }

    pub fn open(&mut self, name: &str) {
        self.open_with(name, &[]);
    }

    /// Opens an element with attributes.
    pub fn open_with(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.out.push('<');
        self.out.push_str(name);
        for (attribute, value) in attributes {
            self.out.push(' ');
            self.out.push_str(attribute);
            self.out.push_str("=\"");
            escape_into(&mut self.out, value);
            self.out.push('"');
        }
        self.out.push('>');
    }

    pub fn close(&mut self, name: &str) {
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }

    /// A whole element with text.
    pub fn element(&mut self, name: &str, text: &str) {
        self.open(name);
        escape_into(&mut self.out, text);
        self.close(name);
    }

    /// Text directly inside the element that is open.
    pub fn text(&mut self, text: &str) {
        escape_into(&mut self.out, text);
    }

    /// A whole element with a number.
    pub fn number(&mut self, name: &str, number: u64) {
        self.element(name, &number.to_string());
    }

    /// Closes the root and gives the document.
    pub fn finish(mut self) -> String {
        let root = self.root;
        self.close(root);
        self.out
    }
}

/// Appends `text` so that a parser gets exactly it back.
///
/// Control characters become character references, as AWS writes them: XML 1.0 has no lawful form
/// for most of them, and a reference at least never breaks the framing of the document. A carriage
/// return must be a reference, else parsers turn it into a line feed.
fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("&#x{:X};", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
}

/// One element of a document that a client sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Without a namespace prefix.
    pub name: &'a str,
    /// All text, CDATA and references directly inside, nothing trimmed.
    pub text: Cow<'a, str>,
    pub children: Vec<Element<'a>>,
}

impl<'a> Element<'a> {
    /// **Errors** `MalformedXML` when this is not the element that the operation takes.
    pub fn expect_name(&self, name: &str) -> Result<(), S3Error> {
        if self.name == name { Ok(()) } else { Err(S3ErrorCode::MalformedXML.into()) }
    }

    /// **Errors** `MalformedXML` when there are children of other names than these.
    pub fn expect_children(&self, names: &[&str]) -> Result<(), S3Error> {
        match self.children.iter().all(|child| names.contains(&child.name)) {
            true => Ok(()),
            false => Err(S3ErrorCode::MalformedXML.into()),
        }
    }

    /// The first child of that name.
    pub fn child(&self, name: &str) -> Option<&Element<'a>> {
        self.children.iter().find(|c| c.name == name)
    }

    /// All children of that name, in order.
    pub fn children_named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Element<'a>> {
        self.children.iter().filter(move |c| c.name == name)
    }

    /// The text of the first child of that name.
    pub fn child_text(&self, name: &str) -> Option<&str> {
        self.child(name).map(|c| c.text.as_ref())
    }
}

/// Reads a whole document and gives its root.
///
/// A byte order mark, any namespace and unknown elements are fine. The caller has bounded the
/// length of `body`; the tree takes at most a small multiple of it.
///
/// **Errors** `MalformedXML` for anything that is not one well-formed UTF-8 document without DTD.
pub fn parse(body: &[u8]) -> Result<Element<'_>, S3Error> {
    parse_tree(body).ok_or_else(|| S3ErrorCode::MalformedXML.into())
}

fn parse_tree(body: &[u8]) -> Option<Element<'_>> {
    // Other control characters pass, as careless clients send them in keys; NUL has no form in XML
    // in which an answer could repeat it to every client.
    let text = std::str::from_utf8(body).ok().filter(|text| !text.contains('\0'))?;
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut tree = Tree { open: Vec::new(), root: None, elements: 0 };
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => tree.start(&start, name_of(&start, text)?)?,
            Event::Empty(start) => {
                tree.start(&start, name_of(&start, text)?)?;
                tree.end()?;
            }
            Event::End(_) => tree.end()?,
            Event::Text(part) => tree.text(part.xml10_content())?,
            Event::CData(part) => {
                // CDATA outside the root is no text even when it is blank.
                tree.open.last()?;
                tree.text(part.xml10_content())?;
            }
            Event::GeneralRef(reference) => tree.text(resolve(&reference)?)?,
            Event::Decl(declaration) => {
                if let Some(encoding) = declaration.encoding()
                    && !encoding.ok()?.eq_ignore_ascii_case("utf-8")
                {
                    return None;
                }
            }
            Event::Comment(_) | Event::PI(_) => {}
            Event::DocType(_) => return None,
            Event::Eof => return tree.finish(),
        }
    }
}

/// The local name of a start tag as a slice of the document, so that it outlives the event.
fn name_of<'a>(start: &BytesStart<'_>, document: &'a str) -> Option<&'a str> {
    let name = start.local_name();
    let name: &str = name.as_ref();
    let at = (name.as_ptr() as usize).checked_sub(document.as_ptr() as usize)?;
    document.get(at..at + name.len()).filter(|n| !n.is_empty())
}

/// The text of `&...;`: the five names of XML and character references. Others would need a DTD.
fn resolve<'a>(reference: &BytesRef<'_>) -> Option<Cow<'a, str>> {
    if let Some(c) = reference.resolve_char_ref().ok()? {
        return Some(Cow::Owned(c.to_string()));
    }
    let text = match reference.xml10_content().as_ref() {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "apos" => "'",
        "quot" => "\"",
        _ => return None,
    };
    Some(Cow::Borrowed(text))
}

/// The elements that are open, outermost first, and the root once it is closed.
struct Tree<'a> {
    open: Vec<Element<'a>>,
    root: Option<Element<'a>>,
    elements: usize,
}

impl<'a> Tree<'a> {
    fn start(&mut self, start: &BytesStart<'_>, name: &'a str) -> Option<()> {
        self.elements += 1;
        let second_root = self.open.is_empty() && self.root.is_some();
        if second_root || self.open.len() >= DEPTH_MAX || self.elements > ELEMENTS_MAX {
            return None;
        }
        if start.attributes().any(|attribute| attribute.is_err()) {
            return None;
        }
        self.open.push(Element { name, text: Cow::Borrowed(""), children: Vec::new() });
        Some(())
    }

    fn end(&mut self) -> Option<()> {
        let done = self.open.pop()?;
        match self.open.last_mut() {
            Some(parent) => parent.children.push(done),
            None => self.root = Some(done),
        }
        Some(())
    }

    fn text(&mut self, part: Cow<'a, str>) -> Option<()> {
        match self.open.last_mut() {
            None => part.trim_ascii().is_empty().then_some(()),
            Some(element) => {
                if element.text.is_empty() {
                    element.text = part;
                } else {
                    element.text.to_mut().push_str(&part);
                }
                Some(())
            }
        }
    }

    fn finish(self) -> Option<Element<'a>> {
        if self.open.is_empty() { self.root } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn root(text: &str) -> Option<Element<'_>> {
        parse(text.as_bytes()).ok()
    }

    #[test]
    fn text_is_not_trimmed_and_references_decode() {
        let doc = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<D xmlns=\"u:x\">\n <K> a\rb\r\n\
                   &#13;&#xD;&lt;&amp;&quot;&apos;&gt;<![CDATA[<&]]> </K></D>";
        let d = root(doc).unwrap();
        assert_eq!(d.child_text("K"), Some(" a\nb\n\r\r<&\"'><& "));
    }

    #[test]
    fn byte_order_mark_prefixes_comments_and_unknown_elements_are_fine() {
        let doc = "\u{feff}<!-- c --><s3:D xmlns:s3=\"u\" a='1'><s3:K>v</s3:K><X><Y/></X></s3:D> ";
        let d = root(doc).unwrap();
        assert_eq!(d.name, "D");
        assert_eq!(d.child_text("K"), Some("v"));
        assert_eq!(root("<D/>").unwrap().children.len(), 0);
    }

    #[test]
    fn anything_else_is_malformed() {
        let wrong = [
            "",
            " ",
            "text",
            "<D>",
            "<D></E>",
            "</D>",
            "<D/><D/>",
            "<D/>x",
            "x<D/>",
            "<D>&unknown;</D>",
            "<D>&#0;</D>",
            "<D>&#x110000;</D>",
            "<D>&</D>",
            "<D a=1/>",
            "<D a='1' a='2'/>",
            "<!DOCTYPE D [<!ENTITY e 'x'>]><D>&e;</D>",
            "<!DOCTYPE D><D/>",
            "<?xml version=\"1.0\" encoding=\"UTF-16\"?><D/>",
            "<>x</>",
            "<D><![CDATA[x</D>",
            "<![CDATA[ ]]><D/>",
            "<D/><!--",
        ];
        for text in wrong {
            let error = parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.code(), S3ErrorCode::MalformedXML, "{text}");
        }
        assert!(parse(b"<D>\xff</D>").is_err());
        assert!(parse(b"<D>\0</D>").is_err());
        assert!(parse(&[0xfe, 0xff, 0, b'<', 0, b'D', 0, b'/', 0, b'>']).is_err());
    }

    #[test]
    fn depth_and_number_of_elements_are_bounded() {
        let nested = |n: usize| format!("{}{}", "<a>".repeat(n), "</a>".repeat(n));
        assert!(root(&nested(DEPTH_MAX)).is_some());
        assert!(root(&nested(DEPTH_MAX + 1)).is_none());
        let wide = |n: usize| format!("<r>{}</r>", "<a/>".repeat(n));
        assert!(root(&wide(ELEMENTS_MAX - 1)).is_some());
        assert!(root(&wide(ELEMENTS_MAX)).is_none());
    }

    #[test]
    fn writer_makes_one_document() {
        let mut xml = XmlWriter::document("R", 64);
        xml.open_with("G", &[("xsi:type", "a\"b")]);
        xml.number("N", 7);
        xml.close("G");
        assert_eq!(
            xml.finish(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <R xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><G xsi:type=\"a&quot;b\">\
             <N>7</N></G></R>"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in "[\\PC\u{1}-\u{1f}<>&'\" ]{0,60}") {
            let mut xml = XmlWriter::bare_document("R", 64);
            xml.element("K", &text);
            let document = xml.finish();
            prop_assert!(!document[38..].bytes().any(|b| b < 0x20 && b != b'\n' && b != b'\t'));
            let back = root(&document).unwrap();
            prop_assert_eq!(back.child_text("K"), Some(text.as_str()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
