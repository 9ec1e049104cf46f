"""Runs one command and ends all of it when the owner ends, however the owner ends.

A process of its own session, started as `python supervisor.py OWNER_PIDFD COMMAND...`.
- OWNER_PIDFD is a pidfd of the owner, opened by the owner itself: it becomes readable when the
  owner is gone, whether it returned, raised, was interrupted or was killed (pidfd_open(2)).
- It is the subreaper of what it starts (prctl(2)): a grandchild whose parent died becomes its
  child, so nothing of the tree can get out of its sight.
- When the owner ends, when it is sent SIGTERM, or when the command itself ends, it ends the
  whole tree: SIGTERM, then SIGKILL after GRACE_S. Then it removes what the tree left in
  /dev/shm, which the kernel does not do, and exits with the command's status.
Only the standard library, so that it is up in a few hundredths of a second.
"""

import ctypes
import glob
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 4.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def start(command, *, env, log_path, **popen):
    """Start `command` under a supervisor that this process owns; returns its Popen.

    stdout and stderr go to log_path unless `popen` says otherwise. Its pid is the id of the
    session that holds every process of the tree. Stop it with `stop(process)`.
    """
    pidfd = os.pidfd_open(os.getpid())
    try:
        with open(log_path, "ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log} | popen
            return subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(pidfd), *command],
                env=env, pass_fds=[pidfd], start_new_session=True, **streams,
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
    for pid in session_pids(process.pid):
        _signal(pid, signal.SIGKILL)


def session_pids(session):
    """Processes that are in the session numbered `session`, zombies left out."""
    return [pid for pid, fields in _stat().items() if fields["session"] == session]


def _stat():
    """{pid: {parent, session}} of every live process, from /proc/PID/stat (proc(5))."""
    table = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it ended while we looked
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
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return {line.split(None, 5)[5].strip() for line in file if "/dev/shm/" in line}
    except OSError:
        return set()


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _reap(child):
    """Collect every ended child; returns the command's exit status once it has ended."""
    status = None
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
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
        while (alive := self.look()) and time.monotonic() < deadline + GRACE_S:
            if time.monotonic() > deadline:
                for pid in alive:
                    _signal(pid, signal.SIGKILL)
            time.sleep(0.05)
            _reap(None)
        self._remove_files()

    def _remove_files(self):
        for pid in self.pids:  # OpenMP's registration file carries the pid of its process
            self.files.update(glob.glob(f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_*"))
        for path in self.files:
            try:
                os.unlink(path.removesuffix(" (deleted)"))
            except OSError:
                pass  # the engine removed it itself


def _die_with_parent():
    """Run in the child: if this supervisor is killed, the command is ended as well."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(owner_fd, command):
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
        status = _reap(child.pid)
    tree.end()
    return status if status is not None else 0


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2:])
    sys.exit(128 - code if code < 0 else code)
