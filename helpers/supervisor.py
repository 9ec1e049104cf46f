"""Starts a command that ends with this process, however this process ends; the owner's side.

A watcher (helpers.watcher) runs the command in a session of its own, whose number is the
watcher's process id, and ends all of it when this process is gone.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial

from helpers import watcher

PREFIX = "vllm-course-"


def start(command, *, env, log_path, **popen):
    """Start `command` under a watcher that this process owns; returns the watcher's Popen.

    TMPDIR, where vLLM puts its sockets, becomes a folder that ends with it. stdout and stderr
    go to log_path unless `popen` says otherwise. Stop it with `stop(process)`.
    """
    sweep()
    usual = tempfile.gettempdir()
    # a socket's path has 107 characters at most, and vLLM adds 37 to ours
    scratch = tempfile.mkdtemp(prefix=PREFIX, dir="/tmp" if len(usual) > 45 else usual)
    # added last: setproctitle, which names vLLM's processes, needs the first variable unchanged
    env = dict(env) | {"TMPDIR": scratch}
    env.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{usual}/torchinductor_{os.getuid()}")
    pidfd = os.pidfd_open(os.getpid())
    try:
        with open(log_path, "ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log} | popen
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", watcher.__file__, str(pidfd), scratch, *command],
                env=env, pass_fds=[pidfd], start_new_session=True, **streams,
            )
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        os.close(pidfd)
    process.scratch, process.owner = scratch, os.getpid()
    return process


def exit_code(process):
    """None while the watcher runs, else its status; a forked child of the owner may ask too."""
    if process.owner == os.getpid():
        if process.poll() is None and ended(process.pid):  # its status comes in a moment
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        return process.returncode
    return None if process.pid in watcher.processes() else 0


def stop(process):
    """End the watcher's whole tree and wait for it; does nothing if it has ended.

    If the watcher itself was killed, what is left of its tree is ended here. In a forked
    child of the owner it does nothing: the tree is the parent's.
    """
    if process.owner != os.getpid():
        return
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(2 * watcher.GRACE_S + 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if os.path.isdir(process.scratch):
        left = partial(session_pids, process.pid)
        watcher.end(lambda: left() or None, set(), process.scratch, grace_s=0)


def sweep():
    """End and remove what is left of trees whose watcher and owner were killed together."""
    folders = {tempfile.gettempdir(), "/tmp"}
    for scratch in [found for folder in folders for found in glob.glob(f"{folder}/{PREFIX}*")]:
        with contextlib.suppress(OSError), open(f"{scratch}/pid") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while its watcher lives
            pid, seen = lock.read(), set(watcher.read(f"{scratch}/seen").splitlines())
            if pid:
                watcher.end(partial(_orphans, int(pid), seen, scratch), seen, scratch, grace_s=0)


def _orphans(session, seen, scratch):
    """Processes of a session that use the tree's files: the number may be another's by now."""
    return [pid for pid in session_pids(session) if watcher.shared_memory([pid]) & seen
            or scratch in watcher.read(f"/proc/{pid}/environ")] or None


def note(process):
    """Write down what the tree holds now, in case its watcher is killed before it looks."""
    watcher.note(session_pids(process.pid), set(), process.scratch)


def session_pids(session):
    """Processes that are in the session numbered `session`, zombies left out."""
    return [pid for pid, at in watcher.processes().items() if at["session"] == session]


def named(session, prefix):
    """Processes of a session whose name starts with `prefix`."""
    return [pid for pid in session_pids(session)
            if watcher.read(f"/proc/{pid}/comm").startswith(prefix)]


def ended(pid):
    """True once a process has ended or is being ended: its memory is gone, so is its cmdline."""
    return watcher.read(f"/proc/{pid}/cmdline") == ""
