//! The bytes of a payload: the request's body with its aws-chunked framing taken off, if it has
//! one. That framing and the HTTP framing below it are independent of each other.
//!
//! Holds at most one frame of the body.

use bytes::Bytes;

use super::auth::Payload;
use super::aws_chunked::ChunkedDecoder;
use super::body::RequestBody;
use super::error::{S3Error, S3ErrorCode};

/// Reads one payload to its end.
pub struct PayloadReader<'b> {
    body: &'b mut RequestBody,
    framing: Option<ChunkedDecoder>,
    /// The payload's length as the client declared it.
    size: Option<u64>,
    delivered: u64,
}

impl<'b> PayloadReader<'b> {
    pub fn new(
        body: &'b mut RequestBody,
        payload: &Payload,
        size: Option<u64>,
    ) -> PayloadReader<'b> {
        let framing = match payload {
            Payload::Unsigned | Payload::Signed(_) => None,
            Payload::Chunked { signatures, trailers } => {
                Some(ChunkedDecoder::new(signatures.clone(), *trailers, size))
            }
        };
        PayloadReader { body, framing, size, delivered: 0 }
    }

    /// The next bytes; `None` at the end, when all that was declared has come and, for signed
    /// chunks, every signature was right.
    ///
    /// **Errors** those of the body and of the framing; `IncompleteBody` for another length.
    pub async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        let piece = match &mut self.framing {
            None => self.body.next().await?,
            Some(framing) => loop {
                if let Some(piece) = framing.next()? {
                    break Some(piece);
                }
                match self.body.next().await? {
                    Some(frame) => framing.push(frame),
                    None if framing.is_done() => break None,
                    None => return Err(S3ErrorCode::IncompleteBody.into()),
                }
            },
        };
        self.delivered += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        let fits = match &piece {
            Some(_) => self.size.is_none_or(|size| self.delivered <= size),
            None => self.size.is_none_or(|size| self.delivered == size),
        };
        if fits { Ok(piece) } else { Err(S3ErrorCode::IncompleteBody.into()) }
    }

    /// What stood behind the last chunk: lower-case names and values.
    pub fn trailers(&self) -> &[(String, String)] {
        self.framing.as_ref().map_or(&[], ChunkedDecoder::trailers)
    }
}
