"""Benchmarks of speculation: the same answers by different strategies and programs, under equal memory or with a stated
share of the target in memory. One round is one prompt; every arm of lever in it must give the same text.

The pair is the Q4_0 target with the draft requantised to Q4_0, both packed; both as they were pulled; or the deepened
target of 4 GB with the Q4_0 draft.
"""

from measure import Arm, Bench
from peers.gpt4all import Gpt4all
from peers.llama_cpp import LlamaCpp
from programs import THREADS, Lever, chat
from runner import Limits

MIB = 1 << 20

CONTEXT = 2048
CHAIN_LENGTH = 12  # the best of a sweep over 6 to 16 with nothing pinned
PAIRS = {
    "q4_0": ("target-q4_0", "draft-q4_0"),
    "pulled": ("target", "draft"),
    "deep": ("deep-q4_0", "draft-q4_0"),
}
EQUAL_MEMORY = {"q4_0": 900 * MIB, "deep": 1228 * MIB}  # the latter: --ram 1.2G
PEER_DRAFT_TOKENS = (8, 16)
# Of a plain run, whose rate is the same from the first token on.
PEER_PLAIN_TOKENS = 24
STREAMED_PLAIN_TOKENS = 64


def _factors(bench, repetition, **more):
    prompt = bench.pick(repetition)
    return {"task": prompt["category"], "prompt": prompt["id"], "length": bench.options.tokens, **more}


def _arm(bench, name, pair, repetition, *options, drafts=True, factors=None, tokens=None, **more):
    target, draft = (bench.models.packed(model) for model in PAIRS[pair])
    with_draft = ("-d", draft.path) if drafts else ("--no-draft",)
    parse = Lever.parse_rate if tokens else Lever.parse_answer
    tokens = min(tokens or bench.options.tokens, bench.options.tokens)
    command = bench.lever.run(target, tokens, *with_draft, *options, strategy=name.split("-")[0], context=CONTEXT)
    models = [target, draft] if drafts else [target]
    stdin, facts = chat(bench.prompt(repetition)), _factors(bench, repetition, **(factors or {}))
    warm_up = chat(bench.warm_up_prompt()) if drafts else ""
    return Arm(name, bench.lever, models, command, parse, stdin, cold=True, factors=facts, warm_up=warm_up, **more)


def equal_ram(bench: Bench, case, repetitions):
    """Equal --ram, each spending it as its own plan decides: with a draft against plain decoding."""
    pair, budget = case.split("/")
    # Plain decoding of a few gigabytes has a second a token, and the chain the whole text to compare with.
    plain_tokens = PEER_PLAIN_TOKENS if pair == "deep" else None

    def arms(repetition):
        ram, more = ("--ram", budget), {"factors": {"budget": budget}}
        found = [
            _arm(bench, "lever", pair, repetition, *ram, **more),
            _arm(bench, "ar", pair, repetition, *ram, drafts=False, tokens=plain_tokens, **more),
        ]
        if pair == "deep" or budget == "900M":
            found.append(_arm(bench, "chain", pair, repetition, *ram, "--chain-length", CHAIN_LENGTH, **more))
        if budget == "900M":
            found.append(_arm(bench, "edge", pair, repetition, *ram, **more))
        return found

    bench.rounds("equal_ram", case, arms, repetitions)


def share(bench: Bench, case, repetitions):
    """A stated share of the target's layers in memory, no budget: with a draft against plain decoding."""
    pair, percent = case.split("/")
    heat = ()
    if percent == "0 warm":
        percent, heat = "0", ("--temp", "0.8", "--seed", "1")
    against_trees = percent == "0" and not heat
    # Chain and tree have the whole text to compare with.
    plain_tokens = STREAMED_PLAIN_TOKENS if against_trees else None

    def arms(repetition):
        ram = ("--target-ram", percent, *heat)
        more = {"factors": {"budget": percent + "%", "temperature": 0.8 if heat else 0}}
        found = [
            _arm(bench, "lever", pair, repetition, *ram, "--force-draft", **more),
            _arm(bench, "ar", pair, repetition, *ram, drafts=False, tokens=plain_tokens, **more),
        ]
        if against_trees:
            chain = (*ram, "--force-draft", "--chain-length", CHAIN_LENGTH)
            found.append(_arm(bench, "chain", pair, repetition, *chain, **more))
            found.append(_arm(bench, "edge", pair, repetition, *ram, "--force-draft", **more))
        if not heat:
            model, draft = (bench.models.get(name) for name in PAIRS[pair])
            command = bench.peer.bench(model, 0, 64)
            found.append(Arm("peer", bench.peer, [model], command, LlamaCpp.parse_bench))
        if percent == "100":
            text, tokens = chat(bench.prompt(repetition)), bench.options.tokens
            for count in PEER_DRAFT_TOKENS:
                command = bench.peer.chain(model, draft, text, tokens, count, context=CONTEXT)
                found.append(Arm(f"peer_chain_{count}", bench.peer, [model, draft], command, LlamaCpp.parse_speculation))
        return found

    bench.rounds("share", case, arms, repetitions)


def _peer_arms(bench, case, repetition, limits):
    """llama.cpp mapped, plain and by its own speculation; read past the cache; and, without a limit, all in memory. And
    others that run this model from disk."""
    peer, text = bench.peer, chat(bench.prompt(repetition))
    target, draft = (bench.models.get(model) for model in PAIRS[case])
    tokens, facts = bench.options.tokens, _factors(bench, repetition)

    def arm(name, models, command, parse, held=limits):
        return Arm(name, peer, models, command, parse, limits=held, cold=held is limits, factors=facts)

    def plain(load):
        return peer.complete(target, text, PEER_PLAIN_TOKENS, load=load, context=CONTEXT)

    yield arm("peer", [target], plain("mmap"), LlamaCpp.parse_completion)
    yield arm("peer_direct", [target], plain("dio"), LlamaCpp.parse_completion)
    for count in PEER_DRAFT_TOKENS:
        command = peer.chain(target, draft, text, tokens, count, context=CONTEXT)
        yield arm(f"peer_chain_{count}", [target, draft], command, LlamaCpp.parse_speculation)
    ngram = peer.ngram(target, text, tokens, context=CONTEXT)
    yield arm("peer_ngram", [target], ngram, LlamaCpp.parse_speculation)
    other = bench.gpt4all.complete(target, PEER_PLAIN_TOKENS, THREADS, CONTEXT)
    yield Arm("gpt4all", bench.gpt4all, [target], other, Gpt4all.parse, text, limits, cold=True, factors=facts)
    yield arm("peer_resident", [target], peer.bench(target, 0, PEER_PLAIN_TOKENS), LlamaCpp.parse_bench, Limits())


def equal_memory(bench: Bench, case, repetitions):
    """The same memory for the whole process, cold: against llama.cpp, mapped or direct, plain and with its own speculation."""
    limits = Limits(memory_bytes=EQUAL_MEMORY[case], timeout_seconds=900)

    def arms(repetition):
        lever = _arm(bench, "lever", case, repetition, "--ram", EQUAL_MEMORY[case], limits=limits)
        return [lever, *_peer_arms(bench, case, repetition, limits)]

    bench.rounds("equal_memory", case, arms, repetitions)
