"""One measurement, and rounds of them: arms that belong together run one after the other, in alternating order.

An arm is one way of doing the work: a program, a layout, a limit. The arms of a round share a pair id; a ratio is only
ever taken between two rows of one pair, which saw the machine in the same minute.
"""

import dataclasses
import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from typing import Callable

import rows
import runner
from models import cache_folder
from peers.gpt4all import Gpt4all
from runner import Limits, Skip

FOLDER = os.path.dirname(os.path.abspath(__file__))


def without_folders(word):
    """Rows are published: they name programs and models, not where these lie on a machine."""
    return ",".join(os.path.basename(part) if part.startswith("/") else part for part in word.split(","))


@dataclasses.dataclass
class Arm:
    name: str
    program: object  # of programs.py: who is measured
    models: list
    command: list
    parse: Callable  # Result -> values; ValueError when something is missing
    stdin: str = ""
    limits: Limits = dataclasses.field(default_factory=Limits)
    cold: bool = False
    warm_up: str = ""  # what is answered once, uncounted, before the first round: the arm's caches then know the machine
    factors: dict = dataclasses.field(default_factory=dict)  # of the tables: task, prompt, budget, ...


class Caches:
    """A cache folder of its own for every arm of lever, for as long as the run lasts, so that nothing that one arm
    learns (costs, calibration, what drafting ahead was worth) is another's. It begins without costs, so that arms which
    learn have a warm-up; what `lever doctor` found out about disks and the predictors of pairs are those of the user."""

    KEPT = ("disk-*.profile", "pair-*.predictor")

    def __init__(self, users):
        self._users, self._made = users, {}
        self._all = tempfile.TemporaryDirectory(prefix="lever-bench-")

    def environment(self, *arm):
        """What an arm's command needs to find its own."""
        if arm not in self._made:
            base = os.path.join(self._all.name, str(len(self._made)))
            folder = os.path.join(base, "lever")
            os.makedirs(folder)
            for pattern in self.KEPT:
                for path in glob.glob(os.path.join(glob.escape(self._users), pattern)):
                    shutil.copy(path, folder)
            self._made[arm] = {"XDG_CACHE_HOME": base}
        return self._made[arm]

    def close(self):
        self._all.cleanup()


