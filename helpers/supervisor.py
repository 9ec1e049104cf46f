"""Runs one command and ends all of it when the owner ends, however the owner ends.

A process of its own session, started as `python supervisor.py OWNER_PIDFD SCRATCH COMMAND...`.
- OWNER_PIDFD is a pidfd of the owner, opened by the owner itself: it becomes readable when the
  owner is gone, whether it returned, raised, was interrupted or was killed (pidfd_open(2)).
- It is the subreaper of what it starts (prctl(2)): a grandchild whose parent died becomes its
  child, so nothing of the tree can get out of its sight.
- When the owner ends, when it is sent SIGTERM, or when the command itself ends, it ends the
  whole tree: SIGTERM, then SIGKILL after GRACE_S. Then it removes what the tree left in
  /dev/shm and in its scratch folder, and exits with the command's status.
Only the standard library, so that it is up in a few hundredths of a second.
"""

import contextlib
import ctypes
import glob
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GRACE_S = 4.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def start(command, *, env, log_path, **popen):
    """Start `command` under a supervisor that this process owns; returns its Popen.

    VLLM_RPC_BASE_PATH, where vLLM puts its sockets, becomes a folder that ends with it.
    stdout and stderr go to log_path unless `popen` says otherwise. Its pid is the id of the
    session that holds every process of the tree. Stop it with `stop(process)`.
    """
    pidfd = os.pidfd_open(os.getpid())
    scratch = tempfile.mkdtemp(prefix="vllm-course-")
    try:
        with open(log_path, "ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log} | popen
            return subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(pidfd), scratch, *command],
                env=env | {"VLLM_RPC_BASE_PATH": scratch},
                pass_fds=[pidfd], start_new_session=True, **streams,
            )
    finally:
        os.close(pidfd)


def stop(process):
    """End the supervisor's whole tree and wait for it; does nothing if it has ended.

    If the supervisor itself was killed, what is left of its session is killed here.
    """
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE_S + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    left = session_pids(process.pid)
    files = {file for pid in left for file in _shared_memory(pid)}
    for pid in left:
        _signal(pid, signal.SIGKILL)
    _unlink(files)


def session_pids(session):
    """Processes that are in the session numbered `session`, zombies left out."""
    return [pid for pid, fields in _stat().items() if fields["session"] == session]


def named(session, prefix):
    """Processes of a session whose name starts with `prefix`."""
    return [pid for pid in session_pids(session) if _read(pid, "comm").startswith(prefix)]


def ended(pid):
    """True once a process has ended or is being ended: its memory is gone, so is its cmdline."""
    return _read(pid, "cmdline") == ""


def _read(pid, file):
    try:
        with open(f"/proc/{pid}/{file}", encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""  # it ended while we looked


def _stat():
    """{pid: {parent, session}} of every live process, from /proc/PID/stat (proc(5))."""
    table = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = _read(name, "stat").rpartition(")")[2].split()[:4]
        if not fields:
            continue
        state, parent, _, session = fields
        if state not in "ZX":
            table[int(name)] = {"parent": int(parent), "session": int(session)}
    return table


def _descendants():
    """Every live process below this one."""
    table, found, level = _stat(), [], {os.getpid()}
    while level:
        level = {pid for pid, fields in table.items() if fields["parent"] in level}
        found.extend(level)
    return found


def _shared_memory(pid):
    """Files in /dev/shm that `pid` has mapped (vLLM, OpenMP and Python put theirs there)."""
    lines = _read(pid, "maps").splitlines()
    return {line.split(None, 5)[5].strip() for line in lines if "/dev/shm/" in line}


def _unlink(files):
    for path in files:
        with contextlib.suppress(OSError):  # the engine may have removed it itself
            os.unlink(path.removesuffix(" (deleted)"))


def _signal(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap(child=None):
    """Collect the children that have ended: (are there others, exit status of `child` or None)."""
    status = None
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False, status
        if pid == 0:
            return True, status
        if pid == child:
            status = os.waitstatus_to_exitcode(code)


class Tree:
    """What the command started: processes seen, and their files in /dev/shm."""

    def __init__(self):
        self.pids, self.files = set(), set()

    def look(self):
        """Note the live processes and their shared memory; returns the live ones."""
        alive = _descendants()
        self.pids.update(alive)
        for pid in alive:
            self.files |= _shared_memory(pid)
        return alive

    def end(self):
        """SIGTERM, up to GRACE_S of grace, then SIGKILL until none is left."""
        deadline = time.monotonic() + GRACE_S
        for pid in self.look():
            _signal(pid, signal.SIGTERM)
        while _reap()[0] and time.monotonic() < deadline + GRACE_S:
            alive = self.look()
            if time.monotonic() > deadline:
                for pid in alive:
                    _signal(pid, signal.SIGKILL)
            time.sleep(0.05)
        self._remove_files()

    def _remove_files(self):
        for pid in self.pids:  # OpenMP's registration file carries the pid of its process
            self.files.update(glob.glob(f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_*"))
        _unlink(self.files)


def _die_with_parent():
    """Run in the child: if this supervisor is killed, the command is ended as well."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(owner_fd, scratch, command):
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_in, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    signal.set_wakeup_fd(wake_out)
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = subprocess.Popen(command, preexec_fn=_die_with_parent)
    tree, status, owner_gone = Tree(), None, False
    while status is None and not stopped and not owner_gone:
        ready, _, _ = select.select([owner_fd, wake_in], [], [], 5.0)
        owner_gone = owner_fd in ready
        if wake_in in ready:
            os.read(wake_in, 4096)
        tree.look()
        _, status = _reap(child.pid)
    tree.end()
    shutil.rmtree(scratch, ignore_errors=True)
    return status if status is not None else 0


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
    sys.exit(128 - code if code < 0 else code)
