//! Cross-origin resource sharing: which pages of other origins a browser lets at a bucket.
//!
//! Owns the configuration's form, its matching and the headers that tell a browser. Pure. It never
//! lets anybody do anything: a request is authorised as if it had no Origin, and only the page
//! that sent it may be kept from seeing the answer.
//!
//! **Source** AWS S3 user guide, "Using cross-origin resource sharing (CORS)" and "Elements of a
//! CORS configuration"; Fetch standard, "HTTP CORS protocol".

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method};

use super::error::{S3Error, S3ErrorCode};
use super::xml::{self, Element, XmlWriter};
use crate::model::{Bucket, BucketConfig};

/// The name of the document among a bucket's configurations.
pub const NAME: &str = "cors";
/// Bytes of one configuration, as AWS has it.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 10;
const RULES_MAX: usize = 100;
const ID_CHARS_MAX: usize = 255;
const METHODS: [&str; 5] = ["GET", "HEAD", "PUT", "POST", "DELETE"];
/// What an answer depends on wherever a bucket has rules.
const VARIES: &str = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";

/// The rules of a bucket, in the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsRules(Vec<CorsRule>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CorsRule {
    id: Option<String>,
    origins: Vec<String>,
    methods: Vec<String>,
    headers: Vec<String>,
    exposed: Vec<String>,
    max_age_secs: Option<u32>,
}

/// What a browser asks for, in a preflight request or with the request itself.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    pub origin: &'r str,
    pub method: &'r str,
    /// The value of Access-Control-Request-Headers, in a preflight request.
    pub headers: Option<&'r str>,
}

impl CorsRules {
    /// Reads a `CORSConfiguration`.
    ///
    /// **Errors** `MalformedXML`; `InvalidRequest` for a method, a wildcard or a number of rules
    /// that S3 does not have.
    pub fn parse(document: &[u8]) -> Result<CorsRules, S3Error> {
        let root = xml::parse(document)?;
        root.expect_name("CORSConfiguration")?;
        root.expect_children(&["CORSRule"])?;
        if root.children.is_empty() {
            return Err(S3ErrorCode::MalformedXML.into());
        }
        if root.children.len() > RULES_MAX {
            return Err(invalid(format!(
                "The number of CORS rules should not exceed allowed limit of {RULES_MAX} rules."
            )));
        }
        let rules: Result<Vec<_>, _> = root.children.iter().map(CorsRule::parse).collect();
        rules.map(CorsRules)
    }

    /// The document, as GetBucketCors shows it.
    pub fn to_xml(&self) -> String {
        let mut xml = XmlWriter::document("CORSConfiguration", 256 + 512 * self.0.len());
        for rule in &self.0 {
            xml.open("CORSRule");
            if let Some(id) = &rule.id {
                xml.element("ID", id);
            }
            let lists = [
                ("AllowedOrigin", &rule.origins),
                ("AllowedMethod", &rule.methods),
                ("AllowedHeader", &rule.headers),
                ("ExposeHeader", &rule.exposed),
            ];
            for (name, values) in lists {
                values.iter().for_each(|value| xml.element(name, value));
            }
            if let Some(secs) = rule.max_age_secs {
                xml.number("MaxAgeSeconds", secs.into());
            }
            xml.close("CORSRule");
        }
        xml.finish()
    }

    /// The headers of the first rule that allows what is asked; `None` when none does.
    pub fn answer(&self, asked: Asked<'_>) -> Option<HeaderMap> {
        self.0.iter().find_map(|rule| rule.answer(asked))
    }
}

