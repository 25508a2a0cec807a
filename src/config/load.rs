//! Reads the file, checks names in it and in the environment, and puts the layers together.

use std::path::Path;

use super::{Layer, Settings};

/// Variables that exist in the environment only. The keys are secrets, which do not belong on a
/// command line that every user of the machine can read.
pub const ENV_ONLY: [&str; 3] =
    ["GOBLIN_CONFIG", "GOBLIN_ROOT_ACCESS_KEY", "GOBLIN_ROOT_SECRET_KEY"];

/// A setting that cannot be used. The message says what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{path}: {message}")]
    Syntax { path: String, message: String },
    #[error("{path}: unknown setting {name:?}; {hint}")]
    UnknownKey { path: String, name: String, hint: String },
    #[error("unknown environment variable {name}; {hint}")]
    UnknownVariable { name: String, hint: String },
    #[error("--{name}: {message}")]
    Value { name: &'static str, message: String },
}

/// Puts `flags` (which already hold the environment) over the file and the defaults.
///
/// **Errors** `File` and `Syntax` for the file itself, `UnknownKey` for a name that it should not
/// hold, `Value` for a setting out of its bounds.
pub fn load(flags: Layer, file: Option<&Path>) -> Result<Settings, ConfigError> {
    let file = file.map(read_file).transpose()?.unwrap_or_default();
    flags.or(file).resolve()
}

/// Refuses variables that look like ours but are not: a misspelt limit must not be ignored.
pub fn names_of_environment(names: impl Iterator<Item = String>) -> Result<(), ConfigError> {
    let known: Vec<String> = Layer::names()
        .iter()
        .map(|name| format!("GOBLIN_{}", name.replace('-', "_").to_ascii_uppercase()))
        .chain(ENV_ONLY.iter().map(|name| (*name).to_owned()))
        .collect();
    // Test programs hand these to their own children.
    let foreign = |name: &str| name == "GOBLIN_BIN" || name.starts_with("GOBLIN_TEST_");
    for name in names.filter(|name| name.starts_with("GOBLIN_") && !foreign(name)) {
        if !known.contains(&name) {
            let hint = hint(&name, &known);
            return Err(ConfigError::UnknownVariable { name, hint });
        }
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<Layer, ConfigError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::File { path: shown.clone(), source })?;
    parse_file(&text, shown)
}

fn parse_file(text: &str, path: String) -> Result<Layer, ConfigError> {
    let syntax = |e: toml::de::Error| ConfigError::Syntax {
        path: path.clone(),
        message: e.to_string().trim_end().to_owned(),
    };
    let table: toml::Table = toml::from_str(text).map_err(syntax)?;
    let known = Layer::names();
    if let Some(name) = table.keys().find(|name| !known.contains(name)) {
        let hint = hint(name, &known);
        return Err(ConfigError::UnknownKey { path, name: name.clone(), hint });
    }
    toml::from_str(text).map_err(syntax)
}

/// "did you mean" when a known name is close, else where to look.
fn hint(name: &str, known: &[String]) -> String {
    let wanted = name.replace('_', "-").to_ascii_lowercase();
    let distance = |k: &String| edit_distance(&wanted, &k.replace('_', "-").to_ascii_lowercase());
    match known.iter().map(|k| (distance(k), k)).min() {
        Some((distance, closest)) if distance <= 3 => format!("did you mean {closest:?}?"),
        _ => "`goblin-store serve --help` lists all settings".to_owned(),
    }
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, Durability, Switch};

    fn parse(text: &str) -> Result<Layer, ConfigError> {
        parse_file(text, "goblin.toml".into())
    }

    #[test]
    fn a_file_holds_the_names_of_the_flags() {
        let layer = parse(
            "data-dir = \"/srv/goblin\"\nmemory = \"48G\"\nblock = 4096\nsigv2 = \"off\"\n\
             durability = \"writeback\"\ndomain = [\"s3.test\"]\nno-numa-promotion = true\n",
        )
        .expect("is valid");
        assert_eq!(layer.memory, Some(ByteSize(48 << 30)));
        assert_eq!(layer.block, Some(ByteSize(4096)));
        assert_eq!(layer.sigv2, Some(Switch::Off));
        assert_eq!(layer.durability, Some(Durability::Writeback));
        assert_eq!(layer.domain, Some(vec!["s3.test".to_owned()]));
        assert_eq!(layer.no_numa_promotion, Some(true));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_name_and_a_hint() {
        let error = parse("http_prot = 1").expect_err("is unknown").to_string();
        assert!(error.contains("\"http_prot\"") && error.contains("\"http-port\""), "{error}");
        let error = parse("colour = 1").expect_err("is unknown").to_string();
        assert!(error.contains("serve --help"), "{error}");
    }

    #[test]
    fn a_wrong_type_names_the_line() {
        let error = parse("region = \"x\"\nhttp-port = \"many\"").expect_err("no port").to_string();
        assert!(error.contains("http-port") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn unknown_variables_are_refused() {
        let check = |name: &str| names_of_environment([name.to_owned()].into_iter());
        assert!(check("GOBLIN_HTTP_PORT").is_ok());
        assert!(check("GOBLIN_ROOT_SECRET_KEY").is_ok());
        assert!(check("PATH").is_ok());
        let error = check("GOBLIN_HTTPPORT").expect_err("is unknown").to_string();
        assert!(error.contains("GOBLIN_HTTP_PORT"), "{error}");
    }

    #[test]
    fn an_absent_file_is_an_error_with_its_path() {
        let error = load(Layer::default(), Some(Path::new("/nonexistent/x.toml")));
        assert!(error.expect_err("is absent").to_string().contains("/nonexistent/x.toml"));
    }
}
