"""The supervisor's own process: it ends a command and all of its tree when the owner ends.

`python watcher.py OWNER_PIDFD SCRATCH COMMAND...`, in a session of its own (helpers.supervisor
starts it so). Only the standard library, so that it is up in a few hundredths of a second.
- OWNER_PIDFD is a pidfd of the owner, opened by the owner itself: it becomes readable when the
  owner is gone, whether it returned, raised, was interrupted or was killed (pidfd_open(2)).
- It is the subreaper of what it starts (prctl(2)): a grandchild whose parent died becomes its
  child, so nothing of the tree can get out of its sight.
- When the owner ends, when it is sent SIGTERM, or when the command itself ends, it ends the
  whole tree: SIGTERM, then SIGKILL after GRACE_S. Then it removes what the tree left in
  /dev/shm and, last, SCRATCH, the tree's temporary folder.
- While it lives it holds a lock on SCRATCH/pid. SCRATCH/seen lists the tree's shared memory, for
  those who clean up if the watcher itself is killed.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time

GRACE_S = 4.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def read(path):
    """The text of a file, '' if it is not there (any more)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def processes():
    """{pid: {parent, session}} of every live process, from /proc/PID/stat (proc(5))."""
    table = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = read(f"/proc/{name}/stat").rpartition(")")[2].split()[:4]
        if fields and fields[0] not in "ZX":
            table[int(name)] = {"parent": int(fields[1]), "session": int(fields[3])}
    return table


def shared_memory(pids):
    """Files in /dev/shm that `pids` have mapped, and OpenMP's, which carry pid and user.

    Compared by inode: the maker of a semaphore has it mapped under a name that is gone.
    """
    lines = [line for pid in pids for line in read(f"/proc/{pid}/maps").splitlines()]
    inodes = {int(line.split()[4]) for line in lines if "/dev/shm/" in line}
    openmp = {f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_{os.getuid()}" for pid in pids}
    entries = os.scandir("/dev/shm") if inodes else ()
    return openmp | {entry.path for entry in entries if entry.inode() in inodes}


def note(pids, files, scratch):
    """Add the shared memory of `pids` to `files`, and to SCRATCH/seen."""
    new = shared_memory(pids) - files
    files |= new
    if new:
        with contextlib.suppress(OSError), open(f"{scratch}/seen", "a") as seen:
            seen.writelines(f"{file}\n" for file in new)


def end(find, files, scratch, grace_s=GRACE_S):
    """End what `find()` finds until it returns None: SIGTERM, SIGKILL after the grace.

    Then remove what it left.
    """
    start, number = time.monotonic(), signal.SIGTERM
    while (pids := find()) is not None and time.monotonic() - start < grace_s + GRACE_S:
        note(pids, files, scratch)
        if time.monotonic() - start >= grace_s:
            number = signal.SIGKILL
        for pid in pids if number else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        number = None
        time.sleep(0.05)
    for path in files.union(read(f"{scratch}/seen").splitlines()):
        with contextlib.suppress(OSError):  # the engine may have removed it itself
            os.unlink(path)
    shutil.rmtree(scratch, ignore_errors=True)


def _descendants():
    """Every live process below this one."""
    table, found, level = processes(), set(), {os.getpid()}
    while level:
        level = {pid for pid, fields in table.items() if fields["parent"] in level}
        found |= level
    return found


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
    """Run in the child: if the watcher is killed, the command is ended as well."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _lock(scratch):
    lock = open(f"{scratch}/pid", "w")  # noqa: SIM115 - held until this process ends
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def main(owner_fd, scratch, command):
    lock = _lock(scratch)
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
        note(_descendants(), files, scratch)
        _, status = _reap(child.pid)
    end(lambda: _descendants() if _reap()[0] else None, files, scratch)
    lock.close()
    return status or 0


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
    sys.exit(128 - code if code < 0 else code)
