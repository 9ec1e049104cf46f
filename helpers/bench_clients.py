"""How far each client is from the truth: the same answers, whose times are known, seen by three.

    python -m helpers.bench_clients        # part of `make bench`
"""

import os
import random

import pandas as pd

from helpers import client, load, machine, reference

TRUTH = {"first_s": 0.05, "gap_s": 0.01}
BARS_S = {"ttft": 0.005, "itl": 0.001, "tpot": 0.001}  # at 8 streams, for our client
OUTPUT_LEN = 101  # a first token and whole chunks, at 1 and at 4 tokens a chunk
INPUT_LEN = 128


def errors(requests, *, tokens_per_chunk, first_s=TRUTH["first_s"], gap_s=TRUTH["gap_s"]):
    """|measured - true| in seconds, one row a value: columns figure (ttft, itl, tpot), error_s.

    True are TTFT = first_s, TPOT = gap_s, and as gaps between chunks those of
    reference.schedule. A tool that keeps no gaps (GuideLLM) has no itl rows.
    """
    found = []
    for row in requests[requests.outcome == "ok"].itertuples():
        due = [at for at, _ in reference.schedule(
            int(row.output_tokens), first_s=first_s, gap_s=gap_s,
            tokens_per_chunk=tokens_per_chunk)]
        gaps = [b - a for a, b in zip(due, due[1:], strict=False)]
        found += [("ttft", abs(row.ttft_s - first_s)), ("tpot", abs(row.tpot_s - gap_s))]
        found += [("itl", abs(seen - gap)) for seen, gap in zip(row.itl_s or [], gaps,
                                                              strict=False)]
    return pd.DataFrame(found, columns=["figure", "error_s"])


def measure(server, tool, *, streams, requests, seconds=5, seed=0):
    """One run of one tool at `streams` in flight; its requests, as each tool returns them.

    vllm bench gets as many warm-ups as streams, so that its connections are open, as ours are.
    """
    if tool == "client":
        prompts = [_prompt(seed, number) for number in range(requests)]
        return client.streams(server, prompts, concurrency=streams, max_tokens=OUTPUT_LEN,
                              ignore_eos=True)
    if tool == "vllm bench":
        return load.vllm_bench(server, input_len=INPUT_LEN, output_len=OUTPUT_LEN, seed=seed,
                               concurrency=streams, num_prompts=requests, warmups=streams)
    return load.guidellm(server, concurrency=streams, seconds=seconds, seed=seed,
                         prompt_tokens=INPUT_LEN, output_tokens=OUTPUT_LEN)


def compare_clients(*, streams=8, requests=24, tokens_per_chunk=1, repeats=1,
                    tools=("client", "vllm bench", "guidellm")):
    """Every tool against one reference server, in the order A B B A; a row per run and figure.

    Columns: tool, repeat, figure, mean_s, p99_s and max_s of |measured - true|, values (their
    number), and the server's own lateness in that run, server_mean_s, server_p99_s and
    server_max_s: what no client can be blamed for.
    """
    rows = []
    if "vllm bench" in tools:
        load.start_worker(wait=True)  # its imports would take a core from whoever is measured
    with reference.serve(**TRUTH, tokens_per_chunk=tokens_per_chunk) as server:
        for repeat in range(repeats):
            for tool in tools[::-1] if repeat % 2 else tools:
                server.lateness()  # forget what came before
                run = measure(server, tool, streams=streams, requests=requests, seed=repeat)
                late = {f"server_{name}": value for name, value in server.lateness().items()}
                seen = errors(run, tokens_per_chunk=tokens_per_chunk)
                for figure, error_s in seen.groupby("figure", sort=False).error_s:
                    rows.append({"streams": streams, "tokens_per_chunk": tokens_per_chunk,
                                 "tool": tool, "repeat": repeat, "figure": figure,
                                 "mean_s": error_s.mean(), "p99_s": error_s.quantile(0.99),
                                 "max_s": error_s.max(), "values": len(error_s), **late})
    compared = pd.DataFrame(rows)
    compared.attrs["caption"] = f"{machine.name()}; {streams} streams from the reference server"
    return compared


def figures(compared, *, bars_s=None):
    """One row a figure, in ms: its bar, then |measured - true| of each tool as 'mean (p99)'.

    The last column is the server's own lateness in the same runs, which no client can beat.
    """
    rows = []
    for figure, found in compared.groupby("figure", sort=False):
        of_tool = found.groupby("tool", sort=False)[["mean_s", "p99_s"]].mean() * 1000
        late = found[["server_mean_s", "server_p99_s"]].mean() * 1000
        bar = (bars_s or {}).get(figure)
        rows.append({"|error| in ms": figure.upper(), "bar": bar * 1000 if bar else "",
                     **{tool: f"{mean:.3f} ({p99:.3f})"
                        for tool, mean, p99 in of_tool.itertuples()},
                     "server late": "{:.3f} ({:.3f})".format(*late)})
    table = pd.DataFrame(rows).fillna("not kept").set_index("|error| in ms")
    return table if bars_s else table.drop(columns="bar")


def _prompt(seed, number):
    """A prompt of INPUT_LEN tokens that no other number shares."""
    letters = random.Random(f"{seed}-{number}")
    return "".join(f" {letters.choice('abcdefghijklmnopqrstuvwxyz')}" for _ in range(INPUT_LEN))


def main():
    """Print the errors at 8 streams with their bars, and at 100 streams beside vllm bench's."""
    for tokens_per_chunk in (1, 4):
        compared = compare_clients(tokens_per_chunk=tokens_per_chunk)
        print(f"\n8 streams, {tokens_per_chunk} tokens a chunk: mean (99th percentile)")
        print(figures(compared, bars_s=BARS_S).to_string())
    compared = compare_clients(streams=100, requests=300, repeats=4,
                               tools=("client", "vllm bench"))
    print("\n100 streams, 4 runs each, interleaved: mean (99th percentile)")
    print(figures(compared).to_string())
    ttft = compared[compared.figure == "ttft"].groupby("tool").mean_s.mean()
    print(f"TTFT error, ours / vllm bench's: {ttft['client'] / ttft['vllm bench']:.3f}, "
          f"bar 0.25  (load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores)")


if __name__ == "__main__":
    main()
