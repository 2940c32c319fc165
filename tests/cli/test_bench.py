#!/usr/bin/env python3
"""`lever bench` with a tiny pair: its rows, runs that are gone on with, limits that cannot be had, mistakes. No time is
judged anywhere.

    test_bench.py LEVER
"""

import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from tiny import HERE, LEVER, MODELS, SCRATCH, environment

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))

import rows as bench_rows

TARGET, DRAFT = (os.path.join(MODELS, f"pair-{name}.gguf") for name in ("target", "draft"))
STRANGER = os.path.join(MODELS, "llama-sentencepiece-q4_k.gguf")
SMALL = ["-m", TARGET, "-d", DRAFT, "--force-draft", "--ignore-end", "--ctx", "400", "--lengths", "12", "--each", "1"]


def bench(*words, given=SMALL, **more):
    command = [LEVER, "bench", *given, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=SCRATCH.name, env=environment(), **more)


def path_of(name):
    return os.path.join(SCRATCH.name, name)


def read(name):
    return bench_rows.read([path_of(name)])


class Rows(unittest.TestCase):
    def test_every_case_is_a_row_and_the_text_is_the_same(self):
        done = bench("--budgets", "none,0%", "--temps", "0,0.9", "--tasks", "code,maths", "--out", "all.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = read("all.jsonl")
        self.assertEqual(len(rows), 4 * 2 * 2 * 2)
        self.assertEqual(len({row["id"] for row in rows}), len(rows))
        for row in rows:
            self.assertEqual((row["status"], row["benchmark"]), ("ok", "bench"))
            self.assertEqual(row["values"]["completion_tokens"], 12)
            self.assertEqual(row["values"]["strategy"], row["arm"])
            self.assertEqual(len(row["models"]), 1 if row["arm"] == "ar" else 2)
            for key in ("program", "command", "limits", "machine", "commit", "cache", "load_average", "exit"):
                self.assertIn(key, row)
            self.assertFalse([word for word in row["command"] if word.startswith("/")])
        texts = {}
        for row in rows:
            texts.setdefault(row["pair"], set()).add(row["values"]["tokens_sha256"])
        self.assertEqual(len(texts), 8)
        self.assertTrue(all(len(found) == 1 for found in texts.values()))
        self.assertEqual(done.stdout.count("tokens a second"), 4)
        self.assertIn("maths", done.stdout)

    def test_arms_take_turns(self):
        done = bench("--budgets", "none", "--tasks", "code,maths", "--strategies", "lever,edge,ar", "--out", "turns.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["arm"] for row in read("turns.jsonl")], ["lever", "edge", "ar", "ar", "edge", "lever"])

    def test_an_arm_may_cache_instead_of_pinning(self):
        done = bench("--budgets", "50%", "--tasks", "code", "--strategies", "lever,lever+lru,ar+lru", "--out", "lru.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {row["arm"]: row["values"] for row in read("lru.jsonl")}
        self.assertEqual([values["cache"] for values in found.values()], ["pin", "lru", "lru"])
        self.assertGreater(found["lever"]["target_bytes_pinned"], 0)
        self.assertEqual(found["lever+lru"]["target_bytes_pinned"] + found["ar+lru"]["target_bytes_pinned"], 0)

    def test_traces_name_their_rows(self):
        done = bench("--budgets", "none", "--tasks", "code", "--out", "traced.jsonl", "--trace", "traces.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["id"]: row for row in read("traced.jsonl")}
        cycles = {}
        with open(path_of("traces.jsonl"), encoding="utf-8") as file:
            for line in file:
                found = json.loads(line)
                cycles[found["row"]] = cycles.get(found["row"], 0) + 1
                self.assertIn("pass_seconds", found["trace"])
        self.assertEqual(cycles, {name: row["values"]["cycles"] for name, row in rows.items()})

    def test_a_trace_that_is_not_whole_is_told(self):
        done = bench("--budgets", "none", "--tasks", "code", "--strategies", "ar", "--out", "full.jsonl", "--trace", "/dev/full")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("the trace /dev/full is not complete", done.stderr)
        self.assertEqual([row["status"] for row in read("full.jsonl")], ["ok"])

    def test_checksums_are_right_and_remembered_until_the_file_changes(self):
        target = path_of("changing.gguf")
        shutil.copy(TARGET, target)
        given = ["-m", target, *SMALL[2:]]
        words = ("--budgets", "none", "--tasks", "code", "--strategies", "ar", "--out")
        for name in ("first.jsonl", "second.jsonl"):
            self.assertEqual(bench(*words, name, given=given).returncode, 0)
            with open(target, "rb") as file:
                self.assertEqual(read(name)[0]["models"][0]["sha256"], hashlib.sha256(file.read()).hexdigest())
            with open(target, "r+b") as file:  # the last byte of a norm
                file.seek(-1, os.SEEK_END)
                file.write(b"\x00")
        with open(os.path.join(SCRATCH.name, "cache", "lever", "checksums"), encoding="utf-8") as file:
            self.assertEqual(sum(line.endswith(target + "\n") for line in file), 2)

    def test_a_budget_that_is_too_small_is_a_row(self):
        done = bench("--budgets", "8M,none", "--tasks", "code", "--strategies", "lever,ar", "--out", "small.jsonl")
        self.assertEqual(done.returncode, 4, done.stderr)
        rows = read("small.jsonl")
        self.assertEqual([row["status"] for row in rows], ["failed", "failed", "ok", "ok"])
        self.assertIn("budget", rows[0]["reason"])
        self.assertIn("too small", done.stdout)
        self.assertIn("2 of 4 answers failed; the first: the memory budget is too small", done.stderr)

    def test_the_context_is_no_more_than_the_model_was_trained_for(self):
        given = [word for word in SMALL if word not in ("--ctx", "400")]
        done = bench("--budgets", "none", "--tasks", "code", "--strategies", "ar", "--out", "own.jsonl", given=given)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_draft_of_another_vocabulary_is_a_result(self):
        given = ["-m", TARGET, "-d", STRANGER, *SMALL[4:]]
        done = bench("--budgets", "none", "--tasks", "code", "--strategies", "lever,ar", "--out", "other.jsonl", given=given)
        self.assertNotEqual(done.returncode, 0)
        rows = {row["arm"]: row for row in read("other.jsonl")}
        self.assertEqual((rows["lever"]["status"], rows["ar"]["status"]), ("failed", "ok"))
        self.assertIn("vocabular", rows["lever"]["reason"])


class Resumed(unittest.TestCase):
    WORDS = ("--budgets", "none", "--tasks", "code,maths", "--strategies", "lever,ar")

    def test_what_is_there_is_not_measured_again(self):
        done = bench(*self.WORDS, "--out", "whole.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path_of("whole.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()
        with open(path_of("cut.jsonl"), "w", encoding="utf-8") as file:
            file.writelines([*lines[:2], lines[2][:100]])  # half-written
        again = bench(*self.WORDS, "--resume", "cut.jsonl")
        self.assertEqual(again.returncode, 0, again.stderr)
        with open(path_of("cut.jsonl"), encoding="utf-8") as file:
            resumed = file.readlines()
        self.assertEqual(resumed[:2], lines[:2])
        self.assertEqual([json.loads(line)["id"] for line in resumed], [json.loads(line)["id"] for line in lines])
        self.assertEqual(bench(*self.WORDS, "--resume", "cut.jsonl").returncode, 0)
        with open(path_of("cut.jsonl"), encoding="utf-8") as file:
            self.assertEqual(file.readlines(), resumed)
        # Other settings are other rows.
        self.assertEqual(bench(*self.WORDS, "--top-p", "0.5", "--resume", "cut.jsonl").returncode, 0)
        self.assertEqual(len(read("cut.jsonl")), 8)

    def killed(self, name, *more):
        """A run that is killed after its first row. How many rows there are then."""
        command = [LEVER, "bench", *SMALL, *self.WORDS, "--repetitions", "200", "--out", name, *more]
        with open(path_of("killed.log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, cwd=SCRATCH.name, env=environment(), stdout=log, stderr=log)
            while process.poll() is None:
                if os.path.exists(path_of(name)) and os.path.getsize(path_of(name)) > 0:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                time.sleep(0.01)
        with open(path_of(name), "rb") as file:
            return file.read().count(b"\n")

    def test_a_run_that_was_killed_goes_on(self):
        name = "killed.jsonl"
        before = self.killed(name)
        done = bench(*self.WORDS, "--repetitions", "3", "--resume", name)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = read(name)
        self.assertEqual(len(rows), max(before, 12))

    def cycles_are_those_of_the_rows(self, rows, trace):
        cycles = {}
        with open(path_of(trace), encoding="utf-8") as file:
            for line in file:
                found = json.loads(line)
                cycles[found["row"]] = cycles.get(found["row"], 0) + 1
        self.assertEqual(cycles, {row["id"]: row["values"]["cycles"] for row in read(rows) if row["status"] == "ok"})

    def test_a_trace_that_is_gone_on_with_has_each_cycle_once(self):
        self.killed("kt.jsonl", "--trace", "kt.trace")
        with open(path_of("kt.trace"), "rb") as file:
            whole = file.read()
        half = whole[: whole.rfind(b"\n") + 1] + b'{"row": "' + b"0" * 64 + b'", "trace": {"cyc'
        with open(path_of("kt.trace"), "wb") as file:
            file.write(half)
        done = bench(*self.WORDS, "--repetitions", "2", "--resume", "kt.jsonl", "--trace", "kt.trace")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.cycles_are_those_of_the_rows("kt.jsonl", "kt.trace")

    def test_the_cycles_of_an_answer_without_a_row_are_not_kept(self):
        words = ("--budgets", "none", "--tasks", "code", "--strategies", "lever,ar")
        done = bench(*words, "--out", "part.jsonl", "--trace", "part.trace")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path_of("part.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()
        with open(path_of("part.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(lines[:1])  # as if it was killed between an answer and its row
        done = bench(*words, "--resume", "part.jsonl", "--trace", "part.trace")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.cycles_are_those_of_the_rows("part.jsonl", "part.trace")
        # Rows that may not be overwritten leave the trace alone as well.
        self.assertNotEqual(bench(*words, "--out", "part.jsonl", "--trace", "part.trace").returncode, 0)
        self.cycles_are_those_of_the_rows("part.jsonl", "part.trace")

    def test_runs_in_one_file_share_no_pair(self):
        words = ("--budgets", "none", "--tasks", "code", "--strategies", "lever,ar")
        self.assertEqual(bench(*words, "--out", "runs.jsonl").returncode, 0)
        for more in (["--seed", "7"], ["--threads", "2"], ["-d", TARGET], ["--lanes", "1"]):
            done = bench(*words, *more, "--resume", "runs.jsonl")
            self.assertEqual(done.returncode, 0, done.stderr)
        pairs = {}
        for row in read("runs.jsonl"):
            pairs.setdefault(row["pair"], []).append(row["arm"])
        self.assertEqual(len(pairs), 5)
        self.assertTrue(all(sorted(arms) == ["ar", "lever"] for arms in pairs.values()), pairs)

    def test_ctrl_c_keeps_the_rows(self):
        command = [LEVER, "bench", *SMALL, *self.WORDS, "--repetitions", "200", "--out", "broken.jsonl"]
        process = subprocess.Popen(
            command, cwd=SCRATCH.name, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        path = path_of("broken.jsonl")
        while process.poll() is None and not (os.path.exists(path) and os.path.getsize(path) > 0):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        if process.returncode == 0:
            self.skipTest("it was over before the signal came")
        self.assertEqual(process.returncode, 130)
        self.assertGreater(len(read("broken.jsonl")), 0)


class Apart(unittest.TestCase):
    """What one arm learns is not another's."""

    WORDS = ("--budgets", "none", "--tasks", "code", "--out")

    @staticmethod
    def cache():
        folder = os.path.join(SCRATCH.name, "cache", "lever")
        os.makedirs(folder, exist_ok=True)
        return {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder) if name != "checksums"}

    def test_nothing_is_learned_from_another_arm_or_run_nor_left_behind(self):
        before = self.cache()
        done = bench("--strategies", "lever,edge,ar", *self.WORDS, "apart.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.cache(), before)

    def test_each_arm_has_what_doctor_found_and_what_it_learned_itself_until_the_end(self):
        self.cache()
        profile = "disk-0-0.profile"  # that doctor writes, of a disk that is not here
        with open(os.path.join(SCRATCH.name, "cache", "lever", profile), "w", encoding="utf-8") as file:
            file.write("lever disk profile 1\n")
        before = self.cache()
        command = [LEVER, "bench", *SMALL, "--strategies", "lever,edge", "--repetitions", "200", *self.WORDS, "watched.jsonl"]
        process = subprocess.Popen(command, cwd=SCRATCH.name, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        path = path_of("watched.jsonl")
        while process.poll() is None and not (os.path.exists(path) and len(read("watched.jsonl")) > 4):
            time.sleep(0.01)
        arms = {}
        for found in glob.glob(os.path.join(SCRATCH.name, "cache", "lever", "bench-arms-*", "*", "*")):
            arms.setdefault(os.path.basename(os.path.dirname(found)), []).append(os.path.basename(found))
        over = process.poll() is not None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        if over:
            self.skipTest("it was over before anything could be seen")
        self.assertEqual(sorted(arms), ["0-0", "1-0"])
        for found in arms.values():
            self.assertIn(profile, found)
            self.assertEqual(len([name for name in found if name.endswith(".costs")]), 1, found)
        # An interrupt while an engine opens ends at once; what it leaves, the next run removes.
        self.assertEqual(bench("--strategies", "ar", *self.WORDS, "last.jsonl").returncode, 0)
        self.assertEqual(self.cache(), before)


class Limits(unittest.TestCase):
    WORDS = ("--budgets", "none", "--tasks", "code", "--strategies", "lever,ar")

    def test_where_groups_cannot_be_made_it_says_so(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        os.chmod(SCRATCH.name, 0o777)
        for folder, folders, files in os.walk(SCRATCH.name):
            for name in [*folders, *files]:
                os.chmod(os.path.join(folder, name), 0o777)
        try:
            done = bench(*self.WORDS, "--cgroup-ram", "200M", "--disk-mbps", "100", "--out", "free.jsonl", user=65534)
        except PermissionError as error:
            self.skipTest(str(error))
        if done.returncode == 126 or "cannot be read" in done.stderr:
            self.skipTest("another user cannot run the command here")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("measured without a limit", done.stderr)
        for row in read("free.jsonl"):
            self.assertIsNone(row["limits"]["cgroup_bytes"])
            self.assertEqual(row["limits"]["read_bytes_per_second"], 100e6)  # which wants no right
            self.assertTrue(row["limits"]["refused"])

    def test_a_slower_disk_holds_for_every_arm(self):
        words = ("--budgets", "0%", "--tasks", "code", "--strategies", "lever,ar", "--lanes", "1")
        self.assertEqual(bench(*words, "--out", "fast.jsonl").returncode, 0)
        done = bench(*words, "--disk-mbps", "4", "--out", "slow.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        fast, slow = read("fast.jsonl"), read("slow.jsonl")
        self.assertEqual({row["limits"]["read_bytes_per_second"] for row in fast}, {None})
        self.assertEqual({row["values"]["tokens_sha256"] for row in fast}, {row["values"]["tokens_sha256"] for row in slow})
        self.assertEqual(len(slow), 2)
        for row in slow:
            limits, values = row["limits"], row["values"]
            self.assertEqual((limits["read_bytes_per_second"], limits["read_limited_by"]), (4e6, "lever"))
            self.assertEqual((row["factors"]["disk_mbps"], limits["refused"]), (4, None))
            under_way = os.path.getsize(TARGET) / 2  # a read counts when it has ended: one began before the answer
            self.assertLessEqual(values["bytes_read"], 4e6 * values["io_seconds"] + under_way)

    def test_a_limit_that_is_passed_is_told(self):
        done = bench(*self.WORDS, "--cgroup-ram", "200M", "--out", "held.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        if "without a limit" in done.stderr:
            self.skipTest("no control groups here")
        self.assertEqual(read("held.jsonl")[0]["limits"]["cgroup_bytes"], 200 << 20)
        # Too little for the command itself: the kernel ends it, or the plan refuses before.
        done = bench(*self.WORDS, "--cgroup-ram", "4M", "--out", "dead.jsonl")
        self.assertEqual(done.returncode, 4, done.stderr)
        if "the limit of 4.00 MiB was passed" in done.stderr:
            self.assertIn("--resume", done.stderr)
        else:
            self.assertEqual({row["status"] for row in read("dead.jsonl")}, {"failed"})


class Mistakes(unittest.TestCase):
    def test_they_are_told_before_anything_is_measured(self):
        bad = path_of("bad.jsonl")
        with open(bad, "w", encoding="utf-8") as file:
            file.write('{"prompt": "right"}\n{"prompt": 1}\nno\n')
        cases = [
            (["--strategies", "leaver"], 2, "'leaver'"),
            (["--tasks", "cooking"], 2, "'cooking'; there are code"),
            (["--out", "a", "--resume", "b"], 2, "exclude each other"),
            (["--cgroup-ram", "much"], 2, "'much'"),
            (["--prompts", bad], 3, "bad.jsonl:2: no \"prompt\"; " + bad + ":3: not a JSON object"),
            (["--prompts", "/nowhere/p.jsonl"], 3, "/nowhere/p.jsonl"),
            (["--resume", "/nowhere/r.jsonl"], 3, "/nowhere/r.jsonl"),
            (["--out", "/nowhere/r.jsonl"], 5, "/nowhere/r.jsonl"),
            (["-m", "/nowhere/m.gguf"], 3, "/nowhere/m.gguf"),
        ]
        for words, code, said in cases:
            with self.subTest(words=words):
                done = bench(*words)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(said, done.stderr)
                self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
