//! The real binary, from outside: start, banner, health, administration, limits, stop.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const START_TIME_MAX: Duration = Duration::from_secs(60);

/// The program with a clean environment.
fn program(data_dir: &Path) -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_goblin-store")), data_dir)
}

fn clean(mut command: Command, data_dir: &Path) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("GOBLIN_")) {
            command.env_remove(name);
        }
    }
    command.env("GOBLIN_DATA_DIR", data_dir);
    command
}

/// A running server with its own directory; killed when dropped.
struct Server {
    dir: tempfile::TempDir,
    child: Child,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        Server::start_in(tempfile::tempdir().expect("temporary directory"), options)
    }

    fn start_in(dir: tempfile::TempDir, options: &[&str]) -> Server {
        Server::start_by(dir, "exec \"$@\"", options)
    }

    /// Starts the program from a line of shell, which finds it in `$@`.
    fn start_by(dir: tempfile::TempDir, shell: &str, options: &[&str]) -> Server {
        let data_dir = dir.path().join("data");
        let out = fs::File::create(dir.path().join("out")).expect("writable");
        let err = fs::File::create(dir.path().join("err")).expect("writable");
        let child = clean(Command::new("sh"), &data_dir)
            .args(["-c", shell, "sh", env!("CARGO_BIN_EXE_goblin-store")])
            .args(["serve", "--http-port", "0", "--cores", "1"])
            .args(["--memory", "16M", "--small-memory", "8M", "--log-segment", "16M"])
            .args(options)
            .stdout(out)
            .stderr(err)
            .spawn()
            .expect("starts");
        let mut server = Server { dir, child };
        let began = Instant::now();
        while server.banner().is_empty() {
            let ended = server.child.try_wait().expect("waits");
            assert!(ended.is_none() && began.elapsed() < START_TIME_MAX, "{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn banner(&self) -> String {
        fs::read_to_string(self.dir.path().join("out")).expect("readable")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).expect("readable")
    }

    fn connect(&self, file: &str) -> TcpStream {
        let url = fs::read_to_string(self.data_dir().join(file)).expect("readable");
        let address = url.trim().strip_prefix("http://").expect("a URL");
        let socket = TcpStream::connect(address).expect("connects");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("settable");
        socket
    }

    /// One GET on a connection of its own.
    fn get(&self, file: &str, path: &str) -> String {
        let mut socket = self.connect(file);
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("sends");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("reads");
        answer
    }

    fn run(&self, arguments: &[&str]) -> Output {
        program(&self.data_dir()).args(arguments).output().expect("runs")
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// SIGTERM, and how the process ended.
    fn stop(mut self) -> (tempfile::TempDir, std::process::ExitStatus) {
        self.signal("-TERM");
        let status = self.child.wait().expect("ends");
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().expect("directory"));
        (dir, status)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn it_starts_without_configuration_and_stops_cleanly_and_starts_again() {
    let server = Server::start(&[]);
    let banner = server.banner();
    assert!(banner.contains("s3 mb s3://test") && banner.contains("us-east-1"), "{banner}");
    let credentials = server.data_dir().join("credentials");
    let mode = fs::metadata(&credentials).expect("exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let keys = fs::read_to_string(&credentials).expect("readable");
    let secret = keys.lines().find_map(|l| l.strip_prefix("secret_key = ")).expect("a secret");
    assert!(!server.log().contains(secret.trim_matches('"')), "the log shows the secret");
    assert!(server.get("endpoint", "/").starts_with("HTTP/1.1 403"));
    let (dir, status) = server.stop();
    assert_eq!(status.code(), Some(0));
    assert!(!dir.path().join("data/endpoint").exists());
    let again = Server::start_in(dir, &[]);
    assert_eq!(fs::read_to_string(&credentials).expect("readable"), keys);
    assert_eq!(again.stop().1.code(), Some(0));
}

#[test]
fn health_and_metrics_answer_on_the_admin_listener_only() {
    let server = Server::start(&[]);
    assert!(server.get("admin-endpoint", "/health/live").contains("200 OK"));
    assert!(server.get("admin-endpoint", "/health/ready").contains("200 OK"));
    server.get("endpoint", "/");
    let metrics = server.get("admin-endpoint", "/metrics");
    for name in ["goblin_requests_total{", "goblin_arena_size_bytes{", "goblin_disk_free_bytes"] {
        assert!(metrics.contains(name), "{name} is missing in {metrics}");
    }
    assert!(!server.get("endpoint", "/metrics").contains("goblin_requests_total"));
    assert!(server.get("admin-endpoint", "/admin/users").starts_with("HTTP/1.1 401"));
}

#[test]
fn every_metric_of_a_running_server_stands_in_the_table() {
    let server = Server::start(&[]);
    let metrics = server.get("admin-endpoint", "/metrics");
    let shown: Vec<&str> =
        metrics.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for def in goblin_store::metrics::TABLE {
        // Those with an operation appear with the first request.
        let expected = !def.labels.contains(&"operation");
        assert!(!expected || shown.contains(&def.name), "{} is never shown", def.name);
    }
}

#[test]
fn users_and_keys_are_managed_with_and_without_a_running_server() {
    let server = Server::start(&[]);
    let added = text(&server.run(&["users", "add", "amy", "--email", "amy@example.com"]));
    assert!(added.contains("amy\tenabled"), "{added}");
    let key = text(&server.run(&["keys", "add", "amy"]));
    let access_key = key.split('\t').next().expect("a key").to_owned();
    assert!(text(&server.run(&["users", "add", "amy"])).contains("exists already"));
    assert!(text(&server.run(&["users", "disable", "bob"])).contains("users list"));
    let (dir, _) = server.stop();
    let offline = |arguments: &[&str]| {
        text(&program(&dir.path().join("data")).args(arguments).output().expect("runs"))
    };
    assert!(offline(&["users", "list"]).contains("amy@example.com"));
    assert!(offline(&["keys", "list"]).contains(&access_key));
    assert!(offline(&["keys", "disable", &access_key]).contains("disabled"));
    assert!(offline(&["keys", "list", "--json"]).contains("\"disabled\": true"));
    offline(&["keys", "remove", &access_key]);
    let server = Server::start_in(dir, &[]);
    assert!(!text(&server.run(&["keys", "list"])).contains(&access_key));
}

#[test]
fn a_directory_in_use_and_unknown_settings_are_refused() {
    let server = Server::start(&[]);
    let second = server.run(&["serve", "--http-port", "0"]);
    let message = text(&second);
    let id = server.child.id().to_string();
    assert!(!second.status.success() && message.contains(&id), "{message}");
    let url = fs::read_to_string(server.data_dir().join("endpoint")).expect("readable");
    let port = url.trim().rsplit(':').next().expect("a port");
    let other = tempfile::tempdir().expect("temporary directory");
    // Ended after a while, should it serve instead of refusing.
    let second = clean(Command::new("timeout"), &other.path().join("data"))
        .args(["60", env!("CARGO_BIN_EXE_goblin-store"), "serve", "--http-port", port])
        .args(["--memory", "8M", "--admin-address", "127.0.0.1:0"])
        .output()
        .expect("runs");
    let message = text(&second);
    assert_eq!(second.status.code(), Some(1), "{message}");
    assert!(message.contains("--http-port"), "{message}");
    let mut misspelt = program(&server.data_dir());
    let output = misspelt.arg("serve").env("GOBLIN_HTTPPORT", "1").output().expect("runs");
    assert!(text(&output).contains("GOBLIN_HTTP_PORT"), "{}", text(&output));
    let file = server.dir.path().join("goblin.toml");
    fs::write(&file, "regoin = \"x\"\n").expect("writable");
    let config = file.to_str().expect("text");
    assert!(text(&server.run(&["serve", "--config", config])).contains("\"region\""));
    assert!(text(&server.run(&["--version"])).starts_with("goblin-store "));
}

#[test]
fn blob_directories_are_there_before_the_first_upload() {
    let server = Server::start(&[]);
    let dirs = fs::read_dir(server.data_dir().join("blobs")).expect("the directory").count();
    assert_eq!(dirs, 256);
}

#[test]
fn the_root_pair_and_a_bootstrap_file_need_no_hand_work() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("bootstrap.toml");
    let user = "[[users]]\nid = \"main\"\n[[users.keys]]\naccess_key = \"MAINKEY\"\n\
                secret_key = \"main-secret\"\n[[buckets]]\nname = \"photos\"\nowner = \"main\"\n";
    fs::write(&file, user).expect("writable");
    let options = ["--bootstrap", file.to_str().expect("text")];
    let (dir, _) = Server::start_in(dir, &options).stop();
    let server = Server::start_in(dir, &options);
    assert!(text(&server.run(&["keys", "list"])).contains("MAINKEY\tmain\tenabled"));
}

#[test]
fn connections_beyond_the_cap_are_refused_and_slow_headers_are_cut() {
    let server = Server::start(&["--connections-max", "2", "--header-timeout-secs", "1"]);
    let held = [server.connect("endpoint"), server.connect("endpoint")];
    std::thread::sleep(Duration::from_millis(200));
    let refused = server.get("endpoint", "/");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("SlowDown"), "{refused}");
    for mut socket in held {
        let mut rest = String::new();
        let began = Instant::now();
        socket.read_to_string(&mut rest).expect("is closed by the server");
        assert!(rest.is_empty() && began.elapsed() < Duration::from_secs(5));
    }
    assert!(server.get("endpoint", "/").starts_with("HTTP/1.1 403"));
}

/// HTTP-12: with few descriptors the cap is lowered, so that files can still be opened.
#[test]
fn few_descriptors_mean_clear_refusals_and_the_server_goes_on() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let server = Server::start_by(dir, "ulimit -n 400; exec \"$@\"", &[]);
    let flood: Vec<TcpStream> = (0..400).map(|_| server.connect("endpoint")).collect();
    std::thread::sleep(Duration::from_millis(500));
    let metrics = server.get("admin-endpoint", "/metrics");
    let refused = "goblin_limit_refusals_total{limit=\"connections\"} ";
    let count = metrics.lines().find_map(|l| l.strip_prefix(refused)).expect("is shown");
    assert!(count.parse::<u32>().expect("a number") >= 100, "{count}");
    assert!(metrics.contains("goblin_accept_errors_total 0\n"), "{metrics}");
    drop(flood);
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.get("endpoint", "/").starts_with("HTTP/1.1 403"));
}

