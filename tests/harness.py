"""Starts the real binary and the real nginx, waits until they answer, and ends them by pid.

Settings by environment:
  GOBLIN_BIN        the server binary (default: the newest of target/{release,debug}/goblin-store)
  GOBLIN_TEST_HOST  HOST:PORT of a server that already runs with the three users below; then no
                    binary is started, which is how the same cases run against other stores
"""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REGION = "us-east-1"
START_SECS = 60
# Names under which the test servers take a bucket from the host name.
DOMAINS = ("s3.test", "s3.localhost")
# Small, so that many servers fit on one machine; any free port for the administration.
DEFAULT_OPTIONS = {"--admin-address": "127.0.0.1:0", "--memory": "128M", "--small-memory": "32M",
                   "--log-segment": "64M", "--domain": ",".join(DOMAINS)}


@dataclass(frozen=True)
class User:
    name: str
    access_key: str
    secret_key: str
    canonical_id: str
    display_name: str
    email: str


def _user(name, digit):
    return User(name, f"{name.upper()}0ACCESSKEY00000000"[:20], f"{name}/secret+key=" + digit * 24,
                digit * 64, f"{name} user", f"{name}@example.com")


MAIN, ALT, TENANT = _user("main", "a"), _user("alt", "b"), _user("tenant", "c")
USERS = (MAIN, ALT, TENANT)


def bootstrap_toml(users=USERS):
    out = []
    for user in users:
        out.append(f'[[users]]\nid = "{user.name}"\ncanonical_id = "{user.canonical_id}"\n'
                   f'display_name = "{user.display_name}"\nemail = "{user.email}"\n'
                   f'[[users.keys]]\naccess_key = "{user.access_key}"\n'
                   f'secret_key = "{user.secret_key}"\n')
    return "\n".join(out)


def clean_environment(**extra):
    """The environment without settings that would redirect or break an S3 client under test."""
    banned = re.compile(r"^(AWS_|GOBLIN_(?!BIN|TEST)|.*(CA_BUNDLE|SSL_CERT|_proxy|_PROXY)|"
                        r"NODE_EXTRA_CA_CERTS|S3_|RCLONE_)")
    env = {k: v for k, v in os.environ.items() if not banned.match(k)}
    return env | extra


def binary():
    if path := os.environ.get("GOBLIN_BIN"):
        return Path(path)
    found = [ROOT / "target" / p / "goblin-store" for p in ("release", "debug")]
    found = [p for p in found if p.exists()]
    if not found:
        raise RuntimeError("no goblin-store binary: run `cargo build` or set GOBLIN_BIN")
    return max(found, key=lambda p: p.stat().st_mtime)


def bench_binary():
    """The load generator; see bench/."""
    return os.environ.get("GOBLIN_BENCH") or str(ROOT / "target" / "debug" / "goblin-bench")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def wait_for_port(port, process, what, log=None):
    deadline = time.monotonic() + START_SECS
    while time.monotonic() < deadline:
        if process and process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    tail = log.read_text(errors="replace")[-3000:] if log and log.exists() else ""
    raise RuntimeError(f"{what} did not come up on port {port}:\n{tail}")


@dataclass(frozen=True)
class Endpoint:
    """Where a client connects: one way (direct or through nginx) to one server."""
    name: str
    host: str
    port: int
    tls: bool
    ca_file: str | None

    @property
    def host_header(self):
        return f"{self.host}:{self.port}"

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://{self.host_header}"


class Process:
    """A child that is ended by its pid, and whose output goes to a file."""

    def __init__(self):
        self.process = None

    def spawn(self, command, log, env=None):
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9, and wait until it is gone."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self, timeout=30):
        """SIGTERM; the exit code."""
        if not self.process:
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


class Store(Process):
    """One goblin-store with a data directory, three users and a free port."""

    def __init__(self, directory=None, options=(), env=None, command=None):
        super().__init__()
        self.directory = Path(directory or tempfile.mkdtemp(prefix="goblin-test-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self.options, self.env = list(options), env or {}
        self.command = command or [str(binary())]
        self.port = 0

    def start(self):
        bootstrap = self.directory / "bootstrap.toml"
        bootstrap.write_text(bootstrap_toml())
        endpoint = self.data / "endpoint"
        endpoint.unlink(missing_ok=True)
        defaults = [word for flag, value in DEFAULT_OPTIONS.items() if flag not in self.options
                    for word in (flag, value)]
        # The same port again after a restart, so that nginx and clients find it.
        self.spawn(
            [*self.command, "serve", "--data-dir", str(self.data), "--listen-address", "127.0.0.1",
             "--http-port", str(self.port), "--region", REGION, "--bootstrap", str(bootstrap),
             *defaults, *self.options],
            self.log, clean_environment(**self.env))
        self.port = self._wait_for_endpoint(endpoint)
        wait_for_port(self.port, self.process, "goblin-store", self.log)
        return self

    def restart(self, kill=False):
        self.kill() if kill else self.stop()
        return self.start()

    def endpoint(self):
        return Endpoint("direct", "127.0.0.1", self.port, False, None)

    def metrics(self):
        """The figures without labels of /metrics, by name."""
        text = self.log.read_text(errors="replace")
        admin = re.findall(r'admin="?(http://[0-9.:]+)', text)[-1]
        with urllib.request.urlopen(f"{admin}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.split() for line in lines if not line.startswith("#") and "{" not in line)
        return {name: float(value) for name, value in pairs}

    def _wait_for_endpoint(self, path):
        deadline = time.monotonic() + START_SECS
        while time.monotonic() < deadline and self.running():
            text = path.read_text() if path.exists() else ""
            match = re.search(r":(\d+)/?\s*$|^(\d+)\s*$", text)
            if match:
                return int(match[1] or match[2])
            time.sleep(0.02)
        raise RuntimeError(f"goblin-store wrote no {path}:\n"
                           f"{self.log.read_text(errors='replace')[-3000:]}")


class ExternalStore:
    """A server that somebody else runs; see GOBLIN_TEST_HOST."""

    def __init__(self, address):
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.data = None

    def endpoint(self):
        return Endpoint("direct", self.host, self.port, False, None)

    def stop(self):
        pass


class Nginx(Process):
    """The shipped configuration over a development certificate, in front of `upstream`."""

    def __init__(self, directory, upstream, ports=1):
        super().__init__()
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.upstream = upstream
        self.ports = [free_port() for _ in range(ports)]

    def start(self):
        command = [str(ROOT / "nginx" / "dev.sh"), "--dir", str(self.directory),
                   "--upstream", self.upstream]
        for port in self.ports:
            command += ["--port", str(port)]
        log = self.directory / "dev.log"
        self.spawn(command, log, clean_environment())
        wait_for_port(self.ports[0], self.process, "nginx", log)
        return self

    def endpoint(self, index=0):
        return Endpoint(
            "nginx", "localhost", self.ports[index], True, str(self.directory / "ca.pem"))
