#!/usr/bin/env python3
"""The command from outside: exit codes, what goes to which stream, JSON, interruptions.

    test_command.py LEVER
"""

import filecmp
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from tiny import LEVER, MODEL, MODELS, SCRATCH, environment, lever

KEYS = """text tokens finish_reason device prompt_tokens completion_tokens prefill_seconds prefill_passes open_seconds
first_token_seconds decode_seconds tokens_per_second strategy cycles tokens_per_cycle nodes_drafted nodes_verified
nodes_padded nodes_pruned nodes_accepted layer_rows device_layer_rows padded_layer_rows bytes_read bytes_per_token io_seconds io_bandwidth io_utilisation
compute_seconds draft_seconds draft_hidden_seconds ahead_hit_rate cycles_scored prune_recall draft_dropped draft_away head_seconds
ram_budget ram_peak rss_peak
huge_page_bytes target_layers target_bytes_pinned cache cache_hit_bytes ring_bytes seed""".split()


def run_json(*words, **more):
    done = lever("run", "-m", MODEL, "--json", *words, **more)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return json.loads(done.stdout.decode("utf-8"))


def predictor(*, target, draft, layer, layers, width, rank, recall):
    """A file as docs/FORMAT.md has it, all values 0."""
    values = width + 2 * rank * width + width + 10 + 1 + 2 + rank
    content = struct.pack("<8sIIQQIIIII12x", b"LVPREDIC", 1, 10, target, draft, layer, layers, width, rank, recall)
    content += bytes(2 * values)
    hash_ = 0xCBF29CE484222325
    for byte in content:
        hash_ = (hash_ ^ byte) * 0x100000001B3 % 2 ** 64
    return content + struct.pack("<Q", hash_)


class Usage(unittest.TestCase):
    def test_exit_codes_and_streams(self):
        damaged = os.path.join(SCRATCH.name, "damaged.gguf")
        with open(MODEL, "rb") as whole, open(damaged, "wb") as cut:
            cut.write(whole.read()[:-1])
        cases = [
            (["--help"], 0, "usage", ""),
            (["run", "--help"], 0, "--ram SIZE", ""),
            (["help", "pull"], 0, "lever pull smollm2", ""),
            (["--version"], 0, "lever ", ""),
            ([], 2, "", "usage"),
            (["rnu"], 2, "", "did you mean 'run'"),
            (["serve"], 2, "", "unknown command 'serve'"),
            (["run", "--temp", "hot", "x"], 2, "", "--temp is 'hot'"),
            (["run", "-m", MODEL, ""], 2, "", "prompt is empty"),
            (["run", "x"], 3, "", "lever pull"),
            (["run", "-m", "smollm2", "x"], 3, "", "lever pull smollm2"),
            (["run", "-m", "/etc/passwd", "x"], 3, "", "GGUF"),
            (["run", "-m", damaged, "x"], 3, "", "damaged.gguf"),
            (["run", "-m", MODEL, "--ram", "1M", "x"], 4, "", "budget"),
            (["plan", "-m", MODEL, "--ram", "1M"], 4, "least budget", "budget"),
            (["plan", "-m", MODEL], 0, "least budget", ""),
            (["doctor", "-m", "/nowhere/model.gguf"], 3, "", "/nowhere/model.gguf"),
            (["run", "--threads", "65", "x"], 2, "", "1 to 64"),
            (["run", "--lanes", "17", "x"], 2, "", "1 to 16"),
            (["pull", "nothing"], 2, "", "qwen2.5-coder"),
            (["pack", MODEL], 2, "", "IN OUT"),
            (["run", "-m", MODEL, "--oracle", SCRATCH.name, "x"], 5, "", "Is a directory"),
            (["run", "-m", MODEL, "--oracle", "/dev/null", "x"], 3, "", "holds no token ids"),
        ]
        for words, code, output, error in cases:
            with self.subTest(words=words):
                done = lever(*words)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(output, done.stdout.decode())
                self.assertIn(error, done.stderr.decode())
                if not output:
                    self.assertEqual(done.stdout, b"")

    def test_a_missing_file_says_so(self):
        done = lever("run", "-m", "/nowhere/model.gguf", "x")
        self.assertIn(done.returncode, (3, 5))
        self.assertIn(b"/nowhere/model.gguf", done.stderr)

    def test_a_file_is_named_even_by_a_word_of_the_message(self):
        with open(os.path.join(SCRATCH.name, "empty"), "wb"):
            done = subprocess.run([LEVER, "inspect", "empty"], capture_output=True, cwd=SCRATCH.name, env=environment())
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"lever: empty: not a GGUF file: it is empty", done.stderr)

    def test_options_in_the_environment(self):
        done = lever("run", "hello", LEVER_MODEL=MODEL, LEVER_JSON="1", LEVER_MAX_TOKENS="3", LEVER_SEED="4")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["completion_tokens"], answer["seed"]), (3, 4))
        self.assertEqual(lever("run", "x", LEVER_TEMP="hot").returncode, 2)


