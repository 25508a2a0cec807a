//! Makes the bucket that a run needs.

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::engine;
use crate::requests::Style;
use crate::response::{self, Parsed};
use crate::sigv4::EMPTY_SHA256;

/// Creates the bucket of `style`'s URL. One that exists is fine.
pub fn create(style: &Style) -> Result<()> {
    let path = style.target.base.trim_end_matches('/');
    if path.is_empty() || path[1..].contains('/') {
        bail!("--create-bucket wants http://HOST:PORT/BUCKET");
    }
    let head = style.head_for_path("PUT", path, 0, EMPTY_SHA256);
    let mut stream = engine::open(&style.target.address())?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(head.as_bytes()).context("asking for a bucket")?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let bytes = stream.read(&mut piece).context("awaiting the bucket")?;
        answer.extend_from_slice(&piece[..bytes]);
        match response::parse(&answer) {
            // 409: somebody has it; if it is not ours, the first upload says so.
            Parsed::Head(head) if matches!(head.status, 200 | 409) => return Ok(()),
            Parsed::More if bytes > 0 => {}
            _ => bail!("no bucket:\n{}", String::from_utf8_lossy(&answer)),
        }
    }
}
