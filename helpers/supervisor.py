"""Runs one command and ends all of it when the owner ends, however the owner ends.

A process of its own session, started as `python supervisor.py OWNER_PIDFD SCRATCH COMMAND...`.
- OWNER_PIDFD is a pidfd of the owner, opened by the owner itself: it becomes readable when the
  owner is gone, whether it returned, raised, was interrupted or was killed (pidfd_open(2)).
- It is the subreaper of what it starts (prctl(2)): a grandchild whose parent died becomes its
  child, so nothing of the tree can get out of its sight.
- When the owner ends, when it is sent SIGTERM, or when the command itself ends, it ends the
  whole tree: SIGTERM, then SIGKILL after GRACE_S. Then it removes what the tree left in
  /dev/shm and, last, SCRATCH, the tree's temporary folder. A SCRATCH that is still there when
  the supervisor is not means that it was killed: SCRATCH/seen lists what is left to remove.
Only the standard library, so that it is up in a few hundredths of a second.
"""

import contextlib
import ctypes
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

    TMPDIR, where vLLM puts its sockets, becomes a folder that ends with it. stdout and stderr
    go to log_path unless `popen` says otherwise. Its pid is the id of the session that holds
    every process of the tree. Stop it with `stop(process)`.
    """
    usual = tempfile.gettempdir()
    # a socket's path has 107 characters at most, and vLLM adds 37 to ours
    scratch = tempfile.mkdtemp(prefix="vllm-course-", dir="/tmp" if len(usual) > 45 else usual)
    # added last: setproctitle, which names vLLM's processes, needs the first variable unchanged
    env = dict(env) | {"TMPDIR": scratch}
    env.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{usual}/torchinductor_{os.getuid()}")
    pidfd = os.pidfd_open(os.getpid())
    try:
        with open(log_path, "ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log} | popen
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(pidfd), scratch, *command],
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
    """None while the supervisor runs, else its status; a forked child of the owner may ask too."""
    if process.owner == os.getpid():
        return process.poll()
    return None if process.pid in _stat() else 0


def stop(process):
    """End the supervisor's whole tree and wait for it; does nothing if it has ended.

    If the supervisor itself was killed, what is left of its tree is ended here. In a forked
    child of the owner it does nothing: the tree is the parent's.
    """
    if process.owner != os.getpid():
        return
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(2 * GRACE_S + 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if os.path.isdir(process.scratch):
        _end(lambda: session_pids(process.pid) or None, set(), process.scratch, grace_s=0)


def session_pids(session):
    """Processes that are in the session numbered `session`, zombies left out."""
    return [pid for pid, fields in _stat().items() if fields["session"] == session]


def note(process):
    """Write down what the tree holds now, in case its supervisor is killed before it looks."""
    _note(session_pids(process.pid), set(), process.scratch)


def named(session, prefix):
    """Processes of a session whose name starts with `prefix`."""
    return [pid for pid in session_pids(session) if _read(f"/proc/{pid}/comm").startswith(prefix)]


def ended(pid):
    """True once a process has ended or is being ended: its memory is gone, so is its cmdline."""
    return _read(f"/proc/{pid}/cmdline") == ""


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""  # it ended while we looked


def _stat():
    """{pid: {parent, session}} of every live process, from /proc/PID/stat (proc(5))."""
    table = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = _read(f"/proc/{name}/stat").rpartition(")")[2].split()[:4]
        if fields and fields[0] not in "ZX":
            table[int(name)] = {"parent": int(fields[1]), "session": int(fields[3])}
    return table


def _descendants():
    """Every live process below this one."""
    table, found, level = _stat(), set(), {os.getpid()}
    while level:
        level = {pid for pid, fields in table.items() if fields["parent"] in level}
        found |= level
    return found


def _shared_memory(pids):
    """Files in /dev/shm that `pids` have mapped, and OpenMP's, which carry pid and user.

    Compared by inode: the maker of a semaphore has it mapped under a name that is gone.
    """
    lines = [line for pid in pids for line in _read(f"/proc/{pid}/maps").splitlines()]
    inodes = {int(line.split()[4]) for line in lines if "/dev/shm/" in line}
    openmp = {f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_{os.getuid()}" for pid in pids}
    with os.scandir("/dev/shm") as entries:
        return openmp | {entry.path for entry in entries if entry.inode() in inodes}


def _note(pids, files, scratch):
    """Add the shared memory of `pids` to `files`, and to SCRATCH/seen."""
    new = _shared_memory(pids) - files
    files |= new
    if new:
        with contextlib.suppress(OSError), open(f"{scratch}/seen", "a") as seen:
            seen.writelines(f"{file}\n" for file in new)


def _end(find, files, scratch, grace_s=GRACE_S):
    """End what `find()` finds until it returns None: SIGTERM, SIGKILL after the grace.

    Then remove what it left.
    """
    start, number = time.monotonic(), signal.SIGTERM
    while (pids := find()) is not None and time.monotonic() - start < grace_s + GRACE_S:
        _note(pids, files, scratch)
        if time.monotonic() - start >= grace_s:
            number = signal.SIGKILL
        for pid in pids if number else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        number = None
        time.sleep(0.05)
    for path in files.union(_read(f"{scratch}/seen").splitlines()):
        with contextlib.suppress(OSError):  # the engine may have removed it itself
            os.unlink(path)
    shutil.rmtree(scratch, ignore_errors=True)


def _reap(child=None):
    """Collect the children that have ended: (is there any other, exit status of `child`)."""
    status = None
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                status = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        return False, status
    return True, status


def _die_with_parent():
    """Run in the child: if this supervisor is killed, the command is ended as well."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(owner_fd, scratch, command):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_in, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    signal.set_wakeup_fd(wake_out)
    stopped, files, status, pause_s = [], set(), None, 1.0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.append(True))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the owner's thread may have blocked some
    try:
        child = subprocess.Popen(command, preexec_fn=_die_with_parent)  # deleted, it would reap
    except OSError as error:
        print(f"OSError: {error}", file=sys.stderr)
        status = 127
    poller = select.poll()
    poller.register(owner_fd, select.POLLIN)
    poller.register(wake_in, select.POLLIN)
    while status is None and not stopped:
        ready = dict(poller.poll(1000 * pause_s))
        if owner_fd in ready:
            break
        if wake_in in ready:
            os.read(wake_in, 4096)
        pause_s = min(1.2 * pause_s, 30)  # a start makes many processes, a running engine none
        _note(_descendants(), files, scratch)
        _, status = _reap(child.pid)
    _end(lambda: _descendants() if _reap()[0] else None, files, scratch)
    return status or 0


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
    sys.exit(128 - code if code < 0 else code)
