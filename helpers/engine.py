"""One `vllm serve` process with its log: whether it runs, what it wrote, how it is ended."""

import os
import re
from pathlib import Path

from helpers import supervisor
from helpers.command import shell_command, to_arguments, vllm_executable
from helpers.errors import LabError

LOGS = Path(__file__).parent.parent / "results" / "logs"
DEFAULT_ENV = {
    "VLLM_NO_USAGE_STATS": "1",  # no report leaves this machine
    "HF_HUB_OFFLINE": "1",  # the model is a folder: nothing is fetched
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
# Else the first request for logprobs compiles a kernel: a pause, and the end of the engine on a
# machine that has no C++ compiler.
EAGER_ENV = {"TORCH_COMPILE_DISABLE": "1"}


class Engine:
    """`.command` is what a person would type, `.pid` the supervisor and the engine's session."""

    def __init__(self, model, *, port, env, flags, name):
        arguments = ["serve", model, "--host", "127.0.0.1", "--port", str(port)]
        arguments += to_arguments(flags)
        eager = EAGER_ENV if flags.get("enforce_eager") else {}
        env = DEFAULT_ENV | eager | {key: str(value) for key, value in (env or {}).items()}
        self.command = shell_command(["vllm", *arguments], env)
        self.log_path = LOGS / f"{re.sub(r'[^-.+=@a-zA-Z0-9]', '_', name)}-{port}.log"
        self._cores = []
        executable = vllm_executable()
        try:
            LOGS.mkdir(parents=True, exist_ok=True)
            self.log_path.write_bytes(b"")
            self._process = supervisor.start(
                [executable, *arguments], env=os.environ | env, log_path=self.log_path)
        except OSError as error:
            raise LabError(
                f"The engine could not be started: {error}.",
                cause="A full disk, or a folder that is not yours.",
                fix=f"Free some space, or make {LOGS} and the temporary folder writable.",
            ) from error
        self.pid = self._process.pid

    @property
    def exit_code(self):
        """None while its supervisor runs."""
        return supervisor.exit_code(self._process)

    def watch_cores(self):
        """From now on `core_ended` tells whether the engine core or a worker has ended."""
        self._cores = supervisor.named(self.pid, "VLLM::")
        supervisor.note(self._process)

    @property
    def core_ended(self):
        return any(supervisor.ended(pid) for pid in self._cores)

    def log(self, since=0):
        """What it has written so far, from byte `since` on."""
        text = self.log_path.read_bytes() if self.log_path.exists() else b""
        return text[since:].decode(errors="replace")

    def end(self):
        """End all of it and wait until it is gone; calling it twice is fine."""
        supervisor.stop(self._process)
