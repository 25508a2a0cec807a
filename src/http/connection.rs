//! The life of one client connection.
//!
//! Owns hyper's set-up, the watchdog over slow headers and idle connections, and the rule that a
//! connection whose request was not read to its end carries no other request. Runs as one local
//! task per connection on the worker that accepted it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use futures_util::future::LocalBoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::body::{RequestBody, ResponseBody};
use super::client_io::{ClientIo, IoLimits, Phase, Watch};
use super::trace::Tracer;
use crate::config::HttpSettings;
use crate::limits::Limits;
use crate::metrics::{Metrics, Timeout};
use crate::runtime::shutdown::Shutdown;

/// What a client is told when a limit is reached, in the front's own language.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    pub content_type: &'static str,
    pub body: &'static str,
}

/// Answers a request on the worker's own thread, so that its futures need not be `Send`.
///
/// A plain function: the path, which an axum Router would match, decides nothing in S3 (see
/// docs/rfcs/0001-front-without-router.md).
pub type Front = Rc<dyn Fn(Request<Body>) -> LocalBoxFuture<'static, Response<Body>>>;

/// What all connections of a worker share.
pub struct HttpContext {
    pub settings: HttpSettings,
    pub front: Front,
    pub refusal: Refusal,
    pub limits: Limits,
    pub metrics: Arc<Metrics>,
    pub tracer: Rc<Tracer>,
    pub shutdown: Shutdown,
}

/// Serves requests on `socket` until either side closes, a timeout ends it, or the server stops.
pub(super) async fn serve<S>(context: Rc<HttpContext>, socket: S)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let watch = Watch::new();
    let limits = IoLimits {
        send_timeout: context.settings.send_timeout,
        linger_timeout: context.settings.linger_timeout,
        linger_bytes_max: context.settings.linger_bytes_max,
    };
    let io = TokioIo::new(ClientIo::new(socket, watch.clone(), limits));
    let service = {
        let (context, watch) = (context.clone(), watch.clone());
        service_fn(move |request| respond(context.clone(), watch.clone(), request))
    };
    let mut connection = pin!(builder(&context.settings).serve_connection(io, service));
    let mut alarm = pin!(sleep(context.settings.header_timeout));
    let mut shutdown = context.shutdown.clone();
    let mut stopping = pin!(shutdown.requested());
    let mut stopped = false;
    let ended = poll_fn(|cx| {
        if !stopped && stopping.as_mut().poll(cx).is_ready() {
            stopped = true;
            connection.as_mut().graceful_shutdown();
        }
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        // The alarm only ever moves to an earlier time here: a later one is seen when it rings.
        loop {
            let due = deadline(&context.settings, &watch);
            if let Some((due, _)) = due.filter(|(due, _)| *due < alarm.deadline()) {
                alarm.as_mut().reset(due);
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            match due {
                Some((due, timeout)) if due <= now => return Poll::Ready(Some(timeout)),
                Some((due, _)) => alarm.as_mut().reset(due),
                // Look again after as long as a header may take.
                None => alarm.as_mut().reset(now + context.settings.header_timeout),
            }
        }
    });
    let timeout = ended.await.or(watch.send_stalled().then_some(Timeout::Send));
    if let Some(timeout) = timeout {
        context.metrics.timed_out(timeout);
    }
}

/// When the present phase of the connection lasts too long, and what that is called. Phases in
/// which the front or the client's body is awaited are watched by others.
fn deadline(settings: &HttpSettings, watch: &Watch) -> Option<(Instant, Timeout)> {
    match watch.phase() {
        (Phase::Header, since) => Some((since + settings.header_timeout, Timeout::Header)),
        (Phase::Idle, since) => Some((since + settings.idle_timeout, Timeout::Idle)),
        (Phase::Busy, _) => None,
    }
}

fn builder(settings: &HttpSettings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // A client that shut its sending side after the request still gets the answer.
        .half_close(true)
        .max_header_size(settings.header_bytes_max)
        // Ours is the watchdog: hyper's timer would also cut idle connections, and makes a new
        // timer for each request.
        .header_read_timeout(None);
    builder
}

/// Lets the front answer one request.
async fn respond(
    context: Rc<HttpContext>,
    watch: Rc<Watch>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    watch.enter(Phase::Busy);
    let has_body = !http_body::Body::is_end_stream(request.body());
    let is_head = request.method() == Method::HEAD;
    let mut guard = context.tracer.begin(request.method(), has_body);
    let trace = guard.trace().clone();
    let upload = has_body.then(|| context.limits.uploads.try_acquire(1));
    let mut response = if matches!(upload, Some(None)) {
        refuse(&context.refusal, is_head)
    } else {
        let mut request = request.map(|body| match has_body {
            true => Body::new(RequestBody::new(body, trace.clone())),
            false => Body::empty(),
        });
        request.extensions_mut().insert(trace.clone());
        (context.front)(request).instrument(guard.span().clone()).await
    };
    drop(upload);
    guard.answered(response.status().as_u16());
    // What is left of the body would be taken for the next request.
    if !trace.is_body_ended() || context.shutdown.is_requested() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let empty =
        is_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    Ok(response.map(|body| ResponseBody::new(body, empty, guard, watch)))
}

fn refuse(refusal: &Refusal, is_head: bool) -> axum::response::Response {
    let body = if is_head { Body::empty() } else { Body::from(refusal.body) };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(refusal.content_type));
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
