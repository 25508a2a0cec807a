//! Listings of objects.

use std::sync::Arc;

use proptest::prelude::*;

use super::kit::{Kit, etag, key, owner, packed, put};
use crate::catalog::{Catalog, ListObjects, ListRow};
use crate::model::commit::ProposedData;
use crate::model::{BucketId, Checksum, ChecksumAlgorithm, ChecksumKind, Proposal};

pub fn all() -> ListObjects {
    ListObjects { limit: 1000, ..ListObjects::default() }
}

fn query(prefix: &str, delimiter: &str, after: &str, limit: usize) -> ListObjects {
    ListObjects {
        prefix: prefix.into(),
        delimiter: delimiter.into(),
        after: after.into(),
        after_is_prefix: false,
        limit,
    }
}

/// A page as text: keys plain, common prefixes with a `*` behind.
async fn page(catalog: &dyn Catalog, bucket: BucketId, list: &ListObjects) -> (Vec<String>, bool) {
    let page = catalog.list_objects(bucket, list).await.unwrap();
    let versions = catalog.list_versions(bucket, list, None).await.unwrap();
    assert_eq!(versions.rows.len(), page.rows.len());
    let text = |row: ListRow<_>| match row {
        ListRow::Item(crate::catalog::ListedObject { key, .. }) => key.to_string(),
        ListRow::CommonPrefix(prefix) => format!("{prefix}*"),
    };
    (page.rows.into_iter().map(text).collect(), page.truncated)
}

async fn listed(kit: &Kit, list: ListObjects) -> (String, bool) {
    let (rows, truncated) = page(&*kit.catalog, kit.bucket, &list).await;
    (rows.join(" "), truncated)
}

async fn put_keys(kit: &Kit, keys: &[&str]) {
    for name in keys {
        kit.version(put(kit.bucket, name, 1, ProposedData::Empty)).await.unwrap();
    }
}

pub async fn flat_pages(kit: &Kit) {
    put_keys(kit, &["c", "a", "b", "b/1", "d"]).await;
    assert_eq!(listed(kit, query("", "", "", 10)).await, ("a b b/1 c d".into(), false));
    assert_eq!(listed(kit, query("", "", "", 5)).await, ("a b b/1 c d".into(), false));
    assert_eq!(listed(kit, query("", "", "", 2)).await, ("a b".into(), true));
    assert_eq!(listed(kit, query("", "", "b", 2)).await, ("b/1 c".into(), true));
    assert_eq!(listed(kit, query("b", "", "", 9)).await, ("b b/1".into(), false));
    assert_eq!(listed(kit, query("b", "", "a", 9)).await, ("b b/1".into(), false));
    assert_eq!(listed(kit, query("b", "", "c", 9)).await, ("".into(), false));
    assert_eq!(listed(kit, query("x", "", "", 9)).await, ("".into(), false));
}

pub async fn common_prefixes_are_one_row(kit: &Kit) {
    put_keys(kit, &["a", "b/1", "b/2", "b/c/3", "b0", "c/", "c/4", "/x"]).await;
    let (rows, truncated) = listed(kit, query("", "/", "", 10)).await;
    assert_eq!((rows.as_str(), truncated), ("/* a b/* b0 c/*", false));
    let (rows, truncated) = listed(kit, query("", "/", "", 3)).await;
    assert_eq!((rows.as_str(), truncated), ("/* a b/*", true));
    let behind = ListObjects { after_is_prefix: true, ..query("", "/", "b/", 10) };
    assert_eq!(listed(kit, behind).await.0, "b0 c/*");
    assert_eq!(listed(kit, query("b/", "/", "", 10)).await.0, "b/1 b/2 b/c/*");
    assert_eq!(listed(kit, query("b", "/", "", 10)).await.0, "b/* b0");
    assert_eq!(listed(kit, query("c/", "/", "", 10)).await.0, "c/ c/4");
    // A page that ends exactly with the last row is not cut.
    assert!(!listed(kit, query("", "/", "", 5)).await.1);
}

pub async fn a_start_inside_a_prefix_shows_it(kit: &Kit) {
    put_keys(kit, &["a/1", "a/2", "b"]).await;
    assert_eq!(listed(kit, query("", "/", "a/1", 10)).await.0, "a/* b");
    assert_eq!(listed(kit, query("", "/", "a/2", 10)).await.0, "b");
    assert_eq!(listed(kit, query("", "/", "a/", 10)).await.0, "a/* b");
}

pub async fn delimiters_of_any_length(kit: &Kit) {
    put_keys(kit, &["a--b--c", "a--d", "a-e", "übèr→1", "übèr→2", "z"]).await;
    let (rows, _) = listed(kit, query("", "--", "", 10)).await;
    assert_eq!(rows, "a--* a-e z übèr→1 übèr→2");
    let (rows, _) = listed(kit, query("a--", "--", "", 10)).await;
    assert_eq!(rows, "a--b--* a--d");
    let (rows, _) = listed(kit, query("", "→", "", 10)).await;
    assert_eq!(rows, "a--b--c a--d a-e z übèr→*");
    let (rows, _) = listed(kit, query("ü", "bèr", "", 10)).await;
    assert_eq!(rows, "übèr*");
    let (rows, _) = listed(kit, query("", "a", "", 10)).await;
    assert_eq!(rows, "a* z übèr→1 übèr→2");
}

