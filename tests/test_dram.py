"""Counting DRAM bytes, with a script in place of ncu, on counts of which the truth is known."""

import json
import os
import sys

import pandas as pd
import pytest

from helpers import dram, dram_probe, memory, models, ncu, profile, results
from helpers.errors import LabError

CONFIG = models.config("shape:Qwen3-0.6B")
WEIGHTS = memory.decode_bytes_per_token(CONFIG, batch=1, context=0)
HEAD = memory.decode_bytes_per_token(CONFIG, batch=1, context=0, include_lm_head=True) - WEIGHTS


def line(number, name, metric, unit, value):
    return (f'"{number}","77","python3","127.0.0.1","{name}","1","7","(1, 1, 1)","(1, 1, 1)","0",'
            f'"9.0","Command line profiler metrics","{metric}","{unit}","{value}"')


def ncu_csv(kernels, unit="byte"):
    """What ncu prints of [(name, bytes read)]: between its own remarks, with commas in numbers."""
    lines = ['==PROF== Connected to process 77 (/usr/bin/python3)',
             '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
             '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
             '"Metric Value"']
    for number, (name, read) in enumerate(kernels):
        lines += [line(number, name, "dram__bytes_read.sum", unit, f"{read:,.0f}"),
                  line(number, name, "dram__bytes_write.sum", unit, "1,000"),
                  line(number, name, "gpu__time_duration.sum", "nsecond", "250,000")]
    return "\n".join([*lines, "==PROF== Disconnected from process 77"])


def step(read, head=HEAD):
    return [("prepare_inputs", 2e3), ("Graph", read), ("gemm", head), ("argmax", 5e5)]


def test_reads_ncus_table():
    found = ncu.read(ncu_csv([("fill", 0), ("sum", 2**30)]))
    assert found.name.tolist() == ["fill", "sum"] and found.read_bytes.tolist() == [0, 2**30]
    assert found.write_bytes[0] == 1000 and found.duration_s[0] == pytest.approx(250e-6)


@pytest.mark.parametrize("unit, factor", [("Mbyte", 1e6), ("Gbyte", 1e9), ("Kbyte", 1e3),
                                          ("byte", 1), ("B", 1), ("MB", 1e6)])
def test_units_of_bytes(unit, factor):
    assert ncu.read(ncu_csv([("sum", 3)], unit)).read_bytes[0] == 3 * factor


@pytest.mark.parametrize("unit, factor", [("ns", 1e-9), ("usecond", 1e-6), ("ms", 1e-3), ("s", 1)])
def test_units_of_time(unit, factor):
    assert ncu._unit(unit) == pytest.approx(factor)


@pytest.mark.parametrize("text, says", [
    ("", "nothing that can be read"), ("==ERROR== unknown option", "nothing that can be read"),
    (ncu_csv([("sum", 1)]).replace('"1,000"', '"n/a"'), "no number"),
    (ncu_csv([("sum", 1)]).replace("nsecond", "furlong"), "no number"),
    (ncu_csv([("sum", 1)]).replace("dram__bytes_read", "lts__bytes_read"), "metrics is missing")])
def test_refuses_what_it_cannot_read(text, says):
    with pytest.raises(LabError, match=says):
        ncu.read(text)


def test_graphs_and_the_projection_after_each():
    counted = ncu.read(ncu_csv([*step(9e8), *step(9.2e8, head=HEAD + 7)]))
    found = dram.graphs(counted, 2, WEIGHTS)
    assert found.read_bytes.tolist() == [9e8, 9.2e8]
    assert found.head_bytes.tolist() == pytest.approx([HEAD, HEAD + 7], abs=1)


@pytest.mark.parametrize("kernels, steps", [
    ([*step(9e8), *step(9e8)], 3),  # one step ran without its graph
    ([("piece", 3e7)] * 29 + [("gemm", 3e8)], 1),  # a graph a layer
    ([("Graph", 9e8)], 2)])
def test_graphs_in_pieces_are_refused(kernels, steps):
    with pytest.raises(LabError, match="whole graphs"):
        dram.graphs(ncu.read(ncu_csv(kernels)), steps, WEIGHTS)


# The whole way, with a script as ncu and another as the probe

