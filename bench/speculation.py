"""Benchmarks of speculation: the same answers by different strategies, under equal memory or with a stated share of the
target in memory. One round is one prompt; every arm of it must give the same text.

The pair is the Q4_0 target with the draft requantised to Q4_0, both packed; or both as they were pulled.
"""

from measure import Arm, Bench
from programs import Lever, Peer, chat
from runner import Limits

MIB = 1 << 20

CONTEXT = 2048
CHAIN_LENGTH = 12  # the best of a sweep over 6 to 16 with nothing pinned
PAIRS = {"q4_0": ("target-q4_0", "draft-q4_0"), "pulled": ("target", "draft")}
PEER_BYTES = 900 * MIB
PEER_DRAFT_TOKENS = 8


def _arm(bench, name, pair, prompt, *options, drafts=True, **more):
    target, draft = (bench.models.packed(model) for model in PAIRS[pair])
    with_draft = ("-d", draft.path) if drafts else ("--no-draft",)
    tokens = bench.options.tokens
    command = bench.lever.run(target, tokens, *with_draft, *options, strategy=name.split("-")[0], context=CONTEXT)
    models = [target, draft] if drafts else [target]
    return Arm(name, bench.lever, models, command, Lever.parse_answer, chat(prompt), cold=True, **more)


def equal_ram(bench: Bench, case, repetitions):
    """Equal --ram, each spending it as its own plan decides: with a draft against plain decoding."""
    pair, budget = case.split("/")

    def arms(repetition):
        prompt, ram = bench.prompt(repetition), ("--ram", budget)
        found = [
            _arm(bench, "lever", pair, prompt, *ram),
            _arm(bench, "ar", pair, prompt, *ram, drafts=False),
        ]
        if budget == "900M":
            found.append(_arm(bench, "chain", pair, prompt, *ram, "--chain-length", CHAIN_LENGTH))
            found.append(_arm(bench, "edge", pair, prompt, *ram))
        return found

    bench.rounds("equal_ram", case, arms, repetitions)


def share(bench: Bench, case, repetitions):
    """A stated share of the target's layers in memory, no budget: with a draft against plain decoding."""
    pair, percent = case.split("/")
    heat = ()
    if percent == "0 warm":
        percent, heat = "0", ("--temp", "0.8", "--seed", "1")

    def arms(repetition):
        prompt, ram = bench.prompt(repetition), ("--target-ram", percent, *heat)
        found = [
            _arm(bench, "lever", pair, prompt, *ram, "--force-draft"),
            _arm(bench, "ar", pair, prompt, *ram, drafts=False),
        ]
        if percent == "0" and not heat:
            found.append(
                _arm(bench, "chain", pair, prompt, *ram, "--force-draft", "--chain-length", CHAIN_LENGTH)
            )
            found.append(_arm(bench, "edge", pair, prompt, *ram, "--force-draft"))
        if not heat:
            model = bench.models.get(PAIRS[pair][0])
            command = bench.peer.bench(model, 0, 64)
            found.append(Arm("peer", bench.peer, [model], command, Peer.parse_bench))
        return found

    bench.rounds("share", case, arms, repetitions)


def equal_memory(bench: Bench, case, repetitions):
    """900 MiB for the whole process, cold cache: against llama.cpp, plain and with its own speculation, under mmap."""
    limits = Limits(memory_bytes=PEER_BYTES, timeout_seconds=600)
    target, draft = (bench.models.get(model) for model in PAIRS[case])
    tokens = min(bench.options.tokens, 64)

    def arms(repetition):
        prompt = bench.prompt(repetition)
        text = chat(prompt)
        plain = bench.peer.complete_mapped(target, text, tokens, context=CONTEXT)
        drafted = bench.peer.speculate_mapped(target, draft, text, tokens, PEER_DRAFT_TOKENS, context=CONTEXT)
        return [
            _arm(bench, "lever", case, prompt, "--ram", PEER_BYTES, limits=limits),
            Arm("peer", bench.peer, [target], plain, Peer.parse_completion, limits=limits, cold=True),
            Arm("peer_drafted", bench.peer, [target, draft], drafted, Peer.parse_speculation, limits=limits, cold=True),
        ]

    bench.rounds("equal_memory", case, arms, repetitions)
