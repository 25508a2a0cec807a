//! The event loop of one client thread: many connections, each with one request in flight.
//!
//! Owns the state of its connections. Every idle connection takes the next row of the shared
//! queue. Nothing is allocated, formatted or signed per request. It never retries: a request that
//! fails is recorded as it ended, and its connection is replaced.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use md5::{Digest, Md5};

use crate::content::Content;
use crate::plan::{Op, Plan, Queue};
use crate::record::{Ending, Record};
use crate::requests::Requests;
use crate::response::{self, Head, Parsed};
use crate::sys::ring::{Event, Outcome, Receive, Ring};

/// What is checked of a response's body beyond its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Verify {
    /// Nothing; the length is always checked.
    Length,
    /// Every byte, against what this program uploads for that object and seed.
    Content,
    /// Its MD5, against the ETag.
    Md5,
}

/// What all loops of a run share.
pub struct Shared {
    pub plan: Plan,
    pub requests: Requests,
    pub content: Content,
    pub address: String,
    pub verify: Verify,
    /// Let the kernel throw bodies away instead of copying them here.
    pub discard: bool,
    /// Bytes of each connection's receive buffer.
    pub buffer_bytes: usize,
    /// A request that takes longer has failed.
    pub timeout: Duration,
    /// Zero of all times in records.
    pub origin: Instant,
}

/// Smallest receive buffer: a response's head must fit.
pub const BUFFER_BYTES_MIN: usize = 16 << 10;
/// Tries to open a connection again before the run is given up, a tenth of a second apart.
const CONNECT_TRIES: u32 = 50;
/// How often the loop looks for requests that take too long.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of the largest single discarding receive.
const DISCARD_BYTES_MAX: u64 = 1 << 30;
/// First bytes of a refused request's response that are kept to be shown.
const COMPLAINT_BYTES_MAX: usize = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The response's head is awaited; the buffer holds so many bytes of it.
    Head {
        filled: usize,
    },
    /// Bytes of the body are awaited.
    Body {
        left: u64,
        of: u64,
    },
}

struct Connection {
    phase: Phase,
    row: u64,
    op: Op,
    object: u32,
    object_bytes: u64,
    /// Bytes of head and body handed to the kernel, and how many there are.
    sent: u64,
    to_send: u64,
    start_ns: u64,
    first_ns: u64,
    status: u16,
    ending: Ending,
    /// The server will close the connection.
    close: bool,
    md5: Md5,
    etag: Option<[u8; 16]>,
}

/// What a pass of one loop produced.
#[derive(Default)]
pub struct Pass {
    pub records: Vec<Record>,
    /// Connections opened again during the pass.
    pub reconnects: u64,
    /// The start of the first refused request's response.
    pub complaint: Option<String>,
}

pub struct Loop<'a> {
    shared: &'a Shared,
    ring: Ring,
    connections: Vec<Connection>,
    /// Number of this loop's first connection among those of all loops.
    first_connection: u32,
    pass: Pass,
    busy: usize,
    now_ns: u64,
}

impl<'a> Loop<'a> {
    /// Opens the connections.
    pub fn connect(shared: &'a Shared, first_connection: u32, count: usize) -> Result<Loop<'a>> {
        let mut ring = Ring::new(count).context("io_uring (Linux 6.1 or newer is needed)")?;
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            ring.add(open(&shared.address)?, shared.buffer_bytes);
            connections.push(Connection::new());
        }
        let pass = Pass::default();
        Ok(Loop { shared, ring, connections, first_connection, pass, busy: 0, now_ns: 0 })
    }

    /// Runs until the queue is empty or `duration` is over, and every request has ended.
    pub fn run(&mut self, queue: &Queue, duration: Duration, expected: usize) -> Result<Pass> {
        self.pass = Pass { records: Vec::with_capacity(expected), ..Pass::default() };
        self.now_ns = self.clock();
        let stop_ns = self.now_ns.saturating_add(duration.as_nanos() as u64);
        for slot in 0..self.connections.len() {
            self.start_next(slot, queue, stop_ns);
        }
        let mut events = Vec::with_capacity(self.connections.len() * 2);
        let mut checked_ns = self.now_ns;
        while self.busy > 0 {
            self.ring.wait(PATIENCE, &mut events)?;
            self.now_ns = self.clock();
            for event in events.drain(..) {
                if self.on_event(event)? {
                    self.start_next(event.slot, queue, stop_ns);
                }
            }
            if self.now_ns - checked_ns > PATIENCE.as_nanos() as u64 {
                checked_ns = self.now_ns;
                self.give_up_slow_ones();
            }
        }
        Ok(std::mem::take(&mut self.pass))
    }

    fn clock(&self) -> u64 {
        self.shared.origin.elapsed().as_nanos() as u64
    }

