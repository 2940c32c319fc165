"""Runs one command under limits and says what it cost.

Limits are those of control groups, version 1 or 2, in a group that is made for the one command and removed behind it.
Memory is limited together with swap; the page cache counts, as it does on a phone. Where the system does not let us,
Skip is raised with the reason: a measurement without its limit would be another measurement.

The command is started by a shell that first moves itself into the group, so that every byte of it is counted from its
first instruction. A command that does not end in time is killed by its id, and with it what is left in its group.
"""

import ctypes
import dataclasses
import os
import signal
import subprocess
import tempfile
import threading
import time

from rows import block_device, read_text


class Skip(Exception):
    """This measurement cannot be made here; the text says why."""


@dataclasses.dataclass
class Limits:
    memory_bytes: int = 0  # 0: none
    read_bytes_per_second: int = 0  # 0: none
    disk_of: str = ""  # the file whose disk is slowed down
    timeout_seconds: float = 300

    def facts(self):
        return {
            "cgroup_bytes": self.memory_bytes or None,
            "read_bytes_per_second": self.read_bytes_per_second or None,
            "timeout_seconds": self.timeout_seconds,
        }


@dataclasses.dataclass
class Result:
    code: int = 0  # exit code; negative: the signal that ended it
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0
    user_seconds: float = 0
    system_seconds: float = 0
    rss_peak_bytes: int = 0
    disk_read_bytes: int = 0  # of the process, page faults included
    cgroup_peak_bytes: int = 0  # 0: no group, or a kernel that does not tell
    oom_kills: int = 0

    def values(self):
        """What goes into every row, whatever the command was."""
        facts = {
            "seconds": round(self.seconds, 4),
            "user_seconds": round(self.user_seconds, 4),
            "system_seconds": round(self.system_seconds, 4),
            "process_rss_peak_bytes": self.rss_peak_bytes,
            "process_disk_read_bytes": self.disk_read_bytes,
        }
        if self.cgroup_peak_bytes:
            facts["cgroup_peak_bytes"] = self.cgroup_peak_bytes
        return facts

    def exit_facts(self):
        return {"code": self.code, "timed_out": self.timed_out, "oom_kills": self.oom_kills}


# --- Control groups ---------------------------------------------------------------------------------------------------


def _controller(name):
    """(version, folder) of the hierarchy that has a controller, or None."""
    for line in read_text("/proc/self/mounts").splitlines():
        _, folder, kind, settings = line.split()[:4]
        if kind == "cgroup" and name in settings.split(","):
            return 1, folder
        if kind == "cgroup2" and name in read_text(f"{folder}/cgroup.controllers").split():
            return 2, folder
    return None


def _put(path, text):
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise Skip(f"{path}: {error.strerror} (limits want root)") from None


class Group:
    """Control groups for one command: memory, and the disk where its speed is limited."""

    _count = 0

    def __init__(self, limits):
        self._limits = limits
        self._folders = {}  # controller -> (version, folder)

    def __enter__(self):
        try:
            if self._limits.memory_bytes:
                self._limit_memory(*self._open("memory"))
            if self._limits.read_bytes_per_second:
                self._limit_disk()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        self._remove()

    def _open(self, controller):
        hierarchy = _controller(controller)
        if hierarchy is None:
            raise Skip(f"no control groups for {controller} on this system")
        version, root = hierarchy
        if version == 2 and controller not in read_text(f"{root}/cgroup.subtree_control").split():
            _put(f"{root}/cgroup.subtree_control", f"+{controller}")
        Group._count += 1
        folder = f"{root}/lever-bench-{os.getpid()}-{Group._count}"
        try:
            os.mkdir(folder)
        except OSError as error:
            raise Skip(f"{folder}: {error.strerror} (limits want root)") from None
        self._folders[controller] = version, folder
        return version, folder

    def _limit_memory(self, version, folder):
        size = str(self._limits.memory_bytes)
        if version == 1:
            _put(f"{folder}/memory.limit_in_bytes", size)
            if os.path.exists(f"{folder}/memory.memsw.limit_in_bytes"):
                _put(f"{folder}/memory.memsw.limit_in_bytes", size)
        else:
            _put(f"{folder}/memory.max", size)
            if os.path.exists(f"{folder}/memory.swap.max"):
                _put(f"{folder}/memory.swap.max", "0")

    def _limit_disk(self):
        device = block_device(self._limits.disk_of)
        if device is None:
            raise Skip(f"{self._limits.disk_of} is not on a disk that can be slowed down")
        rate = self._limits.read_bytes_per_second
        if _controller("blkio"):
            _, folder = self._open("blkio")
            _put(f"{folder}/blkio.throttle.read_bps_device", f"{device[0]}:{device[1]} {rate}")
        else:
            _, folder = self._open("io")
            _put(f"{folder}/io.max", f"{device[0]}:{device[1]} rbps={rate}")

    def entrances(self):
        """Files that a process writes its id to in order to come in."""
        return [f"{folder}/cgroup.procs" for _, folder in self._folders.values()]

    def memory_facts(self):
        """(peak bytes, processes killed for want of memory); zeros without a limit."""
        if "memory" not in self._folders:
            return 0, 0
        version, folder = self._folders["memory"]
        peak = read_text(f"{folder}/memory.max_usage_in_bytes" if version == 1 else f"{folder}/memory.peak").strip()
        events = read_text(f"{folder}/memory.oom_control" if version == 1 else f"{folder}/memory.events")
        kills = [line.split()[1] for line in events.splitlines() if line.startswith("oom_kill ")]
        return int(peak or 0), int(kills[0]) if kills else 0

    def kill_rest(self):
        """What the command left running in its groups."""
        for entrance in self.entrances():
            for process in read_text(entrance).split():
                try:
                    os.kill(int(process), signal.SIGKILL)
                except OSError:
                    pass

    def _remove(self):
        self.kill_rest()
        for version, folder in self._folders.values():
            if version == 1 and os.path.exists(f"{folder}/memory.force_empty"):
                try:
                    _put(f"{folder}/memory.force_empty", "0")
                except Skip:
                    pass
            for _ in range(50):  # a killed process leaves its group a moment later
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    time.sleep(0.1)
        self._folders = {}


