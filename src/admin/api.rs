//! The admin listeners' requests: metrics and health for anybody who reaches them, users and keys
//! for the operator.
//!
//! Owns who may change users and keys: whoever can open the Unix socket (mode 0600), or who
//! proves the root key pair by HTTP Basic authentication on TCP. Runs on the main thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, body::Bytes};
use base64::Engine as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;

use super::directory::{self, DirectoryError};
use crate::catalog::Catalog;
use crate::maintenance::scrub::{ScrubHandle, StartScrub};
use crate::maintenance::{BackupRequest, Backups};
use crate::metrics::Metrics;
use crate::rng::Rng;

/// What the admin API works on.
pub struct AdminState {
    pub catalog: Arc<dyn Catalog>,
    pub metrics: Arc<Metrics>,
    pub rng: Rng,
    pub scrub: Arc<ScrubHandle>,
    /// `None` where there is nothing to copy: in tests of the API.
    pub backups: Option<Backups>,
    /// True while requests are served: what a load balancer asks.
    pub ready: AtomicBool,
    /// `Basic` credentials of the root key pair: base64 of `access_key:secret_key`.
    pub root_credentials: String,
}

/// How a client reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By the Unix socket: file permissions have decided.
    Socket,
    /// By TCP: the root key pair decides.
    Tcp,
}

/// The text that `AdminState::root_credentials` holds.
pub fn basic_credentials(access_key: &str, secret_key: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("{access_key}:{secret_key}"))
}

/// All admin requests.
pub fn router(state: Arc<AdminState>, reached: Reached) -> Router {
    let guarded = Router::new()
        .route("/admin/users", get(list_users).post(add_user))
        .route("/admin/users/{id}", patch(change_user))
        .route("/admin/keys", get(list_keys).post(add_key))
        .route("/admin/keys/{access_key}", patch(change_key).delete(remove_key))
        .route("/admin/scrub", get(scrub_state).post(start_scrub).delete(pause_scrub));
    let guarded = match reached {
        // The server writes where the request says: not for clients of the network.
        Reached::Socket => guarded.route("/admin/backup", post(make_backup)),
        Reached::Tcp => guarded.layer(middleware::from_fn_with_state(state.clone(), require_root)),
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready))
        .merge(guarded)
        .with_state(state)
}

type Shared = State<Arc<AdminState>>;

async fn metrics(State(state): Shared) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, state.metrics.render()).into_response()
}

async fn ready(State(state): Shared) -> Response {
    if state.ready.load(Ordering::Acquire) {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response()
    }
}

/// Lets only the holder of the root key pair pass.
async fn require_root(
    State(state): Shared,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.strip_prefix("Basic ")).unwrap_or_default();
    if bool::from(sent.as_bytes().ct_eq(state.root_credentials.as_bytes())) {
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"goblin-store root key pair\"")];
    (StatusCode::UNAUTHORIZED, ask, error_body("the root key pair is needed")).into_response()
}

async fn list_users(State(state): Shared) -> Response {
    answer(directory::list_users(&*state.catalog).await)
}

async fn add_user(State(state): Shared, body: Bytes) -> Response {
    match parse(&body) {
        Ok(new) => answer(directory::add_user(&*state.catalog, &state.rng, new).await),
        Err(error) => answer::<()>(Err(error)),
    }
}

async fn change_user(State(state): Shared, Path(id): Path<String>, body: Bytes) -> Response {
    match parse::<directory::Disabling>(&body) {
        Ok(change) => {
            let changed = directory::set_user_disabled(&*state.catalog, &id, change.disabled);
            answer(changed.await)
        }
        Err(error) => answer::<()>(Err(error)),
    }
}

async fn list_keys(State(state): Shared) -> Response {
    answer(directory::list_keys(&*state.catalog).await)
}

async fn add_key(State(state): Shared, body: Bytes) -> Response {
    match parse(&body) {
        Ok(new) => answer(directory::add_key(&*state.catalog, &state.rng, new).await),
        Err(error) => answer::<()>(Err(error)),
    }
}

async fn change_key(State(state): Shared, Path(key): Path<String>, body: Bytes) -> Response {
    match parse::<directory::Disabling>(&body) {
        Ok(change) => {
            let changed = directory::set_key_disabled(&*state.catalog, &key, change.disabled);
            answer(changed.await)
        }
        Err(error) => answer::<()>(Err(error)),
    }
}

async fn remove_key(State(state): Shared, Path(key): Path<String>) -> Response {
    answer(directory::remove_key(&*state.catalog, &key).await)
}

async fn scrub_state(State(state): Shared) -> Response {
    Json(state.scrub.state()).into_response()
}

async fn start_scrub(State(state): Shared, body: Bytes) -> Response {
    match parse::<StartScrub>(&body) {
        Ok(request) => {
            state.scrub.begin(request);
            Json(state.scrub.state()).into_response()
        }
        Err(error) => answer::<()>(Err(error)),
    }
}

