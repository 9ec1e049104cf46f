import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import misbehaving
import pytest

from helpers import bench_owner, load, reference, supervisor
from helpers.errors import LabError
from helpers.progress import Line
from helpers.rows import COLUMNS

SAMPLES = Path(__file__).parent / "samples"
POINT = {"input_len": 16, "output_len": 9, "num_prompts": 4, "seed": 0}
STAND_IN = """
import json, os, signal, sys, time
print(json.dumps({"pid": os.getpid()}), flush=True)
for line in sys.stdin:
    asked, error = json.loads(line)[0], ""
    if asked == "crash":
        print("something broke", file=sys.stderr)
        os._exit(3)
    if asked == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        time.sleep(60 if asked in ("slow", "deaf") else 0)
    except KeyboardInterrupt:
        error = "interrupted"
    print(json.dumps({"report": asked, "error": "bad" if asked == "fail" else error}), flush=True)
"""


@pytest.fixture(scope="module")
def server():
    """A reference server, and the one real worker of these tests."""
    load.start_worker()
    with reference.serve(first_s=0.01, gap_s=0.002, tokens_per_chunk=4) as server:
        yield server
    load.stop_worker()


@pytest.fixture
def stand_in(monkeypatch):
    """A worker of the same protocol that starts at once."""
    monkeypatch.setattr(bench_owner, "_live", [])
    monkeypatch.setattr(bench_owner, "COMMAND", [sys.executable, "-u", "-c", STAND_IN])
    monkeypatch.setattr(bench_owner, "STOP_S", 0.5)
    yield
    load.stop_worker()


def ask(what, timeout_s=30):
    return bench_owner.run([what], line=Line(), text="stand-in", timeout_s=timeout_s)


