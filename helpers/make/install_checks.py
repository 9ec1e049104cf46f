"""What set-up asks of a machine before it starts: Linux, a fit Python, room on the disk, a driver.

Run by whatever python3 the system has, so only the standard library and nothing newer than 3.9.
"""

import ctypes
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

PYTHONS = ("3.13", "3.12", "3.11")  # newest first
ROOM_GB = {"cpu": 8, "gpu": 20, "compress": 4}  # the environment, and what pip unpacks on the way
TMP_GB = 2
GLIBC = (2, 34)

# A candidate prints its version, the interpreter behind a venv or shim, and if it can make venvs.
ASK = (
    "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2]);"
    "print(getattr(sys, '_base_executable', sys.executable));"
    "print(bool(u.find_spec('ensurepip') and u.find_spec('venv')))"
)


class Problem(Exception):
    """Set-up cannot go on: what happened, the likely cause, what to do, the log's last lines."""

    def __init__(self, what, cause="", fix="", log=""):
        parts = [what, cause and "Likely cause: " + cause, fix and "What to do: " + fix]
        if log:
            parts += ["Last log lines:"] + ["  | " + line for line in log.splitlines()]
        super().__init__("\n".join(part for part in parts if part))


def check_machine(profile):
    """Raise Problem unless vLLM's wheels load here: Linux, x86-64, glibc; see also check_cpu."""
    if not sys.platform.startswith("linux"):
        system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise Problem(
            f"This is {system}; vLLM runs on Linux.",
            fix="On Windows, install WSL 2 (in PowerShell: wsl --install) and work inside it. "
            "On a Mac, use a Linux machine, virtual machine or container.",
        )
    if platform.machine() not in ("x86_64", "AMD64"):
        raise Problem(
            f"This processor is {platform.machine()}; the pinned wheels are for x86-64.",
            fix="Use an x86-64 Linux machine.",
        )
    name, version = platform.libc_ver()
    name = name or "not glibc"
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < GLIBC:
        raise Problem(
            f"The C library here is {name} {version}; vLLM needs glibc 2.34 or newer.",
            fix="Use Debian 12, Ubuntu 22.04, Fedora 35, RHEL 9 or newer.",
        )
    if profile == "cpu":
        check_cpu()


def check_cpu(cpuinfo="/proc/cpuinfo", libnuma="libnuma.so.1"):
    """Raise Problem where the engine's CPU build would not load: no AVX2, no libnuma."""
    if "avx2" not in pathlib.Path(cpuinfo).read_text():
        raise Problem(
            "This processor has no AVX2, which vLLM's CPU build needs.",
            cause="the processor is from before 2013, or a virtual machine hides AVX2.",
            fix="In a virtual machine, pass the host's processor through. Or use a newer machine.",
        )
    try:
        ctypes.CDLL(libnuma)
    except OSError:
        raise Problem(
            "The system library libnuma is missing; vLLM's CPU build loads it.",
            fix="sudo apt-get install libnuma1 (Debian, Ubuntu) or sudo dnf install numactl-libs "
            "(Fedora, RHEL), then make setup again.",
        ) from None


def check_room(folder, profile):
    """Raise Problem unless the disk has room for the rest of this environment."""
    free, need = shutil.disk_usage(folder).free / 1e9, ROOM_GB[profile] - size(folder) / 1e9
    if free < need:
        raise Problem(
            f"Not enough disk: {need:.1f} GB are needed in {folder}, {free:.1f} are free.",
            fix="Free some space (pip cache purge may help), or clone to a larger disk.",
        )
    tmp = tempfile.gettempdir()
    free = shutil.disk_usage(tmp).free / 1e9
    if os.stat(tmp).st_dev != os.stat(folder).st_dev and free < TMP_GB:
        raise Problem(
            f"Not enough room in {tmp}: pip needs {TMP_GB} GB there, {free:.1f} are free.",
            fix="Name a larger folder: mkdir -p ~/tmp && TMPDIR=~/tmp make setup",
        )


def size(folder):
    """Bytes on the disk below a folder."""
    paths = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(path).st_blocks * 512 for path in paths)


def ask_python(path):
    """(version, interpreter, can make a venv) of a Python, or None where it does not run."""
    try:
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split("\n")
    return (lines[0], lines[1], lines[2] == "True") if done.returncode == 0 else None


def newer(version, other):
    """True if Python `version` is newer than `other`; both are among PYTHONS."""
    return PYTHONS.index(version) < PYTHONS.index(other)


def candidates():
    """Paths that may be a Python, the newest version first; then what runs this and python3."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    names = ["python" + version for version in PYTHONS] + ["python3"]
    paths = [os.path.join(folder, name) for name in names for folder in folders if folder]
    return [path for path in paths if os.access(path, os.X_OK)] + [sys.executable]


def find_pythons(asked=""):
    """[(version, interpreter)] that fit, newest first; only `asked` where PYTHON names one."""
    fit, unfit = {}, []
    for path in [shutil.which(asked) or asked] if asked else candidates():
        version, interpreter, makes_venvs = ask_python(path) or ("", path, False)
        if version in PYTHONS and makes_venvs:
            fit.setdefault(version, interpreter)
        elif version in PYTHONS:
            unfit.insert(0, f"{path} lacks its venv module")
        else:
            unfit.append(f"{path} is Python {version}" if version else f"{path} does not run")
    if not fit:
        raise no_python(asked, list(dict.fromkeys(unfit)))
    return [(version, fit[version]) for version in PYTHONS if version in fit]


def no_python(asked, unfit):
    """The Problem of no fit Python; `unfit` says what is wrong with each that was found."""
    fix = (
        "sudo apt-get install python3.13-venv (Debian 13), python3.12-venv (Ubuntu 24.04) or "
        "python3.11-venv (Debian 12); sudo dnf install python3.12 (Fedora, RHEL)."
    )
    if "venv module" in unfit[0]:
        name = os.path.basename(unfit[0].split()[0])
        fix = f"sudo apt-get install {name}-venv."
    return Problem(
        f"PYTHON={asked} cannot be used." if asked else "No Python 3.11, 3.12 or 3.13 was found.",
        cause="; ".join(unfit[:4]) + ".",
        fix=fix + " Or use conda: conda env create -f environment.yml. "
        "Or name one: PYTHON=/path/to/python3.12 make setup.",
    )


def driver_answers(smi):
    """True if nvidia-smi (at this path) runs and lists a GPU."""
    if not smi:
        return False
    try:
        done = subprocess.run([smi, "-L"], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and b"GPU" in done.stdout


def choose_profile(asked, smi, before):
    """('cpu' or 'gpu', why). asked: LAB_PROFILE. smi: the path of nvidia-smi, or "".

    before: an earlier choice, which holds while nvidia-smi is where it was.
    """
    if asked in ("cpu", "gpu"):
        return asked, "LAB_PROFILE says so"
    if asked:
        raise Problem(f"LAB_PROFILE is {asked}.", fix="Set it to cpu or gpu, or do not set it.")
    if before and before["smi"] == smi:
        return before["profile"], before["why"]
    if driver_answers(smi):
        return "gpu", "an NVIDIA driver answers"
    return "cpu", "no NVIDIA driver answers"
