//! `multipart/form-data` bodies, as browsers post them: fields, then one file.
//!
//! Owns the framing and its bounds. Fields are held in memory up to `FIELDS_BYTES_MAX`; the file
//! passes through with at most one frame of the body and one delimiter held back. It knows no
//! field's meaning.
//!
//! **Source** RFC 7578; RFC 2046, 5.1.1; AWS S3 API reference, "POST Object" for the limit.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;

use super::body::RequestBody;
use super::error::{S3Error, S3ErrorCode};

/// Everything that stands before the file's bytes, as AWS has it.
pub const FIELDS_BYTES_MAX: usize = 20 << 10;
/// What may stand behind the file: fields that S3 ignores.
const REST_BYTES_MAX: u64 = 20 << 10;
/// The longest boundary. **Source** RFC 2046, 5.1.1.
const BOUNDARY_BYTES_MAX: usize = 70;

/// The fields of a form that stand before its file, in order, names as sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub pairs: Vec<(String, String)>,
    /// The file's name as the client gave it, when there is a file.
    pub file_name: Option<String>,
}

impl Fields {
    /// The value of a field; names do not distinguish case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

/// Reads one form.
pub struct FormReader<'b> {
    body: &'b mut RequestBody,
    /// `\r\n--boundary`
    delimiter: Vec<u8>,
    buffer: BytesMut,
    /// Bytes of the form behind which reading is, up to the file.
    passed: usize,
    in_file: bool,
}

/// What a part says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct PartHead {
    name: String,
    file_name: Option<String>,
}

impl<'b> FormReader<'b> {
    /// **Errors** `PreconditionFailed` when the body is no form, which is what AWS answers;
    /// `MalformedPOSTRequest` for a boundary that is none.
    pub fn new(body: &'b mut RequestBody, headers: &HeaderMap) -> Result<FormReader<'b>, S3Error> {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let (kind, parameters) =
            content_type.and_then(|text| text.split_once(';')).unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return Err(S3Error::new(S3ErrorCode::PreconditionFailed).detail(
                "Condition",
                "Bucket POST must be of the enclosure-type multipart/form-data",
            ));
        }
        let boundary = parameter(parameters, "boundary").ok_or_else(malformed)?;
        if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES_MAX {
            return Err(malformed());
        }
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first delimiter may stand at the very start.
        let buffer = BytesMut::from(b"\r\n".as_slice());
        Ok(FormReader { body, delimiter, buffer, passed: 0, in_file: false })
    }

    /// Reads all fields up to the file, whose bytes `next` then gives.
    ///
    /// **Errors** `MalformedPOSTRequest`; `MaxPostPreDataLengthExceededError` for too much of it;
    /// those of the body.
    pub async fn fields(&mut self) -> Result<Fields, S3Error> {
        let mut fields = Fields::default();
        self.until(&self.delimiter.clone()).await?;
        while let Some(head) = self.head().await? {
            if head.name.eq_ignore_ascii_case("file") {
                fields.file_name = Some(head.file_name.unwrap_or_default());
                self.in_file = true;
                break;
            }
            let value = self.until(&self.delimiter.clone()).await?;
            let value = String::from_utf8(value.to_vec()).map_err(|_| malformed())?;
            fields.pairs.push((head.name, value));
        }
        Ok(fields)
    }

