//! Accepting client connections.
//!
//! Owns the listeners' sockets, the cap on connections and what happens when the process is out of
//! descriptors: it waits, and never spins. Each worker runs its own loop on its own listener; the
//! kernel spreads connections over them (SO_REUSEPORT).

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;

use super::connection::{self, HttpContext};
use crate::limits::Permit;

/// First and longest wait after a failed accept.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Refused connections of a worker that are being told so at once; others are just closed.
const REFUSALS_MAX: usize = 64;
/// How long a refused client has to take the answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Binds a listener that other workers may share (port 0: any free one).
pub fn bind_tcp(address: SocketAddr, backlog: u32) -> io::Result<StdTcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Fails when another process listens on `address`. With SO_REUSEPORT both of us could bind it,
/// and clients would reach one store or the other.
///
/// **Source** socket(7): every socket on a port must have set SO_REUSEPORT.
pub fn ensure_unused(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a server that just ended are no reason to refuse.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Binds a Unix socket, taking the place of one that nobody listens on any more.
pub fn bind_unix(path: &Path) -> io::Result<StdUnixListener> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)?
        }
        // Nothing is there, or something that bind will complain about.
        Err(_) => {}
    }
    let listener = StdUnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The connections of one worker that are open.
#[derive(Clone, Default)]
pub struct OpenConnections(Rc<Open>);

#[derive(Default)]
struct Open {
    count: Cell<usize>,
    refusing: Cell<usize>,
    closed: Notify,
}

/// One open connection.
struct OpenGuard(Rc<Open>);

impl OpenConnections {
    fn enter(&self) -> OpenGuard {
        self.0.count.set(self.0.count.get() + 1);
        OpenGuard(self.0.clone())
    }

    /// Waits until none is open.
    pub async fn all_closed(&self) {
        while self.0.count.get() > 0 {
            self.0.closed.notified().await;
        }
    }

    pub fn count(&self) -> usize {
        self.0.count.get()
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.closed.notify_one();
    }
}

/// Accepts TCP connections until the server is asked to stop.
pub async fn run_tcp(
    context: Rc<HttpContext>,
    listener: StdTcpListener,
    open: OpenConnections,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let accept = async || loop {
        let (socket, _) = listener.accept().await?;
        // Without this a kept-alive small response waits for the client's delayed ACK. It fails
        // only for a connection that is gone already.
        if socket.set_nodelay(true).is_ok() {
            return Ok(socket);
        }
    };
    run(&context, &open, accept).await;
    Ok(())
}

/// Accepts connections of a Unix socket until the server is asked to stop.
pub async fn run_unix(
    context: Rc<HttpContext>,
    listener: StdUnixListener,
    open: OpenConnections,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let accept = async || Ok(listener.accept().await?.0);
    run(&context, &open, accept).await;
    Ok(())
}

/// Admits what `accept` yields until the server is asked to stop.
async fn run<S>(
    context: &Rc<HttpContext>,
    open: &OpenConnections,
    accept: impl AsyncFn() -> io::Result<S>,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut shutdown = context.shutdown.clone();
    let mut backoff = Backoff::default();
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            () = shutdown.requested() => return,
        };
        match accepted {
            Ok(socket) => {
                backoff.reset();
                admit(context, socket, open);
            }
            Err(error) => backoff.failed(context, &error).await,
        }
    }
}

/// Serves a connection if the cap allows, else refuses it with a clear answer.
fn admit<S>(context: &Rc<HttpContext>, socket: S, open: &OpenConnections)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    context.metrics.connection_accepted();
    match context.limits.connections.try_acquire(1) {
        Some(permit) => {
            let (context, guard) = (context.clone(), open.enter());
            tokio::task::spawn_local(async move {
                let _held: (Permit, OpenGuard) = (permit, guard);
                connection::serve(context, socket).await;
            });
        }
        None if open.0.refusing.get() < REFUSALS_MAX => {
            let (context, open) = (context.clone(), open.clone());
            open.0.refusing.set(open.0.refusing.get() + 1);
            tokio::task::spawn_local(async move {
                let told = tell_full(&context, socket);
                // A client that does not take the answer loses it.
                let _ = tokio::time::timeout(REFUSAL_TIMEOUT, told).await;
                open.0.refusing.set(open.0.refusing.get() - 1);
            });
        }
        None => {}
    }
}

/// Says 503 on a connection that is not going to be served.
async fn tell_full<S>(context: &HttpContext, mut socket: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let refusal = &context.refusal;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{}",
        refusal.content_type,
        refusal.body.len(),
        refusal.body
    );
    socket.write_all(answer.as_bytes()).await?;
    socket.shutdown().await?;
    // Closing with unread bytes would reset the connection before the client reads the answer.
    let mut scratch = [0u8; 4096];
    while socket.read(&mut scratch).await? > 0 {}
    Ok(())
}

/// The wait between failed accepts, doubled each time.
#[derive(Default)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits when the failure will last, such as EMFILE; not for a client that left the queue.
    async fn failed(&mut self, context: &HttpContext, error: &io::Error) {
        let gone = [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset];
        if gone.contains(&error.kind()) {
            return;
        }
        context.metrics.accept_failed();
        if self.failures == 0 {
            tracing::warn!(%error, "cannot accept connections; raise the limit on open files");
        }
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(self.wait()).await;
    }

    fn wait(&self) -> Duration {
        BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_failures_grows_to_a_bound() {
        let waits: Vec<u64> =
            (1..=10).map(|failures| Backoff { failures }.wait().as_millis() as u64).collect();
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!((waits[0], waits[9]), (20, 1000));
    }

    #[test]
    fn workers_share_a_port() {
        let first = bind_tcp("127.0.0.1:0".parse().expect("address"), 16).expect("binds");
        let address = first.local_addr().expect("bound");
        bind_tcp(address, 16).expect("a second worker binds the same port");
        let error = ensure_unused(address).expect_err("is in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(first);
    }

    #[test]
    fn a_dead_unix_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("s.sock");
        let live = bind_unix(&path).expect("binds");
        assert_eq!(bind_unix(&path).expect_err("is live").kind(), io::ErrorKind::AddrInUse);
        drop(live);
        bind_unix(&path).expect("replaces the dead one");
    }
}
