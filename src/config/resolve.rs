//! Defaults and bounds: turns what the sources said into `Settings`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::*;

/// What the kernel and the O_DIRECT path need of every chunk and block, in bytes.
const ALIGNMENT: u64 = 4 * KIB;

impl Layer {
    /// Fills in defaults and checks bounds.
    ///
    /// **Errors** `ConfigError::Value` with the first setting that is out of its bounds.
    pub(super) fn resolve(self) -> Result<Settings, ConfigError> {
        Ok(Settings {
            data_dir: self.data_dir.clone().unwrap_or_else(|| PathBuf::from("goblin-data")),
            http: self.http()?,
            runtime: RuntimeSettings {
                numa_node: self.numa,
                cores: self
                    .cores
                    .map(|n| within("cores", n as u64, 1, 1024))
                    .transpose()?
                    .map(|n| n as usize),
            },
            s3: self.s3()?,
            storage: self.storage()?,
            arena: self.arena()?,
            limits: self.limits()?,
            log: LogSettings {
                level: self.log_level.clone().unwrap_or_else(|| "info".to_owned()),
                format: self.log_format.unwrap_or(LogFormat::Text),
                requests: self.request_log.unwrap_or(RequestLog::All),
            },
            bootstrap: self.bootstrap,
        })
    }

    fn http(&self) -> Result<HttpSettings, ConfigError> {
        let secs = |name, value: Option<u64>, default| {
            within(name, value.unwrap_or(default), 1, 86_400).map(Duration::from_secs)
        };
        let http_port = self.http_port.unwrap_or(9000);
        // Who asks for any free port runs several servers: 9001 would collide.
        let admin_port = if http_port == 0 { 0 } else { 9001 };
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let header_bytes = self.header_bytes_max.unwrap_or(ByteSize(64 * KIB)).0;
        Ok(HttpSettings {
            listen_address: self.listen_address.unwrap_or(loopback),
            http_port,
            unix_socket: self.unix_socket.clone(),
            admin_address: self.admin_address.unwrap_or(SocketAddr::new(loopback, admin_port)),
            external_url: self.external_url.as_deref().map(external_url).transpose()?,
            listen_backlog: self.listen_backlog.unwrap_or(4096).clamp(1, i32::MAX as u32),
            header_bytes_max: within("header-bytes-max", header_bytes, 8 * KIB, MIB)? as usize,
            header_timeout: secs("header-timeout-secs", self.header_timeout_secs, 20)?,
            idle_timeout: secs("idle-timeout-secs", self.idle_timeout_secs, 75)?,
            body_timeout: secs("body-timeout-secs", self.body_timeout_secs, 20)?,
            send_timeout: secs("send-timeout-secs", self.send_timeout_secs, 60)?,
            shutdown_timeout: secs("shutdown-timeout-secs", self.shutdown_timeout_secs, 20)?,
            linger_timeout: Duration::from_secs(5),
            linger_bytes_max: 64 * MIB,
        })
    }

    fn s3(&self) -> Result<S3Settings, ConfigError> {
        let region = self.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if region.is_empty() || region.len() > 64 || !region.bytes().all(word) {
            return Err(ConfigError::Value {
                name: "region",
                message: format!("{region:?} is not a region; use letters, digits, - and _"),
            });
        }
        let domains = self.domain.clone().unwrap_or_default();
        Ok(S3Settings {
            region,
            accept_any_region: self.accept_any_region.unwrap_or(false),
            domains: domains.iter().map(|name| domain(name)).collect::<Result<_, _>>()?,
            sigv2: self.sigv2.unwrap_or(Switch::On) == Switch::On,
        })
    }

    fn storage(&self) -> Result<StorageSettings, ConfigError> {
        let bytes = |value: Option<ByteSize>, default: u64| value.map_or(default, |size| size.0);
        let memory = |name, value: Option<ByteSize>| {
            within(name, value.unwrap_or(ByteSize(256 * MIB)).0, 8 * MIB, u64::MAX)
        };
        let io_chunk = bytes(self.io_chunk, 256 * KIB);
        let write_io_chunk = bytes(self.write_io_chunk, MIB);
        let segment = bytes(self.log_segment, 256 * MIB);
        Ok(StorageSettings {
            durability: self.durability.unwrap_or(Durability::Flush),
            io_chunk_bytes: chunk("io-chunk", io_chunk, ALIGNMENT, MIB)?,
            write_io_chunk_bytes: chunk("write-io-chunk", write_io_chunk, ALIGNMENT, 16 * MIB)?,
            pack_bytes_max: within("pack-max", bytes(self.pack_max, 256 * KIB), 0, MIB)?,
            log_segment_bytes: chunk("log-segment", segment, 16 * MIB, 4096 * MIB)?,
            upload_bytes_max: memory("upload-memory", self.upload_memory)?,
            download_bytes_max: memory("download-memory", self.download_memory)?,
            index_bytes_max: bytes(self.index_memory, 256 * MIB),
            scrub_rate: bytes(self.scrub_rate, 64 * MIB),
            scrub_every: Duration::from_secs(
                3600 * within(
                    "scrub-every-hours",
                    self.scrub_every_hours.unwrap_or(168),
                    0,
                    87_600,
                )?,
            ),
            catalog_readers: self.catalog_readers.unwrap_or(4).clamp(1, 64),
            commit_queue_max: self.commit_queue_max.unwrap_or(4096).max(1),
            commit_group_max: self.commit_group_max.unwrap_or(256).max(1),
        })
    }

