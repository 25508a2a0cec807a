"""Plots from CSV files: throughput by concurrency, size against completion time, TTFB."""

import csv

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def throughput(path, sweeps):
    """`sweeps`: name -> rows with `concurrency` and `mb_s`."""
    figure, axes = pyplot.subplots()
    for name, points in sweeps.items():
        axes.plot([float(p["concurrency"]) for p in points], [float(p["mb_s"]) for p in points],
                  marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="connections", ylabel="MB/s")
    axes.legend()
    save(figure, path)


def completion(path, runs):
    """`runs`: name -> rows of a client's CSV. Both axes logarithmic."""
    figure, axes = pyplot.subplots()
    for name, points in runs.items():
        axes.scatter([max(1, int(p["bytes"])) for p in points],
                     [max(1, int(p["total_us"])) / 1e6 for p in points], s=8, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlabel="bytes", ylabel="seconds to the last byte")
    axes.legend()
    save(figure, path)


def first_bytes(path, runs):
    """The share of requests whose first byte was there by then."""
    figure, axes = pyplot.subplots()
    for name, points in runs.items():
        times = sorted(int(p["ttfb_us"]) / 1e3 for p in points)
        axes.step(times, [(i + 1) / len(times) for i in range(len(times))], where="post",
                  label=name)
    axes.set_xscale("log")
    axes.set(xlabel="ms to the first byte", ylabel="share of requests", ylim=(0, 1))
    axes.legend()
    save(figure, path)
