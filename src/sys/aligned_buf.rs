//! Page-aligned buffers for direct I/O, and a small per-thread stock of used ones.
//!
//! Owns every allocation that is handed to the kernel as file data. `AlignedBuf` is filled by one
//! owner, `SharedBuf` is what it becomes: immutable, cheap to clone, shared between the disk write
//! and a hasher on another thread, and turned into `Bytes` without a copy. Memory is initialised
//! before anybody sees it. A buffer never moves while it lives, which is what the ring relies on.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

/// Alignment of the memory and granule of the capacity, in bytes: what O_DIRECT asks for on every
/// file system and device known to us.
pub const ALIGN: usize = 4096;

/// Allocations of at least this many bytes are rounded up to it and kept for reuse. Smaller ones
/// are left to the allocator, which serves them from its own caches.
const CLASS_BYTES: usize = 128 * 1024;
/// The longest buffer that is kept for reuse: a 1 MiB read widened to whole blocks, with room.
const POOLED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What one thread keeps at most: several 1 MiB chunks for each of a few streams.
const POOL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A growable-to-capacity buffer, aligned to 4096 bytes.
///
/// **Shape** capacity is a multiple of 4096 and never changes; `Deref` shows the first `len()`
/// bytes.
pub struct AlignedBuf {
    block: Block,
    capacity: usize,
    len: usize,
}

impl AlignedBuf {
    /// Makes an empty buffer of at least `bytes` (rounded up to 4096), all zero.
    pub fn with_capacity(bytes: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::recycled(bytes);
        if buf.block.used {
            buf.spare().fill(0);
        }
        buf
    }

    /// Like `with_capacity`, but what lies beyond `len()` is the leftover of an earlier use.
    /// For buffers that are filled whole before their length is set: it saves a pass over memory.
    pub fn recycled(bytes: usize) -> AlignedBuf {
        let capacity = bytes.max(1).next_multiple_of(ALIGN);
        AlignedBuf { block: Block::take(capacity), capacity, len: 0 }
    }

    /// Length of the filled part in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Total room in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// The room behind the filled part. Call `set_len` after writing to it.
    pub fn spare(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.whole_mut()[len..]
    }

