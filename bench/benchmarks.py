"""The benchmarks. Each is a function that writes rows; figures.py says what is made of them and what must be reached.

Every comparison is between rows of one round. Token counts are fixed, opening and loading are outside of every rate.
"""

import dataclasses
from typing import Callable

import speculation
from measure import Arm, Bench
from peers.llama_cpp import LlamaCpp
from programs import CONTEXT, Lever, Program, chat, json_object, need
from runner import Limits, Skip

MIB = 1 << 20

STREAMED_TOKENS = 32
PINNED_TOKENS = 64
PREFILL_TOKENS = 1000
PREFILL_CHARACTERS = 3939  # of the passages: 1,000 tokens in the vocabulary of the default pair
CGROUP_BYTES = 600 * MIB
CGROUP_TOKENS = 24
BUDGETS_COUNT = 8
AGREEMENT_POSITIONS = 2000


def _lever_arm(bench, name, model, tokens, *options, stdin, context=CONTEXT, **more):
    command = bench.lever.run(model, tokens, *options, context=context)
    return Arm(name, bench.lever, [model], command, Lever.parse_run(tokens), stdin, **more)


def streamed(bench: Bench, case, repetitions):
    """Nothing pinned: how much of the reader's own rate is left while tokens are decoded."""
    packed, plain = bench.models.packed(case), bench.models.get(case)

    def reader(name, model):
        return Arm(name, bench.lever, [model], bench.lever.doctor(model), Lever.parse_doctor, cold=True)

    def decode(name, model, repetition):
        stdin = chat(bench.prompt(repetition))
        return _lever_arm(bench, name, model, STREAMED_TOKENS, "--target-ram", 0, stdin=stdin, cold=True)

    bench.rounds(
        "streamed",
        case,
        lambda repetition: [
            reader("packed_reader", packed),
            decode("packed", packed, repetition),
            reader("in_place_reader", plain),
            decode("in_place", plain, repetition),
        ],
        repetitions,
    )


def pinned(bench: Bench, case, repetitions):
    """Everything in memory: decoding against llama.cpp."""
    packed, plain = bench.models.packed(case), bench.models.get(case)

    def decode(name, model, repetition):
        stdin = chat(bench.prompt(repetition))
        return _lever_arm(bench, name, model, PINNED_TOKENS, "--target-ram", 100, stdin=stdin)

    bench.rounds(
        "pinned",
        case,
        lambda repetition: [
            decode("packed", packed, repetition),
            Arm("peer", bench.peer, [plain], bench.peer.bench(plain, 0, PINNED_TOKENS), LlamaCpp.parse_bench),
            decode("in_place", plain, repetition),
        ],
        repetitions,
    )


def prefill(bench: Bench, case, repetitions):
    """A prompt of 1,000 tokens: against llama.cpp with everything in memory, and its passes over flash with nothing."""
    packed, plain = bench.models.packed(case), bench.models.get(case)
    text = bench.passages[:PREFILL_CHARACTERS]

    bench.rounds(
        "prefill",
        case,
        lambda _: [
            _lever_arm(bench, "packed", packed, 1, "--target-ram", 100, stdin=text),
            Arm("peer", bench.peer, [plain], bench.peer.bench(plain, PREFILL_TOKENS, 0), LlamaCpp.parse_bench),
            _lever_arm(bench, "in_place", plain, 1, "--target-ram", 100, stdin=text),
        ],
        repetitions,
    )
    bench.measure("prefill", case, _lever_arm(bench, "streamed", packed, 1, "--target-ram", 0, stdin=text, cold=True))


def cgroup(bench: Bench, case, repetitions):
    """600 MiB for the whole process, cold cache: against llama.cpp under mmap."""
    packed, plain = bench.models.packed(case), bench.models.get(case)
    limits = Limits(memory_bytes=CGROUP_BYTES)

    def arms(repetition):
        prompt = chat(bench.prompt(repetition))
        peer = bench.peer.complete(plain, prompt, CGROUP_TOKENS)
        return [
            _lever_arm(
                bench, "packed", packed, CGROUP_TOKENS, "--ram", CGROUP_BYTES, stdin=prompt, limits=limits, cold=True
            ),
            Arm("peer", bench.peer, [plain], peer, LlamaCpp.parse_completion, limits=limits, cold=True),
        ]

    bench.rounds("cgroup", case, arms, repetitions)


