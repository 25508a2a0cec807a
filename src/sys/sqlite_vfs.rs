//! A SQLite file system layer that seals each page of a database it writes and verifies each page
//! that it reads.
//!
//! Owns the checksums of `sqlite_page` on their way to and from the file. A page that does not
//! match is SQLITE_CORRUPT for the statement that wanted it, never data. Everything else (names,
//! locks, shared memory, the write-ahead log with checksums of its own) is the default layer's.
//! SQLite calls it on whatever thread uses a connection.
//!
//! ```text
//!   SQLite --> CheckedFile { base } | the default layer's file object, right behind it
//! ```

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libsqlite3_sys as ffi;

use super::sqlite_page::{self, PAGE_BYTES};

/// What SQLite knows the layer by.
const NAME: &CStr = c"goblin-checked";
/// Bytes of the header in page 1, which SQLite looks at before it knows the page size. What it
/// learns there is verified with the whole page.
const HEADER_BYTES: u64 = 100;

/// The default layer, which does the work. Set once, before the first file is opened.
struct Default(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite's default layer is a static object that is never unregistered, and its functions
// may be called from any thread.
unsafe impl Send for Default {}
// SAFETY: as above.
unsafe impl Sync for Default {}

static DEFAULT: OnceLock<Option<Default>> = OnceLock::new();

/// Makes the layer known to SQLite and returns its name.
///
/// **Errors** `None` when SQLite has no file system at all.
pub fn name() -> Option<&'static str> {
    DEFAULT.get_or_init(register).as_ref()?;
    NAME.to_str().ok()
}

fn register() -> Option<Default> {
    // SAFETY: null asks for the default layer; SQLite initialises itself on this call.
    let default = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    if default.is_null() {
        return None;
    }
    // SAFETY: `default` points to a live object of this type. A copy is fine: the functions that
    // are not replaced take nothing from the object but the fields copied along.
    let mut checked = unsafe { *default };
    checked.szOsFile += size_of::<CheckedFile>() as c_int;
    checked.zName = NAME.as_ptr();
    checked.pNext = ptr::null_mut();
    checked.xOpen = Some(open);
    let checked = Box::leak(Box::new(checked));
    // SAFETY: the object is leaked, so that it outlives SQLite's use of it.
    let done = unsafe { ffi::sqlite3_vfs_register(checked, 0) };
    (done == ffi::SQLITE_OK).then_some(Default(default))
}

/// What SQLite has as the file of a database. SQLite allocates `szOsFile` bytes: this, and the
/// default layer's object behind it.
#[repr(C, align(8))]
struct CheckedFile {
    base: ffi::sqlite3_file,
}

/// The default layer's file object.
///
/// # Safety
/// `file` was opened by `open` as a database.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: by the contract, `file` begins an allocation of a `CheckedFile` and the inner file.
    unsafe { file.cast::<CheckedFile>().add(1).cast() }
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Some(default)) = DEFAULT.get() else { return ffi::SQLITE_CANTOPEN };
    let is_database = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
    // SAFETY: SQLite passes a file object of `szOsFile` bytes; a database's inner object stands
    // behind ours, other files are the default layer's alone and fit, too.
    unsafe {
        let Some(open) = (*default.0).xOpen else { return ffi::SQLITE_CANTOPEN };
        if !is_database {
            return open(default.0, name, file, flags, out_flags);
        }
        (*file).pMethods = ptr::null();
        let real = inner(file);
        (*real).pMethods = ptr::null();
        let done = open(default.0, name, real, flags, out_flags);
        if !(*real).pMethods.is_null() {
            // SQLite closes a file that has methods, also after an error.
            (*file).pMethods = &raw const METHODS;
        }
        done
    }
}

