//! Connections from the client's side, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::{get, put};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::accept::{OpenConnections, bind_tcp, run_tcp};
use super::connection::{Front, HttpContext, Refusal};
use super::trace::Tracer;
use crate::config::{HttpSettings, Layer, RequestLog, load};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::runtime::shutdown::{self, ShutdownTrigger};

const BIG_BYTES: usize = 32 << 20;

fn front() -> Front {
    let sink = |body: Body| async move {
        match body.collect().await {
            Ok(whole) => whole.to_bytes().len().to_string(),
            Err(_) => "cut".to_owned(),
        }
    };
    let router = Router::new()
        .route("/small", get(|| async { "small" }))
        .route("/big", get(|| async { vec![7u8; BIG_BYTES] }))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                "slow"
            }),
        )
        .route("/sink", put(sink))
        .route("/refuse", put(|| async { http::StatusCode::FORBIDDEN }));
    Rc::new(move |request| {
        let answer = router.clone().oneshot(request);
        async { answer.await.unwrap_or_else(|never| match never {}) }.boxed_local()
    })
}

/// A server on a thread of its own; ends with the value.
struct Server {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    trigger: Option<ShutdownTrigger>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(change: impl FnOnce(&mut HttpSettings), connections_max: u64) -> Server {
        let mut settings = load(Layer::default(), None).expect("defaults are valid");
        change(&mut settings.http);
        settings.limits.connections_max = connections_max;
        let listener = bind_tcp("127.0.0.1:0".parse().expect("address"), 64).expect("binds");
        let address = listener.local_addr().expect("bound");
        let metrics = Arc::new(Metrics::new(1));
        let (trigger, shutdown) = shutdown::channel();
        let shared = metrics.clone();
        let thread = std::thread::spawn(move || {
            let context = Rc::new(HttpContext {
                settings: settings.http,
                front: front(),
                refusal: Refusal { content_type: "text/plain", body: "busy" },
                limits: Limits::new(&settings.limits),
                metrics: shared.clone(),
                tracer: Rc::new(Tracer::new(shared, 0, RequestLog::Off, 1)),
                shutdown,
            });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime.expect("runtime"), async move {
                let open = OpenConnections::default();
                run_tcp(context, listener, open.clone()).await.expect("accepts");
                let _ = tokio::time::timeout(Duration::from_secs(5), open.all_closed()).await;
            });
        });
        Server { address, metrics, trigger: Some(trigger), thread: Some(thread) }
    }

    fn plain() -> Server {
        Server::start(|_| {}, 100)
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("connects");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("settable");
        socket
    }

    fn stop(&mut self) {
        self.trigger.take();
        self.thread.take().expect("runs").join().expect("no panic");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

fn send(socket: &mut TcpStream, text: &str) {
    socket.write_all(text.as_bytes()).expect("sends");
}

/// Reads one response with a Content-Length.
fn answer(socket: &mut TcpStream) -> String {
    let mut got = Vec::new();
    let mut byte = [0u8];
    while !got.ends_with(b"\r\n\r\n") {
        assert_eq!(
            socket.read(&mut byte).expect("reads"),
            1,
            "{:?}",
            String::from_utf8_lossy(&got)
        );
        got.push(byte[0]);
    }
    let head = String::from_utf8(got).expect("text");
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0u8; length.map_or(0, |n| n.parse().expect("a number"))];
    socket.read_exact(&mut body).expect("whole body");
    head + &String::from_utf8_lossy(&body)
}

