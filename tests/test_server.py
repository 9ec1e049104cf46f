"""serve() and Server on the stand-in; on the real engine what depends on vLLM itself."""

import contextlib
import errno
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import httpx
import nbclient
import nbformat
import pytest
from conftest import STANDIN, write_model
from owners import free_port

from helpers import client, diagnose, models, ports, supervisor, watcher
from helpers import engine as engine_process
from helpers.errors import LabError
from helpers.server import serve

LOGS = Path(__file__).parent / "samples" / "logs"


def assert_helpful(error, what, cause, fix, log=""):
    """The parts of a LabError, and none of a traceback's frames."""
    assert what in error.what and cause in error.cause and fix in error.fix
    assert log in error.log and bool(log) == bool(error.log)
    text = str(error)
    for part in (error.what, "Likely cause: " + error.cause, "What to do: " + error.fix):
        assert part in text
    assert "Traceback" not in text and '  File "' not in text


def until(true, limit_s=10):
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    until(lambda: supervisor.ended(pid))


def refused(model, **flags):
    """The error of a server that does not start."""
    with pytest.raises(LabError) as caught:
        serve(model, **flags).wait()
    return caught.value


# One server


def test_serve_returns_at_once_and_url_waits(standin, capsys):
    server = serve(standin, standin={"slow_s": 2})
    assert server.state == "starting"
    assert "vllm serve" in capsys.readouterr().out
    assert httpx.get(server.url + "/health").status_code == 200
    assert server.url == f"http://127.0.0.1:{server.port}"
    assert server.state == "ready"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[1].startswith("Engine ready")


def test_ready_long_before_it_is_used(standin, capsys):
    server = serve(standin)
    until(lambda: server.state == "ready")
    server._started -= 100
    os.utime(server.log_path, (0, server._started + 42))
    server.wait()
    assert "Engine ready 42 s after its start" in capsys.readouterr().err


def test_reprs_do_not_wait(standin):
    server = serve(standin, standin={"slow_s": 1})
    seen = {}
    seen[server.state] = repr(server), server._repr_html_()
    server.wait()
    seen[server.state] = repr(server), server._repr_html_()
    server.stop()
    seen[server.state] = repr(server), server._repr_html_()
    crashed = serve(standin, name="<crashed>", standin={"crash": "block_size.log"})
    with contextlib.suppress(LabError):
        crashed.wait()
    seen[crashed.state] = repr(crashed), crashed._repr_html_()
    assert list(seen) == ["starting", "ready", "stopped", "crashed"]
    for state, (text, table) in seen.items():
        assert state in text and "tiny at http://127.0.0.1" in text
        assert state in table and "tiny" in table
    assert "not known yet" in seen["starting"][1]
    assert "KV cache size: 46,592 tokens" in seen["ready"][1]
    assert "<crashed>" not in seen["crashed"][1]


def test_metrics_are_summed_and_labelled(standin):
    server = serve(standin)
    metrics = server.metrics()
    assert metrics["vllm:request_success_total"] == 17
    assert metrics['vllm:request_success_total{finished_reason="length"}'] == 10
    assert metrics["vllm:prefix_cache_queries_total"] == 0
    assert not [name for name in metrics if "_created" in name]
    assert "vllm:request_prompt_tokens_bucket" not in metrics
    server.warm_up(requests=3)
    assert server.metrics()["vllm:prefix_cache_queries_total"] == 24


def test_cache_size_from_the_log_or_else_from_the_metrics(standin, monkeypatch):
    server = serve(standin)
    assert (server.kv_cache_tokens, server.block_size) == (46592, 128)
    monkeypatch.setattr(server, "log", lambda since=0: "")
    assert server.kv_cache_tokens == 46592


def test_context_manager_stops_it(standin):
    with serve(standin) as server:
        server.wait()
    assert server.state == "stopped"
    assert not supervisor.session_pids(server.pid)
    server.stop()


def test_no_proxy_is_asked_for_this_machine(standin, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "intra.net")
    monkeypatch.setenv("no_proxy", "")
    server = serve(standin)
    assert httpx.get(server.url + "/health").status_code == 200
    assert os.environ["NO_PROXY"] == "intra.net,127.0.0.1,localhost"


