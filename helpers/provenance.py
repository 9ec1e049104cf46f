"""Where a measurement comes from: the machine, the software, the engine, the model's identity."""

import hashlib
import json
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

import psutil

from helpers import models, profile
from helpers.machine import cores as usable_cores
from helpers.machine import processor

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("vllm", "torch", "transformers", "guidellm", "lm_eval")
SECRET = re.compile(r"api_?key|token$|secret|password", re.I)
NOISE = re.compile(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*$|\bwith\b.*$", re.I)


def machine():
    """The machine as a dict: id (a short slug), cpu, cores (usable), memory_bytes, gpu, driver.

    gpu and driver are None where nvidia-smi does not answer. The id names what the profile
    uses: 'gpu-nvidia-h200', or 'cpu-amd-epyc-2c', 2c being its cores.
    """
    cpu, cores, gpu = processor(), usable_cores(), profile.gpu_name()
    uses_gpu = gpu is not None and profile.current().name == "gpu"
    return {"id": _slug("gpu", gpu) if uses_gpu else _slug("cpu", NOISE.sub(" ", cpu), f"{cores}c"),
            "cpu": cpu, "cores": cores, "memory_bytes": psutil.virtual_memory().total,
            "gpu": gpu, "driver": _output("nvidia-smi", "--query-gpu=driver_version",
                                          "--format=csv,noheader") if gpu else None}


def software():
    """OS, kernel, Python, package versions (None: not installed), and the course's commit."""
    return {"os": _os_name(), "kernel": platform.release(), "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES}, **commit()}


def commit():
    """{'commit': hash or None, 'changed': whether files differ from it} of the course's folder."""
    git = ("git", "-C", str(ROOT))
    top = _output(*git, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != ROOT:
        return {"commit": None, "changed": None}  # a download, perhaps inside another repository
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return {"commit": _output(*git, "rev-parse", "HEAD"), "changed": bool(changed)}


def engine(server):
    """A `server.Server` as a dict: name, command, flags, env, model and which weights it has.

    cache_line: what its log says of the size of its cache, None if it says nothing (yet).
    The value of a flag or variable whose name says that it is secret (HF_TOKEN) becomes ***.
    """
    path, _, env, flags = server.settings
    about = {"name": server.name, "command": server.command, "flags": flags, "env": env or {},
             "model": server.model, "cache_line": server.cache_line, **weights(path)}
    secrets = [value for name, value in {**flags, **(env or {})}.items()
               if SECRET.search(name) and isinstance(value, str) and value]
    text = json.dumps(about, default=str)
    for secret in secrets:
        text = text.replace(json.dumps(secret)[1:-1], "***")
    return json.loads(text)


def weights(path):
    """{'revision': ..., 'sha256': ...} of a model folder.

    A folder of the hub's cache has its revision in its path; of others the safetensors files
    are hashed, {file: SHA-256}. A folder with no weights (a shape) has 'random' as revision.
    """
    path = Path(path)
    if path.parent.name == "snapshots":
        return {"revision": path.name, "sha256": None}
    if models.has_random_weights(path):
        return {"revision": "random", "sha256": None}
    files = sorted(path.glob("*.safetensors"))
    return {"revision": None, "sha256": {file.name: file_hash(file) for file in files}}


def file_hash(file):
    """SHA-256 of a file, remembered in the cache folder by its path, size and time of change."""
    file = Path(file).resolve()
    about = file.stat()
    key = hashlib.sha256(f"{file} {about.st_size} {about.st_mtime_ns}".encode()).hexdigest()
    note = models.cache_folder() / "hashes" / key[:32]
    known = _read(note)
    if re.fullmatch(r"[0-9a-f]{64}", known):
        return known
    with open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary = note.with_name(f"{note.name}.{os.getpid()}")
        temporary.write_text(digest)
        temporary.replace(note)
    except OSError:
        pass  # no cache: it is hashed again the next time
    return digest


def without_home(value):
    """The value with this machine's folders cut out of its texts: '~' for home, '.' for here."""
    text = json.dumps(value)
    for folder, short in ((ROOT, "."), (Path.home(), "~")):
        if str(folder) != "/":
            path = re.escape(json.dumps(str(folder))[1:-1])
            text = re.sub(rf"(?<![\w.-]){path}(?![\w.-])", short, text)
    return json.loads(text)


def _slug(*parts):
    return "-".join(re.findall(r"[a-z0-9.]+", " ".join(parts).lower()))


def _os_name():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _read(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _output(*command):
    """What a command prints, stripped; None if it is missing, fails or hangs."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
