//! Bucket policies, in the one form that is carried out: they let everybody read.
//!
//! Owns reading the document, refusing what it cannot carry out, and the question whether it lets
//! a stranger do something. Who is a stranger is decided in `authorise`. Pure.
//!
//! **Source** AWS IAM user guide, "IAM JSON policy elements reference"; AWS S3 user guide, "Bucket
//! policies for Amazon S3".

use serde_json::{Map, Value};

use super::error::{S3Error, S3ErrorCode};
use crate::model::Bucket;

/// The name of the document among a bucket's configurations.
pub const NAME: &str = "policy";
/// Bytes of one policy, as AWS has it.
pub const DOCUMENT_BYTES_MAX: usize = 20 << 10;
const ARN: &str = "arn:aws:s3:::";

/// A policy all of whose statements allow something to everybody.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BucketPolicy {
    statements: Vec<Statement>,
}

#[derive(Debug, PartialEq, Eq)]
struct Statement {
    actions: Vec<Action>,
    /// `bucket` or `bucket/key`, in which `*` and `?` stand for other characters.
    resources: Vec<String>,
}

/// What a policy may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    GetObject,
    GetObjectVersion,
    ListBucket,
}

impl Action {
    fn parse(text: &str) -> Option<Action> {
        let known = [
            ("s3:getobject", Action::GetObject),
            ("s3:getobjectversion", Action::GetObjectVersion),
            ("s3:listbucket", Action::ListBucket),
        ];
        let text = text.to_ascii_lowercase();
        known.into_iter().find(|(name, _)| *name == text).map(|(_, action)| action)
    }

    /// Whether a resource can be what the action is done to.
    fn applies_to(self, resource: &str) -> bool {
        match self {
            Action::GetObject | Action::GetObjectVersion => resource.contains(['/', '*']),
            Action::ListBucket => !resource.contains('/'),
        }
    }
}

impl BucketPolicy {
    /// Reads the policy of the bucket of that name.
    ///
    /// **Errors** `MalformedPolicy` for what is no policy of this bucket; `NotImplemented` for a
    /// policy that asks for more than reading by everybody.
    pub fn parse(document: &[u8], bucket: &str) -> Result<BucketPolicy, S3Error> {
        let root: Value = match document.first() {
            Some(b'{') => serde_json::from_slice(document).map_err(|_| not_json())?,
            _ => return Err(not_json()),
        };
        let root = root.as_object().ok_or_else(not_json)?;
        only(root, &["Version", "Id", "Statement"])?;
        match root.get("Version").map(Value::as_str) {
            None | Some(Some("2012-10-17" | "2008-10-17")) => {}
            _ => return Err(malformed("The policy must contain a valid version string")),
        }
        let statements = match root.get("Statement") {
            None => return Err(malformed("Missing required field Statement")),
            Some(Value::Array(all)) if all.is_empty() => {
                return Err(malformed("Could not parse the policy: Statement is empty!"));
            }
            Some(Value::Array(all)) => all.iter().collect(),
            Some(one) => vec![one],
        };
        let statements =
            statements.into_iter().map(|statement| Statement::parse(statement, bucket));
        Ok(BucketPolicy { statements: statements.collect::<Result<_, _>>()? })
    }

    /// Whether it lets everybody do anything.
    pub fn is_public(&self) -> bool {
        !self.statements.is_empty()
    }

    /// Whether everybody may do `action` to `resource`: a bucket's name, or that with a key.
    pub fn allows(&self, action: Action, resource: &str) -> bool {
        self.statements.iter().any(|statement| {
            statement.actions.contains(&action)
                && statement.resources.iter().any(|pattern| matches(pattern, resource))
        })
    }
}

