//! The head of an HTTP/1.1 response, as far as a load generator needs it.
//!
//! Reads bytes and allocates nothing. It never waits for more; it says that more is needed.

/// Header fields beyond this make a response unreadable.
const HEADERS_MAX: usize = 64;

/// What a response's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes up to and with the empty line.
    pub head_bytes: usize,
    pub status: u16,
    /// Bytes of the body; `None` when the body has no announced length (chunked, or until close).
    pub content_length: Option<u64>,
    /// The MD5 that the ETag names, when it has the form of one.
    pub md5: Option<[u8; 16]>,
    /// The server will close the connection.
    pub close: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    Head(Head),
    /// The head is not complete.
    More,
    /// Not a response.
    Bad,
}

/// Parses the start of `bytes`.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let head_bytes = match response.parse(bytes) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) => return Parsed::More,
        Err(_) => return Parsed::Bad,
    };
    let status = response.code.unwrap_or(0);
    let mut head = Head {
        head_bytes,
        status,
        content_length: None,
        md5: None,
        close: response.version == Some(0),
    };
    for field in response.headers.iter() {
        let name = field.name;
        if name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(field.value).unwrap_or("");
            match text.trim().parse() {
                Ok(n) => head.content_length = Some(n),
                Err(_) => return Parsed::Bad,
            }
        } else if name.eq_ignore_ascii_case("connection") {
            head.close |= field.value.eq_ignore_ascii_case(b"close");
        } else if name.eq_ignore_ascii_case("etag") {
            head.md5 = md5_of(field.value);
        }
    }
    if (100..200).contains(&status) || status == 204 || status == 304 {
        head.content_length = Some(0);
    }
    Parsed::Head(head)
}

fn md5_of(etag: &[u8]) -> Option<[u8; 16]> {
    let inner = etag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut md5 = [0; 16];
    hex::decode_to_slice(inner, &mut md5).ok()?;
    Some(md5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_that_matter_are_found() {
        let text = b"HTTP/1.1 200 OK\r\nETag: \"00112233445566778899aabbccddeeff\"\r\n\
                     content-length: 12\r\nConnection: Close\r\n\r\nbody";
        let Parsed::Head(head) = parse(text) else { panic!("a head") };
        assert_eq!(&text[head.head_bytes..], b"body");
        assert_eq!((head.status, head.content_length, head.close), (200, Some(12), true));
        assert_eq!(head.md5.expect("an MD5")[..3], [0, 0x11, 0x22]);
    }

    #[test]
    fn incomplete_unframed_and_broken_heads_are_told_apart() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Le"), Parsed::More);
        assert_eq!(parse(b"SSH-2.0-OpenSSH\r\n\r\n"), Parsed::Bad);
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), Parsed::Bad);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"a-2\"\r\n\r\n";
        let Parsed::Head(head) = parse(chunked) else { panic!("a head") };
        assert_eq!((head.content_length, head.md5), (None, None));
        let Parsed::Head(head) = parse(b"HTTP/1.1 204 No Content\r\n\r\n") else { panic!() };
        assert_eq!(head.content_length, Some(0));
    }
}
