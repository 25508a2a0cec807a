//! Listings of objects, versions and buckets.

use super::harness::{Answer, Front, OK};
use super::with_front;

async fn fill(front: &Front, keys: &[&str]) {
    for key in keys {
        front.put(&format!("/tst/{key}")).body("x").send().await.expect(OK);
    }
}

/// Keys and common prefixes of all pages; checks that each page is full but the last.
async fn walk(front: &Front, query: &str, rows_max: usize) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
    let mut token = String::new();
    loop {
        let target = format!("/tst?{token}{query}&list-type=2&max-keys={rows_max}");
        let page = front.get(&target).send().await.expect(OK);
        let rows = page.elements("Key").len() + page.elements("CommonPrefixes").len();
        assert_eq!(page.element("KeyCount"), rows.to_string());
        keys.extend(page.elements("Key"));
        prefixes.extend(prefixes_of(&page));
        if page.element("IsTruncated") == "false" {
            assert_eq!(page.element("NextContinuationToken"), "");
            return (keys, prefixes);
        }
        assert_eq!(rows, rows_max, "a page before the last is full");
        token = format!("continuation-token={}&", page.element("NextContinuationToken"));
    }
}

fn prefixes_of(page: &Answer) -> Vec<String> {
    let groups = page.elements("CommonPrefixes");
    let text = |group: String| group.replace("<Prefix>", "").replace("</Prefix>", "");
    groups.into_iter().map(text).collect()
}

#[test]
fn list_03_each_common_prefix_comes_once() {
    with_front(|front| async move {
        for sub in 0..5 {
            for file in 0..10 {
                fill(&front, &[&format!("folder/sub{sub}/f{file}")]).await;
            }
        }
        let want: Vec<_> = (0..5).map(|sub| format!("folder/sub{sub}/")).collect();
        for rows_max in 1..=3 {
            let query = "delimiter=%2F&prefix=folder%2F";
            let query = query.replace("&prefix", "&encoding-type=url&prefix");
            let (keys, prefixes) =
                walk(&front, &query.replace("&encoding-type=url", ""), rows_max).await;
            assert!(keys.is_empty());
            assert_eq!(prefixes, want, "max-keys={rows_max}");
        }
        let mut marker = String::new();
        let mut seen = Vec::new();
        loop {
            let target = format!("/tst?delimiter=%2F{marker}&max-keys=2&prefix=folder%2F");
            let page = front.get(&target).send().await.expect(OK);
            seen.extend(prefixes_of(&page));
            if page.element("IsTruncated") == "false" {
                break;
            }
            marker = format!("&marker={}", page.element("NextMarker").replace('/', "%2F"));
        }
        assert_eq!(seen, want);
    });
}

#[test]
fn list_06_a_prefix_may_end_inside_a_name() {
    with_front(|front| async move {
        let keys = ["data/a/1", "data/a/2", "data/ab/3"];
        fill(&front, &keys).await;
        for rows_max in 1..=4 {
            let (found, _) = walk(&front, "&prefix=data%2Fa", rows_max).await;
            assert_eq!(found, keys);
        }
    });
}

#[test]
fn list_05_start_after_a_part_of_a_group() {
    with_front(|front| async move {
        fill(&front, &["prefix1/object", "prefix2/object"]).await;
        let target = "/tst?delimiter=%2F&list-type=2&prefix=prefix&start-after=prefix1";
        let page = front.get(target).send().await.expect(OK);
        assert_eq!(prefixes_of(&page), ["prefix1/", "prefix2/"]);
    });
}

#[test]
fn list_08_limits_at_their_edges() {
    with_front(|front| async move {
        fill(&front, &["a", "b"]).await;
        for list in ["&list-type=2", ""] {
            let target = |limit: &str| match list {
                "" => format!("/tst?max-keys={limit}"),
                _ => format!("/tst?list-type=2&max-keys={limit}"),
            };
            let page = front.get(&target("0")).send().await.expect(OK);
            assert_eq!(page.element("IsTruncated"), "false");
            assert!(page.elements("Contents").is_empty());
            for wrong in ["-1", "abc"] {
                front.get(&target(wrong)).send().await.expect_error(400, "InvalidArgument");
            }
        }
        let token = front.get("/tst?continuation-token=%3F&list-type=2").send().await;
        token.expect_error(400, "InvalidArgument");
        front.get("/tst?continuation-token=&list-type=2").send().await.expect(OK);
    });
}