    /// The next bytes of the file; `None` at its end, when the rest of the form was read too.
    ///
    /// **Errors** `MalformedPOSTRequest` when the form ends without its closing delimiter.
    pub async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        while self.in_file {
            if let Some(at) = memmem::find(&self.buffer, &self.delimiter) {
                let last = self.buffer.split_to(at).freeze();
                self.buffer.advance(self.delimiter.len());
                self.in_file = false;
                self.rest().await?;
                return Ok(Some(last).filter(|bytes| !bytes.is_empty()));
            }
            let whole = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            if whole > 0 {
                return Ok(Some(self.buffer.split_to(whole).freeze()));
            }
            let frame = self.body.next().await?.ok_or_else(malformed)?;
            self.buffer.extend_from_slice(&frame);
        }
        Ok(None)
    }

    /// What stands behind the file is ignored, but the form must end as one, and soon.
    async fn rest(&mut self) -> Result<(), S3Error> {
        while self.buffer.len() < 2 {
            let frame = self.body.next().await?.ok_or_else(malformed)?;
            self.buffer.extend_from_slice(&frame);
        }
        if !matches!(&self.buffer[..2], b"--" | b"\r\n") {
            return Err(malformed());
        }
        let mut left = REST_BYTES_MAX;
        while let Some(frame) = self.body.next().await? {
            left = left.checked_sub(frame.len() as u64).ok_or_else(malformed)?;
        }
        Ok(())
    }

    /// The head of the part behind a delimiter; `None` behind the closing one.
    async fn head(&mut self) -> Result<Option<PartHead>, S3Error> {
        while self.buffer.len() < 2 {
            self.more().await?;
        }
        if self.buffer.starts_with(b"--") {
            return Ok(None);
        }
        // Blanks may follow a delimiter; the head begins behind its line end, which is left in
        // place so that a part without any header still has its empty line.
        let padding = self.buffer.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        self.buffer.advance(padding);
        let head = self.until(b"\r\n\r\n").await?;
        let text = std::str::from_utf8(&head).map_err(|_| malformed())?;
        let text = text.strip_prefix("\r\n").ok_or_else(malformed)?;
        part_head(text).map(Some).ok_or_else(malformed)
    }

    /// Takes everything up to `end`, and `end` itself away.
    async fn until(&mut self, end: &[u8]) -> Result<BytesMut, S3Error> {
        loop {
            if let Some(at) = memmem::find(&self.buffer, end) {
                let before = self.buffer.split_to(at);
                self.buffer.advance(end.len());
                self.passed += at + end.len();
                return if self.passed <= FIELDS_BYTES_MAX { Ok(before) } else { Err(too_much()) };
            }
            self.more().await?;
        }
    }

    /// Reads on within the limit of what may stand before the file.
    async fn more(&mut self) -> Result<(), S3Error> {
        if self.passed + self.buffer.len() > FIELDS_BYTES_MAX {
            return Err(too_much());
        }
        let frame = self.body.next().await?.ok_or_else(malformed)?;
        self.buffer.extend_from_slice(&frame);
        Ok(())
    }
}

fn too_much() -> S3Error {
    S3Error::new(S3ErrorCode::MaxPostPreDataLengthExceededError)
        .detail("MaxPostPreDataLengthBytes", FIELDS_BYTES_MAX.to_string())
}

fn malformed() -> S3Error {
    S3ErrorCode::MalformedPOSTRequest.into()
}

/// Name and file name out of a part's Content-Disposition.
fn part_head(lines: &str) -> Option<PartHead> {
    let mut head = None;
    for line in lines.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        if !name.trim().eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        let (kind, parameters) = value.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("form-data") || head.is_some() {
            return None;
        }
        let extended = parameter(parameters, "filename*").and_then(|text| extended_value(&text));
        head = Some(PartHead {
            name: parameter(parameters, "name")?,
            file_name: extended.or_else(|| parameter(parameters, "filename")),
        });
    }
    head
}

/// `UTF-8''a%20b`. **Source** RFC 8187; RFC 7578 forbids it, and clients send it.
fn extended_value(text: &str) -> Option<String> {
    let mut parts = text.splitn(3, '\'');
    let charset = parts.next()?;
    let encoded = parts.nth(1)?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    String::from_utf8(super::host::percent_decode(encoded)?).ok()
}

/// The value of one parameter of a header such as `; name="a"; filename=b`.
///
/// In a quoted value `\"` is a quote, as older browsers wrote it. Any other backslash stands for
/// itself: some send whole Windows paths.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text.trim_start_matches([';', ' ', '\t']);
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted)?,
            None => {
                let (value, next) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), next)
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = next.trim_start_matches([';', ' ', '\t']);
    }
    None
}

