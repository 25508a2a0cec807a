"""The four clients: serial upload, serial download, all in one, and many downloads at once."""

import csv
import threading
from pathlib import Path

from transfer import Record, verify


def upload(handle, directory, objects):
    """Each object once, one after the other. The bytes are in memory before a transfer begins."""
    records = []
    for row in objects:
        body = (Path(directory) / row["key"]).read_bytes()
        records.append(handle.put(row["key"], body))
    return records


def download(handle, objects):
    """Each object once, one after the other, verified after its transfer."""
    records = []
    for row in objects:
        record, body = handle.get(row["key"], row["bytes"])
        verify(record, body, row["sha256"])
        records.append(record)
    return records


def all_in_one(handle, directory, objects):
    """PUT, GET, verify, DELETE of each object."""
    records = []
    for row in objects:
        body = (Path(directory) / row["key"]).read_bytes()
        records.append(handle.put(row["key"], body))
        record, got = handle.get(row["key"], row["bytes"])
        verify(record, got, row["sha256"])
        records += [record, handle.delete(row["key"])]
    return records


def concurrent(make_handle, objects, concurrency, requests):
    """`requests` downloads by `concurrency` threads, which take objects in turn from one list.

    libcurl works without Python's lock while it waits; hashing happens between the transfers of a
    thread, so a sweep that must not be held back by it wants goblin-bench.
    """
    records, lock, failures = [], threading.Lock(), []
    order = iter(range(requests))

    def work(worker):
        handle = make_handle(worker)
        try:
            while not failures:
                with lock:
                    number = next(order, None)
                if number is None:
                    return
                row = objects[number % len(objects)]
                record, body = handle.get(row["key"], row["bytes"])
                verify(record, body, row["sha256"])
                with lock:
                    records.append(record)
        except Exception as error:  # noqa: BLE001 - told to the main thread, which raises it
            failures.append(error)
        finally:
            handle.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sorted(records, key=lambda r: r.start_us)


def write_csv(path, records):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, Record.columns())
        writer.writeheader()
        writer.writerows(vars(r) for r in records)


def nearest_rank(values, percent):
    """The percentile by nearest rank, which is always one of the values."""
    values = sorted(values)
    return values[max(1, -(-len(values) * percent // 100)) - 1]


def summary(records):
    """What a list of records of one operation comes to."""
    span = (max(r.stop_us for r in records) - min(r.start_us for r in records)) / 1e6
    total = sum(r.bytes for r in records)
    ttfb = [r.ttfb_us for r in records]
    return {"requests": len(records), "bytes": total, "seconds": span,
            "mb_s": total / 1e6 / max(span, 1e-9), "req_s": len(records) / max(span, 1e-9),
            "ttfb_p50_us": nearest_rank(ttfb, 50), "ttfb_p95_us": nearest_rank(ttfb, 95),
            "total_p50_us": nearest_rank([r.total_us for r in records], 50),
            "total_p95_us": nearest_rank([r.total_us for r in records], 95),
            "in_flight": sum(r.stop_us - r.start_us for r in records) / 1e6 / max(span, 1e-9),
            "new_connections": sum(r.new_connections for r in records),
            "failed": sum(not r.ok for r in records)}


def write_rows(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
