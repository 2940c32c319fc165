#!/usr/bin/env python3
"""Tests of the runner and of what is made of rows. No model, no lever, no peer; those that want root skip without it."""

import contextlib
import io
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True

import arithmetic
import beside
import compare
import entropy
import figures
import gguf
import headline
import measure
import phones
import plots
import pruning
import report
import reports
import rows
import runner
import simulated
import summary
import traces
from peers.gpt4all import Gpt4all
from peers.llama_cpp import LlamaCpp
from programs import Lever


def row(arm, pair, values, **more):
    return {"benchmark": "b", "case": "c", "arm": arm, "pair": pair, "values": values, "status": "ok", **more}


class PublishedRows(unittest.TestCase):
    def test_rows_name_files_not_folders(self):
        for word, wanted in (("/a/b/lever", "lever"), ("/a/x.gguf,/b/y.gguf", "x.gguf,y.gguf"), ("--ram", "--ram"), ("0/1", "0/1")):
            self.assertEqual(measure.without_folders(word), wanted)

    def test_every_benchmark_is_listed(self):
        done = subprocess.run(
            [sys.executable, os.path.join(measure.FOLDER, "run.py"), "--list"], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("equal_ram/q4_0/900M", done.stdout)


class Figures(unittest.TestCase):
    def test_a_ratio_joins_rows_of_one_pair_only(self):
        values = figures.ratio("a", "b", "x")(
            [row("a", "1", {"x": 6}), row("b", "1", {"x": 2}), row("a", "2", {"x": 5}), row("b", "3", {"x": 5})]
        )
        self.assertEqual(values, [3])

    def test_the_mean_of_tasks_weighs_each_task_alike(self):
        def both(pair, task, x):
            facts = {"factors": {"task": task}}
            return [{**row("a", pair, {"x": x}), **facts}, {**row("b", pair, {"x": 1}), **facts}]

        rows_of_three = [*both("1", "code", 2), *both("2", "code", 3), *both("3", "code", 10), *both("4", "math", 5)]
        of_pairs = figures.ratio("a", "b", "x")
        self.assertEqual(figures.mean_of_tasks(of_pairs)(rows_of_three), [4])
        self.assertEqual(figures.of_task("maths", of_pairs)(rows_of_three), [5])

    def test_a_text_without_another_to_compare_with_is_no_verdict(self):
        texts = [row("a", "1", {"tokens_sha256": "x"}), row("b", "1", {"tokens_sha256": "y"}), row("a", "2", {"tokens_sha256": "x"})]
        self.assertEqual(figures.same_text(texts), [0])

    def test_the_best_of_several_is_not_taken_where_one_of_them_is_missing(self):
        best = figures.best_of("a", ("p", "q"), "x")
        whole = [row("a", "c#0@1", {"x": 8}), row("p", "c#0@1", {"x": 2}), row("q", "c#0@1", {"x": 4})]
        broken_off = [row("a", "c#1@1", {"x": 8}), row("p", "c#1@1", {"x": 2})]
        without_q = [row("a", "c#0@2", {"x": 8}), row("p", "c#0@2", {"x": 2})]
        self.assertEqual(best([*whole, *broken_off]), [2])
        self.assertEqual(best([*whole, *without_q]), [2, 4])  # another run, in which q was nowhere
        failed = {**row("q", "c#1@1", {}), "status": "failed", "reason": "it fell"}
        skipped = {**failed, "status": "skipped"}
        figure = figures.Figure("b", "c", "t", best)
        for more, count in (([], 1), ([failed], 2), ([skipped], 1)):
            self.assertEqual(summary._line(figure, [*whole, *broken_off, *more])["n"], count, more)

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
        self.assertEqual(summary._selected([{**made[0], "case": "another"}], figure), [])
        self.assertIsNone(summary._line(figure, []))

    def test_lengths_of_the_answer_are_lines_of_their_own(self):
        made = []
        for length, rate in ((64, 1), (192, 4)):
            for arm, own in (("lever", rate), ("peer_resident", 2)):
                made.append({**row(arm, f"p{length}", {"decode_tokens_per_second": own}), "benchmark": "equal_memory", "case": "deep",
                             "factors": {"length": length}})
        told = {line["what"]: (line["n"], line["verdict"]) for line in summary.lines(made) if "all 4 GB in memory" in line["what"]}
        self.assertEqual(list(told.values()), [(1, "MISSED"), (1, "reached")])
        self.assertTrue(all(what.endswith(f"plain, {length} tokens") for what, length in zip(told, (64, 192))))

    def test_every_figure_copes_with_rows_that_lack_everything(self):
        for figure in figures.FIGURES:
            self.assertEqual(figure.values([]), [])
            reason = {"benchmark": figure.benchmark, "case": figure.case, "status": "skipped", "reason": "no"}
            self.assertEqual(summary._line(figure, [reason])["verdict"], "skipped: no")


def answer(arm, task, prompt, rate, **more):
    """A row as `lever bench` writes it."""
    values = {"decode_tokens_per_second": rate, "decode_seconds": 10.0, "completion_tokens": 100, "first_token_seconds": 2.0}
    values.update(draft_seconds=3.0, draft_hidden_seconds=2.0, head_seconds=1.0, compute_seconds=4.0, io_seconds=7.0)
    values.update({"bytes_read": 100 << 20, **more.pop("values", {})})
    facts = {"schema": 2, "id": f"{arm}{prompt}{more}", "benchmark": "bench", "case": "c", "arm": arm, "pair": prompt}
    facts.update(repetition=0, status="ok", reason="", values=values, limits={"read_bytes_per_second": None}, models=[])
    facts["factors"] = {"task": task, "prompt": prompt, "budget": "50%", "length": 128, **more.pop("factors", {})}
    return {**facts, **more}


def on_deep(made, length=128):
    """The same with the 4 GB target and the budget of the headline."""
    return {**made, "models": [{"name": "deep"}], "factors": {**made["factors"], "budget": "1.2G", "length": length}}


class Reports(unittest.TestCase):
    ROWS = [
        answer("ar", "code", "p1", 2.0),
        answer("lever", "code", "p1", 20.0),
        answer("ar", "code", "p2", 4.0),
        answer("lever", "code", "p2", 16.0),
        answer("lever", "code", "p3", 99.0),  # without a partner
        answer("ar", "maths", "p4", 2.0),
        answer("lever", "maths", "p4", 6.0),
        {**answer("lever", "maths", "p5", 50.0), "status": "failed", "reason": "it fell"},
    ]

    def lines(self, table, **wanted):
        return [line for line in table if all(line.get(k) == v for k, v in wanted.items())]

    def test_medians_spreads_and_means_over_tasks(self):
        table = reports.speed(self.ROWS)
        (code,) = self.lines(table, strategy="lever", task="code")
        self.assertEqual((code["n"], code["median"], code["least"], code["most"]), (3, 20, 16, 99))
        self.assertEqual(code["over plain"], 7)  # of 10 and 4: a row without a partner is in no ratio
        (maths,) = self.lines(table, strategy="lever", task="maths")
        self.assertEqual((maths["n"], maths["over plain"]), (1, 3))
        (mean,) = self.lines(table, strategy="lever", task="mean")
        self.assertEqual((mean["median"], mean["over plain"], mean["n"]), (13, 5, 4))

    def test_a_mean_is_over_all_tasks_or_those_that_are_named(self):
        tasks = {"code": 3, "maths": 2, "dialogue": 1, "editing": 50}
        self.assertEqual(arithmetic.mean_over_tasks(tasks), 14)
        self.assertEqual(arithmetic.mean_over_tasks(tasks, rows.TASKS), 2)
        self.assertIsNone(arithmetic.mean_over_tasks({}))

    def test_speed_over_memory_resident_plain_decoding(self):
        """Of the same prompt in the same run, whatever share the row has; tasks weigh alike, whatever they have in prompts."""
        made = []
        for prompt, task, rates in (("p1", "code", (1, 4, 5, 10)), ("p2", "code", (1, 6, 5, 10)), ("p3", "maths", (2, 3, 6, 12))):
            for (budget, arm), rate in zip((("0%", "ar"), ("0%", "lever"), ("100%", "ar"), ("100%", "lever")), rates):
                made.append(answer(arm, task, prompt, rate, pair=f"{budget} {prompt}", factors={"budget": budget}))
        found = {(line["share"], line["strategy"]): line for line in reports.budget(made)}
        streamed = found[0, "lever"]
        self.assertEqual((streamed["n"], streamed["mean"], streamed["code"], streamed["least"], streamed["most"]), (3, 4, 5, 3, 6))
        self.assertEqual((streamed["over plain"], streamed["over resident"]), ((5 + 1.5) / 2, (1 + 0.5) / 2))
        self.assertEqual((found[100, "lever"]["over resident"], found[100, "ar"]["over resident"], found[0, "ar"]["over plain"]), (2, 1, None))
        without = [row for row in made if row["factors"]["budget"] == "0%"]
        self.assertEqual({line["over resident"] for line in reports.budget(without)}, {None})

    def test_lines_stand_in_the_order_of_their_numbers(self):
        (disk,) = [one for one in reports.REPORTS if one.name == "disk"]
        made = [{**answer(arm, "code", "p", 1.0), "limits": {"read_bytes_per_second": speed}}
                for speed, arms in ((1e9, ("lever", "ar")), (2e8, ("ar", "lever")), (2.5e9, ("ar",))) for arm in arms]
        self.assertEqual([(line["GB/s"], line["strategy"]) for line in disk.table(made)],
                         [(0.2, "lever"), (0.2, "ar"), (1, "lever"), (1, "ar"), (2.5, "ar")])

    def test_a_draft_that_is_refused_is_a_line(self):
        pair = {"models": [{"name": "t"}, {"name": "d"}]}
        other = {"models": [{"name": "t"}, {"name": "stranger"}], "values": {}, "status": "failed", "reason": "their vocabularies differ"}
        lines = reports.drafts([{**answer("lever", "code", "q", 0), **other}, answer("lever", "code", "p", 4.0, **pair)])
        self.assertEqual([[line[key] for key in ("draft", "n", "mean", "code", "status", "message")] for line in lines],
                         [["stranger", 0, None, None, "failed", "their vocabularies differ"], ["d", 1, 4, 4, "ok", ""]])
        self.assertEqual(report.csv_text(lines).splitlines()[0], "draft,strategy,n,mean,least,most,code,status,message")

    def test_the_number_beside_a_mean_is_of_what_it_is_the_mean_of(self):
        made = [answer("lever", task, task, rate) for task, rate in (("code", 3), ("maths", 2), ("dialogue", 1), ("editing", 50))]
        (mean,) = self.lines(reports.speed(made), task="mean")
        self.assertEqual((mean["n"], mean["median"]), (4, 14))
        made += [answer("ar", row["factors"]["task"], row["factors"]["task"], 1) for row in made]
        deep = [on_deep(row) for row in made]
        line = headline.headline(deep)[0]
        self.assertEqual((line["rounds"], line["mean of three"]), (3, 2))

    def test_ratios_join_no_rows_of_different_runs(self):
        def run(seed, lever, ar):
            command = {"command": ["lever", "bench", "--seed", seed, "--out", seed + ".jsonl"]}
            return [answer("lever", "code", "p", lever, **command), answer("ar", "code", "p", ar, **command)]

        made = [*run("1", 8, 4), *run("2", 9, 1)]
        self.assertEqual([ratio for _, ratio in arithmetic.paired(made, "ar")], [2, 9])
        self.assertEqual([ratio for _, ratio in arithmetic.best_of_pair(made, "lever", ("ar",))], [2, 9])
        for other in ({"program": {"sha256": "x"}}, {"models": [{"sha256": "x"}]}, {"stdin_sha256": "x"}, {"pair": None}):
            apart = [made[0], {**made[1], **other}]
            self.assertEqual(list(arithmetic.paired(apart, "ar")), [], other)
        gone_on = [made[0], {**made[1], "command": ["lever", "bench", "--resume", "1.jsonl", "--seed", "1"]}]
        self.assertEqual(len(list(arithmetic.paired(gone_on, "ar"))), 1)

    def test_the_best_of_a_pair_is_not_taken_where_a_peer_is_missing(self):
        def rates(prompt, **arms):
            made = [answer(arm, "code", prompt, rate, benchmark="equal_memory") for arm, rate in arms.items()]
            return [{**row, "pair": prompt + "@1"} for row in made]

        made = [*rates("p0", lever=8, peer=2, peer_ngram=4), *rates("p1", lever=8, peer=2)]
        self.assertEqual([ratio for _, ratio in arithmetic.best_of_pair(made, "lever", headline.PEERS)], [2])
        (fell,) = rates("p1", peer_ngram=0)
        made.append({**fell, "status": "failed", "reason": "killed", "values": {}})
        self.assertEqual([ratio for _, ratio in arithmetic.best_of_pair(made, "lever", headline.PEERS)], [2, 4])

    def test_the_ablation_compares_plain_decoding_with_itself(self):
        made = [answer(arm, "code", "p", rate) for arm, rate in (("lever", 8), ("lever+lru", 4), ("ar", 2), ("ar+lru", 1))]
        lines = [line for line in reports.ablation(made) if line["task"] == "code"]
        self.assertEqual([(line["strategy"], line["median"]) for line in lines], [("lever+lru", 0.5), ("ar+lru", 0.5)])

    def test_the_ablation_has_the_rows_of_the_predictor(self):
        (one,) = [one for one in reports.REPORTS if one.name == "ablation"]
        with tempfile.TemporaryDirectory() as folder:
            for name in ("ablation.jsonl", "pruning.jsonl", "speed.jsonl"):
                with open(os.path.join(folder, name), "w", encoding="utf-8"):
                    pass
            found = [os.path.basename(path) for path in report.files_of(one, folder)]
        self.assertEqual(found, ["ablation.jsonl", "pruning.jsonl"])
        self.assertIn("lever+no-prune", report.command_of(one, "raw"))

    def test_stages_add_up_to_the_time_of_a_token(self):
        found = reports.stage_seconds(self.ROWS[0])
        self.assertAlmostEqual(sum(found.values()), 100)  # ms
        self.assertEqual([round(found[stage]) for stage in reports.STAGES], [10, 10, 40, 30, 10])

    PHONES = [
        {"phone": "x", "section": "root", "pinned_percent": share, "arm": arm, "task": task, "prompt": "0",
         "seconds_per_token": seconds, "energy_per_token": energy, "tokens": "7", "cycles": "3", "nodes_verified": "11"}
        for share, arm, task, seconds, energy in (
            ("0", "ar", "code", "1.0", "1"), ("0", "lever", "code", "0.25", "0.5"), ("0", "ar", "math", "1.0", "1"),
            ("0", "lever", "math", "0.5", "0.5"), ("0", "lever", "dialogue", "0.5", "0.5"), ("0", "no NPU", "code", "0.5", "1"),
            ("100", "ar", "code", "0.1", "0.2"), ("100", "lever", "code", "0.05", "0.1"))
    ]

    def test_rows_of_the_phones(self):
        """In the order of the cases whatever ends first, and with what the command tells, not what is made of it anew."""
        told = {"completion_tokens": 5, "cycles": 2, "decode_seconds": 8, "energy_joules": 10, "energy_per_token": 2.5,
                "phone": {"name": "X", "section": "app", "target": "t", "draft": "d", "temperature": 25, "speed": 1}}
        options = types.SimpleNamespace(prompts=None, per_task=1, skip=0, jobs=3, lever="lever", model="t", draft="d",
                                        shapes="t,d", tokens=5)
        calls = []

        def run(command, env, **_):
            calls.append((command[command.index("--phone") + 1], env["LEVER_THREADS"]))
            return types.SimpleNamespace(stdout=json.dumps(told))

        with unittest.mock.patch.object(phones.subprocess, "run", run):
            made = list(phones.run_all(options, ["x:root", "x:app"], (0, 90), ("ar", "lever")))
        self.assertEqual([(r["pinned_percent"], r["arm"]) for r in made[:2] + made[6:8]], [(0, "ar"), (0, "lever"), (90, "ar"), (90, "lever")])
        self.assertEqual(len(made), 2 * 2 * 3 * 2)
        self.assertEqual(sorted(set(calls)), [("x:app", "1"), ("x:root", "1")])
        self.assertEqual({(r["energy_per_token"], r["seconds_per_token"], r["tokens_per_cycle"]) for r in made}, {(2.5, 2, 2)})

    def test_phones(self):
        (lever,) = self.lines(simulated.phones([r for r in self.PHONES if r["pinned_percent"] == "0"]), strategy="lever")
        self.assertEqual((lever["over plain"], lever["code"], lever["maths"], lever["n"]), (3, 4, 2, 2))
        self.assertEqual((lever["mJ a token"], lever["energy / plain"]), (500, 0.5))

    def test_shares_of_the_phones(self):
        """Against plain decoding with the same share, and against all in memory where that was run for the task."""
        code = [r for r in self.PHONES if r["task"] == "code"]
        (streamed,) = self.lines(simulated.shares(code), strategy="lever", share=0)
        (resident,) = self.lines(simulated.shares(code), strategy="lever", share=100)
        self.assertEqual([streamed[key] for key in ("over plain", "over resident", "energy / plain")], [4, 0.4, 0.5])
        self.assertEqual([resident[key] for key in ("over plain", "over resident", "energy / plain")], [2, 2, 0.5])

    def test_a_part_left_out_on_a_phone(self):
        (line,) = simulated.ablation(self.PHONES)
        self.assertEqual([line[key] for key in ("strategy", "share", "over whole", "code", "energy / whole")], ["no NPU", 0, 0.5, 0.5, 2])

    def test_energy_where_it_was_measured(self):
        rows_made = [answer("lever", "code", "p1", 5.0, values={"energy_joules": 50.0}), answer("ar", "code", "p1", 1.0)]
        table = reports.flash_and_energy(rows_made)
        (joules,) = self.lines(table, what="mJ a token", task="code")
        self.assertEqual((joules["strategy"], joules["median"]), ("lever", 500))
        self.assertEqual({line["median"] for line in self.lines(table, what="MiB read a token")}, {1})

    def test_acceptance_by_depth(self):
        def node(i, parent, a):
            return {"i": i, "parent": parent, "a": a, "verified": True}

        nodes = [node(1, 0, 0.5), node(2, 0, 0.25), node(3, 1, 0.5), {**node(4, 3, 0.9), "verified": False}]
        table = traces.acceptance([{"path": [1], "nodes": nodes}, {"path": [], "nodes": nodes}])
        self.assertEqual(table[0], {"depth": 1, "offered": 2, "measured": 0.5, "expected": 0.75})
        self.assertEqual(table[1], {"depth": 2, "offered": 1, "measured": 0, "expected": 0.5})
        self.assertEqual(len(table), 2)

    EVENTS = [{"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "target"}}] + [
        {"name": f"{cat} {number}", "cat": cat, "ph": "X", "pid": 1, "tid": tid, "ts": ts, "dur": dur}
        for cycle in range(6)
        for cat, number, tid, ts, dur in (
            ("cycle", cycle, 1, cycle * 1000.0, 1000.0), ("pass rows", 9, 1, cycle * 1000 + 300.0, 500.0),
            ("layer", 0, 1, cycle * 1000 + 300.0, 500.0), ("wait block", 0, 1, cycle * 1000 + 300.0, 100.0),
            ("head rows", 9, 1, cycle * 1000 + 800.0, 200.0), ("draft rows", 1, 1, cycle * 1000.0, 300.0),
            ("draft rows", 2, 2, cycle * 1000 + 500.0, 100.0), ("read block", 0, 9, cycle * 1000 - 500.0, 1000.0))
    ]

    def test_a_timeline_shows_what_runs_beside_what_in_a_few_cycles(self):
        lines = traces.timeline(self.EVENTS)
        self.assertEqual(list(dict.fromkeys(line["track"] for line in lines)),
                         ["reads, lane 1", "waits for a block", "layers", "head", "draft, before the pass", "draft, beside the pass"])
        (*_, (begin, end)) = [(line["begin"], line["end"]) for line in lines if line["track"] == "layers"]
        self.assertEqual((begin, end), (2.3, 2.8))  # ms, of the third of the cycles that are shown
        reads = [(line["begin"], line["end"]) for line in lines if line["what"] == "read block"]
        self.assertEqual(reads, [(0, 0.5), (0.5, 1.5), (1.5, 2.5), (2.5, 3)])  # cut at both ends
        self.assertEqual(traces.timeline([]), [])

    def test_every_report_copes_with_rows_of_others_and_with_none(self):
        for one in reports.REPORTS:
            with self.subTest(name=one.name):
                self.assertIsInstance(one.table([]), list)
                if one.reads == "rows" and not one.name.startswith(("entropy", "phones")):
                    one.table(self.ROWS)
                self.assertTrue(report.missing(one, "raw").startswith("no rows"))

    def test_rows_measured_again_count_once(self):
        first, again = answer("ar", "code", "p", 1.0), answer("ar", "code", "p", 2.0)
        self.assertEqual(report.newest([first, again]), [again])
        self.assertEqual(report.newest([first, {**again, "status": "failed"}]), [first])

    def test_pages_are_filled_between_their_marks(self):
        text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb"
        self.assertEqual(report.between(text, "x", "new"), "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb")
        self.assertEqual(report.between(text, "x", ""), "a\n<!-- begin x -->\n<!-- end x -->\nb")
        self.assertEqual(report.between(text, "y", "new"), text)
        with open(os.path.join(report.ROOT, "docs", "RESULTS.md"), encoding="utf-8") as file:
            page = file.read()
        for one in reports.REPORTS:
            if one.name not in ("timeline", "phones-timeline", "prediction"):  # too long for a page
                self.assertTrue(f"<!-- begin {one.name} -->" in page, one.name)
            self.assertEqual(f"<!-- begin {one.name} figure -->" in page, one.plot is not None, one.name)

    def test_command_writes_csv_and_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            raw = os.path.join(folder, "raw")
            os.mkdir(raw)
            with open(os.path.join(raw, "speed.jsonl"), "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in self.ROWS)
            tool = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "report.py")]
            places = ["--no-plots", "--raw", raw, "--out", folder]
            done = subprocess.run([*tool, "speed", *places], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(folder, "speed.csv"), encoding="utf-8") as file:
                self.assertEqual(file.readline(), "strategy,task,n,median,least,most,over plain\n")
                self.assertEqual(file.readline(), "ar,code,2,3.0,2.0,4.0,\n")
            done = subprocess.run([*tool, "length", *places], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--lengths 32,", done.stdout)
            done = subprocess.run([*tool, "lenght", *places], capture_output=True, text=True, check=False)
            self.assertIn("no report 'lenght'", done.stderr)


class Plots(unittest.TestCase):
    """On rows with two of everything that tells rows apart: a column that a plot forgets puts two lines at one place."""

    TRACES = [{"strategy": "lever", "path": [1], "seconds": 2.0, "seconds_expected": 1.9, "draft_seconds": 0.5,
               "pass_seconds": 1.0, "head_seconds": 0.25, "tokens": 2, "tokens_expected": 1.5,
               "nodes": [{"i": 1, "parent": 0, "a": 0.5, "verified": True}]}] * 3
    CODED = {"streamed_bytes": 5, "entropy_share": 0.9, "coded_share": 0.9, "decode_bytes_per_second": 1e9,
             "breakeven_own_core": 9e8, "breakeven_shared_core": 1e8}

    @staticmethod
    def answers():
        cases = (("0%", 64, 0, "a"), ("100%", 64, 0, "b"), ("100%", 128, 0.8, "b"), ("1.2G", 128, 0.8, "b"))
        for arm, task, case in itertools.product(("lever", "ar", "chain:8", "lever+no-ahead"), (*rows.TASKS, "summary"), cases):
            budget, length, heat, draft = case
            made = answer(arm, task, f"{task}{cases.index(case)}", 5.0, values={"energy_joules": 5.0},
                          factors={"budget": budget, "length": length, "temperature": heat})
            yield {**made, "limits": {"read_bytes_per_second": 1e9 + heat}, "models": [{"name": "deep"}, {"name": draft}]}

    @classmethod
    def given(cls, one):
        if one.reads != "rows":
            return {"cycles": cls.TRACES, "events": Reports.EVENTS}[one.reads]
        if one.name.startswith("phones"):
            return [{**row, "phone": phone, "section": section, "pinned_percent": share, "task": "code"}
                    for row in Reports.PHONES for phone in ("x", "y") for section in ("root", "app") for share in ("0", "100")
                    if not (one.name == "phones" and share == "100" or one.name != "phones" and phone == "y")]
        if one.name == "entropy":
            return [{"case": model, "status": "ok", "values": {**cls.CODED, "type": kind}} for model in "xy" for kind in ("Q4_0", "Q8_0")]
        return list(cls.answers())

    def test_no_line_hides_another(self):
        for one in reports.REPORTS:
            if one.plot and one.plot.kind in ("bars", "lines", "stack"):
                with self.subTest(name=one.name):
                    series = plots.placed(one.table(self.given(one)), one.plot)
                    self.assertGreater(len(series), 0)
                    self.assertGreater(len(next(iter(series.values()))), 0)

    def test_two_lines_at_one_place_are_refused(self):
        lines = [{"phone": "x", "section": section, "arm": "a", "y": y} for section, y in (("root", 1), ("app", 2))]
        with self.assertRaisesRegex(ValueError, "two lines at 'x' of 'a'"):
            plots.placed(lines, reports.Plot("bars", "phone", "y", "arm"))
        found = plots.placed(lines, reports.Plot("bars", ("phone", "section"), "y", "arm"))
        self.assertEqual({place: line["y"] for place, line in found["a"].items()}, {"x, root": 1, "x, app": 2})

    def test_a_mean_stands_for_its_tasks_where_these_have_no_place(self):
        lines = [{"arm": "a", "task": task, "y": y} for task, y in (("code", 1), ("maths", 3), ("mean", 2))]
        self.assertEqual(plots.placed(lines, reports.Plot("bars", "arm", "y")), {"": {"a": lines[2]}})
        self.assertEqual(len(plots.placed(lines, reports.Plot("bars", "task", "y", "arm"))["a"]), 3)

    def test_figures_without_a_display(self):
        try:
            import matplotlib  # pylint: disable=unused-import,import-outside-toplevel
        except ImportError:
            self.skipTest("no matplotlib in this Python (bench/requirements.txt)")
        kept = os.environ.pop("DISPLAY", None)
        try:
            with tempfile.TemporaryDirectory() as folder:
                for one in (one for one in reports.REPORTS if one.plot):
                    for path in plots.draw(one, one.table(self.given(one)), folder):
                        self.assertGreater(os.path.getsize(path), 1000, path)
        finally:
            if kept is not None:
                os.environ["DISPLAY"] = kept


class Published(unittest.TestCase):
    """What is committed is what the rows give: a table that was changed by hand, or not made anew, is found."""

    RAW, OUT = (os.path.join(report.ROOT, "docs", "results", *more) for more in (("raw",), ()))

    @classmethod
    def setUpClass(cls):
        cls.tables = {}
        for one in reports.REPORTS:
            paths = report.files_of(one, cls.RAW)
            cls.tables[one.name] = report.make_table(one, paths) if paths else None

    def said(self, name):
        return f"{name} is not what its rows give: bench/report.py --update"

    def test_every_table_is_that_of_its_rows(self):
        there = {name for name in os.listdir(self.OUT) if name.endswith(".csv")}
        self.assertEqual(there, {name + ".csv" for name, lines in self.tables.items() if lines}, self.said("the list of tables"))
        for name in sorted(there):
            with open(os.path.join(self.OUT, name), encoding="utf-8", newline="") as file:
                self.assertTrue(file.read() == report.csv_text(self.tables[name.removesuffix(".csv")]), self.said(name))

    def test_every_figure_is_there(self):
        for one in reports.REPORTS:
            if one.plot and one.plot.kind in ("bars", "lines", "stack") and self.tables[one.name]:
                self.assertGreater(len(plots.placed(self.tables[one.name], one.plot)), 0, one.name)
        wanted = {one.name + end for one in reports.REPORTS if one.plot and self.tables[one.name] for end in (".svg", ".png")}
        self.assertEqual({name for name in os.listdir(self.OUT) if name.endswith((".svg", ".png"))}, wanted)

    def test_every_page_shows_them(self):
        options = types.SimpleNamespace(raw=self.RAW, out=self.OUT)
        for page in report.PAGES:
            with open(os.path.join(report.ROOT, page), encoding="utf-8") as file:
                text = file.read()
            self.assertTrue(report.page_with(page, text, self.tables, options) == text, self.said(page))

    def test_no_other_page_has_marks(self):
        pages = [*pathlib.Path(report.ROOT, "docs").glob("*.md"), *pathlib.Path(report.ROOT).glob("*.md")]
        marked = {str(page.relative_to(report.ROOT)) for page in pages if "<!-- begin " in page.read_text(encoding="utf-8")}
        self.assertLessEqual(marked, set(report.PAGES))

    def test_rows_name_no_folders(self):
        for path in pathlib.Path(self.RAW).glob("*.jsonl"):
            for made in rows.read([str(path)]):
                told = " ".join([made["reason"], *made.get("command", [])])
                self.assertNotRegex(told, r"(^|[ '])/(root|home|tmp|work|mnt)/", path.name)


class Headline(unittest.TestCase):
    @staticmethod
    def found(made):
        return {(line["target and memory"], line["lever over"], line["tokens"]): line for line in headline.headline(made)}

    def test_each_comparison_by_task(self):
        made = []
        for task, ar, chain8, chain16, lever in (("code", 1, 4, 6, 9), ("maths", 1, 5, 4, 8), ("dialogue", 1, 2, 3, 4)):
            rates = {"ar": ar, "chain:8": chain8, "chain:16": chain16, "lever": lever}
            made += [on_deep(answer(arm, task, task, rate)) for arm, rate in rates.items()]
        for task, plain, drafted, lever in (("code", 0.5, 2, 8), ("maths", 0.5, 1, 8), ("dialogue", 0.5, 1, 2)):
            for arm, rate in (("peer", plain), ("peer_chain_8", drafted), ("lever", lever)):
                made.append(on_deep(answer(arm, task, "peers " + task, rate, benchmark="equal_memory")))
        found = self.found(made)
        ram, group = "4 GB, --ram 1.2G for each", "4 GB, a control group of 1.2G for each"
        plain = found[ram, "plain decoding", 128]
        self.assertEqual((plain["code"], plain["maths"], plain["dialogue"], plain["mean of three"]), (9, 8, 4, 7))
        self.assertEqual((plain["verdict"], plain["rounds"]), ("reached", 3))
        chain = found[ram, "chain of 16, the best of 8, 16", 128]
        self.assertAlmostEqual(chain["mean of three"], (9 / 6 + 8 / 4 + 4 / 3) / 3)
        self.assertEqual(found[group, "llama.cpp, mmap, plain", 128]["mean of three"], 12)
        self.assertEqual(found[group, "llama.cpp's best", 128]["mean of three"], (4 + 8 + 2) / 3)
        self.assertEqual(found["default pair, --ram 900M for each", "plain decoding", None]["verdict"], "not measured")

    def test_lengths_of_the_answer_are_judged_apart(self):
        """A mean of short answers, which miss, and long ones, which reach, would say that all is well."""
        made = []
        for length, lever in ((64, 1), (192, 4)):
            for task in rows.TASKS:
                of_length = {"pair": f"{task} {length}", "benchmark": "equal_memory"}
                made += [on_deep(answer(arm, task, task, rate, **of_length), length) for arm, rate in (("lever", lever), ("peer_resident", 2))]
        lines = [line for line in headline.headline(made) if line["lever over"].endswith("all 4 GB in memory")]
        self.assertEqual([(line["tokens"], line["rounds"], line["mean of three"], line["verdict"]) for line in lines],
                         [(64, 3, 0.5, "missed"), (192, 3, 2, "reached")])

    def test_another_budget_is_another_comparison(self):
        made = [on_deep(answer(arm, "code", "p", rate)) for arm, rate in (("lever", 9), ("ar", 1))]
        other = [{**row, "pair": "q", "factors": {**row["factors"], "budget": "3G"}} for row in made]
        self.assertEqual(headline.headline([*made, *other])[0]["rounds"], 1)

    def test_the_best_chain_is_that_of_its_length_of_answers(self):
        """One of another length, or one that was run for the easy task only, is no competitor."""
        made = [on_deep(answer("chain", task, f"{task} 192", 5, command=["lever", "run", "--chain-length", "12"]), 192) for task in rows.TASKS]
        made += [on_deep(answer("lever", task, f"{task} 192", 10, command=["lever", "run", "-n", "192"], benchmark="equal_ram"), 192)
                 for task in rows.TASKS]
        made = [{**row, "benchmark": "equal_ram"} for row in made]
        for arm, rates in (("chain:8", (4, 4, 4)), ("chain:16", (5, 5, 5)), ("chain:24", (9,)), ("lever", (10, 10, 10))):
            made += [on_deep(answer(arm, task, task, rate), 96) for task, rate in zip(rows.TASKS, rates)]
        lines = [line for line in headline.headline(made) if line["lever over"].startswith("chain")]
        self.assertEqual([(line["lever over"], line["tokens"], line["mean of three"]) for line in lines],
                         [("chain of 16, the best of 8, 16, 24", 96, 2), ("chain of 12", 192, 2)])

    def test_a_sweep_of_chains_alone_is_no_line_of_the_headline(self):
        made = [on_deep(answer("chain:8", task, task, 4), 48) for task in rows.TASKS]
        made += [on_deep(answer(arm, task, f"{task} 96", rate), 96) for arm, rate in (("lever", 9), ("chain:12", 3)) for task in rows.TASKS]
        lines = [line for line in headline.headline(made) if line["lever over"].startswith("chain")]
        self.assertEqual([(line["lever over"], line["tokens"]) for line in lines], [("chain of 12", 96)])

    def test_chains(self):
        made = [on_deep(answer(arm, task, task, rate)) for arm, rate in (("lever", 6), ("chain:8", 2), ("chain:12", 3)) for task in rows.TASKS]
        lines = headline.chains(made)
        self.assertEqual([(line["strategy"], line["n"], line["mean"], line["lever over it"]) for line in lines],
                         [("lever", 3, 6, None), ("chain:8", 3, 2, 3), ("chain:12", 3, 3, 2)])

    def test_a_peer_that_failed_is_a_result(self):
        facts = {"benchmark": "equal_memory", "program": {"name": "llama.cpp", "version": "1"},
                 "limits": {"cgroup_bytes": 900 << 20}}
        made = [answer("peer", task, task, rate, **facts) for task, rate in (("code", 1), ("maths", 3))]
        made += [{**answer("peer_direct", task, task, 0, **facts), "status": "failed", "values": {},
                  "reason": f"exit code -9 (killed): 0.00.{clock}.294 W load: said | last"} for task, clock in (("code", 427), ("maths", 501))]
        made.append({**answer("peer", "dialogue", "d", 0, **facts), "status": "failed", "reason": "it fell", "values": {}})
        plain, direct = headline.peers(made)
        self.assertEqual([plain[key] for key in ("way", "memory", "version", "n", "mean", "code", "status", "message")],
                         ["mmap, plain", "900M", "1", 2, 2, 1, "1 of 3 failed", "it fell"])
        self.assertEqual([direct[key] for key in ("way", "n", "mean", "maths", "status", "message")],
                         ["direct I/O, plain", 0, None, None, "failed", "exit code -9 (killed): W load: said | last"])
        self.assertIn("said \\| last", report.markdown([direct]))


class Beside(unittest.TestCase):
    @staticmethod
    def found(made):
        return {line["what"]: line for line in beside.beside(made)}

    @staticmethod
    def share(arm, rate, budget="0%", **values):
        made = answer(arm, "code", "p " + budget, rate, factors={"budget": budget}, benchmark="share", values=values)
        return made if arm != "peer" else {**made, "factors": {}}  # a peer is of its round alone

    def test_each_figure_of_the_paper(self):
        made = [self.share("lever", 12, bytes_read=20, nodes_verified=60, nodes_accepted=25, cycles=10),
                self.share("ar", 3, bytes_read=100, nodes_verified=100, nodes_accepted=0, cycles=100),
                self.share("chain", 6, bytes_read=50, nodes_verified=30, nodes_accepted=16, cycles=10),
                self.share("edge", 8, bytes_read=50, nodes_verified=40, nodes_accepted=10, cycles=10),
                self.share("peer", 16), self.share("lever", 24, "50%"), self.share("peer", 16, "50%")]
        found = self.found(made)
        here = [line["here"] for line in found.values()]
        self.assertEqual([own and round(own, 9) for own in here], [4, 2, 1.5, 0.75, 1.5, 0.8, None, 0.5, 0.8, 2, 1.5])
        self.assertEqual({line["code"] for line in found.values()}, set(here))
        self.assertEqual(found["speed over a chain of drafted tokens"]["paper"], 1.5)
        self.assertEqual({line["found in"] for line in found.values()}, {"the abstract", "one summary only", ""})
        self.assertEqual(beside.beside([]), [])

    def test_simulated_phones_stand_beside(self):
        found = self.found([row for row in Reports.PHONES if row["pinned_percent"] == "0"])
        speed = found["speed over plain decoding from flash"]
        self.assertEqual((speed["here"], speed["simulated phones"]), (None, 3))
        self.assertEqual(found["energy a token, less than plain decoding's by"]["simulated phones"], 0.5)
        self.assertEqual(found["accepted of the candidates verified, lever"]["simulated phones"], (7 - 3) / (11 - 3))


class Compare(unittest.TestCase):
    @staticmethod
    def rows(rates, arm="lever"):
        return [answer(arm, "code", f"p{i}", rate) for i, rate in enumerate(rates)]

    def verdict(self, before, after, lower=False):
        logs = compare.paired_logs(self.rows(before), self.rows(after), "decode_tokens_per_second")
        return compare.verdict(logs.get("lever", []), lower)

    def test_verdicts(self):
        base = [10.0, 20.0, 5.0, 8.0, 12.0, 30.0]
        self.assertEqual(self.verdict(base, [r * f for r, f in zip(base, (0.9, 0.85, 0.92, 0.88, 0.9, 0.95))]), "slower")
        self.assertEqual(self.verdict(base, [r * f for r, f in zip(base, (1.1, 1.2, 1.05, 1.1, 1.1, 1.2))]), "faster")
        noisy = [r * f for r, f in zip(base, (0.8, 1.25, 1.1, 0.9, 1.2, 0.85))]
        self.assertEqual(self.verdict(base, noisy), "no difference beyond noise")
        self.assertEqual(self.verdict(base, base), "no difference beyond noise")
        self.assertEqual(self.verdict(base[:4], [1.0] * 4), "too few pairs")
        self.assertEqual(self.verdict(base, [r * 1.2 for r in base], lower=True), "slower")

    def test_several_runs_in_a_file_are_compared_one_by_one(self):
        logs = compare.paired_logs([*self.rows([10.0]), *self.rows([20.0])], [*self.rows([20.0]), *self.rows([10.0])], "decode_tokens_per_second")
        self.assertEqual([round(math.exp(log), 9) for log in logs["lever"]], [2, 0.5])

    def test_the_mean_is_geometric_and_the_interval_holds_it(self):
        mean, low, high = compare.interval([math.log(2), math.log(0.5), math.log(2), math.log(0.5)])
        self.assertAlmostEqual(mean, 1)
        self.assertLess(low, 1)
        self.assertGreater(high, 1)

    def test_exit_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, rates in (("a", [10.0] * 6), ("b", [8.0] * 6), ("c", [11.0] * 6), ("d", [10.0] * 2)):
                paths.append(os.path.join(folder, name))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in self.rows(rates))
            for other, code in zip(paths[1:] + ["/nowhere"], (1, 0, 2, 2)):
                kept, sys.argv = sys.argv, ["compare.py", paths[0], other]
                try:
                    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                        self.assertEqual(compare.main(), code, other)
                finally:
                    sys.argv = kept


class Entropy(unittest.TestCase):
    def test_bits(self):
        self.assertEqual(entropy.entropy({0: 4}), 0)
        self.assertEqual(entropy.entropy({0: 2, 1: 2}), 1)
        self.assertEqual(entropy.entropy_by_position(bytes([0, 1, 0, 2, 0, 1, 0, 2]), 2), 0.5)
        self.assertEqual(entropy.nibble_entropy(bytes([0x00, 0x10])), 1)

    def test_fields_keep_every_byte(self):
        kind = gguf.Type("T", 2, 4, (1, 3))
        self.assertEqual(entropy.fields(bytes(range(8)), kind), [bytes([1, 5]), bytes([3, 7]), bytes([0, 2, 4, 6])])


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


    def test_llama_speculation(self):
        text = "0.1 I encoded   4 tokens in    0.751 seconds\n0.1 I decoded   13 tokens in    6.500 seconds, speed: 2 t/s\n"
        self.assertEqual(LlamaCpp.parse_speculation(runner.Result(stderr=text))["decode_tokens_per_second"], 2)
        with self.assertRaises(ValueError):
            LlamaCpp.parse_speculation(runner.Result(stderr="0.1 I decoded 1 tokens in 0.1 seconds"))

    def test_gpt4all(self):
        said = 'Failed to load x.so: {no}\n{"completion_tokens": 5, "first_token_seconds": 9.0, "decode_seconds": 2.0}\n'
        self.assertEqual(Gpt4all.parse(runner.Result(stdout=said))["decode_tokens_per_second"], 2)
        with self.assertRaisesRegex(ValueError, "no figures"):
            Gpt4all.parse(runner.Result(stdout="Killed"))

    def test_every_way_of_llama_cpp_is_asked_for(self):
        peer = LlamaCpp("/peer", None)
        target, draft = (types.SimpleNamespace(path=path) for path in ("/t.gguf", "/d.gguf"))
        commands = {
            "direct": peer.complete(target, "p", 8, load="dio"),
            "chain": peer.chain(target, draft, "p", 8, 16),
            "ngram": peer.ngram(target, "p", 8),
        }
        wanted = {"direct": ["--load-mode", "dio"], "chain": ["--spec-draft-n-max", "16"], "ngram": ["--spec-type", "ngram-simple"]}
        for name, words in wanted.items():
            at = commands[name].index(words[0])
            self.assertEqual(commands[name][at : at + 2], words)
            self.assertIn("--no-repack", commands[name])
        self.assertNotIn("-md", commands["ngram"])


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

    def test_half_a_line_of_a_run_that_was_killed_is_cut_off(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.jsonl")
            for left, kept in (('{"schema": 2, "benchm', 1), ('{"schema": 2, "benchmark": "b"}', 2), ("", 1)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write('{"schema": 2, "benchmark": "a"}\n' + left)
                self.assertEqual(len(rows.read([path])), kept, left)
                writer = rows.Writer(path, {}, {})
                writer.write({"benchmark": "new"})
                writer.close()
                self.assertEqual([row["benchmark"] for row in rows.read([path])][kept:], ["new"], left)
            with open(path, "w", encoding="utf-8") as file:
                file.write("a diary without an end")
            with self.assertRaisesRegex(ValueError, "not appended"):
                rows.Writer(path, {}, {})
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"schema": 2, "ben{"schema": 2}\n')
            with self.assertRaisesRegex(ValueError, "rows.jsonl:1: not a row"):
                rows.read([path])


class Caches(unittest.TestCase):
    def test_arms_learn_apart_from_each_other_and_from_the_user(self):
        with tempfile.TemporaryDirectory() as users:
            for name in ("disk-8-0.profile", "pair-1.predictor", "pair-1.costs", "chat_history"):
                with open(os.path.join(users, name), "w", encoding="utf-8") as file:
                    file.write(name)
            caches = measure.Caches(users)
            folders = [caches.environment("b", "c", arm)["XDG_CACHE_HOME"] for arm in ("lever", "chain", "lever")]
            self.assertEqual(folders[0], folders[2])
            self.assertNotEqual(folders[0], folders[1])
            for folder in folders:
                self.assertEqual(sorted(os.listdir(os.path.join(folder, "lever"))), ["disk-8-0.profile", "pair-1.predictor"])
            self.assertFalse(os.path.realpath(folders[0]).startswith(os.path.realpath(users)))
            caches.close()
            self.assertFalse(os.path.exists(folders[0]))

    def test_only_commands_of_lever_get_one(self):
        with tempfile.TemporaryDirectory() as folder:
            options = types.SimpleNamespace(pause=0, prompts=None, repetitions=None, tokens=8)
            writer = rows.Writer(os.path.join(folder, "rows.jsonl"), {}, {})
            own, peer = (types.SimpleNamespace(facts=dict) for _ in range(2))
            bench = measure.Bench(options, writer, own, peer, None, folder)
            seen = {}

            def arm(name, program):
                command = ["sh", "-c", "echo $XDG_CACHE_HOME"]
                return measure.Arm(name, program, [], command, lambda result: seen.setdefault(name, set()).add(result.stdout) or {})

            with contextlib.redirect_stderr(io.StringIO()):
                bench.rounds("b", "c", lambda _: [arm("lever", own), arm("chain", own), arm("peer", peer)], 2)
                bench.measure("b", "c", arm("lever", own), 0, "b/c#0")
            writer.close()
            bench.close()
            self.assertEqual({name: len(found) for name, found in seen.items()}, {"lever": 1, "chain": 1, "peer": 1})
            self.assertEqual(len(set.union(*seen.values())), 3)
            self.assertEqual(seen["peer"], {os.environ.get("XDG_CACHE_HOME", "") + "\n"})
            self.assertTrue(all("@" in row["pair"] for row in writer.rows))


    def test_a_warm_up_comes_first_and_is_not_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            options = types.SimpleNamespace(pause=0, prompts=None, repetitions=None, tokens=8)
            writer = rows.Writer(os.path.join(folder, "rows.jsonl"), {}, {})
            own = types.SimpleNamespace(facts=dict)
            bench = measure.Bench(options, writer, own, own, None, folder)
            command = ["sh", "-c", "cat; cat $XDG_CACHE_HOME/seen; cat > /dev/null; echo -n x >> $XDG_CACHE_HOME/seen"]
            said = []

            def arm(_):
                return [measure.Arm("lever", own, [], command, lambda r: said.append(r.stdout) or {}, "in", warm_up="warm")]

            with contextlib.redirect_stderr(io.StringIO()):
                bench.rounds("b", "c", arm, 2)
            writer.close()
            bench.close()
            self.assertEqual(said, ["inx", "inxx"])
            self.assertEqual(len(writer.rows), 2)


class Pruning(unittest.TestCase):
    @staticmethod
    def cycle(scores, path):
        nodes = [{"i": node, "parent": parent} for node, parent in ((1, 0), (2, 0), (3, 0), (4, 1), (5, 1))]
        return {"nodes": nodes, "scores": scores, "path": path}

    def test_without_shadow_candidates_their_share_goes_to_siblings_and_to_other(self):
        # Of node 0: two in the pass, a shadow of 0.4, and 0.2 for all other tokens.
        scores = [[1, 1, 0.5, 0.3], [2, 2, 0.3, 0.1], [3, -1, 0.1, 0.4], [4, 3, 0.6, 0.6], [5, -1, 0.2, 0.2]]
        nodes = pruning.nodes_of(self.cycle(scores, []))
        self.assertAlmostEqual(nodes[1][3], 0.3 / 0.6)
        self.assertAlmostEqual(nodes[2][3], 0.1 / 0.6)
        self.assertAlmostEqual(nodes[3][3], 0.6)  # it was not asked about these
        self.assertEqual([nodes[row][:3] for row in (1, 2, 3)], [(0, 0.5, 0.3), (0, 0.3, 0.1), (1, 0.6, 0.6)])

    def test_arms_take_turns_and_medians_count(self):
        order, rates = [], iter(range(100))

        def run(_options, _prompt, _costs, _pinned, *more, trace=None):
            name = "oracle" if "--oracle" in more else "without" if "--no-prune" in more else " ".join(more[-1:])
            order.append(name)
            if trace:
                trace.write_text(json.dumps(self.cycle([], [])) + "\n")
            return {"tokens": [1], **{figure: 1 for figure in pruning.FIGURES}, "tokens_per_second": next(rates)}

        kept, pruning.run = pruning.run, run
        try:
            with tempfile.TemporaryDirectory() as folder:
                options = types.SimpleNamespace(repetitions=3)
                made = [pruning.measure(options, "p", "text", "all", pathlib.Path(folder), turn) for turn in (0, 1)]
        finally:
            pruning.run = kept
        one = ["without", "0", "", "40", "100"]
        one[4] = "oracle"
        self.assertEqual(order[:16], ["without", *one, *one[::-1], *one])
        self.assertEqual(order[16:], ["without", *one[::-1], *one, *one[::-1]])
        self.assertEqual([one["tokens_per_second"] for one in made[0]["runs"]["without"]], [1, 10, 11])
        self.assertEqual(made[0]["arms"]["without"]["tokens_per_second"], 10)
        self.assertIn("cycles_scored", made[0]["arms"]["with"])
        with contextlib.redirect_stdout(io.StringIO()) as said:
            pruning.show(made)
        self.assertIn("cycles scored", said.getvalue())


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
