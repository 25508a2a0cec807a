//! The admin API's listeners: TCP on loopback, and the Unix socket for the command line.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::data_dir::admin_socket;
use super::{Parts, ServeError, io_error};
use crate::admin::api::{AdminState, Reached, router};
use crate::http::accept::bind_unix;
use crate::runtime::shutdown::Shutdown;

/// Binds both and serves them on the main thread's runtime; returns the TCP address.
pub(super) fn start(
    parts: &Parts,
    state: Arc<AdminState>,
    shutdown: Shutdown,
) -> Result<SocketAddr, ServeError> {
    let wanted = parts.settings.http.admin_address;
    let bind =
        |source| ServeError::Bind { address: wanted.to_string(), flag: "--admin-address", source };
    let tcp = std::net::TcpListener::bind(wanted).map_err(bind)?;
    tcp.set_nonblocking(true).map_err(io_error("set up the admin listener"))?;
    let address = tcp.local_addr().map_err(io_error("read the admin listener's address"))?;
    let tcp = tokio::net::TcpListener::from_std(tcp).map_err(io_error("use the admin listener"))?;
    let path = admin_socket(parts.data_dir.path());
    // The directory is 0700 and the lock is ours, so nobody gets between these two.
    let unix = bind_unix(&path).map_err(io_error("bind the admin socket"))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .map_err(io_error("protect the admin socket"))?;
    let unix =
        tokio::net::UnixListener::from_std(unix).map_err(io_error("use the admin socket"))?;
    let (mut tcp_stop, mut unix_stop) = (shutdown.clone(), shutdown);
    let tcp = axum::serve(tcp, router(state.clone(), Reached::Tcp))
        .with_graceful_shutdown(async move { tcp_stop.requested().await });
    let unix = axum::serve(unix, router(state, Reached::Socket))
        .with_graceful_shutdown(async move { unix_stop.requested().await });
    tokio::spawn(async move {
        if let (Err(error), _) | (_, Err(error)) = tokio::join!(tcp, unix) {
            tracing::error!(%error, "an admin listener ended");
        }
        // The next start replaces it otherwise.
        let _ = std::fs::remove_file(path);
    });
    Ok(address)
}
