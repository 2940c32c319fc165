#!/usr/bin/env python3
"""From `lever bench` on a tiny pair to tables: a smoke test of the whole way, in which no time is judged.

    test_report.py LEVER
"""

import csv
import gzip
import os
import subprocess
import sys
import unittest

from tiny import HERE, LEVER, MODELS, SCRATCH, environment

BENCH = os.path.join(HERE, "..", "..", "bench")
RAW = os.path.join(SCRATCH.name, "raw")
PAIR = ["-m", os.path.join(MODELS, "pair-target.gguf"), "-d", os.path.join(MODELS, "pair-draft.gguf")]
SMALL = ["--force-draft", "--ignore-end", "--ctx", "400", "--lengths", "12"]


def bench(*words):
    os.makedirs(RAW, exist_ok=True)
    command = [LEVER, "bench", *PAIR, *SMALL, *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=RAW, env=environment())
    assert done.returncode == 0, done.stderr


def tool(name, *words):
    command = [sys.executable, os.path.join(BENCH, name), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=RAW, env=environment())


def report(name):
    done = tool("report.py", name, "--no-plots", "--raw", RAW, "--out", SCRATCH.name)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(os.path.join(SCRATCH.name, name + ".csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Tables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        three = ["--tasks", "code,maths,dialogue", "--each", "1"]
        arms = ["--strategies", "lever,chain:4,edge,ar"]
        bench(*arms, *three, "--budgets", "none", "--out", "speed.jsonl")
        bench("--strategies", "lever+fixed:4", *three, "--budgets", "0%", "--out", "fixed.jsonl", "--trace", "trace.jsonl")
        bench(*arms, *three, "--budgets", "0%,100%", "--out", "budget.jsonl")
        bench("--strategies", "lever,lever+no-ahead,lever+fixed:4", *three, "--budgets", "0%", "--out", "ablation.jsonl")
        bench("--strategies", "lever,ar", *three, "--budgets", "none", "--repetitions", "2", "--out", "again.jsonl")

    def test_speed(self):
        lines = report("speed")
        self.assertEqual({line["task"] for line in lines}, {"code", "maths", "dialogue", "mean"})
        self.assertEqual(len(lines), 4 * 4)
        self.assertTrue(all(float(line["median"]) > 0 for line in lines))

    def test_budget(self):
        lines = {(line["share"], line["strategy"]): line for line in report("budget")}
        self.assertEqual(set(lines), {(share, arm) for share in ("0", "100") for arm in ("lever", "chain:4", "edge", "ar")})
        self.assertTrue(all(line["n"] == "3" and float(line["over resident"]) > 0 for line in lines.values()))
        self.assertEqual(float(lines["100", "ar"]["over resident"]), 1)

    def test_ablation(self):
        self.assertEqual({line["strategy"] for line in report("ablation")}, {"lever+no-ahead", "lever+fixed:4"})

    def test_what_is_made_of_the_same_rows(self):
        self.assertEqual({line["what"] for line in report("first-token")}, {"first token", "whole answer"})
        self.assertEqual(len(report("stages")), 4 * 5)
        self.assertGreater(len(report("flash")), 0)

    def test_traces(self):
        depths = report("acceptance")
        self.assertEqual(depths[0]["depth"], "1")
        self.assertTrue(all(0 <= float(line["measured"]) <= 1 for line in depths))
        self.assertGreater(len(report("prediction")), 0)
        path = os.path.join(RAW, "trace.jsonl")
        with open(path, "rb") as plain, gzip.open(path + ".gz", "wb") as compressed:
            compressed.write(plain.read())
        os.remove(path)
        self.assertEqual(report("acceptance"), depths)

    def test_timeline(self):
        path = os.path.join(RAW, "timeline.json")
        words = [*PAIR, "--force-draft", "--raw", "--target-ram", "0", "--ctx", "256", "-n", "20", "--trace", path, "--trace-format", "chrome"]
        done = subprocess.run([LEVER, "run", *words, "a text, a text"], capture_output=True, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, "rb") as plain, gzip.open(path + ".gz", "wb") as compressed:
            compressed.write(plain.read())
        self.assertLessEqual({"layers", "head"}, {line["track"] for line in report("timeline")})

    def test_rows_compared_with_themselves_do_not_differ(self):
        path = os.path.join(RAW, "again.jsonl")
        done = tool("compare.py", path, path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("lever: 6 pairs, B / A = 1.000", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
