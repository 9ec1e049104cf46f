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
        else:
            values = value if isinstance(value, (list, tuple)) else [value]
            arguments += [flag, *map(_text, values)]
    return arguments


def _text(value):
    return json.dumps(value, default=str) if isinstance(value, dict) else str(value)


def shell_command(command, env=None):
    """The command as a person would type it: variables, program, then a flag a line."""
    lines = [" ".join(f"{key}={shlex.quote(value)}" for key, value in (env or {}).items()), ""]
    for word in command:
        if word.startswith("--"):
            lines.append("  " + word)
        else:
            lines[-1] += f" {shlex.quote(word)}"
    lines[1] = lines[1].strip()
    return " \\\n".join(filter(None, lines))


def vllm_executable():
    """LAB_VLLM, or the `vllm` beside this Python, or the one on the path."""
    asked = os.environ.get("LAB_VLLM")
    if asked and not os.access(asked, os.X_OK):
        raise LabError(f"LAB_VLLM is {asked!r}, which is not a program.",
                       cause="It was moved, or never there.",
                       fix="Unset LAB_VLLM, or set it to the path of a vllm command.")
    beside = Path(sys.executable).with_name("vllm")
    found = asked or (str(beside) if beside.exists() else shutil.which("vllm"))
    if found is None:
        raise LabError("The command vllm is not installed here.",
                       cause="This Python is not the course's own.", fix="Run `make setup`.")
    return found
