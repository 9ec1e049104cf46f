"""What a notebook's kernel started, and whether it is still there after the kernel has ended."""

import contextlib
import os
import time
import uuid

import psutil

VARIABLE = "LAB_RUN_ID"


class Watch:
    """Follows a kernel and all that it starts, by a mark in their environment.

    A process that overwrites its environment to set its title (VLLM::EngineCore does) is found
    by its session, which its supervisor was seen to have: call `look` now and then.
    """

    def __init__(self):
        self.mark = uuid.uuid4().hex
        self.sessions, self.ports = set(), set()  # all that were ever seen
        self.names, self.pids = set(), set()

    @property
    def env(self):
        """The environment to start the kernel with."""
        return os.environ | {VARIABLE: self.mark}

    def look(self):
        """{process id: name} of what is running now; notes their names, sessions and ports."""
        sessions = {process: _session(process.pid) for process in psutil.process_iter(["name"])}
        marked = [process for process in sessions if self._has_mark(process)]
        self.sessions |= {sessions[process] for process in marked} - {os.getsid(0), None}
        found = {process.pid: process for process, session in sessions.items()
                 if process in marked or session in self.sessions}
        for process in found.values():
            with contextlib.suppress(psutil.Error):
                self.ports |= {connection.laddr.port for connection in
                               process.net_connections("tcp") if connection.status == "LISTEN"}
        self.pids |= found.keys()
        self.names |= {process.info["name"] for process in found.values()}
        return {pid: found[pid].info["name"] for pid in sorted(found)}

    def _has_mark(self, process):
        with contextlib.suppress(psutil.Error, OSError):
            return process.pid != os.getpid() and process.environ().get(VARIABLE) == self.mark
        return False

    def wait_gone(self, seconds=10.0):
        """Wait up to `seconds` for everything to end; what is then still there, {} if nothing."""
        deadline = time.monotonic() + seconds
        while (left := self.look()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def end(self):
        """Kill what is still there."""
        for pid in self.look():
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).kill()


def _session(pid):
    """The session of a live process; None for one that has ended, a zombie included."""
    try:
        alive = psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return os.getsid(pid) if alive else None
    except (psutil.Error, OSError):
        return None
