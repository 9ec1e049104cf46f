"""lm-eval, the evaluation harness: against a running server, or with the model loaded by itself.

Tasks of the course are in data/tasks; any other name is one of lm-eval's own, whose examples come
from the hub. What comes back is one row an example, so that two models can be compared pair by
pair; lm-eval's own table of scores is in attrs["scores"], its shell command in attrs["command"].
"""

import contextlib
import io
import logging
import shlex
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pandas as pd

from helpers import models, profile
from helpers.errors import LabError
from helpers.progress import Line

TASKS = Path(__file__).parent.parent / "data" / "tasks"
LONGEST = 2047  # tokens of a request; one is left for the token that the API insists on making


def evaluate(server, tasks, *, limit=None):
    """Score a running server through lm-eval's model `local-completions`; one row an example.

    tasks: names of tasks in data/tasks (course_passages, course_prose, ...) or of lm-eval's own.
    limit: the first so many examples of each. Rows: task, example (its number), and
    - a choice: name, question, choices, answer, logliks (of each choice, in nats), picked, right.
      Picked is the choice of the highest loglik / characters, which is lm-eval's acc_norm.
    - a text: name, loglik (of all its tokens, in nats), words.
    Raises LabError where the hub is needed and does not answer.
    """
    return _evaluate("local-completions", {
        "model": server.model, "base_url": f"{server.url}/v1/completions",
        "tokenizer": str(server.tokenizer), "tokenizer_backend": "huggingface",
        "num_concurrent": 8, "max_length": LONGEST}, tasks, limit)


def evaluate_alone(folder, tasks, *, limit=None):
    """As `evaluate`, but lm-eval loads the checkpoint in `folder` itself, with transformers.

    No server is used; on a GPU none may hold the memory that this needs.
    """
    device = "cuda" if profile.current().name == "gpu" else "cpu"
    return _evaluate("hf", {"pretrained": str(folder), "dtype": "bfloat16", "device": device},
                     tasks, limit)


def hub_answers():
    """Whether the Hugging Face hub can be reached; says so if not."""
    why = models.no_hub()
    if why:
        print(f"No examples from the Hugging Face hub: {why}.")
    return not why


def _evaluate(model, model_args, tasks, limit):
    foreign = sorted(set(tasks) - {path.stem for path in TASKS.glob("*.yaml")})
    if foreign and not hub_answers():
        raise LabError(f"The examples of {', '.join(foreign)} could not be had.",
                       cause="They come from the hub.",
                       fix="The course's own tasks, course_passages and course_prose, need none.")
    line, bars = Line(f"lm-eval: {', '.join(tasks)}"), io.StringIO()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    # in a thread, since it runs a loop, and a notebook's thread has one already
    with ThreadPoolExecutor(1) as own, contextlib.redirect_stderr(bars):
        running = own.submit(_run, model, model_args, tasks, limit, bool(foreign))
        while not wait([running], timeout=0.5).done:
            line.update(f"lm-eval, {line.elapsed_s:.0f} s: {_last(bars)}")
    found = running.result()
    rows = [_row(task, sample) for task in tasks for sample in found["samples"][task]]
    frame = pd.DataFrame(rows)
    frame.attrs["scores"] = _scores(found["results"])
    frame.attrs["command"] = _command(model, model_args, tasks, limit)
    line.done(f"lm-eval: {len(frame)} examples in {line.elapsed_s:.0f} s")
    return frame


def _run(model, model_args, tasks, limit, defaults):
    import datasets
    import lm_eval
    from lm_eval.tasks import TaskManager

    datasets.disable_progress_bars()  # a widget that a notebook would keep
    manager = TaskManager(include_path=str(TASKS), include_defaults=defaults)
    return lm_eval.simple_evaluate(model, model_args=model_args, tasks=tasks, limit=limit,
                                   task_manager=manager, bootstrap_iters=1000)


def _last(bars):
    """The last line of its progress bars, of which there are many, one over the other."""
    return bars.getvalue()[-400:].replace("\r", "\n").strip().split("\n")[-1][:80]


def _row(task, sample):
    row = {"task": task, "example": sample["doc_id"], "name": sample["doc"].get("name", "")}
    if "word_perplexity" in sample:
        loglik, words = sample["word_perplexity"]
        return row | {"loglik": loglik, "words": words}
    choices = [ending.strip() for _, ending in sample["arguments"]]
    logliks = [loglik for loglik, _ in sample["filtered_resps"]]
    answer = int(sample["target"])
    picked = int(np.argmax([loglik / len(choice)
                            for loglik, choice in zip(logliks, choices, strict=True)]))
    return row | {"question": sample["doc"].get("question", ""), "choices": choices,
                  "answer": answer, "logliks": logliks, "picked": picked,
                  "right": picked == answer}


def _scores(results):
    """Its table as dicts: task, metric, value, stderr (a standard error, NaN where it has none)."""
    rows = []
    for task, metrics in results.items():
        for name, value in metrics.items():
            metric, _, of = name.partition(",")
            if of and not metric.endswith("_stderr"):
                stderr = pd.to_numeric(metrics.get(f"{metric}_stderr,{of}"), errors="coerce")
                rows.append({"task": task, "metric": metric, "value": float(value),
                             "stderr": float(stderr)})
    return rows


def _command(model, model_args, tasks, limit):
    args = ",".join(f"{key}={value}" for key, value in model_args.items())
    parts = ["lm-eval", "run", "--model", model, "--model_args", args, "--include_path",
             "data/tasks", "--tasks", ",".join(tasks)]
    return shlex.join(parts + (["--limit", str(limit)] if limit else []))
