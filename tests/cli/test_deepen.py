#!/usr/bin/env python3
"""Models made by bench/deepen.py: the same logits with more layers, fewer layers, and what it refuses.

    test_deepen.py LEVER
"""

import os
import struct
import subprocess
import sys
import unittest

from tiny import HERE, LEVER, MODELS, SCRATCH, environment, lever

BENCH = os.path.join(HERE, "..", "..", "bench")
sys.dont_write_bytecode = True
sys.path.insert(0, BENCH)

import deepen
import gguf

LOGITS = os.path.join(os.path.dirname(LEVER), "bench_logits")
TEXT = os.path.join(BENCH, "texts", "passages.txt")
# Every type of weight that the tiny models have.
ORIGINALS = ["llama-q4_0", "qwen2-q4_k_m", "qwen3-mixed", "llama-foreign-types", "llama-narrow", "llama-linear-f16"]


def tool(*words):
    return subprocess.run(
        [sys.executable, os.path.join(BENCH, "deepen.py"), *words], capture_output=True, text=True, env=environment()
    )


def made(name, *words):
    path = os.path.join(SCRATCH.name, f"{name}{''.join(words)}.gguf")
    done = tool(*words, original(name), path)
    assert done.returncode == 0, done.stderr
    return path


def original(name):
    return os.path.join(MODELS, name + ".gguf")


def compare(a, b):
    command = [LOGITS, a, b, "--text", TEXT, "--positions", "40"]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


class Deepened(unittest.TestCase):
    def test_logits_are_equal_to_the_last_bit(self):
        for name in ORIGINALS:
            with self.subTest(name=name):
                deep = made(name, "--times", "3")
                done = compare(original(name), deep)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("40 positions are equal", done.stdout)
                self.assertGreater(os.path.getsize(deep), 1.3 * os.path.getsize(original(name)))

    def test_codes_stay_and_scales_are_zero(self):
        source, deep = gguf.Reader(original("llama-q4_0")), gguf.Reader(made("llama-q4_0", "--times", "2"))
        self.assertEqual(deep.layers_count(), 2 * source.layers_count())
        self.assertIn("of which 2 compute", deep.string("general.name"))
        tensors = {tensor.name: tensor for tensor in deep.tensors}
        blocks = {}
        for layer in (0, 1):
            tensor = tensors[f"blk.{layer}.ffn_down.weight"]
            with open(deep.path, "rb") as file:
                file.seek(tensor.offset)
                blocks[layer] = file.read(tensor.bytes)
        self.assertNotEqual(set(blocks[0][0::18]), {0})
        self.assertEqual(set(blocks[1][0::18]) | set(blocks[1][1::18]), {0})
        for byte in range(2, 18):
            self.assertEqual(blocks[0][byte::18], blocks[1][byte::18])

    def test_a_packed_one_is_still_the_same(self):
        deep, packed = made("qwen2-q4_k_m", "--times", "3"), os.path.join(SCRATCH.name, "deep.lvr")
        self.assertEqual(lever("pack", deep, packed).returncode, 0)
        self.assertEqual(compare(original("qwen2-q4_k_m"), packed).returncode, 0)

    def test_another_model_is_found_out(self):
        done = compare(original("pair-target"), original("pair-draft"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("differ", done.stderr)


class Shortened(unittest.TestCase):
    def test_the_first_and_the_last_layer_stay(self):
        self.assertEqual([layer.source for layer in deepen.shortened(3, 1)], [0, 2])
        self.assertEqual([layer.source for layer in deepen.shortened(24, 22)], [0, 23])
        kept = [layer.source for layer in deepen.shortened(24, 6)]
        self.assertEqual((len(kept), kept[0], kept[-1]), (18, 0, 23))
        gaps = [b - a for a, b in zip(kept, kept[1:])]
        self.assertEqual(max(gaps), 2)

    def test_it_runs_and_is_another_model(self):
        short = made("pair-target", "--drop", "1")
        self.assertEqual(gguf.Reader(short).layers_count(), 2)
        self.assertEqual(lever("run", "-m", short, "-n", "4", "--seed", "1", "hello").returncode, 0)
        self.assertEqual(compare(original("pair-target"), short).returncode, 1)

    def test_no_more_than_the_inner_layers(self):
        done = tool("--drop", "2", original("pair-target"), "/nowhere/x.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 to 1 can be dropped", done.stderr)


class Refused(unittest.TestCase):
    def test_files_that_cannot_be_rewritten(self):
        garbage, cut = (os.path.join(SCRATCH.name, name) for name in ("garbage.gguf", "cut.gguf"))
        with open(garbage, "wb") as file:
            file.write(b"not a model")
        with open(original("llama-q4_0"), "rb") as file, open(cut, "wb") as short:
            short.write(file.read(300))
        split = next(name for name in sorted(os.listdir(MODELS)) if "-of-" in name)
        output = os.path.join(SCRATCH.name, "never.gguf")
        for path, reason in ((garbage, "not a GGUF"), (cut, "ends within"), (os.path.join(MODELS, split), "split set")):
            with self.subTest(path=path):
                done = tool("--times", "2", path, output)
                self.assertEqual(done.returncode, 1)
                self.assertIn(reason, done.stderr)
                self.assertFalse(os.path.exists(output))

    def test_a_file_that_ends_early_leaves_nothing_behind(self):
        cut, output = os.path.join(SCRATCH.name, "half.gguf"), os.path.join(SCRATCH.name, "half-deep.gguf")
        with open(original("llama-q4_0"), "rb") as file, open(cut, "wb") as short:
            data = file.read()
            short.write(data[: len(data) * 2 // 3])
        self.assertEqual(tool("--times", "2", cut, output).returncode, 1)
        self.assertEqual([name for name in os.listdir(SCRATCH.name) if name.startswith("half-deep")], [])

    def test_values_for_each_layer(self):
        path = os.path.join(SCRATCH.name, "by-layer.gguf")
        with open(original("llama-q4_0"), "rb") as file:
            data = file.read()
        key = b"llama.attention.head_count_kv"
        at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
        value = struct.pack("<IIQ2I", gguf.ARRAY, gguf.UINT32, 2, 2, 2)
        with open(path, "wb") as file:
            file.write(data[:at] + value + data[at + 8 :])
        done = tool("--times", "2", path, "/nowhere/x.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a value for each layer", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