#[test]
fn the_unix_socket_serves_too() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("s3.sock");
    let server = Server::start(&["--unix-socket", path.to_str().expect("text")]);
    let mut socket = std::os::unix::net::UnixStream::connect(&path).expect("connects");
    let mode = fs::metadata(&path).expect("exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "a proxy runs as another user");
    socket.write_all(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n").expect("sends");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("reads");
    assert!(answer.contains("403 Forbidden"), "{answer}");
    assert_eq!(server.stop().1.code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Server::start(&["--shutdown-timeout-secs", "60"]);
    let mut busy = server.connect("endpoint");
    // A request whose header is not finished keeps its connection open for a while.
    busy.write_all(b"GET / HTTP/1.1\r\nHost:").expect("sends");
    std::thread::sleep(Duration::from_millis(200));
    server.signal("-TERM");
    std::thread::sleep(Duration::from_millis(300));
    assert!(server.child.try_wait().expect("waits").is_none(), "waits for the request");
    server.signal("-INT");
    let status = server.child.wait().expect("ends");
    assert_eq!(status.code(), Some(130));
}

#[test]
fn help_is_there_for_every_command() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for command in ["serve", "users", "keys"] {
        let output = program(dir.path()).args([command, "--help"]).output().expect("runs");
        assert!(output.status.success() && text(&output).contains("--data-dir"), "{command}");
    }
    let none = program(dir.path()).stdin(Stdio::null()).output().expect("runs");
    assert!(!none.status.success() && text(&none).contains("serve"));
}