class Bench:
    """What every benchmark works with."""

    def __init__(self, options, writer, lever, peer, models, program_folder):
        self.options, self.writer, self.lever, self.peer, self.models = options, writer, lever, peer, models
        self._caches = Caches(cache_folder())
        self.gpt4all = Gpt4all(os.path.join(cache_folder(), "peer", "gpt4all"))
        self.program_folder = program_folder
        self._started = rows.now()
        with open(os.path.join(FOLDER, "prompts.jsonl"), encoding="utf-8") as file:
            self._prompts = [json.loads(line) for line in file if line.strip()]
        self._given = [self._read_prompts(path) for path in options.prompts or []]
        with open(os.path.join(FOLDER, "texts", "passages.txt"), encoding="utf-8") as file:
            self.passages = file.read()

    @staticmethod
    def _read_prompts(path):
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.strip()]
        task = os.path.splitext(os.path.basename(path))[0]
        return [{"id": f"{task}/{n}", **line, "category": line.get("task", task)} for n, line in enumerate(lines, 1)]

    def pick(self, index, categories=("code", "maths", "dialogue")):
        """Tasks take turns, and so do files that were given; those of the default categories have long answers."""
        groups = self._given or [[p for p in self._prompts if p["category"] == name] for name in categories]
        prompts = groups[index % len(groups)]
        return prompts[index // len(groups) % len(prompts)]

    def prompt(self, index, categories=("code", "maths", "dialogue")):
        return self.pick(index, categories)["prompt"]

    def warm_up_prompt(self):
        """One that is not measured with where other prompts are given, and not the first where these are."""
        return [prompt for prompt in self._prompts if prompt["category"] == "maths"][-1]["prompt"]

    def _warm_up(self, benchmark, case, arms):
        for arm in arms:
            if arm.warm_up:
                runner.run(arm.command, arm.limits, arm.warm_up, self._caches.environment(benchmark, case, arm.name))

    def rounds(self, benchmark, case, arms_of, repetitions):
        """`arms_of(repetition)` gives the arms of one round. Returns the rows."""
        repetitions = self.options.repetitions or repetitions
        made = []
        for repetition in range(repetitions):
            arms = list(arms_of(repetition))
            if repetition == 0:
                self._warm_up(benchmark, case, arms)
            if repetition % 2 == 1:
                arms.reverse()
            pair = f"{benchmark}/{case}#{repetition}@{self._started}"  # several runs may be in one file
            for arm in arms:
                made.append(self.measure(benchmark, case, arm, repetition, pair))
        return made

    def measure(self, benchmark, case, arm, repetition=0, pair=None):
        if pair and "@" not in pair:
            pair = f"{pair}@{self._started}"
        row = {
            "benchmark": benchmark,
            "case": case,
            "arm": arm.name,
            "pair": pair,
            "repetition": repetition,
            "factors": {"strategy": arm.name, **arm.factors},
            "program": arm.program.facts(),
            "models": [model.facts() for model in arm.models],
            "command": [without_folders(word) for word in arm.command],
            "stdin_sha256": hashlib.sha256(arm.stdin.encode()).hexdigest() if arm.stdin else None,
            "limits": arm.limits.facts(),
        }
        time.sleep(self.options.pause)
        own = self._caches.environment(benchmark, case, arm.name) if arm.program is self.lever else None
        try:
            row.update(self._run(arm, own))
        except Skip as reason:
            row.update(status="skipped", reason=str(reason))
        self._tell(row)
        return self.writer.write(row)

    def close(self):
        self._caches.close()

    def _run(self, arm, environment):
        files = [model.path for model in arm.models]
        if arm.cold:
            cached = runner.drop_caches(files)
            if cached > sum(os.path.getsize(path) for path in files) // 100:
                raise Skip(f"{cached} bytes of the model stay in the page cache: another process has them mapped")
        else:
            cached = sum(runner.cached_bytes(path) or 0 for path in files)
        facts = {
            "cache": "cold" if arm.cold else "warm",
            "cached_bytes": cached,
            "load_average": round(os.getloadavg()[0], 2),
        }
        result = runner.run(arm.command, arm.limits, arm.stdin, environment)
        facts.update(exit=result.exit_facts(), values=result.values(), status="ok", reason="")
        try:
            if result.timed_out:
                raise ValueError(f"killed after {arm.limits.timeout_seconds} seconds")
            if result.code != 0:
                lines = result.stderr.strip().splitlines() or ["no message"]
                killed = " (killed for want of memory)" if result.oom_kills else ""
                raise ValueError(f"exit code {result.code}{killed}: {lines[-1][:300]}")
            facts["values"].update(arm.parse(result))
        except ValueError as error:
            facts.update(status="failed", reason=str(error))
        return facts

    def skip(self, benchmark, case, reason):
        row = {"benchmark": benchmark, "case": case, "arm": None, "pair": None, "repetition": 0, "values": {}}
        row.update(status="skipped", reason=str(reason))
        self._tell(row)
        self.writer.write(row)

    def _tell(self, row):
        shown = []
        for key in ("decode_tokens_per_second", "prefill_tokens_per_second", "prefill_passes", "percent"):
            if key in row.get("values", {}):
                shown.append(f"{key} {row['values'][key]:.4g}")
        for key in ("decode_bytes_per_second", "read_bytes_per_second"):
            if key in row.get("values", {}):
                shown.append(f"{key} {row['values'][key] / 1e9:.3f}e9")
        if row["status"] != "ok":
            shown.append(f"{row['status']}: {row['reason']}")
        name = f"{row['benchmark']}/{row['case']}" + (f" {row['arm']}" if row["arm"] else "")
        print(f"  {name:<44} {'  '.join(shown)}", file=sys.stderr, flush=True)
