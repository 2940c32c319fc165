#!/usr/bin/env python3
"""Tests of the runner and of what is made of rows. No model, no lever, no peer; those that want root skip without it."""

import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import figures
import rows
import runner
import summary
from peers.llama_cpp import LlamaCpp
from programs import Lever


def row(arm, pair, values, **more):
    return {"benchmark": "b", "case": "c", "arm": arm, "pair": pair, "values": values, "status": "ok", **more}


class Figures(unittest.TestCase):
    def test_a_ratio_joins_rows_of_one_pair_only(self):
        values = figures.ratio("a", "b", "x")(
            [row("a", "1", {"x": 6}), row("b", "1", {"x": 2}), row("a", "2", {"x": 5}), row("b", "3", {"x": 5})]
        )
        self.assertEqual(values, [3])

    def test_verdicts(self):
        def line(values, **bounds):
            figure = figures.Figure("b", "c", "t", figures.each("a", lambda r: r["values"]["x"]), **bounds)
            return summary._line(figure, [row("a", None, {"x": x}) for x in values])["verdict"]

        self.assertEqual(line([1, 2, 9], at_least=2), "reached")
        self.assertEqual(line([1, 2, 9], at_least=2, worst=True), "MISSED")
        self.assertEqual(line([1, 2, 9], at_most=2), "reached")
        self.assertEqual(line([1, 2, 9], at_most=2, worst=True), "MISSED")

    def test_failed_rows_do_not_count_but_are_told(self):
        figure = figures.Figure("b", "c", "t", figures.each("a", lambda r: r["values"]["x"]), at_least=1)
        made = [row("a", None, {"x": 2}), {**row("a", None, {}), "status": "failed", "reason": "it fell"}]
        self.assertEqual(summary._line(figure, made)["verdict"], "reached, but 1 rows failed")
        self.assertEqual(summary._line(figure, made[1:])["verdict"], "failed: it fell")
        self.assertIsNone(summary._line(figure, [{**made[0], "case": "another"}]))

    def test_every_figure_copes_with_rows_that_lack_everything(self):
        for figure in figures.FIGURES:
            self.assertEqual(figure.values([]), [])
            reason = {"benchmark": figure.benchmark, "case": figure.case, "status": "skipped", "reason": "no"}
            self.assertEqual(summary._line(figure, [reason])["verdict"], "skipped: no")


class Parsers(unittest.TestCase):
    def test_lever(self):
        said = {"completion_tokens": 5, "prompt_tokens": 10, "decode_seconds": 2.0, "prefill_seconds": 4.0}
        said.update(bytes_read=800, ram_peak=1, rss_peak=2, text="{", tokens=[1])
        values = Lever.parse_run(5)(runner.Result(stdout=json.dumps(said)))
        self.assertEqual(values["decode_tokens_per_second"], 2)  # four tokens after the first
        self.assertEqual(values["decode_bytes_per_second"], 400)
        self.assertEqual(values["prefill_tokens_per_second"], 2.5)
        self.assertNotIn("text", values)
        with self.assertRaisesRegex(ValueError, "ended after 5 of 6"):
            Lever.parse_run(6)(runner.Result(stdout=json.dumps(said)))
        with self.assertRaisesRegex(ValueError, "no bytes_read"):
            Lever.parse_run(5)(runner.Result(stdout=json.dumps({**said, "bytes_read": 0}).replace("bytes_read", "x")))
        with self.assertRaisesRegex(ValueError, "no JSON"):
            Lever.parse_run(5)(runner.Result(stdout=""))

    def test_doctor(self):
        findings = [
            {"kind": "measured", "key": "disk.model_read_bytes_per_second", "value": "2.5e9", "unit": "B/s"},
            {"kind": "advice", "key": "x", "value": "buy another", "unit": ""},
        ]
        values = Lever.parse_doctor(runner.Result(stdout=json.dumps({"findings": findings})))
        self.assertEqual(values["read_bytes_per_second"], 2.5e9)
        self.assertNotIn("x", values)

    def test_llama_completion(self):
        text = (
            "0.2 I common_perf_print: prompt eval time =    4000.00 ms /    15 tokens (  316 ms per token)\n"
            "0.2 I common_perf_print:        eval time =    5000.00 ms /    10 runs   ( 500 ms per token)\n"
        )
        values = LlamaCpp.parse_completion(runner.Result(stderr=text))
        self.assertEqual(values["decode_tokens_per_second"], 2)
        self.assertEqual((values["prefill_seconds"], values["prompt_tokens"]), (4.0, 15))
        with self.assertRaises(ValueError):
            LlamaCpp.parse_completion(runner.Result(stderr="killed"))

    def test_llama_bench(self):
        values = LlamaCpp.parse_bench(runner.Result(stdout='[{"n_prompt": 0, "n_gen": 4, "avg_ts": 2.5}]'))
        self.assertEqual(values["decode_tokens_per_second"], 2.5)
        with self.assertRaises(ValueError):
            LlamaCpp.parse_bench(runner.Result(stdout="[]"))


class Rows(unittest.TestCase):
    def test_written_rows_are_read_back_and_another_schema_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "deep", "rows.jsonl")
            writer = rows.Writer(path, {"cpu": "x"}, {"hash": "y"})
            writer.write({"benchmark": "ü"})
            writer.close()
            self.assertEqual(rows.read([path])[0]["benchmark"], "ü")
            with open(path, "a", encoding="utf-8") as file:
                file.write('{"schema": 99}\n')
            with self.assertRaisesRegex(ValueError, ":2: schema 99"):
                rows.read([path])


class Runner(unittest.TestCase):
    def test_output_input_and_exit_code(self):
        result = runner.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin="given")
        self.assertEqual((result.code, result.stdout, result.stderr), (3, "given", "err\n"))
        self.assertFalse(result.timed_out)
        self.assertEqual(runner.run(["/no/such/program"]).code, 127)

    def test_what_takes_too_long_is_killed(self):
        result = runner.run(["sleep", "60"], runner.Limits(timeout_seconds=0.2))
        self.assertTrue(result.timed_out)
        self.assertEqual(result.code, -9)
        self.assertLess(result.seconds, 30)

    def test_a_memory_limit_holds_and_its_group_goes_away(self):
        touch = "b = bytearray(%d << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"
        limits = runner.Limits(memory_bytes=96 << 20)
        try:
            fits = runner.run([sys.executable, "-c", touch % 20], limits)
        except runner.Skip as reason:
            self.skipTest(str(reason))
        self.assertEqual((fits.code, fits.oom_kills), (0, 0))
        self.assertGreater(fits.cgroup_peak_bytes, 20 << 20)
        self.assertLessEqual(fits.cgroup_peak_bytes, 96 << 20)
        killed = runner.run([sys.executable, "-c", touch % 200], limits)
        self.assertEqual(killed.code, -9)
        self.assertGreater(killed.oom_kills, 0)
        left = [name for name in os.listdir(runner._controller("memory")[1]) if f"lever-bench-{os.getpid()}-" in name]
        self.assertEqual(left, [])

    def test_what_is_written_and_dropped_is_no_longer_cached(self):
        with tempfile.NamedTemporaryFile(dir=".") as file:
            file.write(b"x" * (1 << 20))
            file.flush()
            if runner.cached_bytes(file.name) != 1 << 20:
                self.skipTest("this file system does not tell what is cached")
            self.assertEqual(runner.drop_caches([file.name]), 0)


if __name__ == "__main__":
    unittest.main()
