"""lever's own programs: their command lines, and their figures read from what they print. Others: peers/.

All programs are given the same prompts as raw text (with the chat format written out), the same number of tokens, the
same threads and the same context. A parser returns the values of a row, or raises ValueError saying what is missing.
"""

import hashlib
import json
import os
import subprocess

THREADS = 2
CONTEXT = 1024
LEAST_TOKENS = 16  # of an answer whose speed is compared


# What the template of the default pair puts in front of a conversation that brings no system message of its own.
SYSTEM_MESSAGE = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


def chat(prompt):
    """One user turn as the template of the default pair writes it, as raw text, so that every program reads the same."""
    return (f"<|im_start|>system\n{SYSTEM_MESSAGE}<|im_end|>\n"
            f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n")


def json_object(text):
    begin = text.find("{")
    if begin < 0:
        raise ValueError("no JSON on standard output")
    return json.loads(text[begin:])


def need(found, keys):
    missing = [key for key in keys if key not in found]
    if missing:
        raise ValueError(f"no {', '.join(missing)} in the output")


class Lever:
    name = "lever"

    def __init__(self, path):
        self.path = path
        self._version = None

    def facts(self):
        if self._version is None:
            result = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False)
            self._version = (result.stdout.strip().splitlines() or ["unknown"])[0].removeprefix("lever ")
        return {"name": self.name, "version": self._version}

    def run(self, model, tokens, *options, threads=THREADS, context=CONTEXT, strategy="ar"):
        """The prompt comes on standard input. A context of None is the program's own choice."""
        command = [self.path, "run", "-m", model.path, "--strategy", strategy, "--temp", "0", "--raw", "--json", "--quiet"]
        command += ["--threads", str(threads), "-n", str(tokens), *self._context(context)]
        return [*command, *(str(option) for option in options), "-"]

    def plan(self, model, *options, context=CONTEXT):
        command = [self.path, "plan", "-m", model.path, "--json", *self._context(context)]
        return [*command, *(str(option) for option in options)]

    @staticmethod
    def _context(context):
        return [] if context is None else ["--ctx", str(context)]

    def doctor(self, model):
        return [self.path, "doctor", "-m", model.path, "--quick", "--json"]

    @staticmethod
    def parse_run(tokens):
        """Rates are taken over the tokens after the first one, whose pass belongs to the prompt."""

        def parse(result):
            found = json_object(result.stdout)
            need(found, ("completion_tokens", "decode_seconds", "prefill_seconds", "bytes_read", "ram_peak", "rss_peak"))
            if found["completion_tokens"] != tokens:
                raise ValueError(f"the answer ended after {found['completion_tokens']} of {tokens} tokens")
            values = {key: value for key, value in found.items() if key not in ("text", "tokens")}
            if found["decode_seconds"] > 0 and tokens > 1:
                values["decode_tokens_per_second"] = (tokens - 1) / found["decode_seconds"]
                values["decode_bytes_per_second"] = found["bytes_read"] / found["decode_seconds"]
            if found["prefill_seconds"] > 0:
                values["prefill_tokens_per_second"] = found["prompt_tokens"] / found["prefill_seconds"]
            return values

        return parse

    @staticmethod
    def parse_answer(result):
        """An answer that may end by itself; its text is compared by its checksum."""
        found = json_object(result.stdout)
        need(found, ("tokens", "completion_tokens", "decode_seconds", "first_token_seconds", "rss_peak"))
        if found["completion_tokens"] < LEAST_TOKENS:
            raise ValueError(f"the answer has only {found['completion_tokens']} tokens")
        values = {key: value for key, value in found.items() if key not in ("text", "tokens")}
        values["tokens_sha256"] = hashlib.sha256(json.dumps(found["tokens"]).encode()).hexdigest()
        values["decode_tokens_per_second"] = (found["completion_tokens"] - 1) / found["decode_seconds"]
        return values

    @classmethod
    def parse_rate(cls, result):
        """An answer that is shorter than those of its round: its speed counts, its text is not compared."""
        values = cls.parse_answer(result)
        del values["tokens_sha256"]
        return values

    @staticmethod
    def parse_plan(result):
        found = json_object(result.stdout)
        need(found, ("least_bytes", "all_bytes"))
        return {key: value for key, value in found.items() if key not in ("rows", "model")}

    @staticmethod
    def parse_doctor(result):
        values = {}
        for finding in json_object(result.stdout).get("findings", []):
            if finding["kind"] != "measured":
                continue
            try:
                values[finding["key"]] = float(finding["value"])
            except ValueError:
                values[finding["key"]] = finding["value"]
        need(values, ("disk.model_read_bytes_per_second",))
        values["read_bytes_per_second"] = values["disk.model_read_bytes_per_second"]
        return values


class Program:
    """Another program of this folder, built beside lever."""

    def __init__(self, folder, name):
        self.path, self.name = os.path.join(folder, name), name

    def facts(self):
        return {"name": self.name, "version": "of the commit"}
