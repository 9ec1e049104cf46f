"""Free TCP ports on 127.0.0.1, and who holds one that is taken.

An engine takes its port some ten seconds after its start. Until then a lock on a file in the
temporary folder keeps other notebooks from choosing the same one; it ends with its process.
"""

import socket
import tempfile
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from helpers.errors import LabError

FIRST = 8000


def reserve(port=None):
    """(port, lock): `port` if it is free, with None 8000 or the next free one.

    Release the lock when the port is no longer wanted. Raises LabError saying who holds `port`.
    """
    if port is not None:
        lock = _lock(port)
        if lock is None:
            raise LabError(
                f"Port {port} is in use by {holder(port)}.",
                fix="End that program, or leave the port out: another is taken then.",
            )
        return port, lock
    for candidate in range(FIRST, FIRST + 100):
        lock = _lock(candidate)
        if lock is not None:
            if candidate != FIRST:
                print(f"Port {FIRST} is in use by {holder(FIRST)}; using {candidate}.")
            return candidate, lock
    raise LabError(f"No port from {FIRST} to {FIRST + 99} is free.", fix="End some servers.")


def _lock(port):
    """A lock on the port, or None if it is taken, or about to be."""
    lock = FileLock(Path(tempfile.gettempdir()) / f"vllm-course-port-{port}.lock", mode=0o666)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            lock.release()
            return None
    return lock


def holder(port):
    """Who listens on a port: 'python (pid 123)', or 'another program' if that cannot be seen."""
    try:
        for connection in psutil.net_connections("tcp"):
            listening = connection.status == psutil.CONN_LISTEN
            if listening and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return "another program (it may be an engine that is still starting)"
