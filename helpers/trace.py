"""Reads what torch's profiler wrote of an engine: its steps, and what ran in them. Pure but `load`.

vLLM marks each step of its worker in the trace: 'execute_context_2(256)_generation_6(6)' has 256
tokens of 2 prompts, and a token each of 6 answers. What computes in a step ("work") is on a GPU its
kernels and copies, found through the number (correlation) that they share with the call that
launched them: one cudaGraphLaunch launches a whole decode graph. On a CPU it is the operators of
the step's thread that no other operator has called. Times in the file are microseconds.
"""

import gzip
import json
import re

import numpy as np
import pandas as pd

from helpers.errors import LabError

STEP = re.compile(r"execute_(?:\d+_)?context_(\d+)\(.*\)_generation_(\d+)\(")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
PARTS = {  # the first that fits; names of CPU operators, then of kernels
    "cache": r"kv_cache|reshape_and_cache|slot_mapping",
    "attention": r"attention|flash|fmha|paged|splitkv|flashinfer",
    "matrices": r"onednn|_mm\b|::mm|addmm|linear|matmul|gemm|gemv|cutlass|cublas|nvjet|sm\d+_xmma",
}
COLUMNS = ["kind", "batch", "start_s", "period_s", "span_s", "busy_s", "graph",
           "matrices_s", "attention_s", "cache_s", "other_s"]


def load(path):
    """The trace in a file, .json or .json.gz. Raises LabError for one that is not whole."""
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rt") as file:
            return json.load(file)
    except (OSError, EOFError, ValueError) as error:
        raise LabError(f"The trace {path} cannot be read: {error}.",
                       cause="The engine ended while it wrote, or the disk is full.",
                       fix="Profile again.") from None


def part(name):
    """Which part of a step an operator or kernel belongs to: one of PARTS, or 'other'."""
    return next((part for part, words in PARTS.items() if re.search(words, name, re.I)), "other")


def steps(trace):
    """A row a step, in order, with COLUMNS; the last step has no period.

    kind: 'decode' if it takes in no prompt, else 'prefill'.  batch: answers that get a token.
    start_s: when its span began, seconds of the system's clock, so that engines compare.
    period_s: to the start of the next.  span_s: from the first to the last of its
    graph, or, where there is no graph, of its work.  busy_s: time in which some of its work ran.
    Then the time of each part, added up.  Raises LabError for a trace without steps.
    """
    marks, work = _read(trace)
    if work.empty:
        raise LabError("The trace has steps, and nothing that computes in them.",
                       cause="The profiler saw no kernels of the GPU.",
                       fix="Read the engine's log for CUPTI.")
    rows = [_step(marks.loc[number], own) for number, own in work.groupby("step")
            if marks.contexts[number] + marks.batch[number]]
    found = pd.DataFrame(rows, columns=COLUMNS).sort_values("start_s", ignore_index=True)
    start_s = found.start_s + trace.get("baseTimeNanoseconds", 0) / 1e9
    return found.assign(start_s=start_s, period_s=found.start_s.shift(-1) - found.start_s)


def _step(mark, own):
    span = own[own.graph] if own.graph.any() else own
    sums = own.groupby("part").dur.sum() / 1e6
    return {
        "kind": "prefill" if mark.contexts else "decode", "batch": int(mark.batch),
        "start_s": span.ts.min() / 1e6, "span_s": (span.end.max() - span.ts.min()) / 1e6,
        "busy_s": covered(own.ts, own.end) / 1e6, "graph": bool(own.graph.any()),
        **{f"{name}_s": float(sums.get(name, 0)) for name in (*PARTS, "other")}}


def covered(starts, ends):
    """Length of the union of intervals, in their unit; starts in ascending order."""
    starts, ends = np.asarray(starts, float), np.asarray(ends, float)
    before = np.maximum.accumulate(np.concatenate([[-np.inf], ends[:-1]]))
    return float(np.clip(ends - np.maximum(starts, before), 0, None).sum())


def typical(trace):
    """The decode step of the fullest batch whose span is nearest the median, a row a piece of work.

    name, part, start_s (from the start of its first one), dur_s. Raises LabError without one.
    """
    marks, work = _read(trace)
    decode = marks[(marks.contexts == 0) & (marks.batch > 0)]
    own = work[work.step.isin(decode.index[decode.batch == decode.batch.max()])]
    if own.empty:
        raise LabError("The trace has no decode step.", fix="Let each answer have more tokens.")
    span = own.groupby("step").end.max() - own.groupby("step").ts.min()
    own = own[own.step == (span - span.median()).abs().idxmin()]
    return pd.DataFrame({"name": own.name.str[:60].to_numpy(), "part": own.part.to_numpy(),
                         "start_s": ((own.ts - own.ts.min()) / 1e6).round(7).to_numpy(),
                         "dur_s": (own.dur / 1e6).round(7).to_numpy()})


def _read(trace):
    """(marks of steps, work): work has step (the place of its mark), ts, end, dur, part, graph."""
    events = pd.DataFrame([e for e in trace["traceEvents"] if e.get("ph") == "X"],
                          columns=["cat", "name", "ts", "dur", "tid", "args"])
    named = events.name.astype(str).str.extract(STEP)
    marks = events[named[0].notna() & (events.cat == "user_annotation")].sort_values("ts")
    if marks.empty:
        raise LabError("The trace has no steps of an engine.",
                       cause="No request was served while the profiler ran, or this release of "
                       "vLLM marks them otherwise.", fix="Profile under load.")
    marks = marks.assign(contexts=named.loc[marks.index, 0].astype(int),
                         batch=named.loc[marks.index, 1].astype(int)).reset_index(drop=True)
    device = events.cat.isin(DEVICE)
    gpu = device.any() or events.cat.isin(CALLS).any()
    work = _launched(events, device) if gpu else _operators(events, marks.tid.iloc[0])
    work["step"] = np.searchsorted(marks.ts, work.when, side="right") - 1
    work = work[work.step >= 0].sort_values("ts")
    if not gpu:  # what the thread does after the step's mark is not the model
        work = work[work.ts < (marks.ts + marks.dur).to_numpy()[work.step]]
    kinds = {name: part(name) for name in work.name.unique()}
    return marks, work.assign(end=work.ts + work.dur, part=work.name.map(kinds))


def _launched(events, device):
    """Kernels and copies: `when` is the time of the call that launched them."""
    number = events.args.map(lambda args: (args or {}).get("correlation", -1)
                             if isinstance(args, dict) else -1)
    calls = events[events.cat.isin(CALLS)].assign(number=number).drop_duplicates("number")
    calls = calls.set_index("number")
    work = events[device].assign(number=number[device])
    when = work.number.map(calls.ts)
    graph = work.number.map(calls.name).astype(str).str.contains("GraphLaunch")
    return work.assign(when=when.fillna(work.ts), graph=graph)


def _operators(events, thread):
    """Operators of one thread that no other has called."""
    own = events[(events.cat == "cpu_op") & (events.tid == thread)]
    own = own.sort_values(["ts", "dur"], ascending=[True, False])
    ends = np.maximum.accumulate((own.ts + own.dur).to_numpy())
    outer = own.ts.to_numpy() >= np.concatenate([[-np.inf], ends[:-1]])[:len(own)]
    return own[outer].assign(when=own.ts[outer], graph=False)