/// A value up to its closing quote, and what follows.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' if chars.peek().is_some_and(|(_, next)| *next == '"') => {
                value.push('"');
                chars.next();
            }
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(content_type: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))])
    }

    /// Reads a form that comes in pieces of `step` bytes.
    fn read(form: &[u8], step: usize) -> Result<(Fields, Vec<u8>), S3ErrorCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let pieces: Vec<_> = form.chunks(step).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
            let stream = futures_util::stream::iter::<Vec<Result<Bytes, std::io::Error>>>(pieces);
            let body = Body::from_stream(stream);
            let mut body = RequestBody::new(body, None, Duration::from_secs(1));
            let all = async {
                let headers = headers("multipart/form-data; boundary=\"XX\"");
                let mut reader = FormReader::new(&mut body, &headers)?;
                let fields = reader.fields().await?;
                let mut file = Vec::new();
                while let Some(piece) = reader.next().await? {
                    file.extend_from_slice(&piece);
                }
                Ok((fields, file))
            };
            all.await.map_err(|error: S3Error| error.code())
        })
    }

    fn part(head: &str, value: &str) -> String {
        format!("--XX\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
    }

    #[test]
    fn fields_and_the_file_come_apart_however_they_arrive() {
        let file = "a\r\n--X\r\n--Xa\r\n\r\n-\r\n";
        let form = format!(
            "preamble\r\n{}{}{}{}--XX--\r\n",
            part("name=\"key\"", "a/${filename}"),
            part("name=empty", ""),
            part("name=\"file\"; filename=\"C:\\dir\\a \\\"b.txt\"\r\nContent-Type: a/b", file),
            part("name=\"after\"", "ignored"),
        );
        for step in [1, 2, 3, 7, 64, 10_000] {
            let (fields, got) = read(form.as_bytes(), step).expect("well-formed");
            assert_eq!(fields.get("KEY"), Some("a/${filename}"));
            assert_eq!(fields.get("empty"), Some(""));
            assert_eq!(fields.get("after"), None);
            assert_eq!(fields.file_name.as_deref(), Some("C:\\dir\\a \"b.txt"));
            assert_eq!(got, file.as_bytes(), "{step}");
        }
    }

    #[test]
    fn forms_without_a_file_or_an_end() {
        let key = part("name=\"key\"", "a");
        let (fields, file) = read(format!("{key}--XX--").as_bytes(), 9).expect("well-formed");
        assert_eq!((fields.file_name, file.len()), (None, 0));
        let start = format!("{key}{}", part("name=\"file\"", "bytes"));
        let malformed = Err(S3ErrorCode::MalformedPOSTRequest);
        for wrong in [
            "",
            "no form",
            &key,
            &start,
            &format!("{start}--XX"),
            &format!("{start}--XXyz"),
            "--XX\r\n\r\nno head\r\n--XX--",
            "--XX\r\nContent-Disposition: form-data\r\n\r\nno name\r\n--XX--",
            "--XX\r\nContent-Disposition: attachment; name=\"a\"\r\n\r\n\r\n--XX--",
            "--XXContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--XX--",
        ] {
            assert_eq!(read(wrong.as_bytes(), 5), malformed, "{wrong}");
        }
        let mut latin = key.clone().into_bytes();
        let at = latin.len() - 3;
        latin[at] = 0xe9;
        latin.extend_from_slice(b"--XX--");
        assert_eq!(read(&latin, 5), malformed);
    }

    #[test]
    fn what_is_before_and_behind_the_file_is_bounded() {
        let long = "x".repeat(FIELDS_BYTES_MAX);
        let too_long = format!("{}--XX--", part("name=\"a\"", &long));
        for step in [1000, 100_000] {
            let error = read(too_long.as_bytes(), step).err();
            assert_eq!(error, Some(S3ErrorCode::MaxPostPreDataLengthExceededError));
        }
        let endless = format!("{}--XX--{long}{long}", part("name=\"file\"", "f"));
        assert_eq!(read(endless.as_bytes(), 1000), Err(S3ErrorCode::MalformedPOSTRequest));
        let large = part("name=\"file\"", &long.repeat(10));
        let (_, file) = read(format!("{large}--XX--").as_bytes(), 4096).expect("well-formed");
        assert_eq!(file.len(), 10 * long.len());
    }

    #[test]
    fn only_forms_are_forms() {
        let mut body = RequestBody::new(Body::empty(), None, Duration::from_secs(1));
        for (kind, code) in [
            ("text/plain", S3ErrorCode::PreconditionFailed),
            ("multipart/mixed; boundary=a", S3ErrorCode::PreconditionFailed),
            ("multipart/form-data; charset=utf-8", S3ErrorCode::MalformedPOSTRequest),
            ("multipart/form-data; boundary=\"\"", S3ErrorCode::MalformedPOSTRequest),
        ] {
            let error = FormReader::new(&mut body, &headers(kind)).err().expect(kind);
            assert_eq!(error.code(), code, "{kind}");
        }
    }

    #[test]
    fn extended_names_are_decoded() {
        let head = part_head("Content-Disposition: form-data; name=a; filename*=UTF-8''%C3%A9.txt");
        assert_eq!(head.and_then(|head| head.file_name).as_deref(), Some("é.txt"));
    }

    proptest! {
        #[test]
        fn a_file_of_any_bytes_passes(file in prop::collection::vec(any::<u8>(), 0..300), step in 1..80usize) {
            let mut form = part("name=\"file\"", "").into_bytes();
            form.truncate(form.len() - 2);
            form.extend_from_slice(&file);
            prop_assume!(memmem::find(&file, b"\r\n--XX").is_none());
            form.extend_from_slice(b"\r\n--XX--\r\n");
            let (_, got) = read(&form, step).expect("well-formed");
            prop_assert_eq!(got, file);
        }

        #[test]
        fn arbitrary_bytes_never_panic(form in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&form, 7);
        }
    }
}
