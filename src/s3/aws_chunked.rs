//! The aws-chunked framing of uploads: sized chunks, each perhaps signed, and trailers behind them.
//!
//! Owns this framing only; the HTTP framing below it is hyper's, and borders of the two never
//! agree. It is fed what arrives, in pieces of any size, and gives the payload as slices of what it
//! was fed, uncopied. It keeps one header line at most and compares no checksum.
//!
//! ```text
//! <hex size>[;chunk-signature=<64 hex>]\r\n <bytes> \r\n      any number of times
//! 0[;chunk-signature=<64 hex>]\r\n
//! [<name>:<value>\r\n ...]  [x-amz-trailer-signature:<64 hex>\r\n]
//! \r\n
//! ```
//!
//! **Source** AWS S3 API reference, "Transferring Payload in Multiple Chunks" and "... with
//! trailing headers".

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::auth::ChunkVerifier;
use super::error::{S3Error, S3ErrorCode};

/// Longest line before a chunk, in bytes: a size, a signature and room.
const CHUNK_LINE_BYTES_MAX: usize = 512;
/// All trailers together, in bytes; a SHA-256 checksum with its name and signature has 160.
const TRAILER_BYTES_MAX: usize = 4096;
/// Most trailers.
const TRAILERS_MAX: usize = 16;
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The line before a chunk.
    ChunkLine,
    /// So many bytes of a chunk.
    Data {
        left: u64,
    },
    /// The line end behind a chunk; true when its carriage return has come.
    DataEnd {
        half: bool,
    },
    /// A trailer or the empty line that ends the body.
    TrailerLine,
    Done,
}

/// The chain of signatures with the hash of the chunk that is being read.
struct Signed {
    chain: ChunkVerifier,
    hash: Sha256,
    /// Of the current chunk, as its line says.
    signature: Vec<u8>,
}

/// Takes the framing off one body.
pub struct ChunkedDecoder {
    state: State,
    input: Bytes,
    line: Vec<u8>,
    signed: Option<Signed>,
    trailers_allowed: bool,
    trailers: Vec<(String, String)>,
    trailer_bytes: usize,
    trailer_signed: bool,
    /// The payload's length as declared, and what the chunks so far come to.
    size: Option<u64>,
    announced: u64,
    /// Bytes that came behind the end.
    surplus: usize,
}

impl ChunkedDecoder {
    /// `signatures` when the chunks are signed; `size` is `x-amz-decoded-content-length`.
    pub fn new(
        signatures: Option<ChunkVerifier>,
        trailers_allowed: bool,
        size: Option<u64>,
    ) -> ChunkedDecoder {
        let signed =
            signatures.map(|chain| Signed { chain, hash: Sha256::new(), signature: Vec::new() });
        ChunkedDecoder {
            state: State::ChunkLine,
            input: Bytes::new(),
            line: Vec::new(),
            signed,
            trailers_allowed,
            trailers: Vec::new(),
            trailer_bytes: 0,
            trailer_signed: false,
            size,
            announced: 0,
            surplus: 0,
        }
    }

    /// Hands over the next bytes of the body. Call it when `next` has given `None`.
    pub fn push(&mut self, input: Bytes) {
        if self.input.is_empty() {
            self.input = input;
            return;
        }
        let mut joined = BytesMut::from(self.input.as_ref());
        joined.extend_from_slice(&input);
        self.input = joined.freeze();
    }