impl Statement {
    fn parse(statement: &Value, bucket: &str) -> Result<Statement, S3Error> {
        let fields = statement.as_object().ok_or_else(syntax)?;
        if fields.keys().any(|name| name.starts_with("NotPrincipal")) {
            return Err(malformed("Allow with NotPrincipal is not allowed."));
        }
        let known =
            ["Sid", "Effect", "Principal", "Action", "NotAction", "Resource", "NotResource"];
        only(fields, &[known.as_slice(), &["Condition"]].concat())?;
        for unsupported in ["NotAction", "NotResource", "Condition"] {
            if fields.contains_key(unsupported) {
                return Err(beyond(&format!("with {unsupported}")));
            }
        }
        match fields.get("Effect").and_then(Value::as_str) {
            Some("Allow") => {}
            Some("Deny") => return Err(beyond("that denies")),
            Some(_) => return Err(malformed("Invalid effect")),
            None => return Err(malformed("Missing required field Effect")),
        }
        check_principal(required(fields, "Principal")?)?;
        let actions = texts(required(fields, "Action")?)?;
        let actions: Vec<Action> = actions
            .into_iter()
            .map(|text| match Action::parse(text) {
                Some(action) => Ok(action),
                None if text.to_ascii_lowercase().starts_with("s3:") || text == "*" => {
                    Err(beyond(&format!("for the action {text}")))
                }
                None => Err(malformed("Policy has invalid action")),
            })
            .collect::<Result<_, _>>()?;
        let resources = texts(required(fields, "Resource")?)?;
        let resources: Vec<String> = resources
            .into_iter()
            .map(|text| {
                resource(text, bucket).ok_or_else(|| malformed("Policy has invalid resource"))
            })
            .collect::<Result<_, _>>()?;
        if actions.iter().any(|action| !resources.iter().any(|r| action.applies_to(r))) {
            return Err(malformed("Action does not apply to any resource(s) in statement"));
        }
        Ok(Statement { actions, resources })
    }
}

/// Everybody is `"*"`, `{"AWS": "*"}` or `{"AWS": ["*"]}`.
fn check_principal(principal: &Value) -> Result<(), S3Error> {
    let named = match principal {
        Value::String(text) => return everybody(text),
        Value::Object(kinds) => kinds,
        _ => return Err(malformed("Invalid principal in policy")),
    };
    if named.is_empty() {
        return Err(malformed("Invalid principal in policy"));
    }
    for (kind, who) in named {
        if kind != "AWS" {
            return Err(beyond(&format!("for a principal of the kind {kind}")));
        }
        for text in texts(who)? {
            if text != "*" {
                return Err(beyond("for named principals"));
            }
        }
    }
    Ok(())
}

fn everybody(text: &str) -> Result<(), S3Error> {
    if text == "*" { Ok(()) } else { Err(malformed("Invalid principal in policy")) }
}

/// The resource behind its ARN, when it lies in the bucket.
fn resource(arn: &str, bucket: &str) -> Option<String> {
    let resource = arn.strip_prefix(ARN)?;
    let name = resource.split('/').next()?;
    matches(name, bucket).then(|| resource.to_owned())
}

fn required<'v>(fields: &'v Map<String, Value>, name: &str) -> Result<&'v Value, S3Error> {
    fields.get(name).ok_or_else(|| malformed(&format!("Missing required field {name}")))
}

/// One text or a list of some.
fn texts(value: &Value) -> Result<Vec<&str>, S3Error> {
    let all: Option<Vec<&str>> = match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        _ => None,
    };
    all.filter(|all| !all.is_empty()).ok_or_else(syntax)
}

fn only(fields: &Map<String, Value>, known: &[&str]) -> Result<(), S3Error> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(other) => Err(malformed(&format!("Unknown field {other}"))),
    }
}

/// Whether `text` fits a pattern in which `*` is any run of characters and `?` any one.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star does not fit.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star, at)) = retry else { return false };
                retry = Some((star, at + 1));
                p = star + 1;
                t = at + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

fn malformed(what: &str) -> S3Error {
    S3Error::new(S3ErrorCode::MalformedPolicy).message(what.to_owned())
}

fn not_json() -> S3Error {
    S3ErrorCode::MalformedPolicy.into()
}

fn syntax() -> S3Error {
    malformed("Invalid policy syntax.")
}

fn beyond(what: &str) -> S3Error {
    S3Error::not_implemented(&format!("A bucket policy {what}"))
}

