//! Talks to a running server over its admin socket.

use std::io;
use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::server::data_dir::admin_socket;

/// A connection to a running server.
pub struct Remote {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
}

impl Remote {
    /// Connects to the server of a data directory; `None` when none runs.
    pub async fn connect(data_dir: &Path) -> anyhow::Result<Option<Remote>> {
        let path = admin_socket(data_dir);
        let socket = match UnixStream::connect(&path).await {
            Ok(socket) => socket,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot reach the server at {}; run as its user", path.display())
                });
            }
        };
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        Ok(Some(Remote { sender }))
    }

    /// Sends one request and reads the JSON answer.
    pub async fn ask<A: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?;
        let response = self.sender.send_request(request).await.context("the server left")?;
        let status = response.status();
        let bytes = response.into_body().collect().await.context("the server left")?.to_bytes();
        if status.is_success() {
            return serde_json::from_slice(&bytes).context("the server's answer is not understood");
        }
        #[derive(serde::Deserialize)]
        struct Refusal {
            error: String,
        }
        match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => bail!("{}", refusal.error),
            Err(_) => bail!("the server answered {status}"),
        }
    }
}
