"""Set up the course: `make setup` runs this, with whatever python3 the system has (3.9 or newer).

    python3 helpers/make/install.py            # .venv, what the course runs in
    python3 helpers/make/install.py compress   # .venv-compress, for llmcompressor

Each finished step is written to setup.json in the environment, with a hash of what went into it.
A later run skips the steps whose hash still fits: it goes on after a failure, and returns at once
when all is done. PYTHON, LAB_PROFILE (cpu or gpu) and VLLM_WHEEL (a path or URL) override what it
would choose; a choice holds until the next one.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
if not __package__:
    sys.path[0] = str(ROOT)  # run as a file: import from the course's folder, not from this one

from helpers.make import install_checks as checks  # noqa: E402
from helpers.make import install_steps as do  # noqa: E402

FOLDERS = {"course": ".venv", "compress": ".venv-compress"}
PINS = {
    "cpu": ("requirements.txt", "requirements-cpu.txt"),
    "gpu": ("requirements.txt", "requirements-gpu.txt"),
    "compress": ("requirements-compress.txt",),
}


class Job:
    """One set-up: its environment, what was chosen for it, its steps and which are done."""

    def __init__(self, name, env):
        self.root, self.venv = ROOT, ROOT / FOLDERS[name]
        self.stamp = read_stamp(self.venv)
        self.choice = choose(name, env, self.stamp.get("choice", {}))
        self.profile = self.choice["profile"]
        self.pins = [pin for file in PINS[self.profile] for pin in read_pins(ROOT / file)]
        self.steps = plan(name, self.choice, self.pins)
        self.fits = {key: fits for key, _, fits, _ in self.steps}
        # while it runs: the Pythons found, the lock's file, the line of the step under way
        self.pythons, self.lock, self.line, self.started, self.output = [], None, "", 0.0, ""

    def todo(self):
        """[(number, step)] of what is not done, or was done with something else."""
        done = self.stamp.get("steps", {}) if (self.venv / "bin" / "python").exists() else {}
        if done.get("venv") != self.fits["venv"]:
            done = {}  # a new environment: all of it
        steps = enumerate(self.steps, start=2)  # step 1 is the look at the machine
        return [(number, step) for number, step in steps if done.get(step[0]) != step[2]]


def choose(name, env, before):
    """What to set up: from the environment variables, else as before, else as the machine is."""
    smi = shutil.which("nvidia-smi") or ""
    profile, why = "compress", "for llmcompressor"
    if name == "course":
        profile, why = checks.choose_profile(env.get("LAB_PROFILE", ""), smi, before)
    choice = {"profile": profile, "why": why, "smi": smi}
    choice["python"] = env.get("PYTHON", before.get("python", ""))
    choice["wheel"] = env.get("VLLM_WHEEL", before.get("wheel", "")) if profile == "cpu" else ""
    return choice


def plan(name, choice, pins):
    """[(key, title, hash, function)] in order; the hash tells whether what was done still fits."""
    where = [str(ROOT), choice["profile"], choice["python"], choice["wheel"]]
    steps = [("venv", "an empty environment", digest(*where), do.make_venv)]
    if choice["profile"] != "gpu":  # there, the CUDA build of torch is among the pins
        steps.append(("torch", "PyTorch for the CPU", digest(do.TORCH), do.install_torch))
    steps.append(("packages", f"{len(pins)} packages", digest(*pins), do.install_packages))
    if name == "course":
        project = (ROOT / "pyproject.toml").read_text()
        steps.append(("course", "the course itself", digest(project), do.install_course))
    return steps


def read_pins(file):
    """The lines of a requirements file that are not comments."""
    return [line for line in file.read_text().splitlines() if line and line[0] != "#"]


def digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def read_stamp(venv):
    """What setup.json says is chosen and done; nothing where it is missing or cannot be read."""
    try:
        return json.loads((venv / "setup.json").read_text())
    except (OSError, ValueError):
        return {}


@contextlib.contextmanager
def only_one(job):
    """One set-up at a time in an environment; a second waits for the first."""
    import fcntl  # not on Windows, which is turned away before

    if job.venv.exists() and not (job.venv / "setup.lock").exists() and any(job.venv.iterdir()):
        fix = "Move it away, or remove it with make clean. Then make setup."
        raise checks.Problem(f"{job.venv} was not made by this set-up.", fix=fix)
    job.venv.mkdir(exist_ok=True)
    with open(str(job.venv / "setup.lock"), "a") as job.lock:
        try:
            fcntl.flock(job.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another set-up is at work here: waiting for it to end.", flush=True)
            fcntl.flock(job.lock, fcntl.LOCK_EX)
        job.stamp = read_stamp(job.venv)
        yield


def look_at_machine(job, todo):
    """Step 1: raise Problem unless the disk has room and, for a new environment, a Python fits."""
    do.begin(job, 1, "this machine")
    wheel = job.choice["wheel"]
    if wheel and "://" not in wheel and not os.path.exists(wheel):
        raise checks.Problem(f"VLLM_WHEEL names no file: {wheel}.", fix="Give a path or a URL.")
    checks.check_room(job.venv, job.profile)
    if todo[0][1][0] == "venv":
        job.pythons = checks.find_pythons(job.choice["python"])
    python = f"Python {job.pythons[0][0]}, " if job.pythons else ""
    do.end(job, f"{python}{job.profile} ({job.choice['why']})")


def setup(name):
    """Do what is not done yet."""
    job = Job(name, os.environ)
    if not job.todo():
        print(f"Set-up was done before: {job.profile} ({job.choice['why']}).")
        return
    started = time.monotonic()
    checks.check_machine(job.profile)
    with only_one(job):
        todo = job.todo()
        if todo:
            look_at_machine(job, todo)
        for number, (key, title, fits, function) in todo:
            do.begin(job, number, title)
            function(job)
            do.write_stamp(job, {**job.stamp.get("steps", {}), key: fits})
            do.end(job)
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    print(f"Set up in {minutes} min {seconds} s: {job.venv}")


def stop(signum, frame):
    raise KeyboardInterrupt


def main(arguments):
    if arguments not in ([], ["compress"]):
        print(__doc__)
        return 2
    try:
        signal.signal(signal.SIGTERM, stop)
        setup(*arguments or ["course"])
    except checks.Problem as problem:
        print(f"\n\nSet-up stopped. {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. make setup goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
