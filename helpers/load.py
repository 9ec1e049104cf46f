"""Load on a server: `vllm bench serve` and GuideLLM, each returning one row a request.

Both are the tools themselves, run with the flags that `attrs["command"]` shows; the rows come from
the files they write. `helpers.client` is the third, and its rows have the same columns.
"""

import os
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pandas as pd

from helpers import bench_owner, client, supervisor
from helpers.bench_owner import RESULTS, start_worker, stop_worker
from helpers.command import shell_command
from helpers.errors import LabError
from helpers.progress import Line
from helpers.refusal import explain
from helpers.steps import TOKEN_IDS
from helpers.tool_files import read_guidellm, read_vllm_bench

__all__ = ["guidellm", "read_guidellm", "read_vllm_bench", "start_worker", "stop_worker", "sweep",
           "together", "vllm_bench"]

# GuideLLM takes ten processes by default: on a small machine they take its cores and memory.
GUIDELLM_ENV = {
    "GUIDELLM__MAX_WORKER_PROCESSES": str(max(1, min(10, (os.cpu_count() or 1) // 2))),
    "COLUMNS": "200", "NO_COLOR": "1",
}
# By default it makes 4,096 prompts ahead, which takes a core for the first ten seconds of a run.
PROMPTS_AHEAD = 32
SWEEP_ROUNDS = 16


def vllm_bench(server, *, input_len, output_len, concurrency, num_prompts, seed,
               request_rate=float("inf"), warmups=0, timeout_s=1800):
    """Run `vllm bench serve` with random prompts; returns a DataFrame, one row a request.

    input_len, output_len: tokens.  concurrency: most requests in flight.  request_rate: requests
    per second, sent at random (Poisson) times; inf sends as soon as a place is free.
    warmups: requests before the clock starts (the first prompt, again and again).  seed: of the
    random prompts; the same seed sends the same prompts, which a prefix cache remembers.
    attrs: command, settings, report (the tool's own table), and file. Raises LabError when all
    requests failed, when the tool fails, or after timeout_s.
    """
    start_worker()
    path = _new_file("vllm_bench", f"c{concurrency}-s{seed}.json")
    flags = bench_flags(server, input_len=input_len, output_len=output_len, seed=seed,
                        concurrency=concurrency, num_prompts=num_prompts, warmups=warmups,
                        request_rate=request_rate, path=path)
    line = Line()
    text = f"vllm bench: {num_prompts} requests, {concurrency} at a time"
    printed = bench_owner.run(flags, line=line, text=text, timeout_s=timeout_s)
    requests = read_vllm_bench(path)
    requests.attrs.update(
        command=shell_command(["vllm", "bench", "serve", *flags]), file=str(path),
        report=printed[printed.find("===="):].strip(),
        settings={"input_len": input_len, "output_len": output_len, "concurrency": concurrency,
                  "num_prompts": num_prompts, "rate": request_rate, "warmups": warmups,
                  "seed": seed})
    return _checked(requests, server, line, text)


def bench_flags(server, *, input_len, output_len, concurrency, num_prompts, request_rate, warmups,
                seed, path):
    """The flags of `vllm bench serve` for one point: those of the study, and a file to read."""
    flags = {
        "--backend": "openai", "--base-url": server.url, "--endpoint": "/v1/completions",
        "--model": server.model, "--tokenizer": server.tokenizer, "--dataset-name": "random",
        "--random-input-len": input_len, "--random-output-len": output_len,
        "--random-range-ratio": 0, "--random-prefix-len": 0, "--num-prompts": num_prompts,
        "--num-warmups": warmups, "--max-concurrency": concurrency,
        "--request-rate": request_rate, "--ignore-eos": None, "--temperature": 0, "--seed": seed,
        "--percentile-metrics": "ttft,tpot,itl,e2el", "--metric-percentiles": "50,95,99",
        "--disable-tqdm": None, "--save-result": None, "--save-detailed": None,
        "--result-filename": path,
    }
    return [str(part) for pair in flags.items() for part in pair if part is not None]


def sweep(server, *, concurrencies, **point):
    """`vllm_bench` at each concurrency; the rows of all, with a `concurrency` column.

    A point has num_prompts requests, or SWEEP_ROUNDS for each in flight if that is fewer: a slow
    point then takes no longer than a fast one. The seed grows by one a point, so that no point
    sends prompts that the cache has seen.
    attrs: command and report of every point, one below the other.
    """
    frames = []
    for place, concurrency in enumerate(concurrencies):
        number = min(point["num_prompts"], SWEEP_ROUNDS * concurrency)
        frame = vllm_bench(server, concurrency=concurrency,
                           **point | {"seed": point["seed"] + place, "num_prompts": number})
        frames.append(frame.assign(concurrency=concurrency))
    together = pd.concat(frames, ignore_index=True)
    together.attrs.update(
        tool="vllm bench", settings={**point, "concurrencies": list(concurrencies)},
        command="\n\n".join(frame.attrs["command"] for frame in frames),
        report="\n\n".join(frame.attrs["report"] for frame in frames))
    return together


def together(servers, *, input_len, output_len, concurrency, num_prompts, seed):
    """Load several engines at once, on one clock, each with its share; one row a request.

    servers: {name: Server}, the name in column `engine`.  concurrency, num_prompts: of all
    together, shared out equally; the first ones take what is left over.  input_len, output_len:
    tokens of each random prompt and answer.  seed: an int or a list of ints; the same seed sends
    the same prompts. The client is `client.together`, in one thread whatever the number of
    engines. Raises ValueError where an engine would get nothing, LabError where all failed.
    """
    if min(concurrency, num_prompts) < len(servers):
        raise ValueError(f"{concurrency} in flight and {num_prompts} requests leave nothing for "
                         f"some of {len(servers)} engines")
    prompts = np.random.default_rng(seed).choice(TOKEN_IDS, (num_prompts, input_len)).tolist()
    places = {name: len(range(place, concurrency, len(servers)))
              for place, name in enumerate(servers)}
    shares = {name: prompts[place::len(servers)] for place, name in enumerate(servers)}
    return client.together(servers, shares, max_tokens=output_len, concurrency=places,
                           ignore_eos=True)


def guidellm(server, *, rate=None, seconds, prompt_tokens, output_tokens, concurrency=None,
             max_requests=None, seed=42):
    """Run GuideLLM for some seconds, or until max_requests have ended; one row a request.

    rate: requests per second at equal distances, whether or not the server keeps up. Or
    concurrency: as many in flight all the time. Each run has a folder of its own, under
    results/guidellm, named for the model and the rate. Temperature 0, as the other clients here:
    GuideLLM by itself leaves it to the server, which then draws every token.
    A request that failed has outcome 'error' and says why; one that was still running when the
    time was up is 'cut_off'. Raises LabError when the tokenizer is missing, when the tool fails,
    and when no request succeeded (GuideLLM then exits with 0, and its table is all zeros).
    """
    if (rate is None) == (concurrency is None):
        raise ValueError("give `rate` (open loop) or `concurrency` (closed loop), one of the two")
    _need_tokenizer(server)
    load_name = f"{rate}rps" if rate else f"{concurrency}streams"
    path = _new_file("guidellm", "benchmarks.json",
                     prefix=f"{Path(server.model).name}-{load_name}-")
    profile = f"constant,rate={rate}" if rate else f"concurrent,streams={concurrency}"
    flags = ["run", "--backend",
             f"kind=openai_http,target={server.url},model={server.model},"
             "request_format=/v1/completions,extras.body.temperature=0",
             "--tokenizer", f"kind=huggingface_auto,model={server.tokenizer}",
             "--profile", f"kind={profile}",
             "--constraint", f"kind=max_duration,seconds={seconds}",
             *(["--constraint", f"kind=max_requests,count={max_requests}"] if max_requests else []),
             "--data", f"kind=synthetic_text,prompt_tokens={prompt_tokens},"
                       f"output_tokens={output_tokens}",
             "--data-loader", f"kind=pytorch,prefetch_factor={PROMPTS_AHEAD}",
             "--seed", f"kind=static,value={seed}",
             "--output", f"kind=json,path={path}", "--disable-progress"]
    line, text = Line(), f"GuideLLM: {profile.replace(',', ', ')}, for {seconds} s"
    report = _run_guidellm(server, flags, path, line, text, limit_s=seconds + 300)
    requests = read_guidellm(path)
    requests.attrs.update(
        command=shell_command(["guidellm", *flags], GUIDELLM_ENV),
        file=str(path), report=report,
        settings={"rate": rate, "concurrency": concurrency, "seconds": seconds, "seed": seed,
                  "prompt_tokens": prompt_tokens, "output_tokens": output_tokens})
    return _checked(requests, server, line, text)


def _need_tokenizer(server):
    """GuideLLM counts tokens itself, so it needs the model's tokenizer on this machine."""
    folder = Path(server.tokenizer)
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise LabError(f"GuideLLM needs the tokenizer of {server.model}: {folder} has none.",
                       cause="The folder was moved or is half-copied.",
                       fix="Make it again with models.prepare(...), and serve that folder.")


def _run_guidellm(server, flags, path, line, text, limit_s):
    """Run the tool to its end and return what it printed; whatever happens, it is ended."""
    log = path.with_name("log.txt")
    environment = os.environ | bench_owner.ENV | GUIDELLM_ENV
    process = supervisor.start([sys.executable, "-m", "guidellm", *flags], env=environment,
                               log_path=log, cwd=path.parent)
    try:
        while process.poll() is None and line.elapsed_s < limit_s:
            line.update(f"{text}, and some to start: {line.elapsed_s:.0f} s")
            time.sleep(0.5)
        late = process.poll() is None
    finally:
        supervisor.stop(process)
    printed = log.read_text(errors="replace")
    if not path.exists():
        raise _no_result(server, process, printed, f"It took longer than {limit_s} s." * late)
    return printed[max(printed.find("ℹ Run Summary"), 0):].strip()


def _no_result(server, process, printed, cause):
    """Why GuideLLM wrote no file: its limit, the server, the tokenizer, or what its log says."""
    try:
        httpx.get(f"{server.url}/v1/models", timeout=5, trust_env=False)
    except httpx.HTTPError:
        cause = cause or "The server does not answer: it has ended, or never started."
    if "okenizer" in printed:
        cause = cause or f"It cannot read the tokenizer in {server.tokenizer}."
    return LabError(f"GuideLLM wrote no result (exit status {process.returncode}).",
                    cause=cause or "Its last lines may say it.",
                    fix="Read its last lines below; check that the server still answers.",
                    log="\n".join(printed.strip().splitlines()[-15:]))


def _new_file(tool, name, prefix=""):
    """A path of its own for the file of one run, under results/."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for turn in range(1000):
        folder = Path(RESULTS, tool, f"{prefix}{stamp}-{os.getpid()}-{turn}")
        try:
            folder.mkdir(parents=True)
            return folder / name
        except FileExistsError:
            continue
    raise LabError(f"No new folder can be made in {RESULTS / tool}.")


def _checked(requests, server, line, text):
    """The requests, if any succeeded; the last progress line says how many did."""
    ok, failed = ((requests.outcome == outcome).sum() for outcome in ("ok", "error"))
    line.done(f"{text}: {ok} of {len(requests)} done{f', {failed} failed' if failed else ''} "
              f"in {line.elapsed_s:.0f} s")
    if not ok:
        error = next(filter(None, requests.error), "it sent none")
        what = f"All {len(requests)} requests of {requests.attrs['tool']} failed: {error}"
        raise explain(server, what, error)
    return requests