/// The policy of a bucket, read once for all requests. A stored document that cannot be read
/// allows nothing.
pub fn policy_of(bucket: &Bucket) -> Option<&BucketPolicy> {
    let name = bucket.name.as_str();
    let read = |document: &[u8]| BucketPolicy::parse(document, name).unwrap_or_default();
    bucket.configs.get(NAME)?.parsed(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<BucketPolicy, S3ErrorCode> {
        BucketPolicy::parse(json.as_bytes(), "b").map_err(|error| error.code())
    }

    fn statement(changes: &[(&str, &str)]) -> Result<BucketPolicy, S3ErrorCode> {
        let mut fields = vec![
            ("Effect", "\"Allow\""),
            ("Principal", "\"*\""),
            ("Action", "\"s3:GetObject\""),
            ("Resource", "\"arn:aws:s3:::b/*\""),
        ];
        for (name, value) in changes {
            fields.retain(|(known, _)| known != name);
            fields.push((name, value));
        }
        let fields: Vec<String> = fields
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        parse(&format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{{{}}}]}}", fields.join(",")))
    }

    #[test]
    fn the_simplest_form_lets_everybody_read() {
        let policy = statement(&[]).expect("lawful");
        assert!(policy.allows(Action::GetObject, "b/any/key"));
        assert!(!policy.allows(Action::GetObject, "c/any/key"));
        assert!(!policy.allows(Action::GetObjectVersion, "b/any/key"));
        assert!(!policy.allows(Action::ListBucket, "b"));
        let both = statement(&[
            ("Principal", "{\"AWS\":[\"*\"]}"),
            ("Action", "[\"S3:getobject\",\"s3:ListBucket\"]"),
            ("Resource", "[\"arn:aws:s3:::b\",\"arn:aws:s3:::b/pub/*\"]"),
            ("Sid", "\"one\""),
        ])
        .expect("lawful");
        assert!(both.allows(Action::ListBucket, "b"));
        assert!(both.allows(Action::GetObject, "b/pub/k"));
        assert!(!both.allows(Action::GetObject, "b/other"));
    }

    #[test]
    fn what_is_no_policy_of_the_bucket_is_malformed() {
        let malformed = Err(S3ErrorCode::MalformedPolicy);
        for json in [
            "",
            " {}",
            "[]",
            "{",
            "{}",
            "{\"Statement\":[]}",
            "{\"Statement\":[1]}",
            "{\"Statement\":[],\"Version\":\"2020-01-01\"}",
            "{\"statement\":[]}",
        ] {
            assert_eq!(parse(json), malformed, "{json}");
        }
        for change in [
            ("Effect", ""),
            ("Effect", "\"allow\""),
            ("Principal", ""),
            ("Principal", "\"me\""),
            ("Principal", "{}"),
            ("Action", "\"ec2:Run\""),
            ("Action", "[]"),
            ("Action", "\"s3:ListBucket\""),
            ("Resource", "\"arn:aws:s3:::other/*\""),
            ("Resource", "\"b/*\""),
            ("Resource", "\"arn:aws:s3:::b\""),
            ("NotPrincipal", "\"*\""),
            ("Unknown", "1"),
        ] {
            assert_eq!(statement(&[change]), malformed, "{change:?}");
        }
    }

    #[test]
    fn what_asks_for_more_is_refused_by_name() {
        for change in [
            ("Effect", "\"Deny\""),
            ("Principal", "{\"AWS\":\"arn:aws:iam::1:root\"}"),
            ("Principal", "{\"Service\":\"logging.s3.amazonaws.com\"}"),
            ("Action", "\"s3:*\""),
            ("Action", "\"s3:PutObject\""),
            ("NotAction", "\"s3:PutObject\""),
            ("NotResource", "\"arn:aws:s3:::b/*\""),
            ("Condition", "{}"),
        ] {
            assert_eq!(statement(&[change]), Err(S3ErrorCode::NotImplemented), "{change:?}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("b/*", "b/", true),
            ("b/*", "b", false),
            ("*", "b/k", true),
            ("b/?.txt", "b/a.txt", true),
            ("b/?.txt", "b/ab.txt", false),
            ("b/*a*b", "b/xaxaxb", true),
            ("b/*a*b", "b/xaxaxc", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
