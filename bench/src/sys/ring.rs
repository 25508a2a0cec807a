//! One io_uring ring with the sockets and receive buffers that its operations use.
//!
//! Owns every buffer that the kernel writes to, so that callers need no `unsafe`: a buffer can be
//! looked at only while no receive is in flight on it, and what is sent lives as long as the
//! program. Runs on the thread that made it. It never interprets a byte.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

/// Bytes that live as long as the program.
pub type Forever = &'static [u8];

/// How the next bytes of a connection are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// As soon as there are any, up to the end of the buffer, stored from this offset on.
    Any { at: usize },
    /// Exactly this many from the start of the buffer, which must be large enough.
    Fill { bytes: usize },
    /// At least one and at most this many, thrown away by the kernel without being copied.
    Discard { bytes: usize },
}

/// What an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes sent. Only sends for which it was asked, and failed ones, are reported.
    Sent(Result<usize, i32>),
    /// Bytes received; 0 is the end of the stream.
    Received(Result<usize, i32>),
}

/// An operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub slot: usize,
    pub outcome: Outcome,
}

struct Slot {
    stream: TcpStream,
    /// Distinguishes this stream from those that had the slot before.
    generation: u32,
    buffer: Box<[u8]>,
    receiving: bool,
    message: Box<Message>,
}

/// A vectored send. On the heap, because the kernel reads it when the operation is submitted.
struct Message {
    header: libc::msghdr,
    parts: [libc::iovec; 2],
}

pub struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    /// Receives that the kernel still holds a buffer for.
    receiving: usize,
}

const KIND_SEND: u64 = 0;
const KIND_RECEIVE: u64 = 1;
/// SQEs; more connections are served by submitting in between.
const ENTRIES_MAX: u32 = 4096;

impl Ring {
    /// A ring for about `connections` sockets, to be used on the calling thread.
    ///
    /// **Errors** when the kernel is older than Linux 6.1 or io_uring is switched off.
    pub fn new(connections: usize) -> io::Result<Ring> {
        let wanted = u32::try_from(connections * 2).unwrap_or(ENTRIES_MAX);
        let entries = wanted.next_power_of_two().clamp(8, ENTRIES_MAX);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(entries * 4)
            .build(entries)?;
        Ok(Ring { ring, slots: Vec::new(), receiving: 0 })
    }

    /// Adds a connection with a receive buffer and returns its slot.
    pub fn add(&mut self, stream: TcpStream, buffer_bytes: usize) -> usize {
        self.slots.push(Slot {
            stream,
            generation: 0,
            buffer: vec![0; buffer_bytes].into_boxed_slice(),
            receiving: false,
            message: Box::new(Message::empty()),
        });
        self.slots.len() - 1
    }

    /// Puts a new connection in a slot; the old one is closed.
    ///
    /// # Panics
    /// When a receive is in flight on the old one.
    pub fn replace(&mut self, slot: usize, stream: TcpStream) {
        // Nothing that is queued may meet another socket under the old one's descriptor.
        self.ring.submit().expect("the kernel takes submissions");
        let slot = &mut self.slots[slot];
        assert!(!slot.receiving, "a receive is in flight");
        slot.stream = stream;
        slot.generation = (slot.generation + 1) & 0xff_ffff;
    }

    /// Cuts a connection off, so that its receive ends.
    pub fn shut_down(&self, slot: usize) {
        // A connection that the other side closed is as good.
        let _ = self.slots[slot].stream.shutdown(Shutdown::Both);
    }

    /// Sends `first` and then `second`, whole. `report` asks for an event on success too.
    pub fn send(&mut self, slot: usize, first: Forever, second: Forever, report: bool) {
        let data = self.user_data(slot, KIND_SEND);
        let slot = &mut self.slots[slot];
        let fd = types::Fd(slot.stream.as_raw_fd());
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let entry = if second.is_empty() {
            let bytes = u32::try_from(first.len()).expect("a send is below 4 GiB");
            opcode::Send::new(fd, first.as_ptr(), bytes).flags(flags).build()
        } else {
            slot.message.set(first, second);
            opcode::SendMsg::new(fd, &raw const slot.message.header).flags(flags as u32).build()
        };
        let skip = if report { squeue::Flags::empty() } else { squeue::Flags::SKIP_SUCCESS };
        self.push(&entry.flags(skip).user_data(data));
    }

