//! What one worker runs: its store, its S3 front, its listeners.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use crate::blob::BlobFiles;
use crate::clock::Clock;
use crate::config::Settings;
use crate::http::accept::{self, OpenConnections};
use crate::http::connection::{HttpContext, Refusal};
use crate::http::trace::Tracer;
use crate::limits::Limits;
use crate::log::SegmentReader;
use crate::metrics::Metrics;
use crate::rng::Rng;
use crate::runtime::shutdown::Shutdown;
use crate::s3::auth::{AuthSettings, Verifier};
use crate::s3::{self, S3FrontSettings, S3Limits, S3State};
use crate::store::{Abandoned, Collector, ObjectStore, Shared};
use crate::sys::engine::IoEngine;
use crate::sys::uring::UringEngine;

/// What a client hears when a limit is reached before its request could be looked at.
const REFUSAL: Refusal = Refusal {
    content_type: "application/xml",
    body: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code>\
           <Message>Please reduce your request rate.</Message></Error>",
};

/// What every worker gets a copy of.
#[derive(Clone)]
pub struct WorkerParts {
    pub settings: Settings,
    pub blobs: PathBuf,
    pub log: PathBuf,
    pub shared: Arc<Shared>,
    pub limits: Limits,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub rng: Rng,
    pub shutdown: Shutdown,
}

/// What differs between workers.
pub struct Duties {
    pub tcp: TcpListener,
    /// Only the first worker serves the Unix socket.
    pub unix: Option<UnixListener>,
    /// Only the first worker collects garbage.
    pub collect: Option<Abandoned>,
}

/// Serves until the server stops and the connections of this worker are closed, or the time for
/// that is over.
pub async fn run(parts: WorkerParts, worker: usize, duties: Duties) -> Result<(), String> {
    let engine: Rc<dyn IoEngine> = Rc::new(UringEngine::new());
    let blobs = BlobFiles::new(engine.clone(), parts.blobs.clone());
    let segments = Rc::new(SegmentReader::new(engine, parts.log.clone()));
    let store = ObjectStore::new(parts.shared.clone(), blobs, segments);
    let collecting = duties
        .collect
        .map(|abandoned| tokio::task::spawn_local(Collector::new(store.clone(), abandoned).run()));
    let context = Rc::new(http_context(&parts, worker, store));
    let open = OpenConnections::default();
    let unix = duties.unix.map(|socket| {
        tokio::task::spawn_local(accept::run_unix(context.clone(), socket, open.clone()))
    });
    let tcp = accept::run_tcp(context, duties.tcp, open.clone()).await;
    if let Some(unix) = unix {
        unix.await.map_err(|e| e.to_string())?.map_err(|e| format!("the Unix socket: {e}"))?;
    }
    tcp.map_err(|e| format!("the listener: {e}"))?;
    if tokio::time::timeout(parts.settings.http.shutdown_timeout, open.all_closed()).await.is_err()
    {
        tracing::warn!(worker, connections = open.count(), "cut off at the shutdown deadline");
    }
    if let Some(collecting) = collecting {
        collecting.abort();
    }
    Ok(())
}

fn http_context(parts: &WorkerParts, worker: usize, store: ObjectStore) -> HttpContext {
    let settings = &parts.settings;
    let auth = AuthSettings {
        region: settings.s3.region.clone(),
        accept_any_region: settings.s3.accept_any_region,
        sigv2: settings.s3.sigv2,
        external_host: settings.http.external_url.as_deref().and_then(host_of),
    };
    let limits = S3Limits { body_idle: settings.http.body_timeout, ..S3Limits::default() };
    let front = s3::router(S3State {
        store,
        settings: S3FrontSettings {
            region: settings.s3.region.clone(),
            domains: settings.s3.domains.clone(),
            limits,
        },
        verifier: Verifier::new(auth, parts.clock.clone()),
        clock: parts.clock.clone(),
        rng: parts.rng.clone(),
    });
    let id_base = u64::from_le_bytes(parts.rng.bytes());
    let tracer = Tracer::new(parts.metrics.clone(), worker, settings.log.requests, id_base);
    HttpContext {
        settings: settings.http.clone(),
        front,
        refusal: REFUSAL,
        limits: parts.limits.clone(),
        metrics: parts.metrics.clone(),
        tracer: Rc::new(tracer),
        shutdown: parts.shutdown.clone(),
    }
}

/// Host and port of a URL that the settings have checked.
fn host_of(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    uri.authority().map(|authority| authority.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_external_url_keeps_its_port() {
        assert_eq!(host_of("https://s3.test:8443").as_deref(), Some("s3.test:8443"));
        assert_eq!(host_of("https://s3.test").as_deref(), Some("s3.test"));
    }
}