    fn arena(&self) -> Result<ArenaMemory, ConfigError> {
        let bytes = |value: Option<ByteSize>, default: u64| value.map_or(default, |size| size.0);
        let head = bytes(self.ram_head, MIB);
        let block = bytes(self.block, 2 * MIB);
        Ok(ArenaMemory {
            head_bytes: bytes(self.memory, 256 * MIB),
            small_bytes: bytes(self.small_memory, 64 * MIB),
            ram_head_bytes: chunk("ram-head", head, ALIGNMENT, 64 * MIB)?,
            block_bytes: chunk("block", block, 64 * KIB, 1024 * MIB)?,
            numa_promotion: !self.no_numa_promotion.unwrap_or(false),
        })
    }

    fn limits(&self) -> Result<LimitSettings, ConfigError> {
        let count = |name, value: Option<u64>, default: u64| {
            within(name, value.unwrap_or(default), 1, 10_000_000)
        };
        Ok(LimitSettings {
            connections_max: count("connections-max", self.connections_max, 16_384)?,
            uploads_max: count("uploads-max", self.uploads_max, 4096)?,
        })
    }
}

fn within(name: &'static str, value: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    let (min, max, value) = (ByteSize(min), ByteSize(max), ByteSize(value));
    Err(ConfigError::Value { name, message: format!("{value} is not between {min} and {max}") })
}

/// Sizes that reach the disk or the page table are powers of two.
fn chunk(name: &'static str, value: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
    let value = within(name, value, min, max)?;
    if value.is_power_of_two() {
        return Ok(value);
    }
    let message = format!("{} is not a power of two, such as 256K or 1M", ByteSize(value));
    Err(ConfigError::Value { name, message })
}

fn external_url(text: &str) -> Result<String, ConfigError> {
    let fail = |message: String| ConfigError::Value { name: "external-url", message };
    let uri: http::Uri = text.parse().map_err(|e| fail(format!("{text:?} is not a URL: {e}")))?;
    let scheme_ok = matches!(uri.scheme_str(), Some("http" | "https"));
    if !scheme_ok || uri.host().is_none() || !matches!(uri.path(), "" | "/") {
        return Err(fail(format!("{text:?} is not of the form https://host or https://host:port")));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn domain(text: &str) -> Result<String, ConfigError> {
    let name = text.trim().trim_matches('.').to_ascii_lowercase();
    let label = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if name.is_empty() || !name.bytes().all(label) {
        let message = format!("{text:?} is not a host name (without port)");
        return Err(ConfigError::Value { name: "domain", message });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn resolve(change: impl FnOnce(&mut Layer)) -> Result<Settings, String> {
        let mut layer = Layer::default();
        change(&mut layer);
        load(layer, None).map_err(|e| e.to_string())
    }

    #[test]
    fn the_defaults_need_no_configuration_and_stay_on_loopback() {
        let settings = resolve(|_| {}).expect("defaults are valid");
        assert!(settings.http.listen_address.is_loopback());
        assert!(settings.http.admin_address.ip().is_loopback());
        assert_eq!(settings.http.http_port, 9000);
        assert_eq!(settings.storage.durability, Durability::Flush);
        assert_eq!(settings.s3.region, "us-east-1");
        assert!(settings.http.idle_timeout > Duration::from_secs(60));
    }

    #[test]
    fn flag_wins_over_file_over_default() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("goblin.toml");
        std::fs::write(&path, "region = \"file\"\nhttp-port = 1\n").expect("writable");
        let flags = Layer { http_port: Some(2), ..Layer::default() };
        let settings = load(flags, Some(&path)).expect("is valid");
        assert_eq!((settings.http.http_port, settings.s3.region.as_str()), (2, "file"));
        assert_eq!(settings.log.level, "info");
    }

    #[test]
    fn the_published_configuration_is_accepted() {
        let settings = resolve(|layer| {
            layer.numa = Some(0);
            layer.cores = Some(12);
            layer.memory = Some(ByteSize(48 << 30));
            layer.small_memory = Some(ByteSize(48 << 30));
            layer.ram_head = Some(ByteSize(MIB));
            layer.block = Some(ByteSize(2 * MIB));
            layer.io_chunk = Some(ByteSize(256 * KIB));
            layer.write_io_chunk = Some(ByteSize(MIB));
            layer.no_numa_promotion = Some(true);
        })
        .expect("is valid");
        assert_eq!(settings.runtime, RuntimeSettings { numa_node: Some(0), cores: Some(12) });
        assert!(!settings.arena.numa_promotion);
    }

    #[test]
    fn a_free_port_for_s3_means_a_free_port_for_admin() {
        let settings = resolve(|layer| layer.http_port = Some(0)).expect("is valid");
        assert_eq!(settings.http.admin_address.port(), 0);
    }

    #[test]
    fn values_out_of_bounds_name_the_setting() {
        let check = |change: fn(&mut Layer), name: &str| {
            let error = resolve(change).expect_err(name);
            assert!(error.starts_with(&format!("--{name}: ")), "{error}");
        };
        check(|l| l.cores = Some(0), "cores");
        check(|l| l.io_chunk = Some(ByteSize(3 * KIB * KIB)), "io-chunk");
        check(|l| l.io_chunk = Some(ByteSize(5000)), "io-chunk");
        check(|l| l.region = Some("eu west".into()), "region");
        check(|l| l.external_url = Some("ftp://x".into()), "external-url");
        check(|l| l.external_url = Some("https://x/path".into()), "external-url");
        check(|l| l.domain = Some(vec!["a:9000".into()]), "domain");
        check(|l| l.header_timeout_secs = Some(0), "header-timeout-secs");
        check(|l| l.connections_max = Some(0), "connections-max");
    }
}