    /// The next bytes of the payload, never empty; `None` when more input is needed or all is read.
    ///
    /// Bytes of a signed chunk come out before its signature is known to be right: nothing may be
    /// made visible until `is_done`.
    ///
    /// **Errors** `InvalidRequest` for broken framing, `IncompleteBody` for another length than
    /// declared, `SignatureDoesNotMatch`, `MalformedTrailerError`. There is no going on after one.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        while !self.input.is_empty() {
            match self.state {
                State::ChunkLine => {
                    if self.take_line(CHUNK_LINE_BYTES_MAX)? {
                        self.chunk_line()?;
                    }
                }
                State::Data { left } => return self.data(left).map(Some),
                State::DataEnd { half } => self.data_end(half)?,
                State::TrailerLine => {
                    if self.take_line(TRAILER_BYTES_MAX)? {
                        self.trailer_line()?;
                    }
                }
                State::Done => self.behind_the_end()?,
            }
        }
        Ok(None)
    }

    /// Whether the body was read to its end and everything in it was right.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// What stood behind the last chunk: lower-case names and values.
    pub fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    /// Moves input into `line` up to a line feed; true when the line is whole. Its end is cut off.
    fn take_line(&mut self, bytes_max: usize) -> Result<bool, S3Error> {
        let end = self.input.iter().position(|byte| *byte == b'\n');
        let taken = self.input.split_to(end.map_or(self.input.len(), |at| at + 1));
        if self.line.len() + taken.len() > bytes_max {
            return Err(broken("a line of the aws-chunked framing is too long"));
        }
        self.line.extend_from_slice(&taken);
        Ok(end.is_some())
    }

    fn chunk_line(&mut self) -> Result<(), S3Error> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r\n").ok_or_else(|| broken("a bare line feed"))?;
        let text = std::str::from_utf8(line).map_err(|_| broken("a chunk's line is no text"))?;
        let (size, extension) = text.split_once(';').unwrap_or((text, ""));
        let left = parse_size(size)?;
        self.announced = self.announced.checked_add(left).ok_or_else(other_length)?;
        if self.size.is_some_and(|size| self.announced > size) {
            return Err(other_length());
        }
        if let Some(signed) = &mut self.signed {
            let signature = extension
                .split(';')
                .find_map(|part| part.trim().strip_prefix("chunk-signature="))
                .ok_or_else(|| broken("a chunk has no signature"))?;
            signed.signature = signature.as_bytes().to_vec();
        }
        if left > 0 {
            self.state = State::Data { left };
            return Ok(());
        }
        self.chunk_ends()?;
        if self.size.is_some_and(|size| self.announced != size) {
            return Err(other_length());
        }
        self.state = State::TrailerLine;
        Ok(())
    }

    fn data(&mut self, left: u64) -> Result<Bytes, S3Error> {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(self.input.len());
        let piece = self.input.split_to(take);
        if let Some(signed) = &mut self.signed {
            signed.hash.update(&piece);
        }
        let left = left - piece.len() as u64;
        self.state = State::Data { left };
        if left == 0 {
            self.chunk_ends()?;
            self.state = State::DataEnd { half: false };
        }
        Ok(piece)
    }

    /// Checks the signature of the chunk that is whole now.
    fn chunk_ends(&mut self) -> Result<(), S3Error> {
        let Some(signed) = &mut self.signed else { return Ok(()) };
        let hash: [u8; 32] = signed.hash.finalize_reset().into();
        if signed.chain.verify_chunk(&hash, &signed.signature) {
            return Ok(());
        }
        Err(S3Error::new(S3ErrorCode::SignatureDoesNotMatch))
    }

    fn data_end(&mut self, half: bool) -> Result<(), S3Error> {
        let byte = self.input.split_to(1);
        self.state = match (half, byte.as_ref()) {
            (false, b"\r") => State::DataEnd { half: true },
            (true, b"\n") => State::ChunkLine,
            _ => return Err(broken("a chunk is longer than its size says")),
        };
        Ok(())
    }

    fn trailer_line(&mut self) -> Result<(), S3Error> {
        let line = std::mem::take(&mut self.line);
        self.trailer_bytes += line.len();
        if self.trailer_bytes > TRAILER_BYTES_MAX || self.trailers.len() > TRAILERS_MAX {
            return Err(malformed_trailer());
        }
        // AWS's own example and some clients end a trailer in a bare line feed.
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return self.empty_line();
        }
        let text = std::str::from_utf8(line).map_err(|_| malformed_trailer())?;
        let (name, value) = text.split_once(':').ok_or_else(malformed_trailer)?;
        let name = name.trim().to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let in_order = self.trailers_allowed && !self.trailer_signed;
        if name.is_empty() || !name.bytes().all(is_name) || !in_order {
            return Err(malformed_trailer());
        }
        if self.signed.is_some() && name == TRAILER_SIGNATURE {
            return self.trailer_signature(value.trim());
        }
        self.trailers.push((name, value.trim().to_owned()));
        Ok(())
    }

    /// The end, unless trailers wait for their signature: the same clients put an empty line there.
    fn empty_line(&mut self) -> Result<(), S3Error> {
        let unsigned = !self.trailers.is_empty() && !self.trailer_signed;
        if self.signed.is_some() && unsigned {
            return Ok(());
        }
        self.state = State::Done;
        Ok(())
    }

    fn trailer_signature(&mut self, signature: &str) -> Result<(), S3Error> {
        let mut hash = Sha256::new();
        for (name, value) in &self.trailers {
            hash.update(format!("{name}:{value}\n"));
        }
        let hash: [u8; 32] = hash.finalize().into();
        let holds = self
            .signed
            .as_mut()
            .is_some_and(|signed| signed.chain.verify_trailer(&hash, signature.as_bytes()));
        if !holds {
            return Err(S3Error::new(S3ErrorCode::SignatureDoesNotMatch));
        }
        self.trailer_signed = true;
        Ok(())
    }

    /// One line end more than needed is what the clients above send; anything else is not ours.
    fn behind_the_end(&mut self) -> Result<(), S3Error> {
        let extra = std::mem::take(&mut self.input);
        for byte in extra {
            if b"\r\n".get(self.surplus) != Some(&byte) {
                return Err(broken("bytes follow the last chunk"));
            }
            self.surplus += 1;
        }
        Ok(())
    }
}

