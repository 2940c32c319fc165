#!/usr/bin/env python3
"""The command with a draft model: when there is one, what is said about it, that it changes no text.

    test_draft.py LEVER
"""

import json
import os
import shutil
import sys
import unittest

from tiny import MODEL, MODELS, SCRATCH, lever

DRAFT = os.path.join(MODELS, "qwen3-mixed.gguf")  # of the same vocabulary
STRANGER = os.path.join(MODELS, "llama-sentencepiece-q4_k.gguf")
PAIR = ["qwen2.5-coder-1.5b-instruct-q4_k_m", "qwen2.5-coder-0.5b-instruct-q4_k_m"]


def as_json(*words, **more):
    done = lever(*words, "--json", **more)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return json.loads(done.stdout.decode("utf-8")), done.stderr.decode()


def run(*words):
    return as_json("run", "-m", MODEL, "-n", "24", "--seed", "3", *words, "hello")


def pulled_pair(name):
    """A cache folder in which tiny models stand in for the default pair."""
    cache = os.path.join(SCRATCH.name, name)
    folder = os.path.join(cache, "lever", "models")
    os.makedirs(folder)
    for source, stem in zip((MODEL, DRAFT), PAIR):
        shutil.copy(source, os.path.join(folder, stem + ".gguf"))
    return cache, folder


class Answers(unittest.TestCase):
    def test_no_option_changes_the_text(self):
        plain, _ = run("--no-draft", "--strategy", "ar")
        self.assertEqual(plain["strategy"], "ar")
        cases = [
            (["--strategy", "lever"], "lever"),
            (["--strategy", "chain", "--chain-length", "3"], "chain"),
            (["--strategy", "edge"], "edge"),
            (["--strategy", "ar"], "ar"),
            (["--tree", "fixed:5"], "lever"),
            (["--head", "demand"], "lever"),
            (["--head", "path"], "lever"),
            (["--head", "all"], "lever"),
            (["--stop-rule", "longrun"], "lever"),
            (["--no-ahead", "--no-lookup"], "lever"),
            (["--paper"], "lever"),
        ]
        for words, strategy in cases:
            with self.subTest(words=words):
                answer, said = run("-d", DRAFT, "--force-draft", *words)
                self.assertEqual(answer["tokens"], plain["tokens"])
                self.assertEqual(answer["text"], plain["text"])
                self.assertEqual(answer["strategy"], strategy)
                self.assertEqual("tokens a cycle" in said, strategy != "ar", said)

    def test_without_a_draft_the_text_itself_is_looked_up(self):
        plain, _ = run("--no-draft", "--strategy", "ar")
        for words, strategy in ([], "lever"), (["--no-lookup"], "ar"), (["--paper"], "ar"), (["--strategy", "chain"], "ar"):
            with self.subTest(words=words):
                answer, _ = run("--no-draft", *words)
                self.assertEqual(answer["tokens"], plain["tokens"])
                self.assertEqual(answer["strategy"], strategy)
                self.assertEqual(answer["draft_seconds"], 0)

    def test_what_was_measured_is_kept_in_a_cache_folder_that_is_made(self):
        cache = os.path.join(SCRATCH.name, "new", "cache")
        as_json("run", "-m", MODEL, "-d", DRAFT, "--force-draft", "-n", "24", "hello", XDG_CACHE_HOME=cache)
        self.assertEqual(len([name for name in os.listdir(os.path.join(cache, "lever")) if name.endswith(".costs")]), 1)

    def test_the_target_can_be_its_own_draft(self):
        plain, _ = run("--no-draft")
        answer, _ = run("-d", MODEL, "--force-draft")
        self.assertEqual(answer["tokens"], plain["tokens"])

    def test_a_trace_is_lines_of_json(self):
        path = os.path.join(SCRATCH.name, "trace.jsonl")
        answer, _ = run("-d", DRAFT, "--force-draft", "--trace", path)
        with open(path, encoding="utf-8") as trace:
            cycles = [json.loads(line) for line in trace]
        self.assertEqual(len(cycles), answer["cycles"])
        done = lever("run", "-m", MODEL, "--trace", "/nowhere/trace.jsonl", "hello")
        self.assertEqual(done.returncode, 5)
        self.assertIn(b"/nowhere/trace.jsonl", done.stderr)