impl CorsRule {
    fn parse(rule: &Element<'_>) -> Result<CorsRule, S3Error> {
        rule.expect_children(&[
            "ID",
            "AllowedOrigin",
            "AllowedMethod",
            "AllowedHeader",
            "ExposeHeader",
            "MaxAgeSeconds",
        ])?;
        let texts = |name: &str| -> Vec<String> {
            rule.children_named(name).map(|e| e.text.trim().to_owned()).collect()
        };
        let malformed = || S3Error::new(S3ErrorCode::MalformedXML);
        let max_age_secs = match texts("MaxAgeSeconds").as_slice() {
            [] => None,
            [secs] => Some(secs.parse().map_err(|_| malformed())?),
            _ => return Err(malformed()),
        };
        let id = match texts("ID").as_slice() {
            [] => None,
            [id] if id.chars().count() <= ID_CHARS_MAX => Some(id.clone()),
            _ => return Err(malformed()),
        };
        let parsed = CorsRule {
            id,
            origins: texts("AllowedOrigin"),
            methods: texts("AllowedMethod"),
            headers: texts("AllowedHeader"),
            exposed: texts("ExposeHeader"),
            max_age_secs,
        };
        if parsed.origins.is_empty() || parsed.methods.is_empty() {
            return Err(malformed());
        }
        parsed.check()?;
        Ok(parsed)
    }

    fn check(&self) -> Result<(), S3Error> {
        if let Some(method) = self.methods.iter().find(|m| !METHODS.contains(&m.as_str())) {
            return Err(invalid(format!(
                "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
            )));
        }
        for (name, values) in [("AllowedOrigin", &self.origins), ("AllowedHeader", &self.headers)] {
            if let Some(value) = values.iter().find(|v| v.matches('*').count() > 1) {
                return Err(invalid(format!(
                    "{name} \"{value}\" can not have more than one wildcard."
                )));
            }
        }
        if let Some(value) = self.exposed.iter().find(|v| v.contains('*')) {
            return Err(invalid(format!(
                "ExposeHeader \"{value}\" contains wildcard. We currently do not support wildcard \
                 for ExposeHeader."
            )));
        }
        let texts = self.origins.iter().chain(&self.headers).chain(&self.exposed);
        // They will stand in headers of answers.
        if texts.into_iter().any(|text| HeaderValue::from_str(text).is_err()) {
            return Err(S3ErrorCode::MalformedXML.into());
        }
        Ok(())
    }

