"""A noisy neighbour, as a process of its own: it takes arithmetic, cache or memory bandwidth.

`python neighbour_worker.py DEVICE CORES`: DEVICE cpu or cuda; CORES it may run on, such as 0,1, a
thread bound to each (helpers.neighbour starts it so). A command a line, answered by one of JSON:
- arithmetic, cache or memory: begin to do that, again and again; answered after the first pass
- rest: stop; answered with the passes done, the seconds they took, and the bytes they read
- hold BYTES: take so much memory and write to it; answered with whether it was given
- fault: make an error that no program survives; not answered
It ends at the end of its input.
"""

import json
import os
import sys
import threading
import time

import torch

SIDE = {"cpu": 256, "cuda": 4096}  # of two matrices: on a CPU they fit the cache of one core
CACHE = {"cpu": 2**24, "cuda": 2**25}  # bytes a thread: within the last cache of many machines
MEMORY = {"cpu": 2**28, "cuda": 2**31}  # bytes a thread: in no cache


class Neighbour:
    """What its threads do, and how often they have done it."""

    def __init__(self, device, cores):
        self.device, self.kind, self.since = device, "rest", 0.0
        self.passes = [0] * (len(cores) if device == "cpu" else 1)
        self.bytes = {"arithmetic": 0, "cache": CACHE[device], "memory": MEMORY[device]}
        self.go, self.held = threading.Condition(), None
        self.work = [self.jobs() for _ in self.passes]
        for number in range(len(self.passes)):
            bound = {cores[number]} if device == "cpu" else set(cores)
            threading.Thread(target=self.loop, args=[number, bound], daemon=True).start()

    def jobs(self):
        """{kind: a function that does it once}, with memory of its own."""
        side = SIDE[self.device]
        matrix = torch.ones((side, side), device=self.device,
                            dtype=torch.bfloat16 if self.device == "cuda" else torch.float32)
        small, large = (torch.ones(size[self.device] // 4, device=self.device)
                        for size in (CACHE, MEMORY))  # not zeros: these might all be one page
        jobs = {"arithmetic": lambda: matrix @ matrix, "cache": small.sum, "memory": large.sum}
        for job in jobs.values():
            job()
        return jobs

    def loop(self, number, bound):
        os.sched_setaffinity(0, bound)  # of this thread; else where it runs would be luck
        while True:
            with self.go:
                self.go.wait_for(lambda: self.kind != "rest")
            while (kind := self.kind) != "rest":
                self.work[number][kind]()
                if self.device == "cuda":
                    torch.cuda.synchronize()
                self.passes[number] += 1

    def start(self, kind):
        with self.go:
            self.kind, self.since, self.passes = kind, time.perf_counter(), [0] * len(self.passes)
            self.go.notify_all()
        while not all(self.passes):
            time.sleep(0.001)
        return {"busy": kind}

    def rest(self):
        kind, self.kind = self.kind, "rest"
        return {"passes": sum(self.passes), "seconds": time.perf_counter() - self.since,
                "bytes": sum(self.passes) * self.bytes.get(kind, 0)}

    def hold(self, size):
        try:
            self.held = torch.ones(size, dtype=torch.uint8, device=self.device)
            if self.device == "cuda":
                torch.cuda.synchronize()
            return {"held": True, "why": ""}
        except (RuntimeError, MemoryError) as error:  # torch's out of memory is a RuntimeError
            return {"held": False, "why": str(error).splitlines()[0]}

    def fault(self):
        if self.device == "cpu":
            import ctypes

            ctypes.string_at(0)  # reads address 0: SIGSEGV
        torch.zeros(4, device="cuda")[torch.tensor([2**30], device="cuda")].sum()
        torch.cuda.synchronize()


def main(device, cores):
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(1)
    neighbour = Neighbour(device, cores)
    answer = {"ready": True}
    while True:
        print(json.dumps(answer), flush=True)
        command, _, size = sys.stdin.readline().strip().partition(" ")
        if command == "hold":
            answer = neighbour.hold(int(size))
        elif command in ("rest", "fault"):
            answer = getattr(neighbour, command)()
        elif command in neighbour.bytes:
            answer = neighbour.start(command)
        else:
            os._exit(0)  # whatever its threads are doing: torch aborts if they are in the middle


if __name__ == "__main__":
    main(sys.argv[1], [int(core) for core in sys.argv[2].split(",")])
