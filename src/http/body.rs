//! Bodies on their way in and out, counted.
//!
//! Owns knowing whether a request was read to its end and whether a response was handed over
//! whole. Passes frames on untouched and holds none.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::client_io::{Phase, Watch};
use super::trace::{RequestGuard, RequestTrace};

/// A request's body; tells the trace when it has ended.
pub(super) struct RequestBody {
    body: Incoming,
    trace: RequestTrace,
    /// Bytes that Content-Length still promises; `None` for a chunked body.
    left: Option<u64>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, trace: RequestTrace) -> RequestBody {
        let left = http_body::Body::size_hint(&body).exact();
        RequestBody { body, trace, left }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            None => self.trace.body_ended(),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.trace.body_received(bytes);
                self.left = self.left.map(|left| left.saturating_sub(bytes));
                if self.left == Some(0) {
                    self.trace.body_ended();
                }
            }
            Some(Err(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body; ends the request when it is dropped.
pub(super) struct ResponseBody {
    body: Body,
    guard: RequestGuard,
    watch: Rc<Watch>,
}

impl ResponseBody {
    /// `empty` when no byte of `body` will be sent: HEAD, 204, 304.
    pub(super) fn new(
        body: Body,
        empty: bool,
        mut guard: RequestGuard,
        watch: Rc<Watch>,
    ) -> ResponseBody {
        if empty || http_body::Body::is_end_stream(&body) {
            guard.finished();
        }
        ResponseBody { body, guard, watch }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let span = self.guard.span().clone();
        let frame = ready!(span.in_scope(|| Pin::new(&mut self.body).poll_frame(cx)));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.guard.sent(bytes);
        }
        // hyper does not ask again once it knows that the end is reached.
        if frame.is_none() || (matches!(frame, Some(Ok(_))) && self.body.is_end_stream()) {
            self.guard.finished();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.watch.enter(Phase::Idle);
    }
}
