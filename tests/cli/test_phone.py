#!/usr/bin/env python3
"""The command with a simulated phone: virtual time is the same in every run, and no option changes the text.

    test_phone.py LEVER
"""

import glob
import json
import os
import re
import sys
import unittest

from tiny import MODELS, SCRATCH, lever

TARGET = os.path.join(MODELS, "pair-target.gguf")
DRAFT = os.path.join(MODELS, "pair-draft.gguf")
AS_8B = ["--as", "llama-3.1-8b-q4_0,llama-3.2-1b-q4_0"]
PROFILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "profiles", "phones")
REAL = ("rss_peak", "ram_peak", "ram_budget", "open_seconds", "huge_page_bytes")  # of this machine


def run(*words, **more):
    done = lever("run", "-m", TARGET, "-d", DRAFT, "-n", "40", "--seed", "3", "--raw", "--json", *words, "hello", **more)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return json.loads(done.stdout.decode("utf-8")), done.stderr.decode()


def on_phone(*words, **more):
    return run("--phone", "oneplus12", *words, **more)[0]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def profile(name, **changes):
    """A file with the values of a OnePlus 12, but some: key=(what stands there, what is to stand there)."""
    text = read(os.path.join(PROFILES, "oneplus12.phone"))
    for key, (old, new) in changes.items():
        text, count = re.subn(rf"(?m)^{key} +{old} ", f"{key} {new} ", text)
        assert count > 0, key
    path = os.path.join(SCRATCH.name, name + ".phone")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Time(unittest.TestCase):
    def test_two_runs_take_the_same_time(self):
        for words in ([], AS_8B, ["--strategy", "chain"], ["--strategy", "edge", *AS_8B], ["--temp", "1", *AS_8B]):
            with self.subTest(words=words):
                trace = [os.path.join(SCRATCH.name, f"{i}.jsonl") for i in range(2)]
                first, second = on_phone(*words, "--trace", trace[0]), on_phone(*words, "--trace", trace[1])
                for key in REAL:
                    first.pop(key), second.pop(key)
                self.assertEqual(first, second)
                lines = [read(path) for path in trace]
                self.assertEqual(lines[0], lines[1])
                cycles = [json.loads(line) for line in lines[0].splitlines()]
                self.assertAlmostEqual(sum(cycle["seconds"] for cycle in cycles), first["decode_seconds"], delta=1e-3)

    def test_threads_change_nothing(self):
        one, two = on_phone(*AS_8B), on_phone(*AS_8B, LEVER_THREADS="2")
        for key in ("tokens", "cycles", "decode_seconds", "draft_hidden_seconds", "energy_joules"):
            self.assertEqual(one[key], two[key], key)

    def test_the_text_is_that_of_plain_decoding(self):
        plain, _ = run("--strategy", "ar")
        for words in ([], ["--strategy", "ar"], ["--strategy", "chain"], ["--paper"], AS_8B, ["--target-ram", "100"]):
            answer = on_phone(*words)
            self.assertEqual((answer["tokens"], answer["text"]), (plain["tokens"], plain["text"]), words)

    def test_plain_decoding_of_an_8b(self):
        """A token takes as long as docs/PHONES.md says: 1.154 s, since the head computes while the reader goes on."""
        answer = on_phone("--strategy", "ar", *AS_8B)
        self.assertAlmostEqual(answer["decode_seconds"] / (answer["completion_tokens"] - 1), 1.16, delta=0.02)
        self.assertEqual(answer["bytes_read"], 39 * 32 * 218103808 * 18 // 32)
        self.assertEqual((answer["phone"]["layers"], answer["phone"]["layers_pinned"]), (32, 0))
        # The first token comes from the prompt's pass: neither its time nor its energy is counted.
        self.assertAlmostEqual(answer["energy_per_token"], answer["energy_joules"] / 39, places=4)
        self.assertAlmostEqual(answer["energy_per_token"], 4.4, delta=0.05)
        self.assertEqual(answer["energy_source"], "simulated")

    def test_what_is_pinned_is_not_read(self):
        all_pinned, half = on_phone(*AS_8B, "--target-ram", "100"), on_phone(*AS_8B, "--target-ram", "50")
        self.assertEqual((all_pinned["bytes_read"], all_pinned["io_seconds"]), (0, 0))
        self.assertEqual(half["phone"]["layers_pinned"], 16)
        self.assertLess(all_pinned["decode_seconds"], half["decode_seconds"])

    def test_catching_up_has_no_head(self):
        """A draft that is always right has not computed the end of its chain when the next one begins: it does so in a
        forward of two rows, of which one goes through the head."""
        seconds = []
        for tops in ("0.001", "0.002"):
            path = profile("head" + tops, head_arithmetic=(r"\S+", tops))
            answer = run("-d", TARGET, "--phone", path, "--strategy", "chain", "--target-ram", "100")[0]
            self.assertEqual(answer["nodes_accepted"], 36)  # 40 tokens, one of the prompt and three of the passes
            seconds.append(answer["draft_seconds"] / answer["nodes_drafted"])
        rows, width = 320, 128  # the draft's vocabulary, and its hidden state
        self.assertAlmostEqual((seconds[0] - seconds[1]) / (2 * rows * width / 1e9 / 2), 1, delta=0.02)

    def test_only_the_calibration_of_a_file_of_costs(self):
        """What drafting ahead was worth on this machine is nothing to a phone."""
        cache = os.path.join(SCRATCH.name, "costs-of-a-pair")
        os.makedirs(os.path.join(cache, "lever"))
        run("--force-draft", XDG_CACHE_HOME=cache)
        (path,) = glob.glob(os.path.join(cache, "**", "*.costs"), recursive=True)
        text, count = re.subn(r"(?m)^kept 1 .*$", "kept 1 1", re.sub(r"(?m)^kept 0 .*$", "kept 0 4000000", read(path)))
        self.assertEqual(count, 1)
        hopeless = os.path.join(SCRATCH.name, "hopeless.costs")
        with open(hopeless, "w", encoding="utf-8") as file:
            file.write(text)
        as_learned, changed = on_phone(*AS_8B, "--costs", path), on_phone(*AS_8B, "--costs", hopeless)
        self.assertGreater(as_learned["draft_hidden_seconds"], 0)
        for key in ("tokens", "cycles", "decode_seconds", "draft_hidden_seconds", "energy_joules"):
            self.assertEqual(as_learned[key], changed[key], key)

    def test_a_profile_of_ones_own(self):
        path = profile("mine", flash_sequential=(r"3\.5", "1.75"))
        slow = run("--phone", path, "--strategy", "ar", *AS_8B)[0]
        fast = on_phone("--strategy", "ar", *AS_8B)
        self.assertAlmostEqual(slow["decode_seconds"] / fast["decode_seconds"], 2, delta=0.1)
        answer, said = run("--phone", path + ":app")
        self.assertEqual(answer["phone"]["section"], "app")
        self.assertIn("simulated on OnePlus 12", said)


def padded(rows, buckets):
    """Rows that are computed for these: whole runs of the largest, then the smallest that holds the rest."""
    whole = rows // buckets[-1] * buckets[-1]
    return whole + next((b for b in [0, *buckets] if b >= rows - whole), 0)


class Buckets(unittest.TestCase):
    def cycles_on(self, buckets, *words):
        """The answer and its cycles, on a phone whose NPU is slow: each row takes its time, and nothing else does."""
        path = profile("buckets", npu_buckets=(r"\S+", ",".join(map(str, buckets))), npu_tile=(r"\S+", "1"),
                       npu_arithmetic=(r"\S+", "1"))
        trace = os.path.join(SCRATCH.name, "buckets.jsonl")
        answer = run("--phone", path, *AS_8B, "--target-ram", "100", "--no-prune", "--trace", trace, *words)[0]
        cycles = [json.loads(line) for line in read(trace).splitlines()]
        return answer, [sum(node["verified"] for node in cycle["nodes"]) for cycle in cycles]

    def test_trees_fill_them(self):
        """What is padded is counted, and of a tree whose size is free nothing is, where its rows are what costs."""
        for buckets, words, fills in (([1, 8, 24], [], True), ([1, 5, 64], [], True), ([3, 16], ["--strategy", "chain"], False),
                                      ([1, 8, 24], ["--tree", "fixed:11"], False)):
            with self.subTest(buckets=buckets, words=words):
                answer, rows = self.cycles_on(buckets, *words)
                padding = sum(padded(count, buckets) - count for count in rows)
                self.assertEqual(answer["nodes_padded"], padding)
                self.assertEqual(answer["nodes_verified"], sum(rows))
                # At the end of the answer fewer tokens than rows of a bucket may be wanted.
                self.assertEqual(all(count in buckets for count in rows[:-2]), fills, rows)
                self.assertGreater(len(set(rows) | {1}), 1)

    def test_a_tree_as_large_as_may_be_fills_the_largest(self):
        """Reading hides what is computed, so every row is worth its time; still none is left empty."""
        for words in ([], ["--device", "test", "--device-for", "both"]):
            answer = on_phone(*AS_8B, "--no-prune", *words)
            self.assertLess(answer["nodes_padded"], answer["cycles"], words)


class Devices(unittest.TestCase):
    def test_the_phone_prices_what_a_device_computes(self):
        """A device changes who computes here: neither the text, nor a decision, nor the time that a phone takes."""
        without = on_phone(*AS_8B)
        for device in ("test", "test:buckets=3+24", "test:fail=100"):
            for use in ("target", "both"):
                with self.subTest(device=device, use=use):
                    answer = on_phone(*AS_8B, "--device", device, "--device-for", use)
                    for key in ("tokens", "text", "cycles", "decode_seconds", "energy_joules", "nodes_verified",
                                "nodes_padded", "draft_hidden_seconds"):
                        self.assertEqual(answer[key], without[key], key)
                    self.assertEqual(answer["device"], device)
                    self.assertGreater(answer["device_layer_rows"], 0)


class Processors(unittest.TestCase):
    def test_what_the_npu_has_changes_time_alone(self):
        """The text is the same; whoever has more to do takes longer: the cores alone, and the cores that draft."""
        answers = {use: on_phone(*AS_8B, "--target-ram", "100", "--phone-npu", use) for use in ("auto", "target", "both", "none")}
        for use, answer in answers.items():
            self.assertEqual(answer["tokens"], answers["auto"]["tokens"], use)
        self.assertEqual(answers["none"]["nodes_padded"], 0)
        self.assertGreater(answers["none"]["decode_seconds"], 1.2 * answers["auto"]["decode_seconds"])

    def test_a_chain_is_drafted_by_who_may(self):
        """Steps of one row: by the cores a layer of a 1B takes its bytes by their bandwidth, 0.68 of the NPU's."""
        def drafting(use):
            answer = on_phone(*AS_8B, "--strategy", "chain", "--no-ahead", "--target-ram", "100", "--phone-npu", use)
            return answer["draft_seconds"] / answer["nodes_drafted"]
        self.assertEqual(drafting("target"), drafting("none"))
        self.assertEqual(drafting("auto"), drafting("both"))  # the vendor's kernels are faster for one row as well
        self.assertGreater(drafting("target"), drafting("both"))

    def test_drafting_beside_on_the_same_processor(self):
        """It hides less than where another one drafts, and plain decoding knows no difference."""
        hidden = {use: on_phone(*AS_8B, "--phone-npu", use) for use in ("target", "none")}
        self.assertLess(hidden["none"]["draft_hidden_seconds"] / hidden["none"]["draft_seconds"],
                        hidden["target"]["draft_hidden_seconds"] / hidden["target"]["draft_seconds"])
        plain = [on_phone(*AS_8B, "--strategy", "ar", "--phone-npu", use)["decode_seconds"] for use in ("auto", "both")]
        self.assertEqual(plain[0], plain[1])


class Refused(unittest.TestCase):
    def test_what_is_wrong_is_named(self):
        path = os.path.join(SCRATCH.name, "wrong.phone")
        with open(path, "w", encoding="utf-8") as file:
            file.write("name A phone\nflash_sequential 1000 GB/s read\n")
        cases = [
            (["--phone", "oneplus13"], 2, "honor500pro, magicv5, oneplus12"),
            (["--phone", "oneplus12:attic"], 3, "no section [attic]"),
            (["--phone", path], 3, "wrong.phone:2: flash_sequential is '1000' GB/s"),
            (["--phone", "oneplus12", "--as", "llama-9b"], 2, "llama-3.1-8b"),
            (["--phone", "oneplus12", "--as", "llama-3.1-8b-q4_0,llama-9b"], 2, "llama-9b"),
            (["--as", "llama-3.1-8b-q4_0"], 2, "without a phone"),
            (["--phone-npu", "none"], 2, "without a phone"),
            (["--phone", "oneplus12", "--phone-npu", "gpu"], 2, "auto, target, both, none"),
        ]
        for words, code, message in cases:
            done = lever("run", "-m", TARGET, "-d", DRAFT, "-n", "2", *words, "hello")
            self.assertEqual(done.returncode, code, (words, done.stderr))
            self.assertIn(message, done.stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
