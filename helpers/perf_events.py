"""Hardware counters of a CPU, where the kernel lets one read them: cache misses of an engine.

Linux's perf_event_open(2). Virtual machines often have no such counters.
"""

import contextlib
import ctypes
import math
import os
import platform
import struct
from pathlib import Path

from helpers import profile, supervisor

SYSCALL = {"x86_64": 298, "aarch64": 241}
CACHE_MISSES, PAGE_FAULTS = (0, 3), (1, 2)  # type and config: of the hardware, of the kernel
LINE_BYTES = 64
INHERIT, USER_ONLY = 1 << 1, 1 << 5 | 1 << 6  # threads born later too; neither kernel nor host
_libc = ctypes.CDLL(None, use_errno=True)


def _open(thread, event):
    """A file descriptor that counts an event of one thread (0: this one). Raises OSError."""
    attributes = bytearray(128)
    struct.pack_into("IIQ", attributes, 0, event[0], len(attributes), event[1])
    struct.pack_into("Q", attributes, 40, INHERIT | USER_ONLY)
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"no number for perf_event_open on {platform.machine()}")
    buffer = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    handle = _libc.syscall(number, buffer, thread, -1, -1, 0)
    if handle < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return handle


def why_not(event=CACHE_MISSES):
    """Why an event cannot be counted on this machine; '' if it can."""
    try:
        os.close(_open(0, event))
    except OSError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def count(pids, event=CACHE_MISSES):
    """Yields a function: how often the event happened in all threads of the processes so far.

    Threads and processes that end meanwhile are left out. Raises OSError where it cannot be read.
    """
    handles = []
    try:
        for pid in pids:
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                with contextlib.suppress(ProcessLookupError):
                    handles.append(_open(int(thread.name), event))
        yield lambda: sum(struct.unpack("Q", os.read(handle, 8))[0] for handle in handles)
    finally:
        for handle in handles:
            os.close(handle)


@contextlib.contextmanager
def missed_bytes(server):
    """Yields a function: bytes that the engine's cores had to fetch from beyond their caches.

    Cache misses * 64. A lead and no more: what a processor counts as a miss differs (on some only
    what the last cache lacks, on some what the second one does), and lines fetched ahead are often
    left out. NaN, and it says so, where there are no counters, and where the model's memory is that
    of a GPU, which the processor's counters do not see.
    """
    on_gpu = profile.current().name == "gpu"
    if reason := "the model runs on the GPU" if on_gpu else why_not():
        print(f"No counters of the model's cache misses here ({reason}): time is all there is, and "
              "what is counted is nan.")
        yield lambda: math.nan
        return
    with count(supervisor.session_pids(server.pid)) as misses:
        yield lambda: LINE_BYTES * misses()
