#!/usr/bin/env python3
"""A trace as a timeline: what a viewer of the Chrome trace format opens, with spans that lie within each other.

    test_timeline.py LEVER
"""

import json
import os
import unittest

from tiny import MODELS, SCRATCH, lever

TARGET = os.path.join(MODELS, "pair-target.gguf")
DRAFT = os.path.join(MODELS, "pair-draft.gguf")
WORDS = ["run", "--raw", "-m", TARGET, "-d", DRAFT, "--force-draft", "--target-ram", "0", "--ctx", "256", "-n", "40", "--seed", "3"]


def timeline(name, *words):
    path = os.path.join(SCRATCH.name, name)
    done = lever(*WORDS, "--trace", path, "--trace-format", "chrome", *words, "a text, a text, a text")
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    with open(path, encoding="utf-8") as file:
        return json.load(file), done.stdout


class Timeline(unittest.TestCase):
    def check_spans(self, events):
        """Of each thread: none before time began, none negative, and each within another or beside it."""
        tracks = {}
        for event in events:
            if event["ph"] == "M":
                continue
            self.assertEqual(event["ph"], "X")
            self.assertGreaterEqual(event["ts"], 0)
            self.assertGreaterEqual(event["dur"], 0)
            # Whole nanoseconds: a sum of floats would be off by some.
            begin, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            tracks.setdefault(event["tid"], []).append((begin, -length, begin + length, event["name"]))
        for spans in tracks.values():
            open_until = []
            for begin, _, end, name in sorted(spans):
                while open_until and open_until[-1][0] <= begin:
                    open_until.pop()
                if open_until:
                    self.assertLessEqual(end, open_until[-1][0], (name, open_until[-1][1]))
                open_until.append((end, name))
        return tracks

    def test_cycles_passes_reads_and_draft(self):
        events, text = timeline("chain.json", "--strategy", "chain")
        names = {e["args"]["name"] for e in events if e["ph"] == "M"}
        self.assertLessEqual({"target", "draft ahead", "lane 0 (reads)", "lane 1 (reads)"}, names)
        self.check_spans(events)
        kinds = {}
        for event in events:
            if event["ph"] == "X":
                kinds.setdefault(event["cat"], set()).add(event["tid"])
        for kind in ("cycle", "pass rows", "layer", "compute rows", "head rows", "draft rows"):
            self.assertEqual(kinds[kind], {1}, kind)
        self.assertLessEqual(kinds["read block"], {8, 9})
        done = lever(*WORDS, "a text, a text, a text")
        self.assertEqual(done.stdout, text)

    def test_every_layer_of_every_pass(self):
        events, _ = timeline("ar.json", "--strategy", "ar")
        self.check_spans(events)
        layers = [e for e in events if e.get("cat") == "layer"]
        passes = [e for e in events if e.get("cat") == "pass rows"]
        self.assertGreaterEqual(len(passes), 39)
        of_first = {e["name"] for e in layers}
        for one in passes:
            inside = [e["name"] for e in layers if one["ts"] <= e["ts"] <= one["ts"] + one["dur"]]
            self.assertEqual(sorted(inside), sorted(of_first))

    def test_drafting_ahead_has_a_thread(self):
        events, _ = timeline("ahead.json", "--strategy", "edge", "--threads", "2")
        tracks = self.check_spans(events)
        self.assertIn(2, tracks)

    def test_a_device(self):
        events, _ = timeline("device.json", "--strategy", "chain", "--device", "test", "--device-for", "target")
        self.check_spans(events)
        self.assertIn("device rows", {e.get("cat") for e in events})

    def test_a_phone(self):
        """Virtual time: the same in every run, with the reader, the layers and the draft beside each other."""
        words = ["--phone", "oneplus12", "--as", "llama-3.1-8b-q4_0,llama-3.2-1b-q4_0"]
        events, _ = timeline("phone.json", *words)
        self.assertEqual(events, timeline("again.json", *words)[0])
        names = [e["args"]["name"] for e in events if e["ph"] == "M"]
        self.assertEqual(names, ["target", "draft ahead", "lane 0 (reads)"])
        self.check_spans(events)
        kinds = {}
        for event in events:
            if event["ph"] == "X":
                kinds.setdefault(event["cat"], []).append(event)
        self.assertEqual(set(kinds), {"cycle", "pass rows", "layer", "read layer", "head rows", "draft rows"})
        self.assertEqual({e["tid"] for e in kinds["read layer"]}, {8})
        self.assertEqual({e["tid"] for e in kinds["draft rows"]}, {1, 2})
        self.assertEqual(len(kinds["layer"]), 32 * len(kinds["pass rows"]))
        self.assertEqual(len(kinds["read layer"]), len(kinds["layer"]))

        def meet(one, other):
            return one["ts"] < other["ts"] + other["dur"] and other["ts"] < one["ts"] + one["dur"]

        for kind in ("layer", "head rows", "draft rows"):
            beside = [e for e in kinds[kind] if any(meet(e, r) for r in kinds["read layer"])]
            self.assertGreater(len(beside), len(kinds[kind]) // 2 if kind == "layer" else 0, kind)
        reads = {e["dur"] for e in kinds["read layer"]}  # 122.7 MB at 3.42 GB/s
        self.assertLess(max(reads) - min(reads), 0.01)
        self.assertAlmostEqual(max(reads) / 1000, 36, delta=1)

    def test_an_answer_that_fails_leaves_a_whole_file(self):
        path = os.path.join(SCRATCH.name, "failed.json")
        done = lever("run", "-m", TARGET + ".none", "--trace", path, "--trace-format", "chrome", "a text")
        self.assertNotEqual(done.returncode, 0)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file), [])


if __name__ == "__main__":
    unittest.main(argv=[__file__])
