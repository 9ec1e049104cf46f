"""The vllm command: where it is, its flags from a dict, and how a person would type it."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from helpers.errors import LabError


def to_arguments(flags):
    """vLLM's command line for a dict of flags: {'max_num_seqs': 8} is --max-num-seqs 8."""
    arguments = []
    for key, value in flags.items():
        flag = "--" + key.replace("_", "-")
        if value is None:
            continue
        if value is True or value is False:
            arguments.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, (list, tuple)):
            arguments += [flag, *map(str, value)]
        else:
            arguments += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return arguments


def shell_command(command, env):
    """The command as a person would type it: one flag a line, joined by backslashes."""
    words = [f"{key}={shlex.quote(value)}" for key, value in env.items()]
    head = " ".join(words + [shlex.quote(word) for word in command[:3]])
    lines = [head]
    for word in command[3:]:
        if word.startswith("--"):
            lines.append("  " + word)
        else:
            lines[-1] += " " + shlex.quote(word)
    return " \\\n".join(lines)


def vllm_executable():
    """LAB_VLLM, or the `vllm` beside this Python, or the one on the path."""
    beside = Path(sys.executable).with_name("vllm")
    found = os.environ.get("LAB_VLLM") or (str(beside) if beside.exists() else shutil.which("vllm"))
    if found is None:
        raise LabError("The command vllm is not installed here.", fix="Run `make setup`.")
    return found
