//! The bytes of one client connection, watched.
//!
//! Owns three things that hyper leaves open: since when a header is being awaited, how long a
//! client may refuse to take a response, and a close that does not reset the connection while the
//! client is still sending. Never looks into the bytes. Stays on its worker's thread.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The next request, of which no byte has come.
    Idle,
    /// The rest of a request's header.
    Header,
    /// A front, or the client's body: the front and the send timeout watch over these.
    Busy,
}

/// The phase of a connection, shared by its parts.
#[derive(Debug)]
pub(super) struct Watch {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    /// The client took no byte for too long.
    send_stalled: Cell<bool>,
}

impl Watch {
    /// A new connection owes us a header from the start.
    pub(super) fn new() -> Rc<Watch> {
        Rc::new(Watch {
            phase: Cell::new(Phase::Header),
            since: Cell::new(Instant::now()),
            send_stalled: Cell::new(false),
        })
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        // Nobody asks how long a busy phase has lasted, and the clock costs more than the rest.
        if phase != Phase::Busy {
            self.since.set(Instant::now());
        }
    }

    pub(super) fn phase(&self) -> (Phase, Instant) {
        (self.phase.get(), self.since.get())
    }

    pub(super) fn send_stalled(&self) -> bool {
        self.send_stalled.get()
    }
}

/// Bounds on one connection's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoLimits {
    pub send_timeout: Duration,
    pub linger_timeout: Duration,
    pub linger_bytes_max: u64,
}

/// A socket under a `Watch`.
pub(super) struct ClientIo<S> {
    socket: S,
    watch: Rc<Watch>,
    limits: IoLimits,
    /// Runs while the client takes nothing; made at the first such moment.
    send_timer: Option<Pin<Box<Sleep>>>,
    send_timer_runs: bool,
    read_ended: bool,
    linger: Option<Linger>,
}

/// The state of a close: our side is shut, the client's bytes are thrown away.
struct Linger {
    deadline: Pin<Box<Sleep>>,
    bytes_left: u64,
}

impl<S> ClientIo<S> {
    pub(super) fn new(socket: S, watch: Rc<Watch>, limits: IoLimits) -> ClientIo<S> {
        ClientIo {
            socket,
            watch,
            limits,
            send_timer: None,
            send_timer_runs: false,
            read_ended: false,
            linger: None,
        }
    }

    /// Turns a wait that lasts too long into an error, and forgets the wait when it is over.
    fn watch_send<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.send_timer_runs = false;
            return result;
        }
        let limit = self.limits.send_timeout;
        let timer = self.send_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !self.send_timer_runs {
            timer.as_mut().reset(Instant::now() + limit);
            self.send_timer_runs = true;
        }
        if timer.as_mut().poll(cx).is_ready() {
            self.watch.send_stalled.set(true);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = result {
            let got = buf.filled().len() - before;
            self.read_ended |= got == 0;
            if got > 0 && self.watch.phase.get() == Phase::Idle {
                self.watch.enter(Phase::Header);
            }
        }
        result
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.watch_send(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, pieces);
        self.watch_send(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// Shuts our side, then reads what the client still sends: closing a socket with unread bytes
    /// makes the kernel send a reset, which can overtake the response.
    ///
    /// **Source** RFC 9112, section 9.6.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            std::task::ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            let deadline = Box::pin(tokio::time::sleep(self.limits.linger_timeout));
            self.linger = Some(Linger { deadline, bytes_left: self.limits.linger_bytes_max });
        }
        let this = &mut *self;
        let Some(linger) = &mut this.linger else { return Poll::Ready(Ok(())) };
        let mut scratch = [0u8; 16 << 10];
        while !this.read_ended && linger.bytes_left > 0 {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.socket).poll_read(cx, &mut buf) {
                Poll::Pending => return linger.deadline.as_mut().poll(cx).map(Ok),
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) => {
                    let got = buf.filled().len();
                    this.read_ended = got == 0;
                    linger.bytes_left = linger.bytes_left.saturating_sub(got as u64);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}
