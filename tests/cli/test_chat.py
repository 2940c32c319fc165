#!/usr/bin/env python3
"""`lever chat`, through pipes and in a terminal: commands, blocks of lines, Ctrl-C, Ctrl-D, pasting, history.

    test_chat.py LEVER
"""

import os
import pty
import re
import select
import signal
import sys
import termios
import time
import unittest

from tiny import LEVER, MODEL, environment, lever

WORDS = ["chat", "-m", MODEL, "--temp", "0", "-n", "6"]


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, *words, **more):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(LEVER, [LEVER, *words], environment(**more))
        self.seen = ""

    def wait_for(self, pattern, seconds=60):
        """Reads until the pattern comes; returns what stood in front of it and drops both."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.seen)
            if found:
                before, self.seen = self.seen[: found.start()], self.seen[found.end() :]
                return before
            if time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} in {self.seen!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:
                    data = b""
                if not data:
                    raise AssertionError(f"it ended without {pattern!r}: {self.seen!r}")
                self.seen += data.decode("utf-8", errors="replace")

    def prompt(self):
        """Waits for the prompt, and until the line can be edited, which is a moment later."""
        before = self.wait_for(r"> $")
        for _ in range(100):
            if not termios.tcgetattr(self.fd)[3] & termios.ICANON:
                break
            time.sleep(0.01)  # without libedit it stays a plain line
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self, seconds=30):
        """The exit code."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.02)
            if select.select([self.fd], [], [], 0)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode("utf-8", errors="replace")
                except OSError:
                    pass  # the terminal is closed, the process about to end
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it does not end: {self.seen!r}")


class Pipes(unittest.TestCase):
    def test_a_conversation_keeps_what_it_has_computed(self):
        done = lever(*WORDS, stdin=b"hello\nand now\n/stats\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        kept = int(re.search(rb"\((\d+) kept\)", done.stderr).group(1))
        self.assertGreater(kept, 5)
        self.assertNotIn(b"> ", done.stderr)

    def test_blocks_and_backslashes_make_one_message(self):
        first = lever(*WORDS, stdin=b'one\\\ntwo\\\nthree\n')
        block = lever(*WORDS, stdin=b'"""one\ntwo\nthree"""\n')
        open_block = lever(*WORDS, stdin=b'"""\none\ntwo\nthree\n"""\n')
        unended = lever(*WORDS, stdin=b'"""one\ntwo\nthree')
        self.assertEqual({run.returncode for run in (first, block, open_block, unended)}, {0})
        self.assertEqual({run.stdout for run in (block, open_block, unended)}, {first.stdout})
        self.assertNotEqual(first.stdout, lever(*WORDS, stdin=b"one\n").stdout)

    def test_commands(self):
        self.assertIn(b"/regen", lever(*WORDS, stdin=b"/help\n").stderr)
        self.assertIn(b"unknown command /foo", lever(*WORDS, stdin=b"/foo\n").stderr)
        self.assertIn(b"no answer yet", lever(*WORDS, stdin=b"/regen\n").stderr)
        self.assertIn(b"be brief", lever(*WORDS, stdin=b"/system be brief\n/system\n").stderr)
        self.assertEqual(lever(*WORDS, stdin=b"/exit\nhello\n").stdout, b"")
        self.assertEqual(lever(*WORDS, stdin=b"").returncode, 0)
        once = lever(*WORDS, stdin=b"hello\n").stdout
        self.assertEqual(lever(*WORDS, stdin=b"hello\n/clear\nhello\n").stdout, once * 2)
        self.assertEqual(lever(*WORDS, stdin=b"hello\n/regen\n").stdout, once * 2)  # at temperature 0
        with_system = lever(*WORDS, "--system", "be brief", stdin=b"hello\n").stdout
        self.assertEqual(lever(*WORDS, stdin=b"/system be brief\nhello\n").stdout, with_system)
        words = ["chat", "-m", MODEL, "--temp", "2", "--top-p", "1", "-n", "12", "--seed", "1"]
        answers = lever(*words, stdin=b"hello\n/regen\n")
        self.assertNotEqual(answers.stdout, lever(*words, stdin=b"hello\n").stdout * 2)

    def test_a_full_context_is_told_with_both_numbers(self):
        done = lever(*WORDS, "--ctx", "64", stdin=b"hello\n" + b"word " * 300 + b"\nhello\n")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"has \d+ tokens, and the context holds 64. /clear")


class Terminals(unittest.TestCase):
    def test_it_ends_at_ctrl_d_and_exit(self):
        for ending in ("\x04", "/exit\r"):
            chat = Terminal(*WORDS)
            chat.prompt()
            chat.type(ending)
            self.assertEqual(chat.end(), 0)

    def test_ctrl_c_ends_the_answer_and_then_the_chat(self):
        chat = Terminal("chat", "-m", MODEL, "--temp", "3", "--top-p", "1", "--seed", "1")
        chat.prompt()
        chat.type("hello\r")
        chat.wait_for(r"hello\r?\n(\x1b\[\?2004l)?(?!\x1b)[^\r\n]")  # the answer has begun
        chat.type("\x03")
        chat.prompt()
        chat.type("/stats\r")
        self.assertIn("kept", chat.wait_for("cancelled"))
        chat.prompt()
        chat.type("\x03")
        self.assertEqual(chat.end(), 0)

    def test_editing_pasting_and_history(self):
        history = os.path.join(environment()["XDG_CACHE_HOME"], "lever", "chat_history")
        if os.path.exists(history):
            os.remove(history)
        chat = Terminal(*WORDS, "--log-level", "none")
        chat.prompt()
        if "\x1b[?2004h" not in chat.seen and not os.path.isdir(os.path.dirname(history)):
            self.skipTest("built without libedit")
        chat.type("dropped")
        chat.wait_for("dropped")
        chat.type("\x03")
        chat.prompt()
        chat.type("\x1b[200~first\nsecond\x1b[201~\r")
        chat.prompt()
        chat.type("gr\u00fc\u00dfe\r")
        chat.prompt()
        chat.type("\x04")
        self.assertEqual(chat.end(), 0)
        with open(history, encoding="utf-8") as file:
            lines = file.read()
        if "_HiStOrY_" not in lines:
            self.skipTest("built without libedit")
        self.assertIn("first\u23cesecond", lines)
        self.assertIn("gr\u00fc\u00dfe", lines)
        self.assertNotIn("dropped", lines)
        self.assertEqual(os.stat(history).st_mode & 0o077, 0)

    def test_no_colour_when_not_wanted(self):
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            chat = Terminal(*WORDS, **variables)
            before = chat.prompt()
            self.assertNotRegex(before, r"\x1b\[\d*m")
            chat.type("/exit\r")
            self.assertEqual(chat.end(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
