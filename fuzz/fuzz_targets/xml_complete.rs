//! The `CompleteMultipartUpload` document: what is read can be written and read again, unchanged and bounded.
#![no_main]

use goblin_store::s3::xml::{XmlWriter, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(root) = parse(body) else { return };
    if root.expect_name("CompleteMultipartUpload").is_err() {
        return;
    }
    let fields = |item: &goblin_store::s3::xml::Element<'_>| {
        ["ETag", "PartNumber"].map(|name| item.child_text(name).map(str::to_owned))
    };
    let items: Vec<_> = root.children_named("Part").map(fields).collect();
    assert!(items.len() * "<Part/>".len() <= body.len());
    let mut xml = XmlWriter::document("CompleteMultipartUpload", body.len());
    for [first, second] in &items {
        xml.open("Part");
        for (name, value) in [("ETag", first), ("PartNumber", second)] {
            if let Some(value) = value {
                xml.element(name, value);
            }
        }
        xml.close("Part");
    }
    let written = xml.finish();
    let again = parse(written.as_bytes()).expect("our own document is well-formed");
    let back: Vec<_> = again.children_named("Part").map(fields).collect();
    assert_eq!(items, back);
});
