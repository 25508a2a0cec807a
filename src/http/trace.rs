//! What is known about one request, for its log line and the metrics.
//!
//! Owns the one root span per request and the one line when it ends. A front finds a
//! `RequestTrace` in the request's extensions and tells it the operation, the bucket and where the
//! response's bytes come from. Never holds a key, a signature, a query or
//! any other text that may be secret: of keys only the length is kept.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::Span;

use crate::config::RequestLog;
use crate::metrics::{Metrics, RequestSample};

/// Where the bytes of a response came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedFrom {
    /// RAM only.
    Arena,
    /// At least one byte was read from disk.
    Blob,
}

/// One request, as the front that serves it sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestTrace(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    /// Capital hex digits.
    id: [u8; 16],
    /// Whether the bucket's name will be shown.
    logged: bool,
    target: Mutex<Target>,
    /// 0: unknown, 1: arena, 2: blob.
    served_from: AtomicU8,
    received_bytes: AtomicU64,
    /// The request's body was read to its end.
    body_ended: AtomicBool,
}

#[derive(Debug)]
struct Target {
    operation: &'static str,
    bucket: String,
    key_len: usize,
}

impl Target {
    const UNKNOWN: Target = Target { operation: "Unknown", bucket: String::new(), key_len: 0 };
}

fn hex_digits(number: u64) -> [u8; 16] {
    std::array::from_fn(|at| b"0123456789ABCDEF"[(number >> (60 - 4 * at)) as usize & 15])
}

impl RequestTrace {
    /// A request with this id; one without a body has ended already. What only the log shows is
    /// kept when it is `logged`.
    pub fn new(id: u64, has_body: bool, logged: bool) -> RequestTrace {
        RequestTrace(Arc::new(Facts {
            id: hex_digits(id),
            logged,
            target: Mutex::new(Target::UNKNOWN),
            served_from: AtomicU8::new(0),
            received_bytes: AtomicU64::new(0),
            body_ended: AtomicBool::new(!has_body),
        }))
    }

    /// 16 capital hex digits, unique within the process's life: what `x-amz-request-id` shows.
    pub fn id(&self) -> &str {
        std::str::from_utf8(&self.0.id).unwrap_or_default()
    }