    fn start_next(&mut self, slot: usize, queue: &Queue, stop_ns: u64) {
        // Each start gets its own look at the clock: the one before may have sent a whole body.
        self.now_ns = self.clock();
        if self.now_ns >= stop_ns {
            return;
        }
        let Some(number) = queue.take() else { return };
        let rows = &self.shared.plan.rows;
        let row = rows[(number % rows.len() as u64) as usize];
        let object_bytes = self.shared.plan.objects[row.object as usize].bytes;
        let head = self.shared.requests.head(row.op, row.object);
        let body = if row.op == Op::Put { object_bytes } else { 0 };
        let c = &mut self.connections[slot];
        c.phase = Phase::Head { filled: 0 };
        c.row = number;
        c.op = row.op;
        c.object = row.object;
        c.object_bytes = object_bytes;
        c.sent = 0;
        c.to_send = head.len() as u64 + body;
        c.start_ns = self.now_ns;
        c.first_ns = 0;
        c.status = 0;
        c.ending = Ending::Ok;
        c.close = false;
        c.etag = None;
        self.busy += 1;
        self.send_more(slot);
        self.ring.receive(slot, Receive::Any { at: 0 });
    }

    /// Sends the next piece of a request: the rest of its head with the start of its body, or the
    /// next run of the pattern that bodies are made of.
    fn send_more(&mut self, slot: usize) {
        let c = &mut self.connections[slot];
        let head = self.shared.requests.head(c.op, c.object);
        let head_bytes = head.len() as u64;
        let head_rest = &head[c.sent.min(head_bytes) as usize..];
        let in_body = c.sent.saturating_sub(head_bytes);
        let body_left = c.to_send - head_bytes - in_body;
        let body: &'static [u8] = match body_left {
            0 => &[],
            _ => self.shared.content.piece(c.object, in_body, body_left),
        };
        let whole = body.len() as u64 == body_left;
        if whole {
            // A last piece that succeeds is not reported; the response says enough.
            c.sent = c.to_send;
        }
        match head_rest.is_empty() {
            true => self.ring.send(slot, body, &[], !whole),
            false => self.ring.send(slot, head_rest, body, !whole),
        }
    }

    /// Whether the connection is idle now.
    fn on_event(&mut self, event: Event) -> Result<bool> {
        let slot = event.slot;
        match event.outcome {
            Outcome::Sent(Ok(bytes)) => {
                let c = &mut self.connections[slot];
                if c.phase != Phase::Idle && c.sent < c.to_send {
                    c.sent += bytes as u64;
                    self.send_more(slot);
                }
                Ok(false)
            }
            // The server may still have said why; what it said is received, or the stream's end.
            Outcome::Sent(Err(_)) => Ok(false),
            Outcome::Received(Ok(0) | Err(_)) => {
                let c = &mut self.connections[slot];
                if c.phase == Phase::Idle {
                    return Ok(false);
                }
                if c.ending == Ending::Ok {
                    c.ending = Ending::Broken;
                }
                self.finish(slot)
            }
            Outcome::Received(Ok(bytes)) => {
                let c = &mut self.connections[slot];
                if c.first_ns == 0 {
                    c.first_ns = self.now_ns;
                }
                match c.phase {
                    Phase::Head { filled } => self.on_head(slot, filled + bytes),
                    Phase::Body { left, of } => self.on_body(slot, left, of, bytes),
                    Phase::Idle => Ok(false),
                }
            }
        }
    }

    fn on_head(&mut self, slot: usize, filled: usize) -> Result<bool> {
        let parsed = response::parse(&self.ring.buffer(slot)[..filled]);
        let head = match parsed {
            Parsed::More if filled < self.shared.buffer_bytes => {
                self.connections[slot].phase = Phase::Head { filled };
                self.ring.receive(slot, Receive::Any { at: filled });
                return Ok(false);
            }
            Parsed::More | Parsed::Bad => {
                self.connections[slot].ending = Ending::Broken;
                return self.finish(slot);
            }
            Parsed::Head(head) => head,
        };
        if (100..200).contains(&head.status) {
            self.ring.move_to_start(slot, head.head_bytes..filled);
            let rest = filled - head.head_bytes;
            self.connections[slot].phase = Phase::Head { filled: rest };
            if rest > 0 {
                return self.on_head(slot, rest);
            }
            self.ring.receive(slot, Receive::Any { at: 0 });
            return Ok(false);
        }
        self.judge_head(slot, &head, filled);
        let c = &mut self.connections[slot];
        let Some(length) = head.content_length else { return self.finish(slot) };
        let here = (filled - head.head_bytes) as u64;
        if here > length {
            c.ending = Ending::Length;
            c.close = true;
            return self.finish(slot);
        }
        if here > 0 {
            self.look_at(slot, 0, head.head_bytes..filled);
        }
        self.await_body(slot, length - here, length)
    }

    /// Sets what a head alone says about how the request ends.
    fn judge_head(&mut self, slot: usize, head: &Head, filled: usize) {
        let c = &mut self.connections[slot];
        c.status = head.status;
        c.close = head.close || head.content_length.is_none();
        c.etag = head.md5;
        let good = match c.op {
            Op::Get => head.status == 200,
            Op::Put => matches!(head.status, 200 | 201 | 204),
        };
        let wanted = if c.op == Op::Get { Some(c.object_bytes) } else { head.content_length };
        if !good {
            c.ending = Ending::Status;
            // Refused before its end, an upload's body may still be on its way.
            c.close |= c.op == Op::Put;
        } else if wanted != head.content_length || (c.op == Op::Put && wanted.is_none()) {
            c.ending = Ending::Length;
        }
        if self.shared.verify == Verify::Md5 {
            c.md5 = Md5::new();
        }
        if c.ending != Ending::Ok && self.pass.complaint.is_none() {
            let shown = &self.ring.buffer(slot)[..filled.min(COMPLAINT_BYTES_MAX)];
            self.pass.complaint = Some(String::from_utf8_lossy(shown).into_owned());
        }
    }

    fn on_body(&mut self, slot: usize, left: u64, of: u64, bytes: usize) -> Result<bool> {
        if !self.discards(slot) {
            self.look_at(slot, of - left, 0..bytes);
        }
        self.await_body(slot, left - bytes as u64, of)
    }

    fn await_body(&mut self, slot: usize, left: u64, of: u64) -> Result<bool> {
        if left == 0 {
            return self.finish(slot);
        }
        let how = match self.discards(slot) {
            true => Receive::Discard { bytes: left.min(DISCARD_BYTES_MAX) as usize },
            false => Receive::Fill { bytes: left.min(self.shared.buffer_bytes as u64) as usize },
        };
        self.connections[slot].phase = Phase::Body { left, of };
        self.ring.receive(slot, how);
        Ok(false)
    }

    fn discards(&self, slot: usize) -> bool {
        self.shared.discard && self.connections[slot].ending == Ending::Ok
    }

    /// Verifies bytes of a body that are in the buffer.
    fn look_at(&mut self, slot: usize, offset: u64, range: std::ops::Range<usize>) {
        let c = &mut self.connections[slot];
        if c.op != Op::Get || c.ending != Ending::Ok {
            return;
        }
        let bytes = &self.ring.buffer(slot)[range];
        match self.shared.verify {
            Verify::Length => {}
            Verify::Content => {
                if !self.shared.content.matches(c.object, offset, bytes) {
                    c.ending = Ending::Content;
                }
            }
            Verify::Md5 => c.md5.update(bytes),
        }
    }

    /// Records how a request ended. The connection is idle then, and open.
    fn finish(&mut self, slot: usize) -> Result<bool> {
        let c = &mut self.connections[slot];
        if self.shared.verify == Verify::Md5 && c.op == Op::Get && c.ending == Ending::Ok {
            let md5: [u8; 16] = c.md5.finalize_reset().into();
            if c.etag != Some(md5) {
                c.ending = Ending::Content;
            }
        }
        let record = Record {
            start_ns: c.start_ns,
            first_ns: if c.first_ns == 0 { self.now_ns } else { c.first_ns },
            last_ns: self.now_ns,
            row: c.row,
            connection: self.first_connection + slot as u32,
            status: c.status,
            ending: c.ending,
        };
        self.pass.records.push(record);
        c.phase = Phase::Idle;
        self.busy -= 1;
        let broken = matches!(c.ending, Ending::Broken | Ending::Timeout);
        // An answer before the whole body was sent leaves the rest of the body in the way.
        if c.close || broken || c.sent < c.to_send {
            self.ring.replace(slot, open(&self.shared.address)?);
            self.pass.reconnects += 1;
        }
        Ok(true)
    }

    fn give_up_slow_ones(&mut self) {
        let limit = self.shared.timeout.as_nanos() as u64;
        for (slot, c) in self.connections.iter_mut().enumerate() {
            if c.phase != Phase::Idle && self.now_ns - c.start_ns > limit {
                c.ending = Ending::Timeout;
                self.ring.shut_down(slot);
            }
        }
    }
}

impl Connection {
    fn new() -> Connection {
        Connection {
            phase: Phase::Idle,
            row: 0,
            op: Op::Get,
            object: 0,
            object_bytes: 0,
            sent: 0,
            to_send: 0,
            start_ns: 0,
            first_ns: 0,
            status: 0,
            ending: Ending::Ok,
            close: false,
            md5: Md5::new(),
            etag: None,
        }
    }
}

/// Opens a connection, with patience for a server that is just starting again.
pub fn open(address: &str) -> Result<TcpStream> {
    let mut tries = 0;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(e) if tries == CONNECT_TRIES => {
                return Err(e).with_context(|| format!("connecting to {address}"));
            }
            Err(_) => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}
