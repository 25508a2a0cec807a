"""RAM of the server while many clients read large objects slowly."""

import resource
import selectors
import socket
import time

from common import Goblin, Results, Workplace, load, parser, size_of

RECEIVE = 64 << 10


def arguments(words):
    p = parser(__doc__, rounds=1)
    p.add_argument("--readers", type=int, default=1000)
    p.add_argument("--size", default="100M")
    p.add_argument("--objects", type=int, default=4)
    p.add_argument("--memory", default="256M", help="the arena")
    p.add_argument("--download-memory", default="64M")
    p.add_argument("--rate", default="64K", help="bytes a second that each reader takes")
    p.add_argument("--hold", type=float, default=30, help="seconds of reading")
    return p.parse_args(words)


def main(words):
    args = arguments(words)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, args.readers + 200)), hard))
    results = Results("memory", args, f"RSS of the server in MiB while {args.readers} clients read "
                      f"{args.size} objects at {args.rate}/s each.")
    options = ("--memory", args.memory, "--small-memory", "16M", "--request-log", "off",
               "--download-memory", args.download_memory)
    with Workplace(args) as place:
        ours = place.start(Goblin(place.path / "store", options))
        url = f"{ours.url}/memory"
        load("put", url, "--create-bucket", "--objects", args.objects, "--size", args.size,
             "--header", "x-amz-acl: public-read", "-c", 2)
        results.add(seconds=0.0, rss_mib=ours.rss_bytes() / 2**20, open_streams=0,
                    received_mib=0.0)
        read_slowly(results, ours, args)
    arena = (size_of(args.memory) + (16 << 20)) / 2**20
    peak = max(r["rss_mib"] for r in results.rows)
    results.write([f"- arena {arena:.0f} MiB, highest RSS {peak:.0f} MiB: "
                   f"{peak - arena:.0f} MiB above the arena",
                   f"- streams open at the end: {results.rows[-1]['open_streams']} of "
                   f"{args.readers}, {results.rows[-1]['received_mib']:.0f} MiB received"])


def read_slowly(results, ours, args):
    selector = selectors.DefaultSelector()
    for number in range(args.readers):
        sock = socket.create_connection(("127.0.0.1", ours.port))
        # The kernel's buffers must not take the place of the server's.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        sock.sendall(f"GET /memory/bench/{number % args.objects:08} HTTP/1.1\r\n"
                     f"Host: 127.0.0.1:{ours.port}\r\n\r\n".encode())
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ)
    rate, received, open_streams = size_of(args.rate), {}, args.readers
    start = sampled = time.monotonic()
    while (now := time.monotonic()) - start < args.hold:
        allowance = rate * (now - start) + RECEIVE
        for key, _ in selector.select(0.2):
            got = received.get(key.fd, 0)
            if got >= allowance:
                continue
            try:
                piece = key.fileobj.recv(RECEIVE)
            except BlockingIOError:
                continue
            if not piece:
                selector.unregister(key.fileobj)
                open_streams -= 1
                continue
            if got == 0 and not piece.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(piece[:300])
            received[key.fd] = got + len(piece)
        if now - sampled >= 1:
            sampled = now
            results.add(seconds=now - start, rss_mib=ours.rss_bytes() / 2**20,
                        open_streams=open_streams, received_mib=sum(received.values()) / 2**20)
        time.sleep(0.01)
    for key in list(selector.get_map().values()):
        key.fileobj.close()
