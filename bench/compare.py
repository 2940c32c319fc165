#!/usr/bin/env python3
"""Is B slower than A, beyond noise?

    bench/compare.py A.jsonl B.jsonl [--arm lever] [--value decode_tokens_per_second] [--lower]

A and B are files of raw rows of the same cases (before and after a change, or two machines). Rows are paired by case,
arm, prompt and repetition; for each arm the ratios B / A are summed up by their geometric mean, with the interval that
holds it in 95 of 100 bootstrap samples over the pairs. B is slower when the whole interval lies below 1; --lower is for
values of which less is better. Fewer than five pairs tell nothing.

Exit codes: 0 no arm is slower; 1 one is; 2 usage, or nothing can be told.
"""

import argparse
import math
import random
import statistics
import sys

sys.dont_write_bytecode = True

import rows

PAIRS_LEAST = 5
SAMPLES = 4000
SEED = 1


def key_of(row):
    factors, pair = row.get("factors", {}), (row.get("pair") or "").partition("@")[0]  # behind it: when its run began
    return row["benchmark"], row["case"], row["arm"], factors.get("prompt"), pair, row["repetition"]


def paired_logs(before, after, name):
    """{arm: [log of after / before]} over the rows that both have."""
    first, found = {}, {}
    for row in before:
        if row["status"] == "ok":
            first.setdefault(key_of(row), []).append(row)
    for row in after:
        if row["status"] != "ok" or not first.get(key_of(row)):
            continue
        other = first[key_of(row)].pop(0)  # several runs in a file: the first of one with the first of the other
        a, b = other["values"].get(name), row["values"].get(name)
        if a and b and a > 0 and b > 0:
            found.setdefault(row["arm"], []).append(math.log(b / a))
    return found


def interval(logs, samples=SAMPLES, seed=SEED):
    """Geometric mean of the ratios, and the bounds of 95 % of its bootstrap samples."""
    draw = random.Random(seed)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(samples))
    low, high = means[int(0.025 * samples)], means[min(samples - 1, int(0.975 * samples))]
    return math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high)


def verdict(logs, lower):
    if len(logs) < PAIRS_LEAST:
        return "too few pairs"
    _, low, high = interval(logs)
    if lower:
        low, high = 1 / high, 1 / low
    return "slower" if high < 1 else "faster" if low > 1 else "no difference beyond noise"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A", help="rows before")
    parser.add_argument("b", metavar="B", help="rows after")
    parser.add_argument("--arm", help="this arm alone")
    parser.add_argument("--value", default="decode_tokens_per_second", help="(default %(default)s)")
    parser.add_argument("--lower", action="store_true", help="less is better")
    options = parser.parse_args()
    try:
        found = paired_logs(rows.read([options.a]), rows.read([options.b]), options.value)
    except (OSError, ValueError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    if options.arm:
        found = {arm: logs for arm, logs in found.items() if arm == options.arm}
    verdicts = set()
    for arm, logs in found.items():
        what = verdict(logs, options.lower)
        verdicts.add(what)
        if what == "too few pairs":
            print(f"{arm}: {len(logs)} pairs: too few to tell, {PAIRS_LEAST} are wanted")
        else:
            mean, low, high = interval(logs)
            print(f"{arm}: {len(logs)} pairs, B / A = {mean:.3f} ({low:.3f} to {high:.3f}): {what}")
    if not verdicts - {"too few pairs"}:
        print("nothing can be told: too few rows of the same cases", file=sys.stderr)
        return 2
    return 1 if "slower" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