    /// Starts to receive.
    ///
    /// # Panics
    /// When a receive is in flight already, or the buffer is too small.
    pub fn receive(&mut self, slot: usize, how: Receive) {
        let data = self.user_data(slot, KIND_RECEIVE);
        let slot = &mut self.slots[slot];
        assert!(!slot.receiving, "one receive at a time");
        let (pointer, bytes, flags) = match how {
            Receive::Any { at } => {
                let rest = &mut slot.buffer[at..];
                assert!(!rest.is_empty(), "no room to receive");
                (rest.as_mut_ptr(), rest.len(), 0)
            }
            Receive::Fill { bytes } => {
                (slot.buffer[..bytes].as_mut_ptr(), bytes, libc::MSG_WAITALL)
            }
            // With MSG_TRUNC a TCP socket drops the bytes and never writes to the pointer; the
            // kernel still wants its range to be an address of this process. Not with
            // MSG_WAITALL: a retry within the kernel would begin to count again.
            Receive::Discard { bytes } => (std::ptr::null_mut(), bytes, libc::MSG_TRUNC),
        };
        let bytes = u32::try_from(bytes).expect("a receive is below 4 GiB");
        slot.receiving = true;
        let fd = types::Fd(slot.stream.as_raw_fd());
        self.receiving += 1;
        let entry = opcode::Recv::new(fd, pointer, bytes).flags(flags);
        // The answer to a request that leaves now cannot be there yet: poll first, then read.
        let entry = match how {
            Receive::Any { at: 0 } => entry.ioprio(POLL_FIRST).build(),
            _ => entry.build(),
        };
        self.push(&entry.user_data(data));
    }

    /// The buffer of a slot. What a receive said it received is at its start or offset.
    ///
    /// # Panics
    /// While a receive is in flight.
    pub fn buffer(&self, slot: usize) -> &[u8] {
        assert!(!self.slots[slot].receiving, "the kernel has this buffer");
        &self.slots[slot].buffer
    }

    /// Moves bytes within a slot's buffer to its start.
    ///
    /// # Panics
    /// While a receive is in flight.
    pub fn move_to_start(&mut self, slot: usize, from: std::ops::Range<usize>) {
        assert!(!self.slots[slot].receiving, "the kernel has this buffer");
        self.slots[slot].buffer.copy_within(from, 0);
    }

    /// Submits what is queued, waits for an event or `patience`, and appends events to `events`.
    pub fn wait(&mut self, patience: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        let timespec = types::Timespec::from(patience);
        let args = types::SubmitArgs::new().timespec(&timespec);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => {
            }
            Err(e) => return Err(e),
        }
        let mut completions = self.ring.completion();
        completions.sync();
        for completion in completions {
            let data = completion.user_data();
            let (index, generation) = (data as u32 as usize, (data >> 32) as u32 & 0xff_ffff);
            let result = completion.result();
            let result = if result < 0 { Err(-result) } else { Ok(result as usize) };
            let slot = &mut self.slots[index];
            let outcome = match data >> 56 {
                KIND_RECEIVE => {
                    slot.receiving = false;
                    self.receiving -= 1;
                    Outcome::Received(result)
                }
                _ => Outcome::Sent(result),
            };
            // A send on a connection that was given up says nothing about the present one.
            if generation == slot.generation {
                events.push(Event { slot: index, outcome });
            }
        }
        Ok(())
    }

    fn user_data(&self, slot: usize, kind: u64) -> u64 {
        (kind << 56) | (u64::from(self.slots[slot].generation) << 32) | slot as u64
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what the entry points to stays valid for as long as the kernel may use it.
            // Sent bytes are 'static. A `Message` is read at submission, its slot keeps it, and
            // whatever stands in it is valid at any time. A receive buffer belongs to its slot, is not reachable while `receiving` is set,
            // and `drop` waits for the kernel to give it back. A discarding receive has no
            // buffer. Descriptors are open: the slot owns the stream.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.ring.submit().expect("the kernel takes submissions");
        }
    }
}