#[test]
fn list_01_names_are_encoded_when_asked() {
    with_front(|front| async move {
        fill(&front, &["a%20b.txt", "a%2Bb.txt", "100%25.csv", "run%20books/x.txt", "c%01"]).await;
        let target = "/tst?delimiter=%2F&encoding-type=url&list-type=2";
        let page = front.get(target).send().await.expect(OK);
        assert_eq!(page.elements("Key"), ["100%25.csv", "a+b.txt", "a%2Bb.txt", "c%01"]);
        assert_eq!(prefixes_of(&page), ["run+books/"]);
        assert_eq!(page.element("EncodingType"), "url");
        assert_eq!(page.element("Delimiter"), "/");
        let plain = front.get("/tst?list-type=2").send().await.expect(OK);
        assert_eq!(plain.elements("Key")[1], "a b.txt");
        assert!(plain.body.iter().all(|byte| *byte >= 0x20 || *byte == b'\n'));
        let wrong = front.get("/tst?encoding-type=bad&list-type=2").send().await;
        wrong.expect_error(400, "InvalidArgument");
    });
}

#[test]
fn list_12_a_slash_behind_the_bucket_changes_nothing() {
    with_front(|front| async move {
        fill(&front, &["a"]).await;
        let with = front.get("/tst/?list-type=2").send().await.expect(OK);
        assert_eq!(with.body, front.get("/tst?list-type=2").send().await.body);
        front.head("/tst/").send().await.expect(OK);
        front.put("/new/").send().await.expect(OK);
        front.head("/new").send().await.expect(OK);
    });
}

#[test]
fn http_14_dates_and_tags_agree_everywhere() {
    with_front(|front| async move {
        fill(&front, &["a"]).await;
        let page = front.get("/tst?fetch-owner=true&list-type=2").send().await.expect(OK);
        let head = front.head("/tst/a").send().await.expect(OK);
        assert_eq!(page.element("LastModified"), "2026-01-02T03:04:05.000Z");
        assert_eq!(head.header("last-modified"), "Fri, 02 Jan 2026 03:04:05 GMT");
        assert_eq!(page.element("ETag"), head.header("etag").replace('"', "&quot;"));
        assert_eq!(page.element("DisplayName"), "ALICE");
        assert_eq!(page.element("StorageClass"), "STANDARD");
    });
}

#[test]
fn versions_of_an_unversioned_bucket_are_null() {
    with_front(|front| async move {
        fill(&front, &["a", "b", "c"]).await;
        let page = front.get("/tst?max-keys=2&versions").send().await.expect(OK);
        assert_eq!(page.elements("VersionId"), ["null", "null"]);
        assert_eq!(page.elements("IsLatest"), ["true", "true"]);
        assert_eq!(page.element("NextKeyMarker"), "b");
        assert_eq!(page.element("NextVersionIdMarker"), "null");
        let target = "/tst?key-marker=b&version-id-marker=null&versions";
        let rest = front.get(target).send().await.expect(OK);
        assert_eq!(rest.elements("Key"), ["c"]);
    });
}

#[test]
fn buckets_are_listed_in_pages_and_only_ones_own() {
    with_front(|front| async move {
        for name in ["bkt-a", "bkt-b", "bkt-c"] {
            front.put(&format!("/{name}")).send().await.expect(OK);
        }
        front.put("/bobs").user("bob").send().await.expect(OK);
        let first = front.get("/?max-buckets=2&prefix=bkt-").send().await.expect(OK);
        assert_eq!(first.elements("Name"), ["bkt-a", "bkt-b"]);
        let token = first.element("ContinuationToken");
        let target = format!("/?continuation-token={token}&max-buckets=2&prefix=bkt-");
        let rest = front.get(&target).send().await.expect(OK);
        assert_eq!(rest.elements("Name"), ["bkt-c"]);
        let bobs = front.get("/").user("bob").send().await.expect(OK);
        assert_eq!(bobs.elements("Name"), ["bobs"]);
    });
}