    /// Says what the request is. The last call wins.
    pub fn describe(&self, operation: &'static str, bucket: &str, key_len: usize) {
        let bucket = if self.0.logged { bucket.to_owned() } else { String::new() };
        let target = Target { operation, bucket, key_len };
        *self.0.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Says where the response's bytes come from.
    pub fn served_from(&self, source: ServedFrom) {
        self.0.served_from.store(source as u8 + 1, Ordering::Relaxed);
    }

    pub(super) fn body_received(&self, bytes: u64) {
        self.0.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn body_ended(&self) {
        self.0.body_ended.store(true, Ordering::Relaxed);
    }

    /// True when the whole request was read, so that the connection can carry another one.
    pub(super) fn is_body_ended(&self) -> bool {
        self.0.body_ended.load(Ordering::Relaxed)
    }
}

/// What all requests of a worker share.
pub struct Tracer {
    metrics: Arc<Metrics>,
    worker: usize,
    log: RequestLog,
    /// Makes ids differ between processes; a counter makes them differ within one.
    id_base: u64,
    id_next: std::cell::Cell<u64>,
}

impl Tracer {
    /// `id_base` is random, so that two servers behind one proxy do not share ids.
    pub fn new(metrics: Arc<Metrics>, worker: usize, log: RequestLog, id_base: u64) -> Tracer {
        Tracer { metrics, worker, log, id_base, id_next: std::cell::Cell::new(0) }
    }

    /// Begins a request. Dropping the result before `answered` counts as cut off by the client.
    pub(super) fn begin(self: &Rc<Self>, method: &http::Method, has_body: bool) -> RequestGuard {
        let n = self.id_next.get();
        self.id_next.set(n.wrapping_add(1));
        // An odd multiplier permutes the 64-bit numbers: no id repeats on this worker.
        let id = self.id_base.wrapping_add(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let trace = RequestTrace::new(id, has_body, self.log != RequestLog::Off);
        let span = match self.log {
            RequestLog::Off => Span::none(),
            _ => tracing::info_span!("request", request_id = trace.id(), method = %method),
        };
        self.metrics.request_began();
        RequestGuard {
            tracer: self.clone(),
            trace,
            span,
            began: Instant::now(),
            answered: None,
            sent_bytes: 0,
            whole: false,
        }
    }
}

/// Follows a request from its header to the last byte of its response; dropping it writes the log
/// line and counts it.
pub(super) struct RequestGuard {
    tracer: Rc<Tracer>,
    trace: RequestTrace,
    span: Span,
    began: Instant,
    /// Status and time to the response's header.
    answered: Option<(u16, Duration)>,
    sent_bytes: u64,
    whole: bool,
}

/// What the log shows for a request whose client left before the answer (as nginx does).
const STATUS_CLIENT_LEFT: u16 = 499;

impl RequestGuard {
    pub(super) fn trace(&self) -> &RequestTrace {
        &self.trace
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn answered(&mut self, status: u16) {
        self.answered = Some((status, self.began.elapsed()));
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// The response's body was handed over to its end.
    pub(super) fn finished(&mut self) {
        self.whole = true;
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let total = self.began.elapsed();
        let (status, first_byte) = self.answered.unwrap_or((STATUS_CLIENT_LEFT, total));
        let facts = &self.trace.0;
        let mut target = facts.target.lock().unwrap_or_else(PoisonError::into_inner);
        let target = std::mem::replace(&mut *target, Target::UNKNOWN);
        let received_bytes = facts.received_bytes.load(Ordering::Relaxed);
        self.tracer.metrics.request_ended();
        self.tracer.metrics.request(
            self.tracer.worker,
            &RequestSample {
                operation: target.operation,
                status,
                received_bytes,
                sent_bytes: self.sent_bytes,
                first_byte,
                total,
            },
        );
        let failed = status >= 500 || !self.whole;
        if self.tracer.log == RequestLog::Off || (self.tracer.log == RequestLog::Errors && !failed)
        {
            return;
        }
        let _entered = self.span.enter();
        tracing::info!(
            target: "goblin_store::request",
            op = target.operation,
            bucket = target.bucket,
            key_len = target.key_len,
            status,
            received_bytes,
            sent_bytes = self.sent_bytes,
            duration_us = total.as_micros() as u64,
            first_byte_us = first_byte.as_micros() as u64,
            served_from = ["none", "arena", "blob"]
                [usize::from(facts.served_from.load(Ordering::Relaxed).min(2))],
            whole = self.whole,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer() -> (Arc<Metrics>, Rc<Tracer>) {
        let metrics = Arc::new(Metrics::new(1));
        let tracer = Tracer::new(metrics.clone(), 0, RequestLog::All, 99);
        (metrics, Rc::new(tracer))
    }

    #[test]
    fn a_finished_request_is_counted_with_its_operation() {
        let (metrics, tracer) = tracer();
        let mut guard = tracer.begin(&http::Method::GET, false);
        guard.trace().describe("GetObject", "photos", 12);
        guard.trace().served_from(ServedFrom::Arena);
        assert_eq!(metrics.in_flight(), 1);
        guard.answered(200);
        guard.sent(10);
        guard.finished();
        drop(guard);
        assert_eq!(metrics.in_flight(), 0);
        let text = metrics.render();
        assert!(text.contains("goblin_requests_total{operation=\"GetObject\",status=\"200\"} 1"));
        assert!(text.contains("goblin_sent_bytes_total{operation=\"GetObject\"} 10"));
    }

    #[test]
    fn a_request_dropped_unanswered_is_counted_as_left_by_the_client() {
        let (metrics, tracer) = tracer();
        drop(tracer.begin(&http::Method::PUT, true));
        assert!(metrics.render().contains("status=\"499\"} 1"));
    }

    #[test]
    fn ids_differ_and_have_16_digits() {
        let (_, tracer) = tracer();
        let ids: std::collections::HashSet<String> = (0..1000)
            .map(|_| tracer.begin(&http::Method::GET, false).trace().id().into())
            .collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 16));
    }

    #[test]
    fn a_body_has_ended_only_when_it_was_read() {
        let trace = RequestTrace::new(0xF, true, true);
        assert_eq!(trace.id(), "000000000000000F");
        assert!(!trace.is_body_ended());
        trace.body_received(5);
        trace.body_ended();
        assert!(trace.is_body_ended());
        assert!(RequestTrace::new(0, false, true).is_body_ended());
    }
}