def test_twenty_servers_leave_no_file_open(standin):
    def cycle():
        with serve(standin) as server:
            server.metrics()

    cycle()
    gc.collect()
    before = sorted(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in _open_files())
    for _ in range(20):
        cycle()
    gc.collect()
    after = sorted(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in _open_files())
    assert after == before


def _open_files():
    fds = os.listdir("/proc/self/fd")
    return [fd for fd in fds if os.path.exists(f"/proc/self/fd/{fd}")
            or os.path.islink(f"/proc/self/fd/{fd}")]


def test_used_in_a_forked_child(standin):
    server = serve(standin)
    server.wait()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            ok = server.metrics()["vllm:request_success_total"] == 17
            server.stop()
            os._exit(0 if ok else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.metrics()


# Several servers


def test_two_at_once_on_their_own_ports(standin):
    one, two = serve(standin, name="one"), serve(standin, name="two")
    assert one.port != two.port
    assert one.metrics() and two.metrics()
    one.stop()
    assert two.metrics()


def test_same_settings_give_the_live_server(standin):
    server = serve(standin, max_num_seqs=4)
    assert serve(standin, max_num_seqs=4) is server
    server.wait()
    assert serve(standin, max_num_seqs=4) is server


def test_other_settings_replace_it(standin):
    port = free_port()
    old = serve(standin, port=port)
    old.wait()
    new = serve(standin, port=port, max_num_seqs=4)
    assert (old.state, new.port) == ("stopped", port)
    assert new.url
    third = serve(standin, port=port, max_num_seqs=4, env={"A": 1})
    assert new.state == "stopped" and third.url


def test_one_that_has_ended_is_replaced(standin):
    old = serve(standin)
    old.wait()
    kill(old.pid)
    new = serve(standin)
    assert new is not old and new.url


def test_threads_that_serve_the_same_get_one_server(standin):
    with ThreadPoolExecutor(4) as pool:
        servers = set(pool.map(lambda _: serve(standin), range(4)))
    assert len(servers) == 1


# Flags and the command


def test_flags_are_spelt_as_vllm_takes_them(standin):
    command = serve(standin, max_num_seqs=3, enforce_eager=None, enable_prefix_caching=False,
                    async_scheduling=True, hf_overrides={"rope": {"factor": 2.0}},
                    lora_modules=["a=b", {"name": "c"}], served_model_name=["x", "y z"]).command
    lines = [line.strip(" \\") for line in command.splitlines()]
    assert "--max-num-seqs 3" in lines and "--max-num-seqs 16" not in lines
    assert not [line for line in lines if "eager" in line]
    assert "--no-enable-prefix-caching" in lines and "--async-scheduling" in lines
    assert """--hf-overrides '{"rope": {"factor": 2.0}}'""" in lines
    assert """--lora-modules a=b '{"name": "c"}'""" in lines
    assert "--served-model-name x 'y z'" in lines
    assert "--dtype bfloat16" in lines  # the profile's


def test_the_printed_command_starts_the_engine(standin, tmp_path):
    server = serve(standin, name="printed", hf_overrides={"a": "it's"},
                   served_model_name=["x", "y z"], enable_prefix_caching=False, seed=None)
    server.wait()
    asked = _asked(server.log())
    port = free_port()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vllm").symlink_to(STANDIN)
    command = server.command.replace(str(server.port), str(port))
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    with open(tmp_path / "log", "w") as log:
        shell = supervisor.start(["bash", "-c", command], log_path=tmp_path / "log",
                                 env=os.environ | {"PATH": path}, stdout=log)
    try:
        for _ in range(100):
            with contextlib.suppress(httpx.TransportError):
                names = httpx.get(f"http://127.0.0.1:{port}/v1/models").json()["data"]
                break
            time.sleep(0.05)
        assert [name["id"] for name in names] == ["x", "y z"]
        assert _asked((tmp_path / "log").read_text()) == asked.replace(str(server.port), str(port))
    finally:
        supervisor.stop(shell)


def _asked(log):
    return next(line.partition("args: ")[2] for line in log.splitlines() if "args: " in line)


def test_env_reaches_the_engine(standin):
    server = serve(standin, env={"VLLM_CPU_KVCACHE_SPACE": 2})
    assert "VLLM_CPU_KVCACHE_SPACE=2" in server.command
    (vllm,) = [pid for pid in supervisor.session_pids(server.pid) if _is_standin(pid)][:1]
    assert "VLLM_CPU_KVCACHE_SPACE=2" in watcher.read(f"/proc/{vllm}/environ")


def _is_standin(pid):
    return "standin.py\0serve" in watcher.read(f"/proc/{pid}/cmdline")


# Errors


def test_no_model_folder(standin, tmp_path):
    error = refused(tmp_path / "none")
    assert_helpful(error, "There is no model folder", "misspelt", "models.prepare")


def test_a_folder_that_is_not_a_model(standin, tmp_path):
    error = refused(tmp_path)
    assert_helpful(error, "no config.json", "Another folder", "models.prepare")


TWO = {"weight_map": {"w": "model.safetensors", "v": "model-2.safetensors"}}


@pytest.mark.parametrize("damage, what", [
    (lambda at: (at / "model.safetensors").unlink(), "a .safetensors file is missing"),
    (lambda at: os.truncate(at / "model.safetensors", 70), "model.safetensors is cut short"),
    (lambda at: os.truncate(at / "model.safetensors", 5), "model.safetensors is cut short"),
    (lambda at: (at / "config.json").write_text('{"a": '), "JSON file is missing or damaged"),
    (lambda at: (at / "model.safetensors.index.json").write_text(json.dumps(TWO)),
     "model-2.safetensors is missing"),
    (lambda at: (at / "model.safetensors").rename(at / "model-00001-of-00002.safetensors"),
     "model.safetensors.index.json is missing"),
])
def test_a_half_written_model(standin, tmp_path, damage, what):
    damage(write_model(tmp_path / "half"))
    error = refused(tmp_path / "half")
    assert_helpful(error, what, "interrupted", "models.prepare")


def test_a_port_in_use(standin, monkeypatch):
    monkeypatch.setattr(ports, "PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = refused(standin, port=taken.getsockname()[1])
    assert_helpful(error, f"(pid {os.getpid()})", "another program", "leave the port out")


def test_a_port_that_is_given_back_soon(standin):
    taken = socket.create_server(("127.0.0.1", 0))
    threading.Timer(0.5, taken.close).start()
    assert serve(standin, port=taken.getsockname()[1]).url


def test_a_port_in_use_is_gone_round(standin, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(ports, "FIRST", taken.getsockname()[1])
        server = serve(standin)
        assert server.port > ports.FIRST
    assert f"(pid {os.getpid()}); using {server.port}." in capsys.readouterr().out


@pytest.mark.parametrize("port", [70000, -1])
def test_no_such_port(standin, port):
    assert_helpful(refused(standin, port=port), f"Port {port}", "65535", "Leave the port out")


def test_no_port_is_free(standin, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(ports, "FIRST", taken.getsockname()[1])
        monkeypatch.setattr(ports, "COUNT", 1)
        assert_helpful(refused(standin), "No port from", "Many servers", "End some")


def test_another_program_answers_on_the_port(standin, monkeypatch):
    """It has taken the port after we looked."""
    one = serve(standin, name="one")
    one.wait()
    two = serve(standin, name="two", standin={"slow_s": 9})
    until(lambda: "args" in two.log())
    two.port, two._url = one.port, one.url
    with pytest.raises(LabError) as caught:
        two.wait()
    assert_helpful(caught.value, "not this engine", "took the port", "serve(...)", "args")
    assert one.url


def test_slower_than_its_limit(standin):
    error = refused(standin, start_limit_s=0.4, standin={"slow_s": 30})
    assert_helpful(error, "not ready within 0.4 s", "slow disk", "start_limit_s", "args")


def test_a_stopped_server(standin):
    server = serve(standin)
    server.wait()
    server.stop()
    for use in (lambda: server.url, server.metrics, server.warm_up, lambda: server.block_size):
        with pytest.raises(LabError) as caught:
            use()
        assert_helpful(caught.value, "was stopped", "stop()", "serve(...)", "startup complete")


def test_stopped_while_another_waits(standin):
    server = serve(standin, standin={"slow_s": 30})
    threading.Timer(0.5, server.stop).start()
    with pytest.raises(LabError, match="was stopped"):
        server.wait()


@pytest.mark.parametrize("victim", ["core", "supervisor", "api"])
def test_a_request_to_a_dead_server(standin, victim):
    server = serve(standin)
    server.metrics()
    pid = {"core": server._engine._cores[0], "supervisor": server.pid,
           "api": next(p for p in supervisor.session_pids(server.pid) if _is_standin(p))}[victim]
    kill(pid)
    for _ in range(2):
        with pytest.raises(LabError) as caught:
            server.metrics()
        assert "The engine died while it was serving" in caught.value.what
        assert "killed" in caught.value.cause and "Then call serve(...)" in caught.value.fix
    assert server.state == "crashed"
    assert not supervisor.session_pids(server.pid)


def test_what_it_wrote_before_is_not_why_it_died(standin):
    server = serve(standin)
    server.wait()
    with open(server.log_path, "a") as log:
        log.write("(APIServer pid=1) ERROR 11-29 16:20:45 [serving.py:1] ValueError: bad prompt\n")
    server.wait()
    kill(server.pid)
    with pytest.raises(LabError) as caught:
        server.wait()
    assert "bad prompt" not in str(caught.value)


def test_the_engine_refuses_a_request(standin):
    server = serve(standin)
    server.wait()
    server.model = "gpt-5"
    with pytest.raises(LabError, match="404.*`gpt-5` does not exist"):
        server.warm_up()
    assert server.state == "ready"


def test_no_results_folder(standin, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(engine_process, "LOGS", tmp_path / "file" / "logs")
    error = refused(standin)
    assert_helpful(error, "could not be started", "not yours", "writable")
    assert serve_works_again(standin, monkeypatch, tmp_path)


def test_no_space_on_the_disk(standin, tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        error = refused(standin)
    assert_helpful(error, "No space left on device", "full disk", "Free some space")
    assert serve_works_again(standin, monkeypatch, tmp_path)


def serve_works_again(model, monkeypatch, tmp_path):
    """The failure has kept neither its port nor a folder."""
    monkeypatch.setattr(engine_process, "LOGS", tmp_path / "logs")
    return serve(model).url


def test_no_temporary_folder(standin, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    assert_helpful(refused(standin), "could not be started", "disk", "temporary folder writable")


def test_no_vllm(standin, monkeypatch):
    monkeypatch.setenv("LAB_VLLM", "/no/vllm")
    assert_helpful(refused(standin), "'/no/vllm'", "moved", "Unset LAB_VLLM")
    monkeypatch.delenv("LAB_VLLM")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setenv("PATH", "/nowhere")
    assert_helpful(refused(standin), "not installed", "not the course's own", "make setup")


@pytest.mark.parametrize("code, ending", [(1, "exit status 1"), (255, "exit status 255"),
                                          (137, "killed by SIGKILL"), (0, "")])
def test_how_it_ended(standin, code, ending):
    error = refused(standin, standin={"crash": "block_size.log", "code": code})
    assert error.what.startswith("The engine ended before it was ready")
    assert ending in error.what


def test_killed_while_it_starts(standin):
    error = refused(standin, standin={"kill": 1})
    assert_helpful(error, "killed by SIGKILL", "ran out of memory", "kv_cache", "non-default args")


@pytest.mark.parametrize("log, said, cause, fix", [
    ("unknown_flag", "unrecognized arguments: --frobnicate", "no such flag: --frob", "--help=all"),
    ("block_size", "No common block size for 16.", "block size of 16", "multiple of 32"),
    ("cache_too_large", "Available memory on node 0", "larger than the memory", "Ask for less"),
    ("cache_too_small", "To serve at least one request", "too small for even one", "Raise kv_"),
])
def test_the_reason_is_found_in_a_log(standin, log, said, cause, fix):
    error = refused(standin, standin={"crash": f"{log}.log"})
    assert f"It said: {said}" in error.what
    assert_helpful(error, "exit status 1", cause, fix, said.split()[0])
    assert len(error.log.splitlines()) <= diagnose.LINES_SHOWN


def test_a_worker_without_an_operation():
    log = ("(Worker pid=1) RuntimeError: _C::static_scaled_fp8_quant() expected at most 0 "
           "argument(s)\n(EngineCore pid=2) Exception: WorkerProc initialization failed due to an "
           "exception in a background process. See stack trace for root cause.\n")
    error = diagnose.failed_start(log, 1)
    assert "It said: _C::static_scaled_fp8_quant()" in error.what
    assert_helpful(error, "exit status 1", "does not have it", "a GPU's", "fp8_quant")


def test_a_log_without_a_reason():
    error = diagnose.failed_start("INFO one\nINFO two\n", 1)
    assert_helpful(error, "exit status 1", "Not one that the course knows", "log lines", "INFO two")
    assert diagnose.failed_start("", 1).log == ""


def test_an_error_survives_pickling():
    error = LabError("What.", cause="Why.", fix="How.", log="line")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# In a notebook


def execute(*cells):
    """Run cells in a fresh kernel: the outputs of each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    nbclient.NotebookClient(notebook, allow_errors=True, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


def test_in_a_notebook(standin):
    served, waited, again, shown, failed, interrupted = execute(
        f"import os, signal, threading\nfrom helpers.server import serve\n"
        f"model = {str(standin)!r}\nserver = serve(model, standin={{'slow_s': 2}})",
        "server.wait()", "server.wait()", "server",
        "serve(model, name='other', standin={'crash': 'block_size.log'}).wait()",
        "slow = serve(model, name='slow', standin={'slow_s': 30})\n"
        "threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()\nslow.wait()")
    assert "vllm serve" in served[0].text
    (line,) = waited
    assert line.output_type == "display_data"
    assert line.data["text/plain"].startswith("Engine ready")
    assert again == []
    assert "<table>" in shown[0].data["text/html"] and "ready" in shown[0].data["text/html"]
    error = next(output for output in failed if output.output_type == "error")
    shown = "\n".join(error.traceback)
    assert "It said: No common block size for 16." in shown and "What to do" in shown
    assert "Traceback" not in shown and "File" not in shown and "Cell" not in shown
    assert error.ename == "LabError"
    stopped = [o for o in interrupted if o.output_type == "display_data"]
    assert "still starting" in stopped[-1].data["text/plain"]


def test_in_a_script(standin):
    script = (f"from helpers.server import serve\n"
              f"serve({str(standin)!r}, standin={{'crash': 'block_size.log'}}).wait()")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "LabError: The engine ended before it was ready (exit status 1)." in done.stderr
    assert "What to do: On a CPU use a multiple of 32" in done.stderr


# The real engine

REFUSED = {
    "unknown flag": ({"frobnicate": 3}, "unrecognized arguments: --frobnicate 3",
                     "no such flag", "--help=all"),
    "block size 16": ({"block_size": 16}, "No common block size for 16.",
                      "block size of 16", "multiple of 32"),
    "cache too large": ({"kv_cache_memory_bytes": "100G"}, "requested memory for kv (100.0 GiB)",
                        "larger than the memory", "Ask for less"),
    "cache too small": ({"kv_cache_memory_bytes": "6M"}, "To serve at least one request",
                        "too small for even one request", "lower max_model_len"),
}


@pytest.fixture(scope="module")
def refusals(request):
    """{case: future of the error} of real engines that refuse a flag, two at a time."""
    chosen = [item.callspec.params["case"] for item in request.session.items
              if getattr(item, "function", None) is test_the_real_engine_says_why]
    path = models.prepare("smollm2-135m")
    with ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(refused, path, name=case, **REFUSED[case][0]) for case in chosen}


@pytest.mark.parametrize("case", REFUSED)
def test_the_real_engine_says_why(case, refusals):
    error = refusals[case].result()
    flags, said, cause, fix = REFUSED[case]
    assert said in error.what
    assert_helpful(error, "ended before it was ready (exit status", cause, fix, said.split()[0])


def test_the_real_engine_has_the_cache_that_was_asked_for(engine):
    assert (engine.kv_cache_tokens, engine.block_size) == (46592, 32)
    assert engine.metrics()["vllm:cache_config_info"] == 1
    assert engine._engine._cores  # named as vLLM names them, so that their end is seen


def test_a_name_that_the_real_engine_does_not_serve(engine):
    wrong = SimpleNamespace(url=engine.url, model="gpt-5", log_tail=engine.log_tail)
    with pytest.raises(LabError) as caught:
        client.stream(wrong, "Hello", max_tokens=1)
    assert_helpful(caught.value, "gpt-5", "It serves: smollm2-135m-instruct", "a name")
