//! Opening the database file: settings that are checked, migrations, refusals.
//!
//! It never replaces a file that it cannot read, and never opens one of a later version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection};

use super::OpenError;
use super::files::{self, FirstBytes};
use crate::sys::{sqlite_page, sqlite_vfs};

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// "GbLn": tells our files from other programs' SQLite files (PRAGMA application_id).
const APPLICATION_ID: i64 = 0x4762_4C6E;
/// Page cache of the writer's connection.
const WRITER_CACHE_KIB: u32 = 64 << 10;
/// Page cache of each reader's connection.
const READER_CACHE_KIB: u32 = 16 << 10;
/// The WAL is copied back after this many pages (32 MiB), not more often: each time costs two
/// flushes in the writer's path.
const AUTOCHECKPOINT_PAGES: u32 = 4096;
/// Other connections of this process hold the lock for moments only.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Room for every statement in all its sizes.
const STATEMENTS_MAX: usize = 256;
/// Rows that a reader's thread prepares ahead.
const ROW_BUFFER: usize = 256;

fn options(path: &Path, cache_kib: u32) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .vfs(sqlite_vfs::name().unwrap_or_default())
        .page_size(sqlite_page::PAGE_BYTES as u32)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", format!("-{cache_kib}"))
        .pragma("wal_autocheckpoint", AUTOCHECKPOINT_PAGES.to_string())
        .pragma("temp_store", "MEMORY")
        .statement_cache_capacity(STATEMENTS_MAX)
        .row_buffer_size(ROW_BUFFER)
        // Statements carry key pairs; and nobody reads a line for each.
        .disable_statement_logging()
}

/// A connection that reads only.
pub(super) async fn connect_reader(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = options(path, READER_CACHE_KIB).pragma("query_only", "ON");
    SqliteConnection::connect_with(&options).await
}

/// Opens, checks and migrates the file; creates it when there is none.
///
/// **Errors** `Newer`, `Damaged`, `Foreign`: the file stays as it was. `Sql` when a migration or a
/// setting fails.
pub(super) async fn connect_writer(path: &Path) -> Result<SqliteConnection, OpenError> {
    match files::first_bytes(path)? {
        FirstBytes::None => files::create_empty(path)?,
        FirstBytes::Unsummed { application } => {
            let path = path.to_owned();
            let ours = i64::from(application) == APPLICATION_ID;
            return Err(if ours {
                OpenError::Unsummed { path }
            } else {
                OpenError::Foreign { path }
            });
        }
        FirstBytes::Lost => {
            let detail = "the file is empty".into();
            return Err(OpenError::Damaged { path: path.to_owned(), detail });
        }
        FirstBytes::Other => {}
    }
    let options = options(path, WRITER_CACHE_KIB);
    let mut conn = SqliteConnection::connect_with(&options).await.map_err(|e| refused(path, e))?;
    match set_up(&mut conn, path).await {
        Ok(()) => Ok(conn),
        Err(error) => Err(close_after(conn, error).await),
    }
}

/// Closes a connection that is of no use, and gives the error back. A connection that is merely
/// dropped closes later, on its own thread, and takes the write-ahead log of whatever database
/// then stands at the path along.
pub(super) async fn close_after(conn: SqliteConnection, error: OpenError) -> OpenError {
    if let Err(error) = conn.close().await {
        tracing::warn!(%error, "closing a catalog that cannot be opened");
    }
    error
}

async fn set_up(conn: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    // A file without tables is one whose creation was cut short.
    let existed = table_count(conn).await.map_err(|e| refused(path, e))? > 0;
    if existed {
        check_file(conn, path).await?;
    } else {
        let text = AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}"));
        sqlx::query(text).execute(&mut *conn).await?;
    }
    migrate(conn, path, existed).await?;
    check_settings(conn).await
}

/// Tells damage from other trouble.
pub(super) fn refused(path: &Path, error: sqlx::Error) -> OpenError {
    match is_damage(&error) {
        true => OpenError::Damaged { path: path.to_owned(), detail: error.to_string().into() },
        false => OpenError::Sql(error),
    }
}

/// Primary result codes SQLITE_CORRUPT (11) and SQLITE_NOTADB (26), also behind other errors.
fn is_damage(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let code = error.downcast_ref::<sqlx::Error>().and_then(|e| e.as_database_error());
        let code = code.and_then(|e| e.code()).and_then(|code| code.parse::<i32>().ok());
        if matches!(code.map(|code| code & 0xff), Some(11 | 26)) {
            return true;
        }
        next = error.source();
    }
    false
}

async fn table_count(conn: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT count(*) FROM sqlite_schema").fetch_one(conn).await
}