    fn answer(&self, asked: Asked<'_>) -> Option<HeaderMap> {
        let origin = self.origins.iter().find(|pattern| matches(pattern, asked.origin, false))?;
        if !self.methods.iter().any(|method| method == asked.method) {
            return None;
        }
        let names: Vec<String> = asked
            .headers
            .unwrap_or_default()
            .split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| !name.is_empty())
            .collect();
        let allowed = |name: &String| self.headers.iter().any(|h| matches(h, name, true));
        if !names.iter().all(allowed) {
            return None;
        }
        let mut headers = HeaderMap::new();
        let mut set = |name, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        if origin == "*" {
            set(ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            set(ACCESS_CONTROL_ALLOW_ORIGIN, asked.origin);
            set(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        set(ACCESS_CONTROL_ALLOW_METHODS, &self.methods.join(", "));
        if !names.is_empty() {
            set(ACCESS_CONTROL_ALLOW_HEADERS, &names.join(", "));
        }
        if !self.exposed.is_empty() {
            set(ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed.join(", "));
        }
        if let Some(secs) = self.max_age_secs {
            set(ACCESS_CONTROL_MAX_AGE, &secs.to_string());
        }
        Some(headers)
    }
}

fn invalid(message: String) -> S3Error {
    S3Error::new(S3ErrorCode::InvalidRequest).message(message)
}

/// Whether `text` fits a pattern with at most one `*`, which stands for any run of characters.
fn matches(pattern: &str, text: &str, ignore_case: bool) -> bool {
    let (pattern, text) = match ignore_case {
        true => (pattern.to_ascii_lowercase(), text.to_ascii_lowercase()),
        false => (pattern.to_owned(), text.to_owned()),
    };
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}

/// The rules of a bucket, read once for all requests. `None` when it has no configuration.
pub fn rules_of(bucket: &Bucket) -> Option<&CorsRules> {
    let config: &BucketConfig = bucket.configs.get(NAME)?;
    config.parsed(|document| CorsRules::parse(document).unwrap_or_default())
}

/// The headers that the answer to a request gets, whatever it says: none without rules, and those
/// of the rule that allows its page to see it.
///
/// The method is the one that is asked about where a request names one, as AWS takes it. A
/// preflight request gets what `preflight` says.
pub fn headers_of_answer(bucket: &Bucket, method: &Method, request: &HeaderMap) -> HeaderMap {
    let Some(rules) = rules_of(bucket) else { return HeaderMap::new() };
    let text = |name| request.get(name).and_then(|value| value.to_str().ok());
    let asks = *method != Method::OPTIONS;
    let found = text(ORIGIN).filter(|_| asks).and_then(|origin| {
        let method = text(ACCESS_CONTROL_REQUEST_METHOD).unwrap_or(method.as_str());
        rules.answer(Asked { origin, method, headers: None })
    });
    let mut headers = found.unwrap_or_default();
    // Also without an Origin: a cache must not give that answer to a page of another one.
    headers.insert(VARY, HeaderValue::from_static(VARIES));
    headers
}

/// Answers a preflight request with the headers of the rule that allows what it asks for.
///
/// **Errors** `BadRequest` for what is no preflight request, else `AccessForbidden`.
pub fn preflight(
    bucket: Option<&Bucket>,
    names_object: bool,
    request: &HeaderMap,
) -> Result<HeaderMap, S3Error> {
    let text = |name| request.get(name).and_then(|value| value.to_str().ok());
    let bad = |message: String| Err(S3Error::new(S3ErrorCode::BadRequest).message(message));
    let Some(origin) = text(ORIGIN) else {
        return bad("Insufficient information. Origin request header needed.".into());
    };
    let method = text(ACCESS_CONTROL_REQUEST_METHOD).unwrap_or("null");
    if !METHODS.contains(&method) {
        return bad(format!("Invalid Access-Control-Request-Method: {method}"));
    }
    let forbidden = |message: &'static str| {
        S3Error::new(S3ErrorCode::AccessForbidden)
            .message(message)
            .detail("Method", method)
            .detail("ResourceType", if names_object { "OBJECT" } else { "BUCKET" })
    };
    let Some(rules) = bucket.and_then(rules_of) else {
        return Err(forbidden("CORSResponse: CORS is not enabled for this bucket."));
    };
    let headers = text(ACCESS_CONTROL_REQUEST_HEADERS);
    rules.answer(Asked { origin, method, headers }).ok_or_else(|| {
        forbidden(
            "CORSResponse: This CORS request is not allowed. This is usually because the \
             evaluation of Origin, request method / Access-Control-Request-Method or \
             Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(inner: &str) -> Result<CorsRules, S3ErrorCode> {
        let text = format!("<CORSConfiguration>{inner}</CORSConfiguration>");
        CorsRules::parse(text.as_bytes()).map_err(|error| error.code())
    }

    fn rule(inner: &str) -> Result<CorsRules, S3ErrorCode> {
        rules(&format!("<CORSRule>{inner}</CORSRule>"))
    }

    const FINE: &str = "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>";

    #[test]
    fn documents_are_checked() {
        assert!(rule(FINE).is_ok());
        let malformed = [
            "".to_owned(),
            "<AllowedOrigin>*</AllowedOrigin>".into(),
            "<AllowedMethod>GET</AllowedMethod>".into(),
            format!("{FINE}<MaxAgeSeconds>-1</MaxAgeSeconds>"),
            format!("{FINE}<MaxAgeSeconds>1</MaxAgeSeconds><MaxAgeSeconds>2</MaxAgeSeconds>"),
            format!("{FINE}<Unknown/>"),
            format!("{FINE}<ID>{}</ID>", "x".repeat(256)),
            format!("{FINE}<ExposeHeader>a&#10;b</ExposeHeader>"),
        ];
        for inner in malformed {
            assert_eq!(rule(&inner), Err(S3ErrorCode::MalformedXML), "{inner}");
        }
        assert_eq!(rules(""), Err(S3ErrorCode::MalformedXML));
        let invalid = [
            "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>PATCH</AllowedMethod>".to_owned(),
            "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>get</AllowedMethod>".into(),
            "<AllowedOrigin>*.a.*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>".into(),
            format!("{FINE}<AllowedHeader>*a*</AllowedHeader>"),
            format!("{FINE}<ExposeHeader>*</ExposeHeader>"),
        ];
        for inner in invalid {
            assert_eq!(rule(&inner), Err(S3ErrorCode::InvalidRequest), "{inner}");
        }
        let many = format!("<CORSRule>{FINE}</CORSRule>").repeat(RULES_MAX);
        assert!(rules(&many).is_ok());
        let more = format!("<CORSRule>{FINE}</CORSRule>{many}");
        assert_eq!(rules(&more), Err(S3ErrorCode::InvalidRequest));
    }

    #[test]
    fn what_is_written_reads_back() {
        let parsed = rule(
            "<ID>a &amp; b</ID><AllowedOrigin>https://x</AllowedOrigin>\
             <AllowedOrigin>https://*.y</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>\
             <AllowedMethod>GET</AllowedMethod><AllowedHeader>x-*</AllowedHeader>\
             <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>3000</MaxAgeSeconds>",
        )
        .expect("lawful");
        assert_eq!(CorsRules::parse(parsed.to_xml().as_bytes()).ok(), Some(parsed));
    }

    #[test]
    fn one_wildcard_stands_for_any_run() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("*suffix", "foo.suffix", true),
            ("*suffix", "foo.suffix.get", false),
            ("start*end", "startend", true),
            ("start*end", "start12end", true),
            ("start*end", "0start12end", false),
            ("aba*aba", "aba", false),
            ("prefix*", "bla.prefix", false),
            ("https://a", "https://A", false),
        ] {
            assert_eq!(matches(pattern, text, false), fits, "{pattern} {text}");
        }
        assert!(matches("X-Amz-*", "x-amz-date", true));
    }

    #[test]
    fn the_first_rule_that_allows_all_answers() {
        let rules = rules(
            "<CORSRule><AllowedOrigin>https://a</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>\
             <AllowedHeader>x-amz-*</AllowedHeader></CORSRule>\
             <CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>\
             <AllowedMethod>GET</AllowedMethod><AllowedHeader>*</AllowedHeader></CORSRule>",
        )
        .expect("lawful");
        let ask = |origin, method, headers| {
            let found = rules.answer(Asked { origin, method, headers });
            let text = |map: &HeaderMap, name| {
                map.get(name).map(|v: &HeaderValue| v.to_str().expect("text").to_owned())
            };
            found.map(|map| {
                (
                    text(&map, ACCESS_CONTROL_ALLOW_ORIGIN).unwrap_or_default(),
                    text(&map, ACCESS_CONTROL_ALLOW_HEADERS).unwrap_or_default(),
                    map.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS),
                )
            })
        };
        let exact = ask("https://a", "PUT", Some("X-Amz-Date, x-amz-acl"));
        assert_eq!(exact, Some(("https://a".into(), "x-amz-date, x-amz-acl".into(), true)));
        // The first rule has the origin, the second the header.
        let other = ask("https://a", "PUT", Some("content-type"));
        assert_eq!(other, Some(("*".into(), "content-type".into(), false)));
        assert_eq!(ask("https://b", "DELETE", None), None);
        assert_eq!(ask("https://b", "GET", None), Some(("*".into(), String::new(), false)));
    }
}