/// Calls a function of the inner file; files that SQLite works with have all of them.
macro_rules! pass {
    ($file:expr, $method:ident ( $($arg:expr),* ), $missing:expr) => {{
        // SAFETY: SQLite calls these only for a file that `open` gave these methods, whose inner
        // file is open then; the arguments are SQLite's own.
        unsafe {
            let real = inner($file);
            match (*(*real).pMethods).$method {
                Some(method) => method(real, $($arg),*),
                None => $missing,
            }
        }
    }};
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    buf: *mut c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    let done = pass!(file, xRead(buf, amount, offset), ffi::SQLITE_IOERR_READ);
    let (Ok(len), Ok(at)) = (usize::try_from(amount), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_READ;
    };
    if at + len as u64 <= HEADER_BYTES || done != ffi::SQLITE_OK && !is_short(done) {
        return done;
    }
    // Any other size means that the header's page size is damaged, a short page that the file is.
    if len != PAGE_BYTES || !at.is_multiple_of(PAGE_BYTES as u64) || is_short(done) {
        return corrupt(at, "the file has no such page");
    }
    // SAFETY: the inner file has filled `amount` bytes of the buffer, which SQLite owns meanwhile.
    let page = unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), len) };
    if sqlite_page::is_sound(page, at / PAGE_BYTES as u64 + 1) {
        return ffi::SQLITE_OK;
    }
    corrupt(at, "the page's checksum does not match")
}

fn is_short(code: c_int) -> bool {
    code == ffi::SQLITE_IOERR_SHORT_READ
}

fn corrupt(offset: u64, what: &str) -> c_int {
    tracing::error!(page = offset / PAGE_BYTES as u64 + 1, "the catalog's file is damaged: {what}");
    ffi::SQLITE_CORRUPT
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    buf: *const c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    let at = u64::try_from(offset).unwrap_or(1);
    if amount != PAGE_BYTES as c_int || !at.is_multiple_of(PAGE_BYTES as u64) {
        return ffi::SQLITE_IOERR_WRITE;
    }
    // SAFETY: SQLite gives `amount` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), PAGE_BYTES) };
    if at == 0 && !sqlite_page::has_room(bytes) {
        // Without room in its pages the checksums would overwrite rows.
        return ffi::SQLITE_IOERR_WRITE;
    }
    let mut page = [0u8; PAGE_BYTES];
    page.copy_from_slice(bytes);
    sqlite_page::seal(&mut page, at / PAGE_BYTES as u64 + 1);
    pass!(file, xWrite(page.as_ptr().cast(), amount, offset), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    pass!(file, xClose(), ffi::SQLITE_OK)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    pass!(file, xTruncate(size), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    pass!(file, xSync(flags), ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    pass!(file, xFileSize(size), ffi::SQLITE_IOERR_FSTAT)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    pass!(file, xLock(level), ffi::SQLITE_IOERR_LOCK)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    pass!(file, xUnlock(level), ffi::SQLITE_IOERR_UNLOCK)
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    pass!(file, xCheckReservedLock(out), ffi::SQLITE_IOERR_CHECKRESERVEDLOCK)
}

unsafe extern "C" fn control(file: *mut ffi::sqlite3_file, op: c_int, arg: *mut c_void) -> c_int {
    pass!(file, xFileControl(op, arg), ffi::SQLITE_NOTFOUND)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    pass!(file, xSectorSize(), 4096)
}

unsafe extern "C" fn characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    pass!(file, xDeviceCharacteristics(), 0)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    pass!(file, xShmMap(region, size, extend, out), ffi::SQLITE_IOERR_SHMMAP)
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    n: c_int,
    flags: c_int,
) -> c_int {
    pass!(file, xShmLock(offset, n, flags), ffi::SQLITE_IOERR_SHMLOCK)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    pass!(file, xShmBarrier(), ());
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    pass!(file, xShmUnmap(delete), ffi::SQLITE_OK)
}

/// Version 2: with the shared memory of the write-ahead log, without memory-mapped reads, which
/// would go past the checksums.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