pub async fn keys_are_ordered_by_bytes(kit: &Kit) {
    let keys = ["a", "B", "a\u{0}", "ab", "a b", "é", "\u{10FFFF}", "\u{FFFD}", "~"];
    put_keys(kit, &keys).await;
    let mut sorted = keys.map(str::to_owned);
    sorted.sort();
    assert_eq!(page(&*kit.catalog, kit.bucket, &all()).await.0, sorted);
    assert_eq!(page(&*kit.catalog, kit.bucket, &query("a", "", "", 9)).await.0.len(), 4);
}

pub async fn a_page_of_none(kit: &Kit) {
    put_keys(kit, &["a", "b/c"]).await;
    assert_eq!(listed(kit, query("", "", "", 0)).await, ("".into(), false));
    assert_eq!(listed(kit, query("", "/", "", 0)).await, ("".into(), false));
}

pub async fn listed_fields_are_right(kit: &Kit) {
    kit.clock.set(1_234_567);
    let mut proposal = put(kit.bucket, "a", 9, packed(500, 321));
    let sum = Checksum {
        algorithm: ChecksumAlgorithm::Sha256,
        kind: ChecksumKind::Composite,
        value: vec![1; 32],
    };
    if let Proposal::PutObject { metadata, checksum, .. } = &mut proposal {
        metadata.storage_class = Some("GLACIER".into());
        *checksum = Some(sum.clone());
    }
    let put = kit.version(proposal).await.unwrap();
    let rows = kit.list(all()).await.rows;
    let [ListRow::Item(row)] = rows.as_slice() else { panic!("{rows:?}") };
    let version = &row.version;
    assert_eq!(row.key, key("a"));
    assert_eq!((version.size, version.modified_ms, version.etag), (321, 1_234_567, etag(9)));
    assert_eq!(
        (version.lsn, version.version_id, &version.owner),
        (put.lsn, put.version_id, &owner())
    );
    assert_eq!(version.metadata.storage_class.as_deref(), Some("GLACIER"));
    let listed = version.checksum.as_ref().map(|c| (c.algorithm, c.kind));
    assert_eq!(listed, Some((sum.algorithm, sum.kind)));
    let versions = kit.catalog.list_versions(kit.bucket, &all(), None).await.unwrap().rows;
    assert!(matches!(&versions[..], [ListRow::Item(v)] if v.is_latest && v.key == key("a")));
}

pub async fn buckets_do_not_mix(kit: &Kit) {
    let other = kit.make_bucket("bucket-2").await.id;
    put_keys(kit, &["a", "c/1"]).await;
    kit.version(put(other, "b", 1, ProposedData::Empty)).await.unwrap();
    assert_eq!(page(&*kit.catalog, other, &all()).await.0, ["b"]);
    assert_eq!(listed(kit, query("", "/", "", 10)).await.0, "a c/*");
    assert_eq!(kit.catalog.object(other, &key("a"), None).await.unwrap(), None);
}

/// Keys, and what to ask of them, out of few letters so that prefixes are shared.
pub fn some_keys() -> impl Strategy<Value = (Vec<String>, String, String, String)> {
    let word = || "[ab/é]{1,6}".prop_map(|text: String| text);
    (prop::collection::vec(word(), 0..40), "[ab/é]{0,3}", "(|/|a|ab|//|é)", "[ab/é]{0,4}")
}

/// One big page equals the naive listing, and so do pages of 1 to 5 put together.
pub async fn pages_agree(
    catalog: Arc<dyn Catalog>,
    bucket: BucketId,
    keys: &[String],
    base: ListObjects,
) {
    let wanted = naive(keys, &base);
    let big = ListObjects { limit: 10_000, ..base.clone() };
    assert_eq!(page(&*catalog, bucket, &big).await, (wanted.clone(), false), "{base:?}");
    for limit in 1..=5 {
        let mut got: Vec<String> = Vec::new();
        let mut list = ListObjects { limit, ..base.clone() };
        loop {
            let (rows, truncated) = page(&*catalog, bucket, &list).await;
            assert!(rows.len() <= limit && (!truncated || rows.len() == limit));
            got.extend(rows);
            if !truncated {
                break;
            }
            let last = got.last().unwrap();
            list.after_is_prefix = last.ends_with('*');
            list.after = last.trim_end_matches('*').to_owned();
        }
        assert_eq!(got, wanted, "pages of {limit}, {base:?}");
    }
}

fn naive(keys: &[String], list: &ListObjects) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let sorted: std::collections::BTreeSet<&String> = keys.iter().collect();
    for name in sorted.into_iter().filter(|k| k.as_str() > list.after.as_str()) {
        let Some(rest) = name.strip_prefix(&list.prefix) else { continue };
        let at = if list.delimiter.is_empty() { None } else { rest.find(&list.delimiter) };
        let row = match at {
            None => name.clone(),
            Some(at) => format!("{}{}{}*", list.prefix, &rest[..at], list.delimiter),
        };
        if rows.last() != Some(&row) {
            rows.push(row);
        }
    }
    rows
}