class Streams(unittest.TestCase):
    """Standard streams that are closed or full: what was not written is told, and no file takes their place."""

    def shell(self, words, redirections):
        script = 'exec "$0" "$@" ' + redirections
        return subprocess.run(["bash", "-c", script, LEVER, *words], capture_output=True, env=environment())

    def test_what_was_not_written_is_told(self):
        run = ["run", "-m", MODEL, "-n", "3", "hello"]
        doctor = ["doctor", "-m", MODEL, "--quick"]
        cases = [run, [*run, "--json"], ["plan", "-m", MODEL], ["plan", "-m", MODEL, "--json"], ["inspect", MODEL],
                 ["inspect", MODEL, "--json"], doctor, [*doctor, "--json"], ["--help"], ["run", "--help"], ["--version"]]
        for words in cases:
            for redirection in (">&-", ">/dev/full"):
                with self.subTest(words=words, redirection=redirection):
                    done = self.shell(words, redirection)
                    self.assertEqual(done.returncode, 5, done.stderr)
                    self.assertIn(b"standard output failed", done.stderr)

    def test_a_trace_that_is_not_whole_is_told(self):
        for more in ([], ["--trace-format", "chrome"], ["--quiet"]):
            done = lever("run", "-m", MODEL, "-n", "3", "--seed", "1", "--trace", "/dev/full", *more, "hello")
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(b"the trace /dev/full is not complete: No space left", done.stderr)
            self.assertEqual(done.stdout, lever("run", "-m", MODEL, "-n", "3", "--seed", "1", "hello").stdout)

    def test_a_prompt_that_cannot_be_read(self):
        for redirection in ("<&-", "</"):
            done = self.shell(["run", "-m", MODEL, "-"], redirection)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(b"standard input failed: ", done.stderr)

    def test_no_file_takes_the_place_of_a_stream(self):
        trace = os.path.join(SCRATCH.name, "trace.jsonl")
        words = ["run", "-m", MODEL, "-n", "3", "--log-level", "debug", "--trace", trace, "hello"]
        self.shell(words, "<&- >&- 2>&-")
        with open(trace, encoding="utf-8") as lines:
            for line in lines:
                self.assertIn("cycle", json.loads(line))
        packed = os.path.join(SCRATCH.name, "silent.lvr")
        self.assertEqual(self.shell(["pack", MODEL, packed, "--log-level", "debug"], "<&- >&- 2>&-").returncode, 0)
        self.assertEqual(lever("inspect", "--verify", packed).returncode, 0)


