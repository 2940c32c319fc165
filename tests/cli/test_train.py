#!/usr/bin/env python3
"""`lever train`: a predictor of a tiny pair, found by `lever run`; a run that was broken off; what is refused.

    test_train.py LEVER
"""

import json
import os
import signal
import subprocess
import time
import unittest

from tiny import LEVER, MODELS, SCRATCH, environment, lever

PAIR = ["-m", os.path.join(MODELS, "pair-target.gguf"), "-d", os.path.join(MODELS, "pair-draft.gguf")]
PROMPTS = ["one", "two words", "and three words", "a \\n line that begins anew", "", "6", "seven", "eight", "nine"]


def path_of(*names):
    return os.path.join(SCRATCH.name, *names)


def write(name, text):
    with open(path_of(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path_of(name)


def read(path):
    with open(path, "rb") as file:
        return file.read()


PROMPTS_FILE = write("prompts.txt", "\n".join(PROMPTS) + "\n")
TEXT_FILE = write("notes.txt", "".join(f"line {i} of a text that goes on for a while\n" for i in range(400)))


def train(*words, **more):
    return lever("train", *PAIR, "--rank", "4", "--log-level", "info", *words, **more)


class Training(unittest.TestCase):
    def check(self, done):
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stderr.decode()

    def run_pair(self, *words, **more):
        done = lever("run", *PAIR, "--force-draft", "-n", "40", "--temp", "0", "--prune-cap", "0", "--json", *words,
                     "hello", **more)
        self.check(done)
        return json.loads(done.stdout)

    def test_what_is_made_is_found(self):
        cache = path_of("found")
        before = self.run_pair(XDG_CACHE_HOME=cache)
        self.assertEqual(before["cycles_scored"], 0)
        said = self.check(train("--prompts", PROMPTS_FILE, XDG_CACHE_HOME=cache))
        self.assertRegex(said, r"the predictor looks behind layer [12] of 3")
        self.assertRegex(said, r"[0-9]+ samples in [0-9.]+ s, learned in [0-9.]+ s: [0-9.]+ s in all; memory [0-9.]+ MiB")
        files = [name for name in os.listdir(os.path.join(cache, "lever")) if "predictor" in name]
        self.assertEqual(len(files), 1, files)  # and no samples
        after = self.run_pair(XDG_CACHE_HOME=cache)
        self.assertGreater(after["cycles_scored"], 0)
        self.assertEqual(after["nodes_pruned"], 0)
        self.assertEqual(after["tokens"], before["tokens"])
        named = self.run_pair("--predictor", os.path.join(cache, "lever", files[0]), XDG_CACHE_HOME=path_of("empty"))
        self.assertGreater(named["cycles_scored"], 0)

    def test_text_in_pieces(self):
        """A file of more than a piece: all of it is taken, and twice the same."""
        words = ["--text", TEXT_FILE, "-n", "3000"]
        first, second = path_of("first.predictor"), path_of("second.predictor")
        said = self.check(train(*words, "-o", first))
        samples = int(said.split(" samples in ")[0].split()[-1])
        self.assertGreaterEqual(samples, 3000)
        self.assertLess(samples, 3000 + 384)
        self.check(train(*words, "-o", second, "--ram", "none"))
        self.assertEqual(read(first), read(second))

    def test_a_run_that_was_broken_off(self):
        """Wherever it was, the same predictor comes of it; other texts are not taken for those that were collected."""
        words = ["--text", TEXT_FILE, "--prompts", PROMPTS_FILE, "-n", "4000"]
        whole = path_of("whole.predictor")
        self.check(train(*words, "--keep-samples", "-o", whole))
        samples = read(whole + ".samples")
        for at in (10, 100, len(samples) // 3, len(samples) * 2 // 3, len(samples) - 1):
            broken = path_of(f"broken-{at}.predictor")
            with open(broken + ".samples", "wb") as file:
                file.write(samples[:at])
            self.check(train(*words, "-o", broken))
            self.assertEqual(read(broken), read(whole), at)
            self.assertFalse(os.path.exists(broken + ".samples"))
        other, fresh = path_of("other.predictor"), path_of("fresh.predictor")
        with open(other + ".samples", "wb") as file:
            file.write(samples)
        said = self.check(train("--text", TEXT_FILE, "-n", "1000", "--prompts", write("other.txt", "one\nno\n"), "-o", other))
        self.assertIn("holds other texts behind the first 1", said)
        self.check(train("--text", TEXT_FILE, "-n", "1000", "--prompts", path_of("other.txt"), "-o", fresh))
        self.assertEqual(read(other), read(fresh))

    def test_a_run_that_was_killed(self):
        words = ["--text", TEXT_FILE, "-n", "4000"]
        whole, killed = path_of("whole2.predictor"), path_of("killed.predictor")
        self.check(train(*words, "-o", whole))
        running = subprocess.Popen([LEVER, "train", *PAIR, "--rank", "4", *words, "-o", killed], env=environment(),
                                   stderr=subprocess.DEVNULL)
        while running.poll() is None:
            if os.path.exists(killed + ".samples") and os.path.getsize(killed + ".samples") > 1000:
                running.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
        running.wait()
        self.check(train(*words, "-o", killed))
        self.assertEqual(read(killed), read(whole))


class Refusals(unittest.TestCase):
    def test_what_is_told(self):
        target, draft = PAIR[1], PAIR[3]
        cases = [
            (["-m", target, "--no-draft"], 2, None),
            (["-m", target, "-d", draft, "--prompts", "/nowhere/prompts.txt"], 5, "/nowhere/prompts.txt"),
            (["-m", target, "-d", draft, "--text", "/nowhere/text.txt"], 5, "/nowhere/text.txt"),
            (["-m", target, "-d", draft, "--text", SCRATCH.name], 5, SCRATCH.name),
            (["-m", target, "-d", "/nowhere/draft.gguf", "--text", TEXT_FILE], 3, "/nowhere/draft.gguf"),
            (["-m", target, "-d", draft, "--text", TEXT_FILE, "--layer", "3"], 2, "layer 3"),
            (["-m", target, "-d", draft, "--text", TEXT_FILE, "--layer", "0"], 2, "--layer"),
            (["-m", target, "-d", draft, "--text", TEXT_FILE, "--rank", "129"], 2, "--rank"),
            (["-m", target, "-d", draft, "--text", TEXT_FILE, "--ram", "5M"], 4, "budget"),
            (["-m", target, "-d", draft, "--text", TEXT_FILE, "-o", "/nowhere/x.predictor"], 5, "/nowhere/x.predictor"),
            (["-m", target, "-d", draft, "--text", TEXT_FILE, "-o", SCRATCH.name], 2, "name a file"),
            (["-m", target, "-d", draft, "--prompts", PROMPTS_FILE, "--prompts", SCRATCH.name], 5, SCRATCH.name),
            (["-m", target, "-d", draft, "--text", TEXT_FILE, "-o", path_of("diary")], 3, "diary.samples"),
        ]
        write("diary.samples", "dear diary")
        for words, code, text in cases:
            with self.subTest(words=words):
                done = lever("train", *words)
                self.assertEqual((done.returncode, done.stdout), (code, b""), done.stderr)
                if text:
                    self.assertIn(text, done.stderr.decode())
        self.assertEqual(read(path_of("diary.samples")), b"dear diary")


if __name__ == "__main__":
    unittest.main(argv=["test_train.py"], verbosity=2)