# --- The page cache ---------------------------------------------------------------------------------------------------


def cached_bytes(path):
    """How much of a file is in the page cache; None where the system does not say."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mincore"):
        return None
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    size, page = os.path.getsize(path), os.sysconf("SC_PAGESIZE")
    file = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, 1, 1, file, 0)  # PROT_READ, MAP_SHARED
    finally:
        os.close(file)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    pages = (size + page - 1) // page
    states = ctypes.create_string_buffer(pages)
    failed = libc.mincore(address, size, states)
    libc.munmap(address, size)
    return None if failed else sum(state & 1 for state in states.raw) * page


def drop_caches(paths):
    """Takes files out of the page cache, as far as the system lets us, and returns how many bytes are still in it."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)  # pages that are not yet written would stay
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
    try:
        _put("/proc/sys/vm/drop_caches", "3")
    except Skip:
        pass  # the files themselves are dropped; programs and libraries then stay warm
    return sum(cached_bytes(path) or 0 for path in paths)


# --- One command ------------------------------------------------------------------------------------------------------


def _kill(process, fired):
    fired.set()
    try:
        os.kill(process, signal.SIGKILL)
    except OSError:
        pass


def run(command, limits=None, stdin="", environment=None):
    """Runs `command` to its end, with variables that are added to the environment. Raises Skip where a limit cannot be
    set; a command that fails is a Result."""
    limits = limits or Limits()
    temporary = tempfile.TemporaryFile  # files, not pipes: nobody has to empty them meanwhile
    with Group(limits) as group, temporary() as given, temporary() as out, temporary() as err:
        given.write(stdin.encode())
        given.seek(0)
        enter = "".join(f"echo $$ > '{entrance}' || exit 125; " for entrance in group.entrances())
        begin = time.monotonic()
        child = subprocess.Popen(  # waited for below: only wait4 says what it used
            ["/bin/sh", "-c", enter + 'exec "$@"', "sh", *command],
            stdin=given,
            stdout=out,
            stderr=err,
            env={**os.environ, **(environment or {})},
        )
        fired = threading.Event()
        watchdog = threading.Timer(limits.timeout_seconds, _kill, (child.pid, fired))
        watchdog.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            _kill(child.pid, fired)
            os.wait4(child.pid, 0)
            raise
        finally:
            watchdog.cancel()
            child.returncode = 0  # it has been waited for
        seconds = time.monotonic() - begin
        peak, kills = group.memory_facts()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", errors="replace"))
        return Result(
            code=os.waitstatus_to_exitcode(status),
            timed_out=fired.is_set(),
            stdout=texts[0],
            stderr=texts[1],
            seconds=seconds,
            user_seconds=usage.ru_utime,
            system_seconds=usage.ru_stime,
            rss_peak_bytes=usage.ru_maxrss * 1024,
            disk_read_bytes=usage.ru_inblock * 512,
            cgroup_peak_bytes=peak,
            oom_kills=kills,
        )