async fn check_file(conn: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let id = pragma(conn, "application_id").await.map_err(|e| refused(path, e))?;
    if id != APPLICATION_ID.to_string() {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    Ok(())
}

async fn migrate(conn: &mut SqliteConnection, path: &Path, existed: bool) -> Result<(), OpenError> {
    let known = MIGRATIONS.iter().map(|m| m.version).max().unwrap_or(0);
    let found =
        if existed { schema_version(conn).await.map_err(|e| refused(path, e))? } else { 0 };
    if found > known {
        return Err(OpenError::Newer { path: path.to_owned(), found, known });
    }
    if existed && found < known {
        back_up(conn, path, found).await?;
    }
    MIGRATIONS.run(&mut *conn).await.map_err(|e| match is_damage(&e) {
        true => OpenError::Damaged { path: path.to_owned(), detail: e.to_string().into() },
        false => OpenError::Migration(e.to_string().into()),
    })
}

async fn schema_version(conn: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let table = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";
    if sqlx::query_scalar::<_, i64>(table).fetch_one(&mut *conn).await? == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(conn)
        .await
}

/// Copies the file as it is before a migration changes it.
async fn back_up(conn: &mut SqliteConnection, path: &Path, version: i64) -> Result<(), OpenError> {
    let copy = backup_path(path, version);
    if copy.exists() {
        // A former try got this far; its copy is of the same version.
        return Ok(());
    }
    tracing::info!(copy = %copy.display(), "copying the catalog before its schema is migrated");
    copy_into(conn, &copy).await
}

/// The copy that is made before a file of schema `version` is migrated.
pub(super) fn backup_path(path: &Path, version: i64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".schema-{version}"));
    PathBuf::from(name)
}

/// Writes a consistent, flushed copy of the database at `path` to `to`, which must not exist,
/// through a connection of its own; commits go on meanwhile.
pub(super) async fn snapshot(path: &Path, to: &Path) -> Result<(), OpenError> {
    // A connection that may only read cannot write the copy either.
    let mut conn = SqliteConnection::connect_with(&options(path, READER_CACHE_KIB)).await?;
    copy_into(&mut conn, to).await?;
    conn.close().await?;
    Ok(())
}

async fn copy_into(conn: &mut SqliteConnection, to: &Path) -> Result<(), OpenError> {
    let Some(text) = to.to_str() else {
        return Err(OpenError::Io(std::io::Error::other("the path is not valid UTF-8")));
    };
    sqlx::query("VACUUM INTO ?").bind(text).execute(conn).await?;
    // VACUUM INTO does not flush what it wrote.
    std::fs::File::open(to)?.sync_all()?;
    if let Some(dir) = to.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Fails unless SQLite really took the settings that durability and memory bounds rest on.
async fn check_settings(conn: &mut SqliteConnection) -> Result<(), OpenError> {
    let wanted = [
        ("journal_mode", "wal".to_owned()),
        ("synchronous", "1".to_owned()),
        ("foreign_keys", "0".to_owned()),
        ("encoding", "UTF-8".to_owned()),
        ("cache_size", format!("-{WRITER_CACHE_KIB}")),
        ("wal_autocheckpoint", AUTOCHECKPOINT_PAGES.to_string()),
        ("busy_timeout", BUSY_TIMEOUT.as_millis().to_string()),
    ];
    for (name, wanted) in wanted {
        let found = pragma(conn, name).await?;
        if found != wanted {
            return Err(OpenError::Setting { name, wanted, found });
        }
    }
    Ok(())
}

/// The value of a pragma as text; `name` is one of ours.
pub(super) async fn pragma(
    conn: &mut SqliteConnection,
    name: &'static str,
) -> Result<String, sqlx::Error> {
    let row = sqlx::query(AssertSqlSafe(format!("PRAGMA {name}"))).fetch_one(conn).await?;
    match row.try_get_unchecked::<i64, _>(0) {
        Ok(number) if row.try_get::<String, _>(0).is_err() => Ok(number.to_string()),
        _ => row.try_get(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn at(version: i64) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.sqlite");
        let mut conn = connect_writer(&path).await.unwrap();
        let text = format!("UPDATE _sqlx_migrations SET version = {version} WHERE version = 1");
        sqlx::query(AssertSqlSafe(text)).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        (dir, path)
    }

    #[tokio::test]
    async fn a_newer_schema_is_refused() {
        let (_dir, path) = at(99).await;
        let error = connect_writer(&path).await.unwrap_err();
        assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    }

    #[tokio::test]
    async fn a_file_of_another_program_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.sqlite");
        let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
        let mut conn = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query("CREATE TABLE theirs (a)").execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        assert!(matches!(connect_writer(&path).await, Err(OpenError::Foreign { .. })));
    }

    #[tokio::test]
    async fn a_damaged_file_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.sqlite");
        std::fs::write(&path, vec![7u8; 20_000]).unwrap();
        assert!(matches!(connect_writer(&path).await, Err(OpenError::Damaged { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), vec![7u8; 20_000]);
    }

    #[tokio::test]
    async fn a_migration_copies_the_file_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.sqlite");
        files::create_empty(&path).unwrap();
        let options = options(&path, 100);
        let mut conn = SqliteConnection::connect_with(&options).await.unwrap();
        let id = AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}"));
        sqlx::query(id).execute(&mut conn).await.unwrap();
        sqlx::query("CREATE TABLE former (a)").execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        connect_writer(&path).await.unwrap();
        assert!(backup_path(&path, 0).exists());
    }
}