class Choice(unittest.TestCase):
    def test_a_draft_that_does_not_pay_is_left_out_and_it_is_said(self):
        """The target as its own draft: a step takes as long as a pass."""
        answer, said = run("-d", MODEL, "--ram", "none")
        self.assertEqual(answer["draft_seconds"], 0)
        self.assertIn("leaving the draft out is predicted to be faster", said)
        self.assertEqual(said.count("leaving the draft out"), 1)
        _, said = run("-d", MODEL, "--ram", "none", "--log-level", "info")
        self.assertEqual(said.count("leaving the draft out"), 1)
        done = lever("run", "-m", MODEL, "-d", MODEL, "-n", "2", "-q", "hello")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        for words in (["--force-draft"], ["--target-ram", "0"]):
            answer, said = run("-d", MODEL, *words)
            self.assertEqual(answer["strategy"], "lever")
            self.assertNotIn("draft out", said)

    def test_a_budget_that_cannot_hold_both(self):
        least = as_json("plan", "-m", MODEL)[0]["least_bytes"]
        answer, said = run("-d", DRAFT, "--ram", str(least + (1 << 20)))
        self.assertEqual(answer["draft_seconds"], 0)
        self.assertIn("cannot hold it", said)
        done = lever("run", "-m", MODEL, "-d", DRAFT, "--ram", str(least + (1 << 20)), "--force-draft", "hello")
        self.assertEqual(done.returncode, 4, done.stderr)

    def test_a_stranger_is_refused(self):
        done = lever("run", "-m", MODEL, "-d", STRANGER, "--force-draft", "hello")
        self.assertEqual((done.returncode, done.stdout), (3, b""), done.stderr)
        for word in (MODEL, STRANGER, "first in token 0", "--no-draft"):
            self.assertIn(word, done.stderr.decode())
        done = lever("run", "-m", MODEL, "-d", "/nowhere/draft.gguf", "hello")
        self.assertIn(b"/nowhere/draft.gguf", done.stderr)
        self.assertEqual(done.returncode, 3)

    def test_plan(self):
        plan, _ = as_json("plan", "-m", MODEL, "-d", DRAFT, "--force-draft")
        rows = {row["category"]: row["bytes"] for row in plan["rows"]}
        self.assertTrue(plan["draft_used"])
        self.assertEqual((rows["draft model"], plan["draft_reason"]), (plan["draft_bytes"], ""))
        self.assertEqual(sum(rows.values()), plan["total_bytes"])
        table = lever("plan", "-m", MODEL, "-d", DRAFT, "--force-draft").stdout.decode()
        self.assertIn("draft model", table)
        self.assertIn("draft              stays in memory", table)
        self.assertIn("draft              none: leaving", lever("plan", "-m", MODEL, "-d", MODEL).stdout.decode())
        plan, _ = as_json("plan", "-m", MODEL)
        self.assertEqual((plan["draft_used"], plan["draft_bytes"], plan["draft_reason"]), (False, 0, ""))


class Pulled(unittest.TestCase):
    def test_a_pulled_target_brings_its_draft(self):
        cache, folder = pulled_pair("pair")
        target = os.path.join(folder, PAIR[0] + ".gguf")

        def used(*words):
            return as_json("plan", "--target-ram", "0", *words, XDG_CACHE_HOME=cache)[0]["draft_used"]

        self.assertTrue(used())
        self.assertTrue(used("-m", "qwen2.5-coder"))
        self.assertTrue(used("-m", target))
        self.assertFalse(used("--no-draft"))
        self.assertFalse(used("-m", MODEL))
        self.assertTrue(used("-m", MODEL, "-d", DRAFT))
        packed = os.path.join(folder, PAIR[0] + ".lvr")
        self.assertEqual(lever("pack", target, packed).returncode, 0)
        self.assertTrue(used())
        os.remove(os.path.join(folder, PAIR[1] + ".gguf"))
        self.assertFalse(used())


class Doctor(unittest.TestCase):
    def findings(self, cache, *words):
        report, _ = as_json("doctor", "-m", MODEL, "--quick", *words, XDG_CACHE_HOME=cache)
        return {finding["key"]: finding for finding in report["findings"] if finding["key"].startswith("pair.")}

    def test_costs_of_a_pair(self):
        cache = os.path.join(SCRATCH.name, "doctor")
        self.assertEqual(self.findings(cache), {})
        found = self.findings(cache, "-d", DRAFT)
        self.assertEqual(list(found), ["pair.costs"])
        self.assertEqual(found["pair.costs"]["kind"], "advice")
        done = lever("run", "-m", MODEL, "-d", DRAFT, "--force-draft", "--strategy", "chain", "-n", "40",
                     "hello", XDG_CACHE_HOME=cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = self.findings(cache, "-d", DRAFT)
        for key in ("pair.io", "pair.head.1", "pair.head.16", "pair.accepted.rank_1"):
            self.assertIn(key, found)
        self.assertTrue(any(key.startswith("pair.draft.") for key in found))
        for kind in ("layers.one", "layers.all"):
            times = [float(found[f"pair.{kind}.{rows}"]["value"]) for rows in (1, 8, 16, 32, 64)
                     if f"pair.{kind}.{rows}" in found]
            self.assertEqual(times, sorted(times))
        self.assertLessEqual(float(found["pair.accepted.rank_1"]["value"]), 1)
        self.assertEqual(list(self.findings(cache, "-d", STRANGER)), ["pair.costs"])

    def test_a_draft_that_is_not_there(self):
        done = lever("doctor", "-m", MODEL, "--quick", "-d", "/nowhere/draft.gguf")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(b"/nowhere/draft.gguf", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