def budgets(bench: Bench, case, _repetitions):
    """Budgets from the least to all resident: the peak under a limit of twice the budget, then a limit of just it."""
    model = bench.models.packed(case)
    command = bench.lever.plan(model, "--ram", "none", context=None)
    plan = bench.measure("budgets", case, Arm("plan", bench.lever, [model], command, Lever.parse_plan))
    if plan["status"] != "ok":
        raise Skip("the plan failed: " + plan["reason"])
    least, most = plan["values"]["least_bytes"], plan["values"]["all_bytes"]
    prompt = chat(bench.prompt(0, categories=("summary",)))
    for step in range(BUDGETS_COUNT):
        budget = least + (most - least) * step // (BUDGETS_COUNT - 1)
        budget = (budget + 4095) // 4096 * 4096  # a limit counts whole pages
        for name, limit in (("roomy", 2 * budget), ("exact", budget)):
            arm = _lever_arm(
                bench,
                name,
                model,
                8,
                *("--ram", budget),
                stdin=prompt,
                context=None,
                limits=Limits(memory_bytes=limit),
                cold=True,
            )
            bench.measure("budgets", case, arm, step, f"budgets/{case}#{step}")


def kernels(bench: Bench, case, _repetitions):
    """The kernels against ggml's fastest path for the type, in one process: its rows are passed through."""
    program = Program(bench.program_folder, "bench_kernels")
    command = [program.path, "--json", "--batch", "4,8,16,32", "--rounds", "5"]
    rows = []

    def parse(result):
        rows.extend(json_object(line) for line in result.stdout.splitlines() if line.startswith("{"))
        if not rows:
            raise ValueError("no rows")
        return {"rows_count": len(rows)}

    whole = bench.measure("kernels", "run", Arm("run", program, [], command, parse, limits=Limits(timeout_seconds=900)))
    for row in rows:
        passed = {key: whole[key] for key in ("program", "models", "command", "limits", "cache", "load_average", "exit")}
        name = f"{row['type']} {row['rows']}x{row['elements']} batch {row['batch']}"
        passed.update(benchmark="kernels", case=name, arm="kernels", pair=None, repetition=0)
        passed.update(values=row, status=whole["status"], reason=whole["reason"])
        bench.writer.write(passed)


def agreement(bench: Bench, case, _repetitions):
    """The likeliest token at 2,000 positions of real text: lever against libllama."""
    program, model = Program(bench.program_folder, "bench_agreement"), bench.models.get(case)
    command = [program.path, "-m", model.path, "--text", "bench/texts/passages.txt"]
    command += ["--positions", str(AGREEMENT_POSITIONS), "--json"]

    def parse(result):
        found = json_object(result.stdout)
        need(found, ("positions", "agreed", "percent", "disagreements"))
        return found

    bench.measure("agreement", case, Arm("agreement", program, [model], command, parse))


@dataclasses.dataclass
class Benchmark:
    function: Callable
    case: str
    repetitions: int
    minutes: float  # about, on two cores and a disk of 2.4 GB/s

    @property
    def name(self):
        return f"{self.function.__name__}/{self.case}"

    @property
    def text(self):
        return self.function.__doc__.strip().splitlines()[0]


# With the minutes of six rounds. The Q4_0 pair has 18 prompts, the pair as it was pulled a third of them.
EQUAL_RAM = (("900M", 8), ("1.0G", 3), ("1.2G", 2.5), ("1.5G", 2.5))
SHARES = (("0", 17), ("50", 7), ("100", 4), ("0 warm", 10))

BENCHMARKS = [
    Benchmark(streamed, "target-q4_0", 5, 2),
    Benchmark(streamed, "target", 3, 1.3),
    Benchmark(pinned, "target-q4_0", 5, 2),
    Benchmark(pinned, "target", 3, 1),
    Benchmark(pinned, "draft", 3, 0.5),
    Benchmark(prefill, "target-q4_0", 5, 3),
    Benchmark(prefill, "target", 3, 2),
    Benchmark(prefill, "draft", 3, 1),
    Benchmark(kernels, "all", 1, 2),
    Benchmark(cgroup, "target-q4_0", 5, 2.7),
    Benchmark(cgroup, "target", 3, 1.7),
    Benchmark(budgets, "target-q4_0", 1, 1.5),
    Benchmark(agreement, "target-q4_0", 1, 1.2),
    Benchmark(agreement, "target", 1, 1.2),
    Benchmark(agreement, "draft", 1, 0.7),
    Benchmark(agreement, "small", 1, 0.4),
    *(Benchmark(speculation.equal_ram, "q4_0/" + ram, 18, 3 * minutes) for ram, minutes in EQUAL_RAM),
    *(Benchmark(speculation.share, "q4_0/" + percent, 18, 3 * minutes) for percent, minutes in SHARES),
    Benchmark(speculation.equal_ram, "deep/1.2G", 6, 16),
    Benchmark(speculation.equal_memory, "q4_0", 6, 25),
    Benchmark(speculation.equal_memory, "deep", 6, 50),
    *(Benchmark(speculation.equal_ram, "pulled/" + ram, 6, minutes) for ram, minutes in EQUAL_RAM),
    *(Benchmark(speculation.share, "pulled/" + percent, 6, minutes) for percent, minutes in SHARES),
]
