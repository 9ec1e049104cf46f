"""The files that `vllm bench serve` and GuideLLM write, as the one table of requests."""

import json
from itertools import accumulate
from pathlib import Path

from helpers.errors import LabError
from helpers.rows import NAN, failed, latencies, table


def read_vllm_bench(path):
    """The requests in a file of `vllm bench serve --save-result --save-detailed`.

    It keeps one ITL a chunk and no tokens a chunk: chunk_tokens is None. intended_s is the
    moment a request would have left without --max-concurrency, where there is a request rate.
    Raises LabError for another kind of file.
    """
    data = _load(path, kind="vllm bench serve --save-detailed", key="start_times")
    open_loop = data["request_rate"] != "inf"
    queued = data.get("queue_times") or [0.0] * len(data["start_times"])
    arrived = [start - wait for start, wait in zip(data["start_times"], queued, strict=True)]
    zero, rows = min(arrived), []
    for index, start in enumerate(data["start_times"]):
        rows.append({"sent_s": start - zero, "text": data["generated_texts"][index],
                     "intended_s": arrived[index] - zero if open_loop else NAN,
                     **_vllm_outcome(data, index)})
    settings = {"concurrency": data["max_concurrency"], "rate": data["request_rate"]}
    return table(rows, tool="vllm bench", settings=settings)


def _vllm_outcome(data, index):
    error = data["errors"][index]
    if error or not data["ttfts"][index]:
        return failed(error.strip().splitlines()[-1] if error.strip() else "no answer")
    times = list(accumulate(data["itls"][index], initial=data["ttfts"][index]))
    output_tokens = data["output_lens"][index]
    return {**latencies(times, output_tokens), "chunk_tokens": None, "outcome": "ok", "error": "",
            "input_tokens": data["input_lens"][index], "output_tokens": output_tokens}


def read_guidellm(path):
    """The requests in a JSON report of GuideLLM 0.8 (all its benchmarks, one after the other).

    It keeps the first and the last token's time of a request and nothing between: chunk_times_s
    has these two, and itl_s is None. Its own time_per_output_token counts the first token too;
    tpot_s here is vLLM's. Requests still running when the run ended have outcome 'cut_off'.
    Raises LabError for another kind of file.
    """
    data = _load(path, kind="GuideLLM", key="benchmarks")
    rows = []
    for benchmark in data["benchmarks"]:
        strategy = benchmark["config"]["strategy"]
        found = [_guidellm_row(request, status, strategy)
                 for status in ("successful", "errored", "incomplete")
                 for request in benchmark["requests"].get(status) or []]
        zero = min((min(row["sent_s"], row["intended_s"]) for row in found), default=0.0)
        rows += [row | {"sent_s": row["sent_s"] - zero, "intended_s": row["intended_s"] - zero}
                 for row in sorted(found, key=lambda row: row["sent_s"])]
    strategy = data["benchmarks"][0]["config"]["strategy"] if data["benchmarks"] else {}
    settings = {"concurrency": strategy.get("streams"), "rate": strategy.get("rate")}
    return table(rows, tool="guidellm", settings=settings)


def _guidellm_row(request, status, strategy):
    """One row, its sent_s and intended_s still on GuideLLM's clock (seconds since 1970)."""
    timings = request["info"]["timings"]
    sent = timings.get("request_start") or timings.get("resolve_start") or timings["queued"]
    row = {"sent_s": sent, "text": request.get("output") or "",
           "intended_s": timings["targeted_start"] if strategy.get("rate") else NAN}
    if status != "successful":
        cut_off = status == "incomplete"
        said = "still running when the run ended" if cut_off else request["info"].get("error")
        return row | failed(said or "no reason given", outcome="cut_off" if cut_off else "error")
    if timings.get("first_token_iteration") is None:
        return row | failed("it answered with no text")
    times = [timings["first_token_iteration"] - sent, timings["last_token_iteration"] - sent]
    output_tokens = request["output_tokens"]
    return row | {**latencies(times, output_tokens or NAN), "itl_s": None, "chunk_tokens": None,
                  "input_tokens": request["prompt_tokens"], "output_tokens": output_tokens,
                  "outcome": "ok", "error": ""}


def _load(path, *, kind, key):
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}",
                       cause=f"It is missing, half-written, or not a file of {kind}.") from error
    if not isinstance(data, dict) or key not in data:
        raise LabError(f"{path} is not a result of {kind}: it has no {key!r}.",
                       fix="Record it again with the flags that load.py uses.")
    return data
