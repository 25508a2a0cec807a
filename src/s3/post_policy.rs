//! Policies of POST forms: what a signed form may contain.
//!
//! Pure. A policy only ever narrows what its signer may do himself: it lets nobody do anything.
//!
//! **Source** AWS S3 API reference, "Creating an HTML form (using AWS Signature Version 4)",
//! "POST policy".

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::{S3Error, S3ErrorCode};
use super::form::Fields;
use super::time::parse_iso_date;

/// Fields that need no condition, in lower case.
const EXEMPT: [&str; 5] = ["awsaccesskeyid", "file", "policy", "signature", "x-amz-signature"];
/// Beginnings of further such fields: those that a page adds for itself, and checksums, which can
/// only refuse a file and are known when the file is, long after the policy was signed.
const EXEMPT_PREFIXES: [&str; 2] = ["x-ignore-", "x-amz-checksum-"];

/// A policy that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct PostPolicy {
    expires_secs: i64,
    conditions: Vec<Condition>,
    /// The least and greatest length of the file. **Units** bytes.
    pub length: Option<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Condition {
    /// Lower case, without the dollar sign.
    field: String,
    rule: Rule,
    /// As it is shown to a client whose form breaks it.
    shown: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Rule {
    Equals(String),
    StartsWith(String),
}

impl PostPolicy {
    /// Reads the `policy` field: JSON in base64.
    ///
    /// **Errors** `InvalidPolicyDocument`.
    pub fn parse(field: &str) -> Result<PostPolicy, S3Error> {
        let packed: String = field.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let raw = STANDARD.decode(packed).map_err(|_| invalid("Invalid Base64 Encoding."))?;
        let document: Value = serde_json::from_slice(&raw).map_err(|_| invalid("Invalid JSON."))?;
        let document = document.as_object().ok_or_else(|| invalid("Invalid JSON."))?;
        if let Some(other) =
            document.keys().find(|k| !matches!(k.as_str(), "expiration" | "conditions"))
        {
            return Err(invalid(&format!("Unexpected: '{other}'.")));
        }
        let expiration =
            document.get("expiration").ok_or_else(|| invalid("Policy missing expiration."))?;
        let with_t = |text: &&str| text.as_bytes().get(10) == Some(&b'T');
        let expires_secs =
            expiration.as_str().filter(with_t).and_then(parse_iso_date).ok_or_else(|| {
                invalid(&format!("Invalid 'expiration' value: '{}'", text_of(expiration)))
            })?;
        let conditions =
            document.get("conditions").ok_or_else(|| invalid("Policy missing conditions."))?;
        let list = conditions
            .as_array()
            .ok_or_else(|| invalid("Invalid 'conditions' value: must be a List."))?;
        let mut policy = PostPolicy { expires_secs, conditions: Vec::new(), length: None };
        for condition in list {
            policy.add(condition)?;
        }
        Ok(policy)
    }

    fn add(&mut self, condition: &Value) -> Result<(), S3Error> {
        let shown = condition.to_string();
        match condition {
            Value::Object(pairs) => {
                let mut pairs = pairs.iter();
                let (Some((field, value)), None) = (pairs.next(), pairs.next()) else {
                    return Err(invalid(
                        "Invalid Simple-Condition: Simple-Conditions must have exactly one \
                         property specified.",
                    ));
                };
                let value = value
                    .as_str()
                    .ok_or_else(|| invalid("Invalid Simple-Condition: value must be a string."))?;
                let (field, rule) = (field.to_ascii_lowercase(), Rule::Equals(value.to_owned()));
                self.conditions.push(Condition { field, rule, shown });
                Ok(())
            }
            Value::Array(items) => self.add_list(items, shown),
            _ => Err(invalid("Invalid Condition: must be an object or a list.")),
        }
    }

    fn add_list(&mut self, items: &[Value], shown: String) -> Result<(), S3Error> {
        let operator = items.first().and_then(Value::as_str).unwrap_or_default();
        let operator = operator.to_ascii_lowercase();
        let [_, first, second] = items else {
            return Err(invalid(&format!(
                "Invalid '{operator}' condition: wrong number of arguments."
            )));
        };
        if operator == "content-length-range" {
            let (Some(least), Some(most)) = (number(first), number(second)) else {
                return Err(invalid("Invalid 'content-length-range' condition: not a number."));
            };
            // Several narrow each other.
            let (had_least, had_most) = self.length.unwrap_or((0, u64::MAX));
            self.length = Some((had_least.max(least), had_most.min(most)));
            return Ok(());
        }
        let (Some(field), Some(value)) = (first.as_str(), second.as_str()) else {
            return Err(invalid(&format!("Invalid '{operator}' condition: not a string.")));
        };
        let field = field.strip_prefix('$').ok_or_else(|| {
            invalid(&format!("Invalid '{operator}' condition: the field must begin with '$'."))
        })?;
        let rule = match operator.as_str() {
            "eq" => Rule::Equals(value.to_owned()),
            "starts-with" => Rule::StartsWith(value.to_owned()),
            _ => {
                return Err(invalid(&format!(
                    "Invalid Condition: unknown operation '{operator}'."
                )));
            }
        };
        self.conditions.push(Condition { field: field.to_ascii_lowercase(), rule, shown });
        Ok(())
    }

    /// Compares with a form for `bucket` whose `key` field, file name filled in, is `key`.
    ///
    /// **Errors** `AccessDenied` after the policy's time, for a condition that does not hold and
    /// for a field that no condition names.
    pub fn check(
        &self,
        fields: &Fields,
        bucket: &str,
        key: &str,
        now_secs: i64,
    ) -> Result<(), S3Error> {
        if now_secs > self.expires_secs {
            return Err(denied("Policy expired."));
        }
        let value = |field: &str| match field {
            "bucket" => Some(bucket),
            "key" => Some(key),
            _ => fields.get(field),
        };
        for condition in &self.conditions {
            if !condition.rule.holds(&condition.field, value(&condition.field)) {
                return Err(denied(&format!("Policy Condition failed: {}", condition.shown)));
            }
        }
        let named = |field: &str| self.conditions.iter().any(|c| c.field == field);
        let sent = fields.pairs.iter().map(|(name, _)| name.to_ascii_lowercase());
        let extra: Vec<String> = ["bucket".to_owned()]
            .into_iter()
            .chain(sent)
            .filter(|name| !EXEMPT.contains(&name.as_str()))
            .filter(|name| !EXEMPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            .filter(|name| !named(name))
            .collect();
        if extra.is_empty() {
            return Ok(());
        }
        Err(denied(&format!("Extra input fields: {}", extra.join(", "))))
    }
}

impl Rule {
    /// A field that the form does not have holds nothing, not even an empty prefix.
    fn holds(&self, field: &str, value: Option<&str>) -> bool {
        match (self, value) {
            (_, None) => false,
            (Rule::Equals(wanted), Some(value)) => wanted == value,
            // A list of types: each must begin so.
            (Rule::StartsWith(prefix), Some(value)) if field == "content-type" => {
                value.split(',').all(|one| one.trim().starts_with(prefix))
            }
            (Rule::StartsWith(prefix), Some(value)) => value.starts_with(prefix),
        }
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn invalid(what: &str) -> S3Error {
    S3Error::new(S3ErrorCode::InvalidPolicyDocument).message(format!("Invalid Policy: {what}"))
}

fn denied(what: &str) -> S3Error {
    S3Error::new(S3ErrorCode::AccessDenied).message(format!("Invalid according to Policy: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<PostPolicy, S3ErrorCode> {
        PostPolicy::parse(&STANDARD.encode(json)).map_err(|error| error.code())
    }

    fn with(conditions: &str) -> Result<PostPolicy, S3ErrorCode> {
        parse(&format!("{{\"expiration\":\"2026-01-02T03:04:05Z\",\"conditions\":[{conditions}]}}"))
    }

    #[test]
    fn documents_are_checked() {
        assert!(with("").is_ok());
        let invalid = Err(S3ErrorCode::InvalidPolicyDocument);
        for json in [
            "",
            "[]",
            "{\"conditions\":[]}",
            "{\"expiration\":\"2026-01-02T03:04:05Z\"}",
            "{\"expiration\":\"2026-01-02 03:04:05+00:00\",\"conditions\":[]}",
            "{\"expiration\":1,\"conditions\":[]}",
            "{\"expiration\":\"2026-01-02T03:04:05Z\",\"conditions\":{}}",
            "{\"expiration\":\"2026-01-02T03:04:05Z\",\"conditions\":[],\"CONDITIONS\":[]}",
        ] {
            assert_eq!(parse(json), invalid, "{json}");
        }
        for conditions in [
            "{}",
            "{\"a\":\"1\",\"b\":\"2\"}",
            "{\"a\":1}",
            "[]",
            "7",
            "[\"eq\",\"$a\"]",
            "[\"eq\",\"a\",\"b\"]",
            "[\"ends-with\",\"$a\",\"b\"]",
            "[\"content-length-range\",0]",
            "[\"content-length-range\",-1,0]",
            "[\"content-length-range\",\"x\",0]",
        ] {
            assert_eq!(with(conditions), invalid, "{conditions}");
        }
        assert!(PostPolicy::parse("%%%").is_err());
        let length = with("[\"content-length-range\",1,\"9\"],[\"content-length-range\",0,5]");
        assert_eq!(length.expect("lawful").length, Some((1, 5)));
    }

    #[test]
    fn every_field_needs_a_condition_that_holds() {
        let policy = with(
            "{\"Bucket\":\"b\"},[\"starts-with\",\"$KEY\",\"u/\"],[\"eq\",\"$acl\",\"private\"],\
             [\"starts-with\",\"$Content-Type\",\"image/\"]",
        )
        .expect("lawful");
        let check = |pairs: &[(&str, &str)], bucket: &str, key: &str, late: i64| {
            let pairs = pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
            let fields = Fields { pairs, file_name: None };
            policy.check(&fields, bucket, key, 1_767_323_045 + late).is_ok()
        };
        let fine =
            [("key", "${filename}"), ("ACL", "private"), ("content-type", "image/a, image/b")];
        assert!(check(&fine, "b", "u/x", 0));
        assert!(!check(&fine, "b", "u/x", 1));
        assert!(!check(&fine, "c", "u/x", 0));
        assert!(!check(&fine, "b", "v/x", 0));
        assert!(!check(&fine[..2], "b", "u/x", 0), "a field that is named must be there");
        let mut more = fine.to_vec();
        more.extend([("x-ignore-a", "1"), ("Policy", "p"), ("x-amz-signature", "s")]);
        more.push(("x-amz-checksum-sha256", "c"));
        assert!(check(&more, "b", "u/x", 0));
        more.push(("x-amz-meta-a", "1"));
        assert!(!check(&more, "b", "u/x", 0));
        let mixed = [fine[0], fine[1], ("Content-Type", "image/a, text/html")];
        assert!(!check(&mixed, "b", "u/x", 0));
    }
}