/// Hex digits only; leading zeros are fine.
fn parse_size(text: &str) -> Result<u64, S3Error> {
    let text = text.trim_end();
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
        .ok_or_else(|| broken("a chunk's size is no number"))
}

fn broken(what: &str) -> S3Error {
    S3Error::new(S3ErrorCode::InvalidRequest)
        .message(format!("The aws-chunked body is malformed: {what}"))
}

fn other_length() -> S3Error {
    S3Error::new(S3ErrorCode::IncompleteBody)
        .message("The request body has another length than x-amz-decoded-content-length says")
}

fn malformed_trailer() -> S3Error {
    S3ErrorCode::MalformedTrailerError.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sigv4::sign::v4::generate_signing_key;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
    const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    const SEED_WITH_TRAILER: &str =
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";

    fn key() -> [u8; 32] {
        let at = UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        generate_signing_key(secret, at, "us-east-1", "s3").as_ref().try_into().unwrap()
    }

    fn chain(seed: &str) -> Option<ChunkVerifier> {
        Some(ChunkVerifier::new(key(), "20130524T000000Z".into(), SCOPE.into(), seed.into()))
    }

    type Decoded = (Vec<u8>, Vec<(String, String)>);
    type Want<'a> = Result<(&'a str, &'a [(&'a str, &'a str)]), S3ErrorCode>;

    /// Feeds `body` in the pieces that `cuts` makes of it.
    fn decode(
        decoder: ChunkedDecoder,
        body: &[u8],
        cuts: impl IntoIterator<Item = usize>,
    ) -> Result<Decoded, S3ErrorCode> {
        let mut decoder = decoder;
        let mut payload = Vec::new();
        let mut from = 0;
        for to in cuts.into_iter().chain([body.len()]) {
            decoder.push(Bytes::copy_from_slice(&body[from..to]));
            while let Some(piece) = decoder.next().map_err(|e| e.code())? {
                assert!(!piece.is_empty());
                payload.extend_from_slice(&piece);
            }
            from = to;
        }
        if !decoder.is_done() {
            return Err(S3ErrorCode::IncompleteBody);
        }
        Ok((payload, decoder.trailers().to_vec()))
    }

    fn unsigned(size: Option<u64>) -> ChunkedDecoder {
        ChunkedDecoder::new(None, true, size)
    }

    #[track_caller]
    fn check(body: &str, size: Option<u64>, want: Want<'_>) {
        let want = want.map(|(payload, trailers)| {
            let owned = trailers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            (payload.as_bytes().to_vec(), owned)
        });
        assert_eq!(decode(unsigned(size), body.as_bytes(), []), want, "{body:?}");
        // The same a byte at a time.
        assert_eq!(decode(unsigned(size), body.as_bytes(), 1..body.len().max(1)), want, "{body:?}");
    }

    #[test]
    fn chk_01_chk_02_mpu_06_unsigned_bodies() {
        check("5\r\nhello\r\n0\r\n\r\n", Some(5), Ok(("hello", &[])));
        let crc = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
        check(crc, Some(5), Ok(("hello", &[("x-amz-checksum-crc32", "NhCmhg==")])));
        let empty = "0\r\nx-amz-checksum-crc32c:AAAAAA==\r\n\r\n";
        check(empty, Some(0), Ok(("", &[("x-amz-checksum-crc32c", "AAAAAA==")])));
        check("2\r\nhe\r\n03\r\nllo\r\n000\r\n\r\n", Some(5), Ok(("hello", &[])));
        check(
            "A;x=y\r\n0123456789\r\n0\r\nA-B: c \n\r\n\r\n",
            None,
            Ok(("0123456789", &[("a-b", "c")])),
        );
        check("a\r\n0123456789\r\n0\r\n\r\n", None, Ok(("0123456789", &[])));
    }

    #[test]
    fn chk_06_broken_bodies() {
        let incomplete = Err(S3ErrorCode::IncompleteBody);
        let invalid = Err(S3ErrorCode::InvalidRequest);
        let trailer = Err(S3ErrorCode::MalformedTrailerError);
        check("", Some(5), incomplete);
        check("5\r\nhel", Some(5), incomplete);
        check("5\r\nhello\r\n", Some(5), incomplete);
        check("5\r\nhello\r\n0\r\n", Some(5), incomplete);
        check("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n", Some(5), incomplete);
        check("5\r\nhello\r\n0\r\n\r\n", Some(6), incomplete);
        check("5\r\nhello\r\n0\r\n\r\n", Some(4), incomplete);
        check("499602D2\r\nhello", Some(5), incomplete);
        check("ffffffffffffffff\r\nhello", None, incomplete);
        check("5\r\nhello!\r\n0\r\n\r\n", Some(5), invalid);
        check("5\r\nhello0\r\n\r\n", Some(5), invalid);
        check("5\nhello\r\n0\r\n\r\n", Some(5), invalid);
        check("\r\n", Some(5), invalid);
        check("-5\r\nhello\r\n", Some(5), invalid);
        check("0x5\r\nhello\r\n", Some(5), invalid);
        check("fffffffffffffffff\r\n", None, invalid);
        check("5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1", Some(5), invalid);
        check("5\r\nhello\r\n0\r\nno colon\r\n\r\n", Some(5), trailer);
        check("5\r\nhello\r\n0\r\n:v\r\n\r\n", Some(5), trailer);
        check("5\r\nhello\r\n0\r\na b:v\r\n\r\n", Some(5), trailer);
        check(&format!("{}\r\n", "0".repeat(600)), None, invalid);
        check(&format!("0\r\n{}\r\n", "a:b\r\n".repeat(18)), None, trailer);
        check(&format!("0\r\na:{}\r\n\r\n", "v".repeat(5000)), None, invalid);
        let plain = ChunkedDecoder::new(None, false, None);
        assert_eq!(decode(plain, b"0\r\na:b\r\n\r\n", []).err(), trailer.err());
    }

    /// AWS's example: 65,536 and 1,024 times `a`.
    fn documented(signatures: [&str; 3]) -> Vec<u8> {
        let mut body = Vec::new();
        for (size, signature) in [65_536, 1024, 0].into_iter().zip(signatures) {
            body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
            body.extend_from_slice(&vec![b'a'; size]);
            if size > 0 {
                body.extend_from_slice(b"\r\n");
            }
        }
        body
    }

    fn documented_plain() -> Vec<u8> {
        let mut body = documented([
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ]);
        body.extend_from_slice(b"\r\n");
        body
    }

    fn documented_with_trailer(between: &str) -> Vec<u8> {
        let mut body = documented([
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ]);
        let signature = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
        body.extend_from_slice(
            format!(
                "x-amz-checksum-crc32c:sOO8/Q=={between}x-amz-trailer-signature:{signature}\r\n\r\n"
            )
            .as_bytes(),
        );
        body
    }

    #[test]
    fn documented_signed_chunks() {
        let body = documented_plain();
        assert_eq!(body.len(), 66_824);
        let decoder = || ChunkedDecoder::new(chain(SEED), false, Some(66_560));
        let (payload, trailers) = decode(decoder(), &body, []).unwrap();
        assert_eq!(payload, vec![b'a'; 66_560]);
        assert!(trailers.is_empty());
        assert_eq!(decode(decoder(), &body, 1..body.len()).unwrap().0.len(), 66_560);
        for at in [100, 65_700, 66_000, body.len() - 10] {
            let mut altered = body.clone();
            altered[at] ^= 1;
            let code = decode(decoder(), &altered, []).unwrap_err();
            let expected = [S3ErrorCode::SignatureDoesNotMatch, S3ErrorCode::InvalidRequest];
            assert!(expected.contains(&code), "{at} {code:?}");
        }
        // Chunks in another order, and a body that ends before its last chunk.
        let wrong_seed = ChunkedDecoder::new(chain(SEED_WITH_TRAILER), false, Some(66_560));
        let code = decode(wrong_seed, &body, []).unwrap_err();
        assert_eq!(code, S3ErrorCode::SignatureDoesNotMatch);
        let cut = decode(decoder(), &body[..body.len() - 88], []).unwrap_err();
        assert_eq!(cut, S3ErrorCode::IncompleteBody);
        let unsigned = decode(decoder(), b"1\r\na\r\n0\r\n\r\n", []).unwrap_err();
        assert_eq!(unsigned, S3ErrorCode::InvalidRequest);
    }

    #[test]
    fn documented_signed_trailer_in_both_spellings() {
        let decoder = || ChunkedDecoder::new(chain(SEED_WITH_TRAILER), true, Some(66_560));
        for between in ["\r\n", "\n\r\n"] {
            let body = documented_with_trailer(between);
            let (payload, trailers) = decode(decoder(), &body, []).unwrap();
            assert_eq!(payload.len(), 66_560);
            assert_eq!(trailers, [("x-amz-checksum-crc32c".to_owned(), "sOO8/Q==".to_owned())]);
        }
        let text = String::from_utf8(documented_with_trailer("\r\n")).unwrap();
        let altered = text.replace("sOO8/Q==", "sOO8/R==");
        let code = decode(decoder(), altered.as_bytes(), []).unwrap_err();
        assert_eq!(code, S3ErrorCode::SignatureDoesNotMatch);
        // A trailer whose signature was cut out never ends.
        let at = text.find("x-amz-trailer-signature").unwrap();
        let stripped = format!("{}\r\n", &text[..at]);
        let code = decode(decoder(), stripped.as_bytes(), []).unwrap_err();
        assert_eq!(code, S3ErrorCode::IncompleteBody);
        let late = text.replace("\r\n\r\n", "\r\nx-amz-late:1\r\n\r\n");
        let code = decode(decoder(), late.as_bytes(), []).unwrap_err();
        assert_eq!(code, S3ErrorCode::MalformedTrailerError);
    }

    #[test]
    fn payload_is_not_copied() {
        let body = Bytes::from_static(b"5\r\nhello\r\n0\r\n\r\n");
        let mut decoder = unsigned(Some(5));
        decoder.push(body.clone());
        let piece = decoder.next().unwrap().unwrap();
        assert_eq!(piece.as_ptr(), body[3..].as_ptr());
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..5),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
            let payload = chunks.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            cuts.sort_unstable();
            let size = Some(payload.len() as u64);
            let (got, trailers) = decode(unsigned(size), &body, cuts.clone()).unwrap();
            prop_assert_eq!(&got, &payload);
            prop_assert_eq!(trailers.len(), 1);
            // A body that is cut anywhere is never taken for a whole one.
            for end in 0..body.len() {
                prop_assert!(decode(unsigned(size), &body[..end], []).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            body in prop::collection::vec(
                prop::sample::select(b"05aF;:\r\nx-=chunk signature".to_vec()), 0..60),
            signed in any::<bool>(),
        ) {
            let signatures = if signed { chain(SEED) } else { None };
            let decoder = ChunkedDecoder::new(signatures, true, None);
            if let Ok((payload, _)) = decode(decoder, &body, []) {
                prop_assert!(payload.len() <= body.len());
                prop_assert!(!signed);
            }
        }
    }
}