def size_of(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


class Ended(unittest.TestCase):
    """What is not whole does not stay when a signal ends the program."""

    def pack_and_end(self, number, packed):
        """The exit code of a packing that was sent a signal once its file was there."""
        model = os.path.join(MODELS, "llama-foreign-types.gguf")
        running = subprocess.Popen([LEVER, "pack", "--type", "iq4_nl", model, packed], env=environment(),
                                   stderr=subprocess.DEVNULL)
        while running.poll() is None:
            if size_of(packed + ".part") > 0:
                running.send_signal(number)
                break
        return running.wait()

    def test_half_a_packed_file(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                packed = os.path.join(SCRATCH.name, f"half-{number}.lvr")
                codes = {0}
                for _ in range(20):  # it may have been over before
                    if codes == {0}:
                        codes.add(self.pack_and_end(number, packed))
                self.assertFalse(os.path.exists(packed + ".part"))
                self.assertEqual(codes, {0, 130 if number == signal.SIGINT else -number})

    def test_what_doctor_wrote_to_measure(self):
        folder = os.path.join(SCRATCH.name, "measured")
        os.makedirs(folder)
        running = subprocess.Popen([LEVER, "doctor", "--quick", "-m", folder], env=environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None:
            self.assertEqual([name for name in os.listdir(folder) if size_of(os.path.join(folder, name)) > 0], [])
        self.assertEqual(running.returncode, 0)


class Run(unittest.TestCase):
    def test_json_has_the_documented_keys_in_order(self):
        answer = run_json("-n", "12", "--seed", "1", "--ram", "200M", "hello")
        self.assertEqual(list(answer), KEYS)
        self.assertEqual(answer["strategy"], "lever")
        self.assertEqual(len(answer["tokens"]), answer["completion_tokens"])
        self.assertEqual(answer["ram_budget"], 200 << 20)
        self.assertGreater(answer["target_layers"], 0)
        self.assertLessEqual(answer["ram_peak"], 200 << 20)

    def test_the_rate_counts_tokens_after_the_first(self):
        answer = run_json("-n", "9", "--seed", "1", "--raw", "--temp", "3", "--top-p", "1", "hello")
        rate = (answer["completion_tokens"] - 1) / answer["decode_seconds"]
        self.assertAlmostEqual(answer["tokens_per_second"] / rate, 1, places=3)
        self.assertEqual(run_json("-n", "1", "--raw", "hello")["tokens_per_second"], 0)

    def test_only_the_answer_goes_to_standard_output(self):
        answer = run_json("-n", "12", "--seed", "1", "hello")
        done = lever("run", "-m", MODEL, "-n", "12", "--seed", "1", "hello")
        self.assertEqual(done.stdout.decode(), answer["text"] if answer["text"].endswith("\n") else answer["text"] + "\n")
        self.assertIn(b"seed 1", done.stderr)
        self.assertNotIn(b"\033", done.stderr)
        self.assertEqual(lever("run", "-m", MODEL, "-n", "12", "-q", "hello").stderr, b"")

    def test_a_seed_fixes_the_text_and_sampling_has_an_effect(self):
        hot = ["-n", "16", "--temp", "1.5", "--top-p", "1"]
        for seed in ("4294967295", "0", "9223372036854775808"):
            first, second = (run_json(*hot, "--seed", seed, "hello") for _ in range(2))
            self.assertEqual(first["tokens"], second["tokens"])
            self.assertEqual(first["seed"], int(seed))
        texts = {tuple(run_json(*hot, "--seed", str(seed), "hello")["tokens"]) for seed in range(6)}
        self.assertEqual(len(texts), 6)
        drawn = {run_json("-n", "1", *seed, "hello")["seed"] for seed in ([], ["--seed", "-1"], [])}
        self.assertEqual(len(drawn), 3)
        cold = {tuple(run_json("-n", "16", "--temp", "0", "--seed", str(seed), "hello")["tokens"]) for seed in range(3)}
        self.assertEqual(len(cold), 1)
        likeliest = cold.pop()
        for words in (["--top-k", "1"], ["--top-p", "0"], ["--temp", "1e-9"]):
            self.assertEqual(tuple(run_json("-n", "16", *words, "--seed", "3", "hello")["tokens"]), likeliest)

    def test_text_is_always_valid(self):
        for seed in range(8):
            answer = run_json("-n", "60", "--temp", "5", "--top-p", "1", "--seed", str(seed), "hello")
            self.assertGreater(answer["completion_tokens"], 0)

    def test_prompts_that_are_no_text(self):
        for prompt in (b"\xe6\xad", bytes(range(128, 256)), b"a\0b", b"\xff" * 100):
            done = lever("run", "-m", MODEL, "-n", "2", "-q", "-", stdin=prompt)
            self.assertEqual(done.returncode, 0, done.stderr)
            done.stdout.decode("utf-8")
        words = ["run", "-m", MODEL, "--raw", "--temp", "0", "-n", "8", "-q"]
        self.assertEqual(lever(*words, "hello").stdout, lever(*words, stdin=b"hello").stdout)

    def test_a_context_that_is_full(self):
        done = lever("run", "-m", MODEL, "--ctx", "64", "word " * 500)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"64", done.stderr)
        answer = run_json("--ctx", "64", "--seed", "1", "--temp", "3", "--top-p", "1", "--raw", "hello")
        self.assertIn(answer["finish_reason"], ("length", "stop"))
        self.assertLessEqual(answer["prompt_tokens"] + answer["completion_tokens"], 65)

    def test_stop_strings_are_not_part_of_the_answer(self):
        words = ["-n", "40", "--temp", "0", "--raw", "hello"]
        whole = run_json(*words)["text"]
        middle = whole[len(whole) // 2 : len(whole) // 2 + 3]
        cut = run_json("--stop", middle, *words)
        self.assertEqual(cut["text"], whole[: whole.index(middle)])
        self.assertEqual(cut["finish_reason"], "stop")
        self.assertEqual(run_json("--stop", "", *words)["text"], whole)
        self.assertEqual(lever("run", "-m", MODEL, "--stop", "x" * 10000, "hello").returncode, 2)

    def test_nobody_reads_the_answer(self):
        run = subprocess.Popen([LEVER, "run", "-m", MODEL, "--raw", "--seed", "1", "--temp", "3", "--top-p", "1", "hello"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        run.stdout.read(1)
        run.stdout.close()
        error = run.stderr.read()
        run.stderr.close()
        self.assertEqual((run.wait(), error), (0, b""))
        with open("/dev/full", "wb") as full:
            done = subprocess.run([LEVER, "run", "-m", MODEL, "-n", "3", "hello"], stdout=full, stderr=subprocess.PIPE,
                                  env=environment())
        self.assertEqual(done.returncode, 5)

    def test_ctrl_c_leaves_the_text_so_far(self):
        words = ["run", "-m", MODEL, "--raw", "--seed", "1", "--temp", "3", "--top-p", "1", "hello"]
        whole = lever(*words).stdout
        run = subprocess.Popen([LEVER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                               bufsize=0)
        begin = run.stdout.read(1)
        run.send_signal(signal.SIGINT)
        rest, error = run.communicate()
        if run.returncode == 0:
            self.skipTest("the answer was over before the signal came")
        self.assertEqual(run.returncode, 130, error)
        partial = (begin + rest).decode("utf-8").removesuffix("\n")
        self.assertTrue(whole.decode("utf-8").startswith(partial.removesuffix("\ufffd")))  # perhaps half a character
        self.assertIn(b"cancelled", error)


class Placement(unittest.TestCase):
    def test_a_device_that_tells_its_costs(self):
        """The first pass of its size is the device's, the second the CPU's; then who is faster, but for every 48th."""
        words = ("--strategy", "ar", "-n", "60", "--seed", "5", "one two three four")
        without = run_json(*words)
        for costs, pays in (("10000000000+1", False), ("1+10000000000", True)):
            answer = run_json("--device", "test:buckets=4+64,costs=" + costs, *words)
            self.assertEqual(answer["tokens"], without["tokens"])
            passes = answer["cycles"]
            self.assertGreater(passes, 50)
            due = [n == 0 or n > 1 and ((n - 1) % 48 != 0) == pays for n in range(passes)]
            self.assertEqual(answer["device_layer_rows"], sum(due) * answer["target_layers"])
            self.assertEqual(answer["padded_layer_rows"], 3 * answer["device_layer_rows"])


class Files(unittest.TestCase):
    def test_packed_files_answer_the_same(self):
        packed = os.path.join(SCRATCH.name, "packed.lvr")
        done = lever("pack", MODEL, packed)
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
        words = ["-n", "16", "--seed", "2", "hello"]
        in_place = run_json(*words)
        done = lever("run", "-m", packed, "--json", *words)
        self.assertEqual(json.loads(done.stdout)["tokens"], in_place["tokens"])

    def test_packing_never_writes_into_its_input(self):
        copy = os.path.join(SCRATCH.name, "fetched.gguf.part")
        shutil.copy(MODEL, copy)
        for output in (copy, copy.removesuffix(".part")):
            done = lever("pack", copy, output)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(b"is the input itself", done.stderr)
            self.assertTrue(filecmp.cmp(MODEL, copy, shallow=False))

    def test_a_file_that_may_not_grow(self):
        packed = os.path.join(SCRATCH.name, "limited.lvr")
        script = 'ulimit -f 100; exec "$0" "$@"'
        done = subprocess.run(["bash", "-c", script, LEVER, "pack", MODEL, packed], capture_output=True, env=environment())
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(b"limited.lvr", done.stderr)
        self.assertEqual([name for name in os.listdir(SCRATCH.name) if name.startswith("limited")], [])

    def test_inspect(self):
        packed = os.path.join(SCRATCH.name, "inspected.lvr")
        self.assertEqual(lever("pack", MODEL, packed).returncode, 0)
        for path in (MODEL, packed):
            done = lever("inspect", "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            facts = json.loads(done.stdout)
            self.assertTrue(any("qwen2" in str(value) for value in facts.values()))
        self.assertEqual(lever("inspect", "--verify", packed).returncode, 0)
        with open(packed, "r+b") as file:
            file.seek(-100_000, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        done = lever("inspect", "--verify", packed)
        self.assertEqual(done.returncode, 3, done.stderr)

    def check_inspected(self, path):
        done = lever("inspect", "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        plain = lever("inspect", path).stdout.decode().splitlines()
        self.assertEqual([line.split(maxsplit=1)[0] for line in plain], list(facts))
        return facts

    def check_damaged(self, name, content, message, *words, code=3):
        path = os.path.join(SCRATCH.name, name)
        with open(path, "wb") as file:
            file.write(content)
        done = lever("inspect", *words, path)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, b"")
        self.assertIn(message, done.stderr.decode())
        self.assertIn(name, done.stderr.decode())

    def test_inspect_a_predictor(self):
        whole = predictor(target=0x1122334455667788, draft=3, layer=5, layers=9, width=64, rank=4, recall=987_654)
        path = os.path.join(SCRATCH.name, "any-name")
        with open(path, "wb") as file:
            file.write(whole)
        facts = self.check_inspected(path)
        wanted = {"file": path, "format": "predictor", "target": "1122334455667788", "draft": "0000000000000003",
                  "pair": f"{(0x1122334455667788 * 31 + 3) % 2 ** 64:016x}", "layer": "5", "layers": "9",
                  "embedding": "64", "rank": "4", "recall": "0.987654",
                  "values": str(64 + 2 * 4 * 64 + 64 + 10 + 1 + 2 + 4)}
        self.assertEqual({key: facts[key] for key in wanted}, wanted)
        self.assertTrue(facts["bytes"].startswith(f"{len(whole)} ("))
        self.assertEqual(lever("inspect", "--verify", path).returncode, 0)
        self.check_damaged("a", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], "the predictor is damaged")
        self.check_damaged("b", whole[:-1], "the predictor is damaged")
        self.check_damaged("c", whole[:20], "the predictor is cut off after 20 bytes")
        self.check_damaged("d", whole[:8] + b"\2" + whole[9:], "version 2")
        self.check_damaged("e.predictor", b"words\n", "is not a predictor")
        self.check_damaged("f.predictor", b"", "is not a predictor")

    def test_inspect_costs(self):
        cache = os.path.join(SCRATCH.name, "inspected-cache")
        pair = ["-m", os.path.join(MODELS, "pair-target.gguf"), "-d", os.path.join(MODELS, "pair-draft.gguf")]
        done = lever("run", *pair, "--force-draft", "--tree", "fixed:4", "--raw", "-n", "24", "-q", "hello",
                     XDG_CACHE_HOME=cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = os.path.join(cache, "lever")
        names = [name for name in os.listdir(folder) if name.endswith(".costs")]
        self.assertEqual(len(names), 1)
        facts = self.check_inspected(os.path.join(folder, names[0]))
        self.assertEqual((facts["format"], f"pair-{facts['pair']}.costs"), ("costs", names[0]))
        curves = ("layers.one", "layers.all", "draft.one", "draft.all", "head")
        for key in [f"{curve}.{rows}" for curve in curves for rows in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96)]:
            self.assertRegex(facts[key], r"^[0-9]+\.[0-9]{3} ms, [0-9]+ samples$")
        self.assertRegex(facts["accepted.draft.rank_1"], r"^[01]\.[0-9]{3} of [0-9]+ candidates$")
        with open(os.path.join(folder, names[0]), "rb") as file:
            text = file.read()
        self.check_damaged("g", text[:-2], "not a file of costs, or damaged")
        self.check_damaged("h", text.replace(b"\nio ", b"\nio x"), "not a file of costs, or damaged")
        self.check_damaged("i.costs", b"words\n", "not a file of costs")
        self.check_damaged("j.costs", text, "no checksums", "--verify", code=2)

    def test_every_tiny_model_runs(self):
        for name in sorted(os.listdir(MODELS)):
            if not name.endswith(".gguf") or "-of-" in name and "-00001-" not in name:
                continue
            with self.subTest(name=name):
                done = lever("run", "-m", os.path.join(MODELS, name), "--raw", "-n", "4", "-q", "--json", "hello")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(json.loads(done.stdout)["completion_tokens"], 0)

    def test_a_slower_disk(self):
        words = ("-n", "6", "--temp", "0", "--target-ram", "0", "--lanes", "1", "hello")
        fast, slow = run_json(*words), run_json("--disk-mbps", "4", *words)
        self.assertEqual(slow["tokens"], fast["tokens"])
        under_way = os.path.getsize(MODEL) / 2  # a read counts when it has ended: one began before the answer
        self.assertLessEqual(slow["bytes_read"], 4e6 * slow["io_seconds"] + under_way)
        plan = json.loads(lever("plan", "-m", MODEL, "--disk-mbps", "4", "--json").stdout)
        self.assertEqual(plan["io_bytes_per_second"], 4e6)
        self.assertEqual(lever("run", "--disk-mbps", "0", "hello").returncode, 2)
        self.assertIn(b"flash of its own", lever("run", "-m", MODEL, "--disk-mbps", "4", "--phone", "oneplus12", "hi").stderr)

    def test_a_cache_of_what_was_used_last(self):
        words = ("plan", "-m", MODEL, "--target-ram", "50", "--json")
        pinned, cached = (json.loads(lever(*words, "--cache", cache).stdout) for cache in ("pin", "lru"))
        self.assertEqual((pinned["cache"], cached["cache"]), ("pin", "lru"))
        self.assertGreater(pinned["pinned_bytes"], 0)
        self.assertEqual(cached["pinned_bytes"], 0)
        self.assertIn(b"a cache of the blocks used last", lever(*words[:-1], "--cache", "lru").stdout)
        words = ("-n", "12", "--temp", "0", "--target-ram", "50", "hello")
        pinned, cached = (run_json("--cache", cache, *words) for cache in ("pin", "lru"))
        self.assertEqual((pinned["cache"], cached["cache"]), ("pin", "lru"))
        self.assertEqual(cached["text"], pinned["text"])
        self.assertEqual((cached["target_bytes_pinned"], cached["cache_hit_bytes"]), (0, 0))
        self.assertGreater(cached["bytes_read"], pinned["bytes_read"])
        self.assertEqual(lever("run", "--cache", "most", "hello").returncode, 2)

    def test_plan_and_doctor_as_json(self):
        plan = json.loads(lever("plan", "-m", MODEL, "--ram", "200M", "--json").stdout)
        self.assertTrue(plan["fits"])
        self.assertEqual(plan["total_bytes"], sum(row["bytes"] for row in plan["rows"]))
        self.assertLessEqual(plan["total_bytes"], plan["budget_bytes"])
        done = lever("doctor", "-m", MODEL, "--quick", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        findings = json.loads(done.stdout)["findings"]
        self.assertTrue(all(finding["kind"] in ("measured", "warning", "advice") for finding in findings))
        keys = {finding["key"] for finding in findings}
        self.assertLessEqual({"device.cpu", "device.test"}, keys)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
