"""The main job on real input: a tree and big files go up through nginx over TLS and come back.

With aws-cli: `sync` of a source tree, `cp` of its tarball and of a generated file, everything back,
`diff -r` and sha256; a second sync must move nothing.

Usage: main_job.py [--reduced] [--tree DIR] [--big-mib N]
  --reduced   a few thousand files of this machine and a 300 MiB file (what CI runs)
  otherwise   the tree and the tarball of Debian's linux-source package and a 6 GiB file;
              `apt-get install linux-source` first
"""

import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import MAIN, REGION, Nginx, Store, clean_environment  # noqa: E402

BUCKET = "main-job"
REDUCED_FILES = 3000


class Job:
    def __init__(self, directory):
        self.directory = Path(directory)
        self.store = Store(self.directory / "store")
        self.nginx = None
        self.env = {}

    def start(self):
        self.store.start()
        self.nginx = Nginx(self.directory / "nginx", f"127.0.0.1:{self.store.port}").start()
        self.env = clean_environment(
            HOME=str(self.directory), AWS_ACCESS_KEY_ID=MAIN.access_key,
            AWS_SECRET_ACCESS_KEY=MAIN.secret_key, AWS_DEFAULT_REGION=REGION,
            AWS_CA_BUNDLE=self.nginx.endpoint().ca_file)
        self.aws("mb", f"s3://{BUCKET}")

    def stop(self):
        if self.nginx:
            self.nginx.stop()
        self.store.stop()

    def aws(self, *arguments):
        """aws s3 ...; its output without progress lines."""
        aws = "/usr/bin/aws" if os.path.exists("/usr/bin/aws") else "aws"
        quiet = ["--no-progress"] if arguments[0] in ("cp", "sync") else []
        return self.run(aws, "--endpoint-url", self.nginx.endpoint().url, "s3", *arguments, *quiet)

    def run(self, *command):
        result = subprocess.run([str(c) for c in command], env=self.env, capture_output=True,
                                text=True, check=False)
        if result.returncode != 0:
            raise SystemExit(f"{command} failed:\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
        return result.stdout

    def timed(self, what, amount_bytes, *arguments):
        start = time.monotonic()
        output = self.aws(*arguments)
        seconds = time.monotonic() - start
        rate = amount_bytes / seconds / 1e6
        print(f"{what}: {seconds:.1f} s, {rate:.1f} MB/s", flush=True)
        return output


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def generate(path, mebibytes):
    """Bytes that do not compress and do not repeat, quickly."""
    with open(path, "wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 20))


def size_of(tree):
    return sum(p.stat().st_size for p in Path(tree).rglob("*") if p.is_file())


def reduced_tree(target):
    """Some thousand real files: headers of this machine, links followed."""
    count = 0
    roots = (Path("/usr/include"), Path("/usr/lib/python3"))
    for source in (p for root in roots for p in sorted(root.rglob("*"))):
        if count == REDUCED_FILES:
            break
        if source.is_file():
            path = target / source.relative_to("/usr")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, path)
            count += 1
    print(f"{count} files, {size_of(target) / 1e6:.1f} MB")


def linux_tree(directory):
    """The unpacked linux-source tarball without its links (S3 has none), and the tarball."""
    tarballs = glob.glob("/usr/src/linux-source-*.tar.xz")
    if not tarballs:
        raise SystemExit("apt-get install linux-source first")
    target = directory / "tree"
    target.mkdir()
    subprocess.run(["tar", "-xf", tarballs[-1], "-C", target], check=True)
    for path in target.rglob("*"):
        if path.is_symlink():
            path.unlink()
    subprocess.run(["find", target, "-type", "d", "-empty", "-delete"], check=True)
    print(f"{sum(p.is_file() for p in target.rglob('*'))} files, {size_of(target) / 1e6:.1f} MB")
    return target, Path(tarballs[-1])


def tree_job(job, tree):
    amount = size_of(tree)
    back = job.directory / "tree-back"
    job.timed("sync up", amount, "sync", str(tree), f"s3://{BUCKET}/tree")
    again = job.timed("sync up again", 0, "sync", str(tree), f"s3://{BUCKET}/tree")
    if again.strip():
        raise SystemExit(f"the second sync moved something:\n{again[:2000]}")
    job.timed("sync down", amount, "sync", f"s3://{BUCKET}/tree", str(back))
    job.run("diff", "-r", tree, back)
    again = job.aws("sync", f"s3://{BUCKET}/tree", str(back))
    if again.strip():
        raise SystemExit(f"the second sync down moved something:\n{again[:2000]}")
    shutil.rmtree(back)


def file_job(job, path):
    back = job.directory / "file-back"
    size, key = path.stat().st_size, f"s3://{BUCKET}/files/{path.name}"
    job.timed(f"cp up {path.name}", size, "cp", str(path), key)
    job.timed(f"cp down {path.name}", size, "cp", key, str(back))
    if sha256(path) != sha256(back):
        raise SystemExit(f"{path} came back different")
    back.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--big-mib", type=int)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="goblin-job-"))
    job = Job(directory)
    try:
        files = []
        tree = options.tree
        if tree is None and options.reduced:
            tree = directory / "tree"
            reduced_tree(tree)
        elif tree is None:
            tree, tarball = linux_tree(directory)
            files.append(tarball)
        big = directory / "big.bin"
        generate(big, options.big_mib or (300 if options.reduced else 6 * 1024))
        job.start()
        tree_job(job, tree)
        for path in [*files, big]:
            file_job(job, path)
        job.aws("rm", "--recursive", f"s3://{BUCKET}/")
        print("total: 1 passed, 0 failed")
    finally:
        job.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
