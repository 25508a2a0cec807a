//! A fixed set of connections that read, shared by all threads.
//!
//! Unlike sqlx's pool it does nothing of its own: no tasks, no test round trip after each use.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sqlx::{Connection, SqliteConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::schema;

pub(super) struct Readers {
    path: PathBuf,
    free: Mutex<Vec<SqliteConnection>>,
    permits: Semaphore,
    count: u32,
}

/// A connection on loan. Dropping it in the middle of a query is safe: the connection's own
/// thread finishes or abandons the statement before it takes the next.
pub(super) struct Reader<'a> {
    readers: &'a Readers,
    conn: Option<SqliteConnection>,
    _permit: SemaphorePermit<'a>,
}

impl Readers {
    pub async fn open(path: &Path, count: u32) -> Result<Readers, sqlx::Error> {
        let mut free = Vec::new();
        for _ in 0..count.max(1) {
            free.push(schema::connect_reader(path).await?);
        }
        let permits = Semaphore::new(free.len());
        Ok(Readers { path: path.to_owned(), free: Mutex::new(free), permits, count: count.max(1) })
    }

    /// Waits for a free connection.
    ///
    /// **Errors** After `close`.
    pub async fn get(&self) -> Result<Reader<'_>, sqlx::Error> {
        let permit = self.permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let conn = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = match conn {
            Some(conn) => conn,
            // One was lost with a panic.
            None => schema::connect_reader(&self.path).await?,
        };
        Ok(Reader { readers: self, conn: Some(conn), _permit: permit })
    }

    /// Waits for the loans to come back and closes every connection.
    pub async fn close(&self) {
        if let Ok(all) = self.permits.acquire_many(self.count).await {
            all.forget();
        }
        self.permits.close();
        let free = std::mem::take(&mut *self.free.lock().unwrap_or_else(PoisonError::into_inner));
        for conn in free {
            if let Err(error) = conn.close().await {
                tracing::warn!(%error, "closing a connection that reads the catalog");
            }
        }
    }
}

impl Deref for Reader<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        self.conn.as_ref().expect("a loan has its connection until it is dropped")
    }
}

impl DerefMut for Reader<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.conn.as_mut().expect("a loan has its connection until it is dropped")
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.readers.free.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        }
    }
}
