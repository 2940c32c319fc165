"""llama.cpp, as upstream builds it from the source that lever's own ggml comes from.

Its ways to run a model that is larger than memory: mapped (mmap, pages fetched by the kernel as they are touched), or
read past the page cache into memory at once (direct), which wants the whole model to fit. Each plain or with its own
speculation: a chain drafted by a small model, or n-grams of the text so far.
"""

import json
import os
import re
import subprocess

from programs import CONTEXT, THREADS
from runner import Skip

VERSION = "llama-cpp-python 0.3.36, vendor/llama.cpp"


class LlamaCpp:
    """Without a folder its programs are built when they are first needed."""

    name = "llama.cpp"

    def __init__(self, folder, builder):
        self._folder, self._builder = folder, builder

    def facts(self):
        return {"name": self.name, "version": VERSION}

    def program(self, name):
        if self._folder is None:
            result = subprocess.run([self._builder], stdout=subprocess.PIPE, text=True, check=False)
            self._folder = result.stdout.strip() if result.returncode == 0 else ""
        if not self._folder:
            raise Skip("llama.cpp could not be built; --peer FOLDER takes one that is there")
        return os.path.join(self._folder, name)

    def bench(self, model, prompt_tokens, tokens, threads=THREADS):
        """Everything in memory, at its best."""
        command = [self.program("llama-bench"), "-m", model.path, "-p", str(prompt_tokens), "-n", str(tokens)]
        return [*command, "-r", "1", "-t", str(threads), "-o", "json"]

    def complete(self, model, prompt, tokens, load="mmap", threads=THREADS, context=CONTEXT):
        """Text, plain. Without repacking: repacked weights are a copy in memory, which a limit below the size of the
        model would answer by killing the program."""
        command = [self.program("llama-completion"), "-m", model.path, "-p", prompt, "-n", str(tokens)]
        command += ["-t", str(threads), "-c", str(context), "--temp", "0", "--load-mode", load, "--no-repack"]
        return [*command, "--no-warmup", "--ignore-eos", "-no-cnv", "--no-display-prompt", "--perf"]

    def _speculate(self, model, prompt, tokens, load, threads, context):
        command = [self.program("llama-speculative-simple"), "-m", model.path, "-p", prompt, "-n", str(tokens)]
        return [*command, "-t", str(threads), "-c", str(context), "--temp", "0", "--load-mode", load, "--no-repack"]

    def chain(self, model, draft, prompt, tokens, draft_tokens, load="mmap", threads=THREADS, context=CONTEXT):
        """Its own speculation with a draft model, a chain of draft_tokens."""
        command = self._speculate(model, prompt, tokens, load, threads, context)
        return [*command, "-md", draft.path, "--spec-type", "draft-simple", "--spec-draft-n-max", str(draft_tokens)]

    def ngram(self, model, prompt, tokens, load="mmap", threads=THREADS, context=CONTEXT):
        """Its own speculation without a draft: what followed the same tokens before. Shorter matches than its default of
        12 tokens, and shorter drafts than 48: with those it hardly ever drafts in an answer of this length."""
        command = self._speculate(model, prompt, tokens, load, threads, context)
        sizes = ["--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "12"]
        return [*command, "--spec-type", "ngram-simple", *sizes]

    @staticmethod
    def parse_speculation(result):
        found = re.search(r"decoded +(\d+) tokens in +([\d.]+) seconds", result.stdout + result.stderr)
        if not found or int(found.group(1)) < 2:
            raise ValueError("no speed in the output of llama-speculative-simple")
        tokens, seconds = int(found.group(1)), float(found.group(2))
        return {"completion_tokens": tokens, "decode_seconds": seconds, "decode_tokens_per_second": tokens / seconds}

    @staticmethod
    def parse_bench(result):
        begin = result.stdout.find("[")
        tests = json.loads(result.stdout[begin:]) if begin >= 0 else []
        if len(tests) != 1 or not tests[0].get("avg_ts"):
            raise ValueError("no test in the output of llama-bench")
        key = "prefill_tokens_per_second" if tests[0]["n_prompt"] else "decode_tokens_per_second"
        return {key: tests[0]["avg_ts"], "load_mode": tests[0].get("load_mode"), "repack": tests[0].get("repack")}

    @staticmethod
    def parse_completion(result):
        text = result.stdout + result.stderr
        decode = re.search(r"[^t] eval time = +([\d.]+) ms / +(\d+) runs", text)
        prompt = re.search(r"prompt eval time = +([\d.]+) ms / +(\d+) tokens", text)
        if not decode or not prompt:
            raise ValueError("no times in the output of llama-completion")
        seconds, runs = float(decode.group(1)) / 1000, int(decode.group(2))
        return {
            "decode_seconds": seconds,
            "decode_tokens_per_second": runs / seconds,
            "completion_tokens": runs + 1,
            "prefill_seconds": float(prompt.group(1)) / 1000,
            "prompt_tokens": int(prompt.group(2)),
        }