fn rest(socket: &mut TcpStream) -> String {
    let mut got = Vec::new();
    socket.read_to_end(&mut got).expect("ends without a reset");
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn a_connection_carries_many_requests_without_delay() {
    let server = Server::plain();
    let mut socket = server.connect();
    let began = Instant::now();
    for _ in 0..50 {
        send(&mut socket, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(answer(&mut socket).ends_with("small"));
    }
    // A missing TCP_NODELAY costs 40 ms each.
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::plain();
    let mut socket = server.connect();
    let first = "PUT /sink HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    send(&mut socket, &format!("{first}GET /small HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert!(answer(&mut socket).ends_with("\r\n\r\n3"));
    assert!(answer(&mut socket).ends_with("small"));
}

/// HTTP-05: the next request must not be taken for the rest of the body.
#[test]
fn a_refused_upload_closes_the_connection_and_says_so() {
    let server = Server::plain();
    let mut socket = server.connect();
    send(&mut socket, "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n");
    socket.write_all(&[0; 10_000]).expect("sends");
    let head = answer(&mut socket);
    assert!(head.starts_with("HTTP/1.1 403") && head.contains("connection: close"), "{head}");
    assert_eq!(rest(&mut socket), "");
}

/// The client goes on sending after the refusal: it must see the answer, not a reset.
#[test]
fn a_refused_upload_that_goes_on_is_not_reset() {
    let server = Server::plain();
    let mut socket = server.connect();
    send(&mut socket, "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n");
    for _ in 0..40 {
        socket.write_all(&[0; 100_000]).expect("the server takes it");
    }
    assert!(answer(&mut socket).starts_with("HTTP/1.1 403"));
    assert_eq!(rest(&mut socket), "");
}

/// HTTP-07: 100 only when the body is wanted.
#[test]
fn continue_is_sent_when_the_body_is_wanted_and_only_then() {
    let server = Server::plain();
    let expect = "HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut socket = server.connect();
    send(&mut socket, &format!("PUT /sink {expect}"));
    assert!(answer(&mut socket).starts_with("HTTP/1.1 100"));
    send(&mut socket, "hello");
    assert!(answer(&mut socket).ends_with("\r\n\r\n5"));
    send(&mut socket, &format!("PUT /refuse {expect}"));
    assert!(answer(&mut socket).starts_with("HTTP/1.1 403"));
}

/// HTTP-08: an offer to upgrade is ignored and the body is read as ever.
#[test]
fn an_h2c_upgrade_offer_is_ignored() {
    let server = Server::plain();
    let mut socket = server.connect();
    for _ in 0..2 {
        send(
            &mut socket,
            "PUT /sink HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 4\r\n\r\nbody",
        );
        let got = answer(&mut socket);
        assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("\r\n\r\n4"), "{got}");
    }
}

#[test]
fn http_1_0_is_answered_and_closed() {
    let server = Server::plain();
    let mut socket = server.connect();
    send(&mut socket, "GET /small HTTP/1.0\r\n\r\n");
    assert!(rest(&mut socket).ends_with("small"));
}

#[test]
fn a_client_that_shut_its_sending_side_gets_its_answer() {
    let server = Server::plain();
    let mut socket = server.connect();
    send(&mut socket, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    socket.shutdown(std::net::Shutdown::Write).expect("shuts");
    assert!(rest(&mut socket).ends_with("slow"));
}

/// HTTP-10: a body that ends early is an error for the front, never a short body.
#[test]
fn a_body_that_ends_early_is_an_error() {
    let server = Server::plain();
    let mut socket = server.connect();
    send(&mut socket, "PUT /sink HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    socket.shutdown(std::net::Shutdown::Write).expect("shuts");
    let got = rest(&mut socket);
    assert!(got.ends_with("cut") || got.is_empty(), "{got}");
}

/// HTTP-12: slow-loris.
#[test]
fn a_header_that_trickles_is_cut_off_in_time() {
    let server = Server::start(|http| http.header_timeout = Duration::from_millis(400), 100);
    let mut socket = server.connect();
    let began = Instant::now();
    let mut reader = socket.try_clone().expect("clones");
    let sender = std::thread::spawn(move || {
        for byte in b"GET /small HTTP/1.1\r\nHost: hhhhhhhhhhhhhh" {
            if socket.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let mut got = Vec::new();
    let _ = reader.read_to_end(&mut got);
    assert_eq!(got, b"");
    let took = began.elapsed();
    assert!(took > Duration::from_millis(350) && took < Duration::from_millis(900), "{took:?}");
    sender.join().expect("no panic");
    assert!(server.metrics.render().contains("goblin_timeouts_total{wait=\"header\"} 1"));
}

#[test]
fn an_idle_connection_is_closed_later_than_a_slow_header() {
    let change = |http: &mut HttpSettings| {
        http.header_timeout = Duration::from_millis(200);
        http.idle_timeout = Duration::from_millis(700);
    };
    let server = Server::start(change, 100);
    let mut socket = server.connect();
    send(&mut socket, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    answer(&mut socket);
    let began = Instant::now();
    assert_eq!(rest(&mut socket), "");
    let took = began.elapsed();
    assert!(took > Duration::from_millis(600) && took < Duration::from_millis(1200), "{took:?}");
    // A request that takes longer than a header may is not cut.
    let mut socket = server.connect();
    send(&mut socket, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer(&mut socket).ends_with("slow"));
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let server = Server::start(|http| http.send_timeout = Duration::from_millis(300), 100);
    let mut socket = server.connect();
    send(&mut socket, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    std::thread::sleep(Duration::from_millis(1500));
    let mut got = Vec::new();
    let _ = socket.read_to_end(&mut got);
    assert!(got.len() < BIG_BYTES, "{}", got.len());
    assert!(server.metrics.render().contains("goblin_timeouts_total{wait=\"send\"} 1"));
}

#[test]
fn a_large_response_before_a_close_arrives_whole() {
    let server = Server::plain();
    let mut socket = server.connect();
    send(&mut socket, "GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    std::thread::sleep(Duration::from_millis(300));
    let mut got = Vec::new();
    socket.read_to_end(&mut got).expect("ends without a reset");
    assert!(got.ends_with(&[7; 1000]) && got.len() > BIG_BYTES);
}

#[test]
fn the_cap_on_connections_refuses_clearly_and_recovers() {
    let server = Server::start(|_| {}, 2);
    let mut held: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for socket in &mut held {
        send(socket, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
        answer(socket);
    }
    let mut refused = server.connect();
    send(&mut refused, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    let got = rest(&mut refused);
    assert!(got.starts_with("HTTP/1.1 503") && got.ends_with("busy"), "{got}");
    assert!(got.contains("Connection: close") && got.contains("Retry-After"), "{got}");
    held.clear();
    for _ in 0..50 {
        let mut socket = server.connect();
        send(&mut socket, "GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        if rest(&mut socket).ends_with("small") {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the places of closed connections are free again");
}

#[test]
fn a_huge_header_is_refused() {
    let server = Server::plain();
    let mut socket = server.connect();
    let header =
        format!("GET /small HTTP/1.1\r\nHost: h\r\nX-Big: {}\r\n\r\n", "a".repeat(1 << 20));
    // The server may stop reading before all is sent.
    let _ = socket.write_all(header.as_bytes());
    let mut got = Vec::new();
    let _ = socket.read_to_end(&mut got);
    assert!(got.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&got));
    let mut socket = server.connect();
    send(&mut socket, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer(&mut socket).ends_with("small"));
}

/// HTTP-04: no stray bytes after HEAD.
#[test]
fn head_has_no_body_and_the_connection_goes_on() {
    let server = Server::plain();
    let mut socket = server.connect();
    send(&mut socket, "HEAD /small HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut got = [0u8; 12];
    socket.read_exact(&mut got).expect("status line");
    while !got.ends_with(b"\r\n\r\n") {
        got.rotate_left(1);
        socket.read_exact(&mut got[11..]).expect("header");
    }
    send(&mut socket, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer(&mut socket).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_stop_finishes_what_is_in_flight_and_closes_what_rests() {
    let mut server = Server::plain();
    let mut resting = server.connect();
    send(&mut resting, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    answer(&mut resting);
    let mut busy = server.connect();
    send(&mut busy, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    let answering = std::thread::spawn(move || rest(&mut busy));
    let closing = std::thread::spawn(move || rest(&mut resting));
    server.stop();
    assert!(answering.join().expect("no panic").ends_with("slow"));
    assert_eq!(closing.join().expect("no panic"), "");
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(TcpStream::connect(server.address).is_err());
}
