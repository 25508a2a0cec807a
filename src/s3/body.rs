//! Bodies on both ways: what a client sends, piece by piece with a limit on silence, and what it
//! gets, of exactly the length that the header promised.
//!
//! Owns the rules for when a request body is late, short or long, and for what is done with a body
//! that nobody wants. It never decodes aws-chunked framing and never holds more than one frame.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use super::error::{S3Error, S3ErrorCode};
use crate::http::trace::ServedFrom;
use crate::store::{BodyStream, ObjectBody, StoreError};

/// A request's body as it comes off the connection, without its HTTP framing.
pub struct RequestBody {
    body: Body,
    /// How long the client may send nothing.
    idle: Duration,
    /// From Content-Length; `None` when the body is framed by Transfer-Encoding.
    declared: Option<u64>,
    received: u64,
    ended: bool,
    polled: bool,
}

impl RequestBody {
    pub fn new(body: Body, declared: Option<u64>, idle: Duration) -> RequestBody {
        let ended = http_body::Body::is_end_stream(&body);
        RequestBody { body, idle, declared, received: 0, ended, polled: false }
    }

    /// Content-Length, when the request had one.
    pub fn declared(&self) -> Option<u64> {
        self.declared
    }

    /// True when there is nothing left to read.
    pub fn ended(&self) -> bool {
        self.ended || self.declared.is_some_and(|n| n == self.received)
    }

    /// True when the client was asked for its body: hyper has then sent 100-continue.
    pub fn polled(&self) -> bool {
        self.polled
    }

    /// The next piece; `None` at the end.
    ///
    /// **Errors** `RequestTimeout` after `idle` without a byte, `IncompleteBody` when the client
    /// went away or the framing broke. **Cancel** Safe: nothing is lost but the wait.
    pub async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        self.polled = true;
        loop {
            let frame = match tokio::time::timeout(self.idle, self.body.frame()).await {
                Err(_) => return Err(S3Error::new(S3ErrorCode::RequestTimeout)),
                Ok(None) => {
                    self.ended = true;
                    return self.check_length().map(|()| None);
                }
                Ok(Some(Err(_))) => return Err(S3Error::new(S3ErrorCode::IncompleteBody)),
                Ok(Some(Ok(frame))) => frame,
            };
            // HTTP trailers carry nothing in S3; the trailers of aws-chunked are in the data.
            let Ok(data) = frame.into_data() else { continue };
            if !data.is_empty() {
                self.received += data.len() as u64;
                return Ok(Some(data));
            }
        }
    }

    fn check_length(&self) -> Result<(), S3Error> {
        match self.declared {
            Some(declared) if declared != self.received => {
                Err(S3Error::new(S3ErrorCode::IncompleteBody))
            }
            _ => Ok(()),
        }
    }

    /// Throws away what is left of a refused body, within `bytes_max` and `time_max`. True when
    /// the end was reached, so that the connection can carry another request.
    pub async fn drain(mut self, bytes_max: u64, time_max: Duration) -> bool {
        if self.declared.is_some_and(|n| n.saturating_sub(self.received) > bytes_max) {
            return false;
        }
        let stop_at = self.received + bytes_max;
        let all = async {
            while let Ok(Some(_)) = self.next().await {
                if self.received > stop_at {
                    return false;
                }
            }
            self.ended
        };
        tokio::time::timeout(time_max, all).await.unwrap_or(false)
    }
}

/// The body of a GET whose bytes come from disk: exactly `left` more bytes, or an error, which
/// makes hyper cut the connection. A short body never looks like a whole one.
struct ObjectStreamBody {
    stream: BodyStream,
    left: u64,
}

impl http_body::Body for ObjectStreamBody {
    type Data = Bytes;
    type Error = StoreError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StoreError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = match Pin::new(&mut self.stream).poll_next(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
            Poll::Ready(Some(Ok(piece))) if piece.len() as u64 <= self.left => piece,
            Poll::Ready(_) => {
                let error = StoreError::Io("an object's stream has another length".into());
                return Poll::Ready(Some(Err(error)));
            }
        };
        self.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Where an object's bytes come from, for the request's log line.
pub fn source_of(body: &ObjectBody) -> Option<ServedFrom> {
    match body {
        ObjectBody::Empty => None,
        ObjectBody::Resident(_) => Some(ServedFrom::Arena),
        ObjectBody::Bytes(_) | ObjectBody::Stream(_) => Some(ServedFrom::Blob),
    }
}

/// The response body for `len` bytes of an object.
pub fn object_body(body: ObjectBody, len: u64) -> Body {
    match body {
        ObjectBody::Empty => Body::empty(),
        ObjectBody::Resident(bytes) | ObjectBody::Bytes(bytes) => Body::from(bytes),
        ObjectBody::Stream(stream) => Body::new(ObjectStreamBody { stream, left: len }),
    }
}