    /// Appends `bytes`; panics when there is no room for them.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.spare()[..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Declares the first `len` bytes filled; panics beyond the capacity. Sound for any value,
    /// because all memory of the buffer is initialised.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} beyond capacity {}", self.capacity);
        self.len = len;
    }

    /// Forgets the contents, keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends zeros up to the next multiple of `align`; panics when there is no room.
    pub fn pad_to(&mut self, align: usize) {
        let padded = self.len.next_multiple_of(align);
        let pad = padded - self.len;
        self.spare()[..pad].fill(0);
        self.len = padded;
    }

    /// Makes it immutable and shareable. Zeroes what lies between the length and the next
    /// multiple of 4096, so that `SharedBuf::padded` never shows old bytes.
    pub fn freeze(mut self) -> SharedBuf {
        let len = self.len;
        self.pad_to(ALIGN);
        self.len = len;
        SharedBuf { len, buf: Arc::new(self) }
    }

    fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: `Block` owns `block.len >= capacity` initialised bytes at `ptr` (kept by
        // `Block::take`), and `&mut self` makes this the only reference to them.
        unsafe { std::slice::from_raw_parts_mut(self.block.ptr.as_ptr(), self.capacity) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity <= block.len` (kept by `set_len` and the methods above), all of
        // it initialised, and shared references allow no write meanwhile.
        unsafe { std::slice::from_raw_parts(self.block.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.whole_mut()[..len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity)
    }
}

// SAFETY: the pointer is that of an own heap allocation, which moves of `AlignedBuf` leave where
// it is; `bytes_init` and `bytes_total` are within it.
unsafe impl tokio_uring::buf::IoBuf for AlignedBuf {
    fn stable_ptr(&self) -> *const u8 {
        self.block.ptr.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len
    }

    fn bytes_total(&self) -> usize {
        self.capacity
    }
}

// SAFETY: as for `IoBuf`; the ring owns the buffer while the kernel writes to it, so nobody else
// reads or writes it, and `set_init` only moves the length within the capacity.
unsafe impl tokio_uring::buf::IoBufMut for AlignedBuf {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.block.ptr.as_ptr()
    }

    unsafe fn set_init(&mut self, pos: usize) {
        if pos > self.len {
            self.set_len(pos);
        }
    }
}

/// An immutable `AlignedBuf`. Clones share the memory, which is freed with the last of them.
#[derive(Clone)]
pub struct SharedBuf {
    buf: Arc<AlignedBuf>,
    /// Up to `buf.len` rounded up to 4096; those bytes are zero beyond `buf.len`.
    len: usize,
}

impl SharedBuf {
    /// The same memory with its length rounded up to 4096: the bytes added are zero.
    pub fn padded(&self) -> SharedBuf {
        SharedBuf { len: self.len.next_multiple_of(ALIGN), buf: Arc::clone(&self.buf) }
    }

    /// The contents as `Bytes`, without a copy.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Part of the contents as `Bytes`, without a copy; panics when out of range.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        self.clone().into_bytes().slice(range)
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` is at most the buffer's length rounded up to 4096, which is within its
        // capacity; the memory is initialised and nobody writes to a frozen buffer.
        unsafe { std::slice::from_raw_parts(self.buf.block.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for SharedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({} bytes)", self.len)
    }
}

// SAFETY: the pointer is that of a heap allocation that lives as long as any clone and never
// moves; the kernel only reads through it.
unsafe impl tokio_uring::buf::IoBuf for SharedBuf {
    fn stable_ptr(&self) -> *const u8 {
        self.buf.block.ptr.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len
    }

    fn bytes_total(&self) -> usize {
        self.len
    }
}

/// One allocation: `len` initialised bytes, aligned to 4096.
struct Block {
    ptr: NonNull<u8>,
    len: usize,
    /// True when it comes from the stock, so its contents are old.
    used: bool,
}

// SAFETY: a block is plain owned memory; access to it follows the borrow rules of its owner.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block is only read.
unsafe impl Sync for Block {}

impl Block {
    /// A block of at least `bytes`, from this thread's stock or new and zero.
    fn take(bytes: usize) -> Block {
        let len = if bytes < CLASS_BYTES { bytes } else { bytes.next_multiple_of(CLASS_BYTES) };
        let stocked = POOL.try_with(|pool| pool.borrow_mut().take(len)).ok().flatten();
        if let Some(ptr) = stocked {
            return Block { ptr, len, used: true };
        }
        let layout = Block::layout(len);
        // SAFETY: the layout has a size above zero, since `bytes` is at least 4096.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        Block { ptr, len, used: false }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).expect("a buffer shorter than the address space")
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (ptr, len) = (self.ptr, self.len);
        let kept = POOL.try_with(|pool| pool.borrow_mut().put(ptr, len)).unwrap_or(false);
        if !kept {
            // SAFETY: `ptr` came from `alloc_zeroed` with this layout and has this one owner.
            unsafe { dealloc(ptr.as_ptr(), Block::layout(len)) };
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool::new()) };
}

/// Used blocks of one thread, by size class. Bounded by `POOL_BYTES_MAX`.
struct Pool {
    free: [Vec<NonNull<u8>>; POOLED_BYTES_MAX / CLASS_BYTES],
    bytes: usize,
}

impl Pool {
    const fn new() -> Pool {
        Pool { free: [const { Vec::new() }; POOLED_BYTES_MAX / CLASS_BYTES], bytes: 0 }
    }

    /// Index of the class of blocks of exactly `len` bytes, if such blocks are kept.
    fn class(len: usize) -> Option<usize> {
        let kept = len.is_multiple_of(CLASS_BYTES) && (1..=POOLED_BYTES_MAX).contains(&len);
        kept.then(|| len / CLASS_BYTES - 1)
    }

    fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        let ptr = self.free[Pool::class(len)?].pop()?;
        self.bytes -= len;
        Some(ptr)
    }

    /// True when the block is now the pool's.
    fn put(&mut self, ptr: NonNull<u8>, len: usize) -> bool {
        let Some(class) = Pool::class(len) else { return false };
        if self.bytes + len > POOL_BYTES_MAX {
            return false;
        }
        self.free[class].push(ptr);
        self.bytes += len;
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (class, blocks) in self.free.iter().enumerate() {
            for ptr in blocks {
                let layout = Block::layout((class + 1) * CLASS_BYTES);
                // SAFETY: `put` took ownership of a block of exactly this class's length.
                unsafe { dealloc(ptr.as_ptr(), layout) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zero_also_when_used_before() {
        for bytes in [0, 1, 4096, 4097, 128 * 1024, 1 << 20, (1 << 20) + 1, 5 << 20] {
            for _ in 0..3 {
                let mut buf = AlignedBuf::with_capacity(bytes);
                assert_eq!(buf.as_ptr() as usize % ALIGN, 0);
                assert!(buf.capacity() >= bytes.max(1) && buf.capacity().is_multiple_of(ALIGN));
                assert!(buf.is_empty());
                assert!(buf.spare().iter().all(|b| *b == 0));
                buf.spare().fill(0xAA);
            }
        }
    }

    #[test]
    fn a_used_block_is_taken_again() {
        let first = AlignedBuf::recycled(1 << 20);
        let ptr = first.as_ptr();
        drop(first);
        let second = AlignedBuf::recycled((1 << 20) - 4095);
        assert_eq!(second.as_ptr(), ptr);
        assert_eq!(second.capacity(), 1 << 20);
    }

    #[test]
    fn the_stock_is_bounded() {
        let many: Vec<_> = (0..40).map(|_| AlignedBuf::recycled(1 << 20)).collect();
        drop(many);
        POOL.with(|pool| assert_eq!(pool.borrow().bytes, POOL_BYTES_MAX));
    }

    #[test]
    fn fill_pad_and_freeze() {
        let mut buf = AlignedBuf::with_capacity(8192);
        buf.extend_from_slice(b"head");
        buf.pad_to(512);
        assert_eq!(buf.len(), 512);
        buf.set_len(4);
        let shared = buf.freeze();
        assert_eq!(&*shared, b"head");
        assert_eq!(shared.padded().len(), 4096);
        assert!(shared.padded()[4..].iter().all(|b| *b == 0));
        assert_eq!(shared.slice(1..3), &b"ea"[..]);
        let kept = shared.clone().into_bytes();
        assert_eq!(kept.as_ptr(), shared.as_ptr());
        drop(shared);
        assert_eq!(kept, &b"head"[..]);
    }

    #[test]
    fn padding_never_shows_old_bytes() {
        let mut buf = AlignedBuf::recycled(1 << 20);
        buf.set_len(1 << 20);
        buf.fill(0xEE);
        drop(buf);
        let mut buf = AlignedBuf::recycled(1 << 20);
        buf.extend_from_slice(b"x");
        let shared = buf.freeze().padded();
        assert!(shared[1..].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_full_buffer_freezes() {
        let mut buf = AlignedBuf::with_capacity(4096);
        buf.extend_from_slice(&[7; 4096]);
        assert_eq!(buf.freeze().padded().len(), 4096);
    }

    #[test]
    #[should_panic(expected = "beyond capacity")]
    fn a_length_beyond_the_capacity_is_refused() {
        AlignedBuf::with_capacity(4096).set_len(4097);
    }

    #[test]
    fn buffers_move_between_threads() {
        let mut buf = AlignedBuf::with_capacity(1 << 20);
        buf.extend_from_slice(b"abc");
        let shared = buf.freeze();
        let other = shared.clone();
        let joined = std::thread::spawn(move || other.len()).join();
        assert_eq!(joined.ok(), Some(3));
        assert_eq!(&*shared, b"abc");
    }
}
