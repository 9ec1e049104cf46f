"""Two ways for two engines to share one machine: NVIDIA's MPS on a GPU, pinned cores on a CPU.

    way = mps.ways()                       # of this machine; a context manager, too
    arms = {way.arm: {"a": {"env": way.env["a"]}, "b": {"env": way.env["b"]}}}
    ...
    way.stop()                             # after the engines: they are the daemon's clients

Without MPS a GPU runs one process's kernels at a time, in turns. Under it all clients' kernels go
through one server, which may run them at the same time. Pinning is an analogy, and only that: it
decides who computes where, but it takes something away (the other half of the cores), where MPS
adds something. What the two share is that the engines still batch apart from each other.
"""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from helpers import engine, profile, supervisor
from helpers.errors import LabError

PROGRAM = "nvidia-cuda-mps-control"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
# its pipe lies in the temporary folder that the supervisor removes
SCRIPT = f'export {PIPE}="$TMPDIR/pipe" && mkdir -p "${PIPE}" && exec {PROGRAM} -f'
CPUS = Path("/sys/devices/system/cpu")
_running = []  # the daemon of ways(): a cell that is run twice starts one


@dataclass
class Way:
    """How engines share this machine. word: 'MPS', 'pinned' or 'again'; env: {engine: variables}.

    'again' is neither: the engines as they are, where a GPU has no MPS.
    """

    word: str
    env: dict
    daemon: object = None
    arm: str = field(init=False)

    def __post_init__(self):
        self.arm = f"two engines {self.word}"

    def seen(self, servers):
        """{engine: what shows in which way it runs}, from the running system, not the request.

        Pinned: the cores to which its threads are bound. Under MPS: whether one of its processes
        is among the daemon's clients, and how many these are.  servers: {engine: Server}, started.
        """
        if self.word == "pinned":
            return {name: f"cores {compute_cores(server)}" for name, server in servers.items()}
        clients = set(self.daemon.clients()) if self.daemon else set()
        return {name: f"{'one' if clients & set(supervisor.session_pids(server.pid)) else 'none'} "
                      f"of {len(clients)} MPS clients" for name, server in servers.items()}

    def stop(self):
        """End the daemon, where there is one; calling it twice is fine."""
        if self.daemon:
            self.daemon.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def ways(names=("a", "b")):
    """The Way of this machine for engines of these names; says what it is.

    On a GPU it starts an MPS daemon, or takes the one that it started before. Where none can be
    had, it says why, and the engines share in the usual way once more ('again').
    """
    if profile.current().name == "cpu":
        parts = halves(physical_cores(), len(names))
        print("No GPU, no MPS. The analogy: " + ", ".join(
            f"engine {name} on cores {part}" for name, part in zip(names, parts, strict=True)))
        return Way("pinned", {name: pinned(part) for name, part in zip(names, parts, strict=True)})
    try:
        if not (_running and _running[0].running):
            _running[:] = [daemon()]
    except LabError as none:
        print(f"{none}\nThe arm repeats two engines as they are.")
        return Way("again", {name: {} for name in names})
    env = _running[0].env
    print(f"The MPS daemon runs: engines started with {PIPE}={env[PIPE]} use it.")
    return Way("MPS", dict.fromkeys(names, env), _running[0])


class Daemon:
    """A running MPS control daemon. `.env` makes an engine its client.

    It ends with stop(), with its `with` block, or with this process, however that ends.
    """

    def __init__(self, process, log):
        self._process, self._log = process, log
        self.env = {PIPE: f"{process.scratch}/pipe", LOG: str(log)}

    def ask(self, command, timeout_s=10):
        """What the daemon answers to one command of its own language, None if it does not."""
        try:
            answer = subprocess.run([PROGRAM], input=command + "\n", env=os.environ | self.env,
                                    capture_output=True, text=True, timeout=timeout_s)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if "Cannot find" in answer.stdout + answer.stderr else answer.stdout

    def clients(self):
        """Process ids of the CUDA programs that run under it, as its servers count them."""
        servers = (self.ask("get_server_list") or "").split()
        return [int(word) for server in servers if server.isdigit()
                for word in (self.ask(f"get_client_list {server}") or "").split()
                if word.isdigit()]

    def log_tail(self, lines=8):
        """The last lines of what the daemon and its server wrote."""
        texts = [path.read_text(errors="replace") for path in sorted(self._log.glob("*"))]
        return "\n".join("".join(texts).splitlines()[-lines:])

    @property
    def answers(self):
        """True once it has made its pipe and takes commands."""
        there = any(Path(self.env[PIPE]).glob("*"))
        return there and self.ask("get_server_list", timeout_s=5) is not None

    @property
    def running(self):
        return supervisor.exit_code(self._process) is None

    def stop(self):
        """End it, and what is still its client; calling it twice is fine."""
        if self.running and self._process.owner == os.getpid():
            self.ask("quit -t 1")
        supervisor.stop(self._process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def daemon(*, start_limit_s=20):
    """Start the MPS control daemon, wait until it answers, and return it.

    It has a pipe of its own, so that only engines with `.env` use it: others on the same GPU run
    without MPS beside them. Raises LabError where the program is missing or does not answer.
    """
    if shutil.which(PROGRAM) is None:
        raise LabError(f"{PROGRAM} is not on this machine.",
                       cause="No NVIDIA driver, or a container that was given no MPS.",
                       fix="Install the driver's compute utilities, or go on without MPS.")
    log = engine.LOGS / f"mps-{os.getpid()}"
    log.mkdir(parents=True, exist_ok=True)
    process = supervisor.start(["sh", "-c", SCRIPT], env=os.environ | {LOG: str(log)},
                               log_path=log / "stdout.log")
    new, end = Daemon(process, log), time.monotonic() + start_limit_s
    try:
        while not new.answers:
            if not new.running or time.monotonic() > end:
                raise LabError("The MPS daemon did not start.",
                               cause="No GPU that it may use, or another daemon holds it.",
                               fix="Read its log below.", log=new.log_tail())
            time.sleep(0.1)
    except BaseException:
        supervisor.stop(process)
        raise
    return new


def pinned(cores):
    """The environment of an engine whose OpenMP threads stay on these cores, one a core.

    The rest of the engine (its HTTP server, its scheduler) stays free: it computes little.
    """
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores))}


def halves(cores, parts=2):
    """The cores in equal runs, one a part; a core more or less where it does not divide.

    With fewer cores than parts some share one.
    """
    bounds = [round(n * len(cores) / parts) for n in range(parts + 1)]
    return [cores[low:high] or [cores[min(low, len(cores) - 1)]]
            for low, high in zip(bounds, bounds[1:], strict=False)]


def physical_cores():
    """One logical CPU of each physical core that this process may use: the last, as vLLM takes it.

    Two of one core share its arithmetic units, so halves of the others would overlap.
    """
    found = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        topology = CPUS / f"cpu{cpu}" / "topology"
        try:
            place = tuple(int((topology / name).read_text())
                          for name in ("physical_package_id", "core_id"))
        except (OSError, ValueError):
            place = (0, cpu)
        found[place] = cpu
    return [found[place] for place in sorted(found)]


def compute_cores(server):
    """Cores to which threads of the engine are bound, each to one (as OpenMP's are); sorted.

    Read from the kernel: a thread that may use just one core is bound to it.
    """
    bound = set()
    for pid in supervisor.named(server.pid, "VLLM::"):
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                allowed = os.sched_getaffinity(int(thread))
            except OSError:
                continue
            if len(allowed) == 1:
                bound |= allowed
    return sorted(bound)
