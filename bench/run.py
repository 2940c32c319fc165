#!/usr/bin/env python3
"""Measures lever against llama.cpp and against its own promises; rows and how to read them: docs/BENCHMARKS.md.

    bench/run.py --list                                what there is
    bench/run.py --lever build/release/lever           everything (as root: limits and cold caches)
    bench/run.py --lever ... streamed 'prefill/*'      only those whose name has this in it or matches
    bench/run.py --summary build/bench/FILE.jsonl ...  the table of rows that are there
"""

import argparse
import fnmatch
import os
import signal
import sys
import time

sys.dont_write_bytecode = True

import rows
import summary
from benchmarks import BENCHMARKS
from measure import FOLDER, Bench
from models import Models, cache_folder
from peers.llama_cpp import LlamaCpp
from programs import Lever
from runner import Skip

ROOT = os.path.dirname(FOLDER)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filters", nargs="*", metavar="NAME", help="part of a name, or a pattern")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and end")
    parser.add_argument("--summary", nargs="+", metavar="FILE", help="print the table of these rows and end")
    parser.add_argument("--lever", default="build/release/lever", help="the command (default %(default)s)")
    parser.add_argument("--programs", help="folder of bench_kernels and bench_agreement (default: beside lever)")
    parser.add_argument("--peer", help="folder of llama.cpp's programs (default: built by tools/get-peer.sh)")
    parser.add_argument("--models", action="append", default=[], metavar="FOLDER", help="where else to look for models")
    parser.add_argument("--work", default=os.path.join(cache_folder(), "bench"), help="folder for models that are made")
    parser.add_argument("--out", default="build/bench", help="folder for rows and tables (default %(default)s)")
    parser.add_argument("--rows", metavar="FILE", help="append the rows to this file (default: OUT/<time>.jsonl)")
    parser.add_argument("--repetitions", type=int, help="of each comparison (default: as listed)")
    parser.add_argument("--tokens", type=int, default=256, help="of each answer that is compared (default %(default)s)")
    parser.add_argument("--prompts", nargs="+", metavar="FILE", help="JSON lines to take in turn; default: bench/prompts.jsonl")
    parser.add_argument("--pause", type=float, default=1.0, help="quiet seconds before each measurement")
    return parser.parse_args()


def chosen(filters):
    if not filters:
        return BENCHMARKS
    return [b for b in BENCHMARKS if any(f in b.name or fnmatch.fnmatch(b.name, f) for f in filters)]


def print_list():
    for benchmark in BENCHMARKS:
        print(f"{benchmark.name:<22} {benchmark.repetitions} x, about {benchmark.minutes:g} min   {benchmark.text}")
    print(f"\nabout {sum(benchmark.minutes for benchmark in BENCHMARKS):g} minutes in all")


def run_benchmark(bench, benchmark):
    print(f"{benchmark.name}: {benchmark.text}", file=sys.stderr, flush=True)
    try:
        benchmark.function(bench, benchmark.case, benchmark.repetitions)
    except Skip as reason:
        bench.skip(benchmark.function.__name__, benchmark.case, reason)


def finish(path, all_rows, out):
    text = summary.markdown(all_rows)
    table_path = os.path.join(out, os.path.basename(path).removesuffix(".jsonl") + ".md")
    os.makedirs(out, exist_ok=True)
    with open(table_path, "w", encoding="utf-8") as file:
        file.write(text)
    print(text)
    print(f"rows: {path}\ntable: {table_path}")


def main():
    options = parse_arguments()
    if options.list:
        print_list()
        return 0
    if options.summary:
        print(summary.markdown(rows.read(options.summary)))
        return 0
    selected = chosen(options.filters)
    if not selected:
        sys.exit(f"run.py: no benchmark is called like {' or '.join(options.filters)}; --list shows them")
    lever_path = os.path.abspath(options.lever)
    if not os.access(lever_path, os.X_OK):
        sys.exit(f"run.py: {lever_path} is not there; 'make build' builds it, --lever FILE names another")

    peer = LlamaCpp(options.peer and os.path.abspath(options.peer), os.path.join(ROOT, "tools", "get-peer.sh"))
    work, out = os.path.abspath(options.work), os.path.abspath(options.out)
    folders = [os.path.abspath(folder) for folder in options.models]
    named = options.rows and os.path.abspath(options.rows)
    os.chdir(ROOT)  # commands in rows name files of the tree from here
    models = Models(folders, work, peer, lever_path)
    path = named or os.path.join(out, time.strftime("%Y%m%d-%H%M%S") + ".jsonl")
    try:
        writer = rows.Writer(path, rows.machine(work), rows.commit(ROOT))
    except (OSError, ValueError) as error:
        sys.exit(f"run.py: {error}")
    programs = os.path.abspath(options.programs) if options.programs else os.path.dirname(lever_path)
    bench = Bench(options, writer, Lever(lever_path), peer, models, programs)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: command killed, groups removed
    try:
        for benchmark in selected:
            run_benchmark(bench, benchmark)
    except KeyboardInterrupt:
        print("broken off; the rows so far are kept", file=sys.stderr)
    finally:
        writer.close()
        bench.close()
    if writer.rows:
        finish(path, writer.rows, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