NCU = """#!{python}
import json, pathlib, sys
given = sys.argv[1:]
log = given[given.index("--log-file") + 1]
probe = given[given.index("helpers.dram_probe") + 1:]
said, text = json.loads(pathlib.Path("{answers}").read_text())["-".join(probe[:-1:2])]
pathlib.Path(log).write_text(text)
if said is None:
    sys.exit(1)
pathlib.Path(probe[-1]).write_text("\\n".join(map(json.dumps, said)))
"""


def points(kv_bytes):
    """(what the probe says, what ncu prints), of steps that read what config.json says."""
    said, kernels = [], []
    for batch, tokens in dram_probe.POINTS:
        for repeat in range(dram_probe.REPEATS):
            said.append({"batch": batch, "tokens": tokens, "context": tokens - 1.0 + repeat,
                         "repeat": repeat})
            kernels += step(batch * memory.decode_bytes_per_token(
                CONFIG, batch=batch, context=tokens - 1 + repeat, kv_bytes=kv_bytes) * 1.002)
    return said, ncu_csv(kernels)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A machine that seems to have a GPU and ncu; the file of its answers."""
    said = [{"what": what, "bytes": 2**30} for what in ("read", "write")]
    answers = {"control": [said, ncu_csv([("reduce", 2**30), ("fill", 9e5)])],
               "decode-auto": points(2), "decode-fp8": points(1)}
    file = tmp_path / "answers.json"
    script = tmp_path / "ncu"
    script.write_text(NCU.format(python=sys.executable, answers=file))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(profile, "gpu_name", lambda: "NVIDIA Test")
    monkeypatch.setattr(ncu, "FOLDER", tmp_path / "ncu-files")
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(models, "prepare", lambda name: tmp_path / "folder")
    monkeypatch.setattr(models, "config", lambda name: CONFIG)
    monkeypatch.delenv("LAB_QUICK", raising=False)

    file.write_text(json.dumps(answers))
    return file


def control(host, said=None, text=""):
    """Let the control give another answer; said: what the probe says, None where it failed."""
    answers = json.loads(host.read_text())
    host.write_text(json.dumps(answers | {"control": [said and answers["control"][0], text]}))


def test_the_control_tells_reads_from_writes(host):
    shares = dram.check()
    assert shares.read_bytes.tolist() == pytest.approx([1, 0], abs=0.001)


@pytest.mark.parametrize("kernels", [
    [("reduce", 0), ("fill", 2**30)], [("reduce", 2**29), ("fill", 0)],
    [("reduce", 2**30), ("fill", 2**30)], [("reduce", 2**30), ("neighbour", 2**29), ("fill", 0)]])
def test_a_counter_that_says_something_else_is_refused(host, kernels):
    control(host, said=True, text=ncu_csv(kernels))
    with pytest.raises(LabError, match="do not say what is known"):
        dram.check()


def test_counters_that_may_not_be_read(host):
    control(host, text="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
            "NVIDIA GPU Performance Counters")
    with pytest.raises(LabError, match="counters of this GPU cannot be read"):
        dram.check()
    with pytest.raises(SystemExit, match="cannot be read"):
        dram.main()


def test_a_probe_that_fails_shows_its_log(host):
    control(host, text="==ERROR== out of tea")
    with pytest.raises(LabError, match="out of tea"):
        dram.check()


def test_one_command_checks_counts_and_records(host, monkeypatch, capsys):
    monkeypatch.setattr(profile, "current", lambda: profile.GPU)
    dram.main()
    assert "The counters can be read" in capsys.readouterr().out
    rows = results.load(dram.NAME)
    assert len(rows) == 2 * len(dram_probe.POINTS) * dram_probe.REPEATS
    assert rows.attrs["headers"][rows.run[0]]["about"]["control"]
    found = dram.beside(rows)
    assert found.error.to_numpy() == pytest.approx(0.002, abs=1e-6)
    small = found[(found.batch == 16) & (found.tokens == dram.CONTEXT)].set_index("arm")
    assert small.predicted.tolist() == pytest.approx([116.42, 85.74], abs=0.01)
    monkeypatch.setattr(results, "load", lambda name, machine: rows)
    assert len(dram.recorded()) == len(rows)


def test_no_gpu_or_no_ncu_is_said(monkeypatch):
    monkeypatch.setattr(profile, "gpu_name", lambda: None)
    with pytest.raises(LabError, match="No NVIDIA driver"):
        dram.check()
    monkeypatch.setattr(profile, "gpu_name", lambda: "NVIDIA Test")
    monkeypatch.setattr(ncu, "find", lambda: None)
    with pytest.raises(LabError, match="not installed"):
        dram.check()


def test_nothing_recorded_is_said_and_goes_on(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(results, "RUNS", tmp_path)
    monkeypatch.setattr(results, "RECORDED", tmp_path)
    found = dram.beside(dram.recorded())
    assert found.empty and "counted" in found
    assert "recorded yet" in capsys.readouterr().out


def test_a_damaged_file_is_not_taken_for_none(monkeypatch):
    def damaged(*_, **__):
        raise LabError("results/x is damaged at line 3")
    monkeypatch.setattr(results, "load", damaged)
    with pytest.raises(LabError, match="damaged"):
        dram.recorded()


# The probe, with an engine that counts


class Engine:
    """Takes two new prompts a step, as a token budget would, and makes a token for each older."""

    def __init__(self):
        self.waiting, self.running, self.steps = [], {}, 0

    def add_request(self, name, prompt, limits):
        self.waiting.append((name, len(prompt["prompt_token_ids"]), limits))

    def has_unfinished_requests(self):
        return bool(self.waiting or self.running)

    def step(self):
        self.steps += 1
        new, self.waiting = self.waiting[:2], self.waiting[2:]
        self.running |= {name: [0, limits.max_tokens] for name, _, limits in new}
        outputs = []
        for name, made in list(self.running.items()):
            made[0] += 1
            one = type("Answer", (), {"token_ids": [0] * made[0]})
            outputs.append(type("Output", (), {"request_id": name, "outputs": [one]}))
            if made[0] == made[1]:
                del self.running[name]
        return outputs


@pytest.fixture
def probed(monkeypatch):
    """(engine, what it was doing in each stretch that was shown, vLLM's stand-in)."""
    vllm, watched, engine = type(sys)("vllm"), [], Engine()
    vllm.SamplingParams = lambda **limits: type("Limits", (), limits)
    monkeypatch.setitem(sys.modules, "vllm", vllm)

    def watch(torch, work):
        watched.append((len(engine.running), len(engine.waiting)))
        work()
    monkeypatch.setattr(dram_probe, "_watched", watch)
    return engine, watched, vllm


def test_every_point_is_shown_and_has_room(probed, monkeypatch, tmp_path):
    engine, watched, vllm = probed
    given = {}
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")  # which the probe changes
    vllm.LLM = lambda folder, **flags: given.update(flags) or type(
        "LLM", (), {"llm_engine": engine})
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    monkeypatch.setattr(models, "config", lambda name: CONFIG)
    monkeypatch.setattr(models, "engine_flags", lambda folder: {"load_format": "dummy"})
    dram_probe.decode("folder", "fp8", tmp_path / "said")
    said = pd.read_json(tmp_path / "said", lines=True)
    points = said[["batch", "tokens"]].drop_duplicates().apply(tuple, axis=1).tolist()
    assert points == list(dram_probe.POINTS) and len(watched) == 3 * len(points)
    assert (said.context - said.tokens).abs().max() < 20
    most = (said.batch * (said.context + 16)).max()
    assert given["kv_cache_memory_bytes"] > memory.kv_bytes(CONFIG, tokens=int(most))
    assert given["max_model_len"] > said.context.max() + 16 and given["kv_cache_dtype"] == "fp8"


def test_the_probe_shows_steps_in_which_all_decode(probed, tmp_path):
    engine, watched, _ = probed
    for batch in (1, 6):
        dram_probe._decode_one(None, engine, batch, 100, tmp_path / "said")
    said = pd.read_json(tmp_path / "said", lines=True)
    assert watched == [(1, 0)] * 3 + [(6, 0)] * 3 and not engine.has_unfinished_requests()
    assert said.context.tolist()[:3] == [99, 100, 101]
    assert said.context.tolist()[3:] == pytest.approx([100, 101, 102])  # two, one, none ahead
    assert said.batch.tolist() == [1] * 3 + [6] * 3 and set(said.tokens) == {100}