def interrupt_after(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def gone(pid, within_s=10):
    deadline = time.monotonic() + within_s
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return True
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()


# -- recorded files ---------------------------------------------------------------------------


def test_a_vllm_bench_file_becomes_rows():
    requests = load.read_vllm_bench(SAMPLES / "vllm_bench.json")
    assert list(requests.columns) == COLUMNS and len(requests) == 4
    assert (requests.outcome == "ok").all() and (requests.output_tokens == 9).all()
    first = requests.iloc[0]
    assert len(first.itl_s) == 2 and len(first.chunk_times_s) == 3  # 1, 4 and 4 tokens
    assert first.tpot_s == pytest.approx((first.e2el_s - first.ttft_s) / 8)
    assert requests.sent_s.min() >= 0 and requests.intended_s.isna().all()
    assert first.text == " a" * 9 and first.input_tokens == 16


def test_a_guidellm_file_becomes_rows_with_vllms_tpot():
    requests = load.read_guidellm(SAMPLES / "guidellm.json")
    assert list(requests.columns) == COLUMNS and len(requests) == 4
    assert (requests.outcome == "ok").all() and (requests.output_tokens == 9).all()
    first = requests.iloc[0]
    assert first.tpot_s == pytest.approx((first.e2el_s - first.ttft_s) / 8)
    assert first.itl_s is None and first.input_tokens == 16
    assert list(requests.intended_s.diff().dropna()) == pytest.approx([0.5] * 3)
    assert requests.intended_s[0] == 0 and (requests.sent_s >= requests.intended_s).all()


def test_a_guidellm_answer_with_no_text_is_an_error(tmp_path):
    file = json.loads((SAMPLES / "guidellm.json").read_text())
    timings = file["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]
    timings["first_token_iteration"] = timings["last_token_iteration"] = None
    (tmp_path / "empty.json").write_text(json.dumps(file))
    requests = load.read_guidellm(tmp_path / "empty.json")
    assert list(requests.error[requests.outcome == "error"]) == ["it answered with no text"]


@pytest.mark.parametrize("read", [load.read_vllm_bench, load.read_guidellm])
@pytest.mark.parametrize("text", [None, "{half", "[]", '{"other": 1}'])
def test_another_file_is_refused_with_its_reason(read, text, tmp_path):
    path = tmp_path / "file.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LabError, match="file.json"):
        read(path)


# -- the worker's protocol, with a stand-in that starts at once -------------------------------


def test_a_worker_that_ends_is_replaced(stand_in):
    assert ask("hello") == "hello"
    with pytest.raises(LabError, match="something broke"):
        ask("crash")
    assert ask("again") == "again"


def test_a_failed_run_keeps_the_worker(stand_in):
    with pytest.raises(LabError, match="bad"):
        ask("fail")
    pid = bench_owner._live[0].pid
    assert ask("again") == "again" and bench_owner._live[0].pid == pid


@pytest.mark.parametrize("kind, kept", [("slow", True), ("deaf", False)])
def test_an_interrupt_or_a_limit_leaves_a_usable_worker(stand_in, kind, kept):
    ask("hello")
    pid = bench_owner._live[0].pid
    with pytest.raises(LabError, match="not done after"):
        ask(kind, timeout_s=0.2)
    assert ask("again") == "again"
    assert (bench_owner._live[0].pid == pid) is kept
    interrupt_after(0.5)
    with pytest.raises(KeyboardInterrupt):
        ask(kind)
    assert ask("again") == "again"
    assert kept or gone(pid)


def test_a_worker_that_cannot_start_says_why(stand_in, monkeypatch):
    monkeypatch.setattr(bench_owner, "COMMAND", [sys.executable, "-c", "import nothing_here"])
    with pytest.raises(LabError, match="nothing_here"):
        ask("hello")


def test_the_worker_ends_with_its_owner():
    """SIGKILL of the owner, in the middle of the worker's imports."""
    code = ("import time; from helpers import bench_owner as b; b.start_worker(); time.sleep(1); "
            "print(b._live[0].process.pid, flush=True); time.sleep(60)")
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                             cwd=Path(__file__).parents[1])
    session = int(owner.stdout.readline())
    pids = supervisor.session_pids(session)
    assert len(pids) >= 2  # the supervisor and the worker
    owner.kill()
    owner.wait()
    assert all(gone(pid) for pid in pids) and not supervisor.session_pids(session)


# -- the real tools ---------------------------------------------------------------------------


def test_vllm_bench_returns_rows_and_the_tools_own_words(server, capsys):
    requests = load.vllm_bench(server, concurrency=2, warmups=2, **POINT)
    assert capsys.readouterr().out == ""
    assert list(requests.columns) == COLUMNS and len(requests) == 4
    assert (requests.outcome == "ok").all() and (requests.output_tokens == 9).all()
    assert all(math.isfinite(value) for value in requests.ttft_s + requests.tpot_s)
    assert requests.attrs["report"].startswith("============ Serving Benchmark Result")
    command = requests.attrs["command"]
    assert command.startswith("vllm bench serve \\\n  --backend openai")
    assert f"--base-url {server.url}" in command and "--num-warmups 2" in command


def test_a_request_rate_gives_intended_times(server):
    requests = load.vllm_bench(server, concurrency=2, request_rate=50, **POINT)
    assert requests.intended_s.notna().all() and (requests.sent_s >= requests.intended_s).all()


def test_a_sweep_has_a_column_and_a_new_seed_a_point(server):
    requests = load.sweep(server, concurrencies=[1, 2], **POINT)
    assert list(requests.groupby("concurrency").size().items()) == [(1, 4), (2, 4)]
    first, second = requests.attrs["command"].split("\n\n")
    assert "--seed 0" in first and "--seed 1" in second and "--max-concurrency 2" in second
    assert requests.attrs["report"].count("Serving Benchmark Result") == 2


def test_a_point_that_is_interrupted_leaves_the_worker(server):
    load.vllm_bench(server, concurrency=2, **POINT)
    pid = bench_owner._live[0].pid
    interrupt_after(1.5)
    with pytest.raises(KeyboardInterrupt):
        load.vllm_bench(server, concurrency=1, **POINT | {"output_len": 20_000})
    assert len(load.vllm_bench(server, concurrency=2, **POINT)) == 4
    assert bench_owner._live[0].pid == pid


def test_a_flag_that_vllm_refuses(server):
    with pytest.raises(LabError, match="random-input-len"):
        load.vllm_bench(server, concurrency=2, **POINT | {"input_len": "many"})


def test_some_failed_requests_are_marked_and_all_failed_raise(server):
    with misbehaving.serve("cut", good_first=3) as bad:  # the first is its /tokenize question
        bad.tokenizer = server.tokenizer
        requests = load.vllm_bench(bad, concurrency=1, **POINT)
        assert list(requests.outcome) == ["ok", "ok", "error", "error"]
        assert requests.error[3] and math.isnan(requests.ttft_s[3])
        with pytest.raises(LabError, match="All 4 requests"):
            load.vllm_bench(bad, concurrency=1, **POINT)


def test_guidellm_returns_rows(server):
    requests = load.guidellm(server, rate=4, seconds=2, prompt_tokens=16, output_tokens=9)
    ok = requests[requests.outcome == "ok"]
    assert list(requests.columns) == COLUMNS and len(ok) >= 4
    assert (ok.output_tokens == 9).all() and (ok.input_tokens == 16).all()
    assert all(math.isfinite(value) for value in ok.ttft_s + ok.tpot_s)
    assert requests.attrs["report"].startswith("ℹ Run Summary")
    assert "kind=constant,rate=4" in requests.attrs["command"]


def test_guidellm_with_every_request_failed_raises(server):
    with misbehaving.serve("too-long") as bad, pytest.raises(LabError, match="guidellm failed"):
        bad.tokenizer = server.tokenizer
        load.guidellm(bad, concurrency=1, seconds=1, prompt_tokens=16, output_tokens=9)


def test_guidellm_without_a_server_says_so(server):
    with reference.serve() as gone_server:
        pass
    gone_server.tokenizer = server.tokenizer
    with pytest.raises(LabError, match="GuideLLM wrote no result") as error:
        load.guidellm(gone_server, rate=1, seconds=1, prompt_tokens=16, output_tokens=9)
    assert "does not answer" in error.value.cause and error.value.log


def test_guidellm_marks_the_requests_of_a_server_that_goes_midway(server, capsys):
    with misbehaving.serve("silent", good_first=4) as bad:
        bad.tokenizer = server.tokenizer
        requests = load.guidellm(bad, concurrency=1, seconds=20, max_requests=8,
                                 prompt_tokens=16, output_tokens=9)
    assert list(requests.outcome[:4]) == ["ok"] * 4 and "error" in set(requests.outcome)
    failed = requests[requests.outcome == "error"]
    assert failed.error.str.len().min() > 5 and failed.ttft_s.isna().all()
    assert f"{len(failed)} failed" in capsys.readouterr().err
    folder = Path(requests.attrs["file"]).parent.name
    assert folder.startswith("silent-1streams-")


def test_guidellm_without_a_tokenizer_does_not_start(tmp_path):
    bare = SimpleNamespace(model="m", tokenizer=tmp_path, url="http://127.0.0.1:9")
    with pytest.raises(LabError, match="needs the tokenizer of m"):
        load.guidellm(bare, rate=1, seconds=1, prompt_tokens=16, output_tokens=9)


def test_guidellm_with_a_broken_tokenizer_says_so(server):
    process = SimpleNamespace(returncode=1)
    error = load._no_result(server, process, "OSError: Can't load tokenizer for 'x'", "")
    assert "cannot read the tokenizer" in error.cause and "Can't load" in error.log
    late = load._no_result(server, process, "Tokenizer loaded", "It took longer than 9 s.")
    assert late.cause == "It took longer than 9 s."


def test_an_interrupted_guidellm_leaves_no_process(server, monkeypatch):
    started = []
    start = supervisor.start
    monkeypatch.setattr(supervisor, "start",
                        lambda *a, **k: started.append(start(*a, **k)) or started[-1])
    interrupt_after(1.5)
    with pytest.raises(KeyboardInterrupt):
        load.guidellm(server, rate=1, seconds=60, prompt_tokens=16, output_tokens=9)
    assert not supervisor.session_pids(started[0].pid)


def test_guidellm_wants_one_of_rate_and_concurrency(server):
    with pytest.raises(ValueError, match="rate"):
        load.guidellm(server, seconds=1, prompt_tokens=1, output_tokens=1)