async fn make_backup(State(state): Shared, body: Bytes) -> Response {
    let (request, backups) = match (parse::<BackupRequest>(&body), &state.backups) {
        (Ok(request), Some(backups)) => (request, backups),
        (Err(error), _) => return answer::<()>(Err(error)),
        (_, None) => return StatusCode::NOT_FOUND.into_response(),
    };
    match backups.make(request).await {
        Ok(summary) => Json(summary).into_response(),
        Err(error) => {
            tracing::warn!(%error, "no backup was made");
            (StatusCode::CONFLICT, error_body(&error.to_string())).into_response()
        }
    }
}

async fn pause_scrub(State(state): Shared) -> Response {
    state.scrub.pause();
    Json(state.scrub.state()).into_response()
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, DirectoryError> {
    serde_json::from_slice(body).map_err(|e| DirectoryError::Invalid(format!("bad JSON: {e}")))
}

fn answer<T: Serialize>(result: Result<T, DirectoryError>) -> Response {
    let error = match result {
        Ok(value) => return Json(value).into_response(),
        Err(error) => error,
    };
    let status = match &error {
        DirectoryError::NoSuchUser(_) | DirectoryError::NoSuchKey(_) => StatusCode::NOT_FOUND,
        DirectoryError::UserExists(_) | DirectoryError::KeyExists(_) => StatusCode::CONFLICT,
        DirectoryError::Invalid(_) => StatusCode::BAD_REQUEST,
        DirectoryError::Commit(_) | DirectoryError::Read(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, error_body(&error.to_string())).into_response()
}

fn error_body(message: &str) -> Json<serde_json::Value> {
    Json(serde_json::json!({ "error": message }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::memory::MemoryCatalog;
    use crate::clock::ManualClock;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    fn state() -> Arc<AdminState> {
        Arc::new(AdminState {
            catalog: Arc::new(MemoryCatalog::new(Arc::new(ManualClock::new(1)))),
            metrics: Arc::new(Metrics::new(1)),
            rng: Rng::seeded(1),
            scrub: ScrubHandle::idle(),
            backups: None,
            ready: AtomicBool::new(true),
            root_credentials: basic_credentials("ROOT", "hush"),
        })
    }

    async fn ask(router: &Router, line: &str, auth: &str, body: &str) -> (u16, String) {
        let (method, path) = line.split_once(' ').expect("METHOD path");
        let request = Request::builder().method(method).uri(path).header("authorization", auth);
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        let response = router.clone().oneshot(request).await.expect("answers");
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("whole").to_bytes();
        (status, String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn health_and_metrics_need_no_key() {
        let state = state();
        let router = router(state.clone(), Reached::Tcp);
        assert_eq!(ask(&router, "GET /health/live", "", "").await.0, 200);
        assert_eq!(ask(&router, "GET /health/ready", "", "").await.0, 200);
        let (status, text) = ask(&router, "GET /metrics", "", "").await;
        assert!(status == 200 && text.contains("# TYPE goblin_requests_in_flight gauge"));
        state.ready.store(false, Ordering::Release);
        assert_eq!(ask(&router, "GET /health/ready", "", "").await.0, 503);
    }

    #[tokio::test]
    async fn users_and_keys_over_tcp_need_the_root_pair() {
        let router = router(state(), Reached::Tcp);
        let right = format!("Basic {}", basic_credentials("ROOT", "hush"));
        let wrong = format!("Basic {}", basic_credentials("ROOT", "guess"));
        for line in ["GET /admin/users", "POST /admin/keys", "DELETE /admin/keys/x"] {
            assert_eq!(ask(&router, line, "", "").await.0, 401, "{line}");
            assert_eq!(ask(&router, line, &wrong, "").await.0, 401, "{line}");
        }
        assert_eq!(ask(&router, "GET /admin/users", &right, "").await, (200, "[]".to_owned()));
    }

    #[tokio::test]
    async fn the_socket_adds_changes_and_removes() {
        let router = router(state(), Reached::Socket);
        let (status, _) = ask(&router, "POST /admin/users", "", r#"{"id":"amy"}"#).await;
        assert_eq!(status, 200);
        let body = r#"{"user":"amy","access_key":"AMYKEY","secret_key":"long-enough"}"#;
        assert_eq!(ask(&router, "POST /admin/keys", "", body).await.0, 200);
        let (status, text) = ask(&router, "GET /admin/keys", "", "").await;
        assert!(status == 200 && text.contains("AMYKEY") && !text.contains("long-enough"));
        let off = r#"{"disabled":true}"#;
        assert_eq!(ask(&router, "PATCH /admin/users/amy", "", off).await.0, 200);
        assert_eq!(ask(&router, "PATCH /admin/keys/AMYKEY", "", off).await.0, 200);
        assert_eq!(ask(&router, "DELETE /admin/keys/AMYKEY", "", "").await.0, 200);
        assert_eq!(ask(&router, "DELETE /admin/keys/AMYKEY", "", "").await.0, 404);
        assert_eq!(ask(&router, "PATCH /admin/users/bob", "", off).await.0, 404);
        assert_eq!(ask(&router, "POST /admin/users", "", r#"{"id":"amy"}"#).await.0, 409);
        assert_eq!(ask(&router, "POST /admin/users", "", "{").await.0, 400);
    }
}