/// IORING_RECVSEND_POLL_FIRST of io_uring.h.
const POLL_FIRST: u16 = 1;

impl Message {
    fn empty() -> Message {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a msghdr is pointers and integers, for which all zero is a valid value.
        Message { header: unsafe { std::mem::zeroed() }, parts: [none; 2] }
    }

    fn set(&mut self, first: Forever, second: Forever) {
        for (part, bytes) in self.parts.iter_mut().zip([first, second]) {
            *part =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        }
        self.header.msg_iov = self.parts.as_mut_ptr();
        self.header.msg_iovlen = self.parts.len();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for slot in 0..self.slots.len() {
            self.shut_down(slot);
        }
        let mut events = Vec::new();
        let mut tries = 100;
        while self.receiving > 0 && tries > 0 {
            tries -= 1;
            if self.wait(Duration::from_millis(100), &mut events).is_err() {
                break;
            }
            events.clear();
        }
        if self.receiving > 0 {
            // The kernel still has buffers; memory that it may write to must not be freed.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("there");
        (near, listener.accept().expect("a connection").0)
    }

    fn next(ring: &mut Ring) -> Outcome {
        let mut events = Vec::new();
        for _ in 0..100 {
            ring.wait(Duration::from_millis(100), &mut events).expect("waits");
            if let Some(event) = events.first() {
                assert_eq!(events.len(), 1);
                return event.outcome;
            }
        }
        panic!("no event");
    }

    #[test]
    fn both_parts_of_a_send_arrive_in_order() {
        let (near, mut far) = pair();
        let mut ring = Ring::new(1).expect("io_uring");
        let slot = ring.add(near, 16);
        ring.send(slot, b"head ", b"body", true);
        assert_eq!(next(&mut ring), Outcome::Sent(Ok(9)));
        let mut got = [0; 9];
        far.read_exact(&mut got).expect("arrives");
        assert_eq!(&got, b"head body");
    }

    #[test]
    fn receives_fill_store_and_discard() {
        let (near, mut far) = pair();
        let mut ring = Ring::new(1).expect("io_uring");
        let slot = ring.add(near, 16);
        ring.receive(slot, Receive::Any { at: 0 });
        far.write_all(b"abc").expect("sends");
        assert_eq!(next(&mut ring), Outcome::Received(Ok(3)));
        ring.receive(slot, Receive::Any { at: 3 });
        far.write_all(b"def").expect("sends");
        assert_eq!(next(&mut ring), Outcome::Received(Ok(3)));
        assert_eq!(&ring.buffer(slot)[..6], b"abcdef");
        ring.move_to_start(slot, 4..6);
        assert_eq!(&ring.buffer(slot)[..2], b"ef");
        far.write_all(b"1234xyz").expect("sends");
        ring.receive(slot, Receive::Discard { bytes: 4 });
        assert_eq!(next(&mut ring), Outcome::Received(Ok(4)));
        // Whole, though it comes in two pieces; what was thrown away is not in the buffer.
        ring.receive(slot, Receive::Fill { bytes: 4 });
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            far.write_all(b"w").expect("sends");
            far
        });
        assert_eq!(next(&mut ring), Outcome::Received(Ok(4)));
        let far = late.join().expect("no panic");
        assert_eq!(&ring.buffer(slot)[..4], b"xyzw");
        drop(far);
        ring.receive(slot, Receive::Any { at: 0 });
        assert_eq!(next(&mut ring), Outcome::Received(Ok(0)));
    }

    #[test]
    fn a_ring_with_a_receive_in_flight_can_be_dropped() {
        let (near, far) = pair();
        let mut ring = Ring::new(1).expect("io_uring");
        let slot = ring.add(near, 16);
        ring.receive(slot, Receive::Any { at: 0 });
        ring.wait(Duration::from_millis(1), &mut Vec::new()).expect("submits");
        drop(ring);
        drop(far);
    }
}
