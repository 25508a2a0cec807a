//! What `serve` prints when it is ready: where it is, and a line to paste.
//!
//! Owns the text for standard output, the only place that shows the secret key: logs never have it.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// What the banner shows.
pub struct Banner<'a> {
    pub endpoint: &'a str,
    pub admin: &'a str,
    pub region: &'a str,
    pub credentials: &'a Path,
    pub access_key: &'a str,
    pub secret_key: &'a str,
}

/// The URL under which a listener on `address` is reached from this machine.
pub fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// The text, ready to print.
pub fn text(banner: &Banner<'_>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "GoblinStore {}", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(out, "  S3 endpoint  {}", banner.endpoint);
    let _ = writeln!(out, "  Region       {}", banner.region);
    let _ = writeln!(out, "  Root keys    {}", banner.credentials.display());
    let _ = writeln!(out, "  Admin        {}  (/metrics, /health/ready)", banner.admin);
    let _ = writeln!(out, "\nTry it:");
    let _ = writeln!(
        out,
        "  AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={} AWS_DEFAULT_REGION={} \
         aws --endpoint-url {} s3 mb s3://test",
        quoted(banner.access_key),
        quoted(banner.secret_key),
        banner.region,
        banner.endpoint
    );
    out
}

/// As a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"+/=_-.@%:".contains(&b);
    if text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_paste_has_all_that_aws_cli_needs() {
        let text = text(&Banner {
            endpoint: "http://127.0.0.1:9000",
            admin: "http://127.0.0.1:9001",
            region: "us-east-1",
            credentials: Path::new("/d/credentials"),
            access_key: "AK",
            secret_key: "a/b+c'd",
        });
        let line = text.lines().find(|l| l.contains("s3 mb")).expect("a line to paste");
        assert!(line.contains(r"AWS_SECRET_ACCESS_KEY='a/b+c'\''d'"), "{line}");
        assert!(line.contains("--endpoint-url http://127.0.0.1:9000 s3 mb s3://test"), "{line}");
    }

    #[test]
    fn a_listener_on_every_address_is_reached_on_loopback() {
        assert_eq!(url("0.0.0.0:9000".parse().expect("address")), "http://127.0.0.1:9000");
        assert_eq!(url("[::]:9000".parse().expect("address")), "http://[::1]:9000");
        assert_eq!(url("10.0.0.1:80".parse().expect("address")), "http://10.0.0.1:80");
    }
}
