//! Hashing of large uploads on threads of its own, so that the thread that reads the socket only
//! moves bytes.
//!
//! Each upload is a stream of shared buffers that must be hashed in order; streams run in parallel.
//! A stream is in the run queue at most once, so that no two threads touch its digester.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::digest::{DigestRequest, Digester, Digests};

/// Buffers of one stream that may wait to be hashed.
const QUEUE_BUFFERS_MAX: usize = 4;

/// The threads. Dropping the last handle ends them.
#[derive(Clone)]
pub struct HashPool {
    runnable: Sender<Arc<Stream>>,
}

struct Stream {
    state: Mutex<State>,
}

struct State {
    digester: Option<Digester>,
    waiting: VecDeque<(Bytes, OwnedSemaphorePermit)>,
    /// In the run queue or being run.
    scheduled: bool,
    /// Set when no more buffers come: where the result goes.
    finish: Option<oneshot::Sender<Digests>>,
}

/// One upload's hashes in progress.
pub struct HashStream {
    pool: HashPool,
    stream: Arc<Stream>,
    room: Arc<Semaphore>,
}

impl HashPool {
    /// Starts `threads` hashing threads. **Errors** when a thread cannot be started.
    pub fn start(threads: usize) -> std::io::Result<HashPool> {
        let (runnable, queue) = channel::<Arc<Stream>>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads.max(1) {
            let queue = queue.clone();
            std::thread::Builder::new()
                .name(format!("hash-{number}"))
                .spawn(move || run_thread(&queue))?;
        }
        Ok(HashPool { runnable })
    }

    pub fn stream(&self, request: &DigestRequest) -> HashStream {
        let state = State {
            digester: Some(Digester::new(request)),
            waiting: VecDeque::new(),
            scheduled: false,
            finish: None,
        };
        HashStream {
            pool: self.clone(),
            stream: Arc::new(Stream { state: Mutex::new(state) }),
            room: Arc::new(Semaphore::new(QUEUE_BUFFERS_MAX)),
        }
    }

    fn schedule(&self, stream: &Arc<Stream>, mut state: MutexGuard<'_, State>) {
        if !state.scheduled {
            state.scheduled = true;
            drop(state);
            // The threads live as long as a sender does, and we are one.
            let _ = self.runnable.send(stream.clone());
        }
    }
}

impl HashStream {
    /// Hands over the next buffer; waits while `QUEUE_BUFFERS_MAX` of them are not hashed yet.
    pub async fn update(&self, buf: Bytes) {
        let Ok(permit) = self.room.clone().acquire_owned().await else { return };
        let mut state = self.stream.lock();
        state.waiting.push_back((buf, permit));
        self.pool.schedule(&self.stream, state);
    }

    /// Waits for all buffers and returns the digests; `None` when a hashing thread died.
    pub async fn finish(self) -> Option<Digests> {
        let (send, receive) = oneshot::channel();
        {
            let mut state = self.stream.lock();
            state.finish = Some(send);
            self.pool.schedule(&self.stream, state);
        }
        receive.await.ok()
    }
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hashes until nothing waits. The digester is taken out so that the lock is free meanwhile.
    fn run(&self) {
        let mut state = self.lock();
        let Some(mut digester) = state.digester.take() else { return };
        while let Some((buf, permit)) = state.waiting.pop_front() {
            drop(state);
            digester.update(&buf);
            drop((buf, permit));
            state = self.lock();
        }
        state.scheduled = false;
        match state.finish.take() {
            // A receiver that is gone belongs to an upload that was given up.
            Some(finish) => drop(finish.send(digester.finish())),
            None => state.digester = Some(digester),
        }
    }
}

fn run_thread(queue: &Mutex<Receiver<Arc<Stream>>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(stream) => stream.run(),
            Err(_) => return,
        }
    }
}
