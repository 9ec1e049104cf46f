"""Free TCP ports on 127.0.0.1, and who holds one that is taken.

An engine listens on its port only some ten seconds after its start. Until then a reservation
keeps other notebooks from choosing the same one: a socket with an abstract name, unix(7), which
leaves no file and ends with its process.
"""

import contextlib
import errno
import os
import socket
import time
from urllib.request import getproxies

import psutil

from helpers.errors import LabError

HOST, FIRST, COUNT = "127.0.0.1", 8000, 100
PATIENCE_S = 8.0  # an engine whose notebook has just ended gives its port back within this time


def go_past_proxies():
    """Let requests to this machine, a notebook's own too, go past a proxy that is set."""
    if getproxies():
        for name in ("NO_PROXY", "no_proxy"):
            hosts = os.environ.get(name, "").split(",")
            os.environ[name] = ",".join(dict.fromkeys([*filter(None, hosts), HOST, "localhost"]))


def reserve(port=None):
    """(port, reservation): `port` if it is free, with None 8000 or the next free one.

    Close the reservation once the engine listens. Raises LabError saying who holds `port`.
    """
    if port is None:
        for candidate in range(FIRST, FIRST + COUNT):
            reservation = _reserve(candidate)
            if reservation:
                if candidate != FIRST:
                    print(f"Port {FIRST} is in use by {holder(FIRST)}; using {candidate}.")
                return candidate, reservation
        raise LabError(f"No port from {FIRST} to {FIRST + COUNT - 1} is free.",
                       cause="Many servers are running.", fix="End some of them.")
    deadline = time.monotonic() + PATIENCE_S
    while not (reservation := _reserve(port)):
        if time.monotonic() > deadline:
            raise LabError(
                f"Port {port} is in use by {holder(port)}.",
                cause="A server of another notebook, or another program.",
                fix="End that program, or leave the port out: another is taken then.",
            )
        time.sleep(0.1)
    return port, reservation


def _reserve(port):
    """A reservation of the port, or None if it is taken or reserved."""
    reservation = socket.socket(socket.AF_UNIX)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reservation.bind(f"\0vllm-course-port-{port}")
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reservation.close()
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                return None
            raise LabError(f"Port {port} cannot be used: {error}.",
                           cause="Ports below 1024 belong to the system; the last is 65535.",
                           fix="Leave the port out, or take one above 1024.") from error
    return reservation


def holder(port):
    """Who listens on a port: 'python (pid 123)', or 'another program' if that cannot be seen."""
    found = _listener(port)
    if found is None:
        return "another program (it may be an engine that is still starting)"
    return "{1} (pid {0})".format(*found)


def other_listener(port, *, session):
    """Who listens on a port, if it is a process that is not of `session`; else None."""
    with contextlib.suppress(ProcessLookupError):
        found = _listener(port)
        if found and os.getsid(found[0]) != session:
            return holder(port)
    return None


def _listener(port):
    """(process id, name) of who listens, or None."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listening = connection.status == psutil.CONN_LISTEN
            if listening and connection.laddr.port == port and connection.pid:
                return connection.pid, psutil.Process(connection.pid).name()
    return None
