//! The house rules that a program can check: dependency direction, where `unsafe`, SQL and HTTP
//! may appear, sizes, and that the map in ARCHITECTURE.md names things that exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;
const LINE_CHARS_MAX: usize = 100;

/// Leaves may be used by everybody and use at most the model.
const LEAVES: [&str; 6] = ["clock", "digest", "limits", "metrics", "model", "rng"];

/// For each room, the rooms below it that it may name. What is not listed may name everything:
/// the composition root and the command line.
const MAY_USE: [(&str, &[&str]); 19] = [
    ("model", &[]),
    ("clock", &[]),
    ("rng", &["model"]),
    ("digest", &["model"]),
    ("limits", &[]),
    ("metrics", &[]),
    ("config", &[]),
    ("sys", &[]),
    ("blob", &["sys"]),
    ("log", &["sys"]),
    ("arena", &["sys"]),
    ("catalog", &["log", "sys"]),
    ("store", &["catalog", "log", "blob", "arena", "sys"]),
    ("maintenance", &["store", "catalog", "log", "blob", "sys"]),
    ("runtime", &["config", "sys"]),
    ("http", &["config", "runtime", "sys"]),
    ("s3", &["store", "http"]),
    ("admin", &["catalog", "config", "http", "maintenance"]),
    ("doctor", &["arena", "sys"]),
];

struct Source {
    path: PathBuf,
    /// First component below src, without `.rs`.
    room: String,
    /// Lines before the test module.
    code: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a source directory") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut paths = Vec::new();
    collect(&src, &mut paths);
    assert!(paths.len() > 20, "the walk must find the sources");
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("UTF-8 source");
            let below = path.strip_prefix(&src).expect("below src");
            let first = below.components().next().expect("a component").as_os_str();
            let room = first.to_string_lossy().trim_end_matches(".rs").to_owned();
            let is_test_file = ["tests.rs", "suite.rs"].iter().any(|n| path.ends_with(n))
                || below.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "suite");
            let code = match is_test_file {
                true => Vec::new(),
                false => {
                    text.lines().take_while(|l| *l != "mod tests {").map(str::to_owned).collect()
                }
            };
            Source { path, room, code }
        })
        .collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Room names behind `crate::` in a line.
fn rooms_named(line: &str) -> Vec<String> {
    line.match_indices("crate::")
        .map(|(at, m)| {
            let rest = &line[at + m.len()..];
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            rest[..end.unwrap_or(rest.len())].to_owned()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn dependencies_point_down() {
    let rules: BTreeMap<_, _> = MAY_USE.into_iter().collect();
    let mut broken = Vec::new();
    for source in sources() {
        let Some(below) = rules.get(source.room.as_str()) else { continue };
        for (number, line) in source.code.iter().enumerate().filter(|(_, l)| !is_comment(l)) {
            for room in rooms_named(line) {
                let fine = room == source.room
                    || below.contains(&room.as_str())
                    || (LEAVES.contains(&room.as_str()) && !LEAVES.contains(&source.room.as_str()));
                if !fine && rules.contains_key(room.as_str()) {
                    broken.push(format!("{}:{} names {room}", source.path.display(), number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "back edges:\n{}", broken.join("\n"));
}

#[test]
fn each_technology_stays_in_its_room() {
    // What may appear where. A front may name HTTP; only the catalog names SQL.
    let rules: [(&str, &[&str]); 6] = [
        ("unsafe ", &["sys"]),
        ("sqlx::", &["catalog"]),
        ("axum::", &["s3", "admin", "http", "server", "server.rs", "runtime"]),
        ("quick_xml::", &["s3"]),
        ("tokio_uring::", &["sys"]),
        ("libc::", &["sys"]),
    ];
    let mut broken = Vec::new();
    for source in sources() {
        for (number, line) in source.code.iter().enumerate().filter(|(_, l)| !is_comment(l)) {
            for (word, rooms) in rules {
                if line.contains(word) && !rooms.contains(&source.room.as_str()) {
                    broken.push(format!("{}:{}: {word}", source.path.display(), number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "out of place:\n{}", broken.join("\n"));
}

#[test]
fn every_module_says_what_it_owns() {
    let missing: Vec<_> = sources()
        .into_iter()
        .filter(|s| !s.code.is_empty() && !s.code[0].starts_with("//!"))
        .map(|s| s.path.display().to_string())
        .collect();
    assert!(missing.is_empty(), "no //! header:\n{}", missing.join("\n"));
}

#[test]
fn files_functions_and_lines_are_short() {
    let mut broken = Vec::new();
    for source in sources() {
        let name = source.path.display();
        if source.code.len() > FILE_LINES_MAX {
            broken.push(format!("{name}: {} lines of code", source.code.len()));
        }
        let mut open: Option<(usize, usize)> = None;
        for (number, line) in source.code.iter().enumerate() {
            if line.chars().count() > LINE_CHARS_MAX {
                broken.push(format!("{name}:{}: a long line", number + 1));
            }
            let indent = line.len() - line.trim_start().len();
            let starts = [
                "fn ",
                "pub fn ",
                "async fn ",
                "pub async fn ",
                "pub(super) fn ",
                "pub(super) async fn ",
                "pub(crate) fn ",
                "pub(crate) async fn ",
                "unsafe fn ",
            ];
            if open.is_none() && starts.iter().any(|s| line.trim_start().starts_with(s)) {
                open = Some((number, indent));
            }
            if let Some((from, depth)) = open
                && indent == depth
                && (line.trim_start().starts_with('}')
                    || line.ends_with(';')
                    || line.ends_with('}'))
            {
                let lines = number - from + 1;
                if lines > FUNCTION_LINES_MAX {
                    broken.push(format!("{name}:{}: a function of {lines} lines", from + 1));
                }
                open = None;
            }
        }
    }
    assert!(broken.is_empty(), "too long:\n{}", broken.join("\n"));
}

#[test]
fn the_map_names_things_that_exist() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut missing = Vec::new();
    let mut named = 0;
    for word in map.split('`').skip(1).step_by(2) {
        let is_path = word.contains('/') && !word.contains([' ', '<', '*', ':', '{']);
        if is_path {
            named += 1;
            if !root().join(word.trim_end_matches('/')).exists() {
                missing.push(word.to_owned());
            }
        }
    }
    assert!(named > 10, "the map must name paths");
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
    for entry in fs::read_dir(root().join("src")).expect("src") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(map.contains(&format!("src/{name}")), "ARCHITECTURE.md does not list src/{name}");
    }
}
