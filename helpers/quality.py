"""Does a compressed model still answer as well? The same examples on both; differences in pairs.

    nll = quality.token_nll(server, quality.texts())                # the engine's own logprobs
    rows = quality.evaluate(server, ["course_passages"], limit=20)  # through lm-eval
    marks = quality.answers(server, quality.open_questions())       # marked by a rubric
    quality.paired(nll_small.nll, nll.nll)                          # difference and interval
    quality.paired_share(rows_small.right, rows.right)              # the same of right and wrong
"""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pandas as pd
import yaml
from scipy import stats

from helpers import client
from helpers.errors import LabError
from helpers.harness import evaluate, evaluate_alone, hub_answers
from helpers.rubric import mark as rubric

__all__ = ["Difference", "Flips", "answers", "disagreements", "evaluate", "evaluate_alone",
           "flips", "hub_answers", "open_questions", "paired", "paired_share", "rubric", "texts",
           "token_nll"]
DATA = Path(__file__).parent.parent / "data"


def texts():
    """{name: text} of the course's held-out prose: written for it, so in no training set."""
    return {path.stem: path.read_text(encoding="utf-8").strip()
            for path in sorted((DATA / "prose").glob("*.txt"))}


def open_questions():
    """The open questions of all passages, the first of each first: dicts with passage (its file's
    name), text, question, and the rubric that `rubric(answer, rubric)` takes."""
    read = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
            for path in sorted((DATA / "passages").glob("*.yaml"))}
    return [{"passage": name, "text": each["passage"], "question": each["open"][number]["question"],
             "rubric": each["open"][number]} for number in (0, 1) for name, each in read.items()]


def token_nll(server, texts, *, concurrency=4):
    """The negative log-likelihood of every token but the first: text, place, token, nll (nats).

    nll = -ln p(token | all tokens of the text before it), from the engine's prompt_logprobs.
    texts: {name: text} or a list, each shorter than the engine's max_model_len. Raises LabError.
    """
    named = texts if isinstance(texts, dict) else dict(enumerate(texts))
    url = f"{server.url}/v1/completions"  # waits until the engine is ready
    with ThreadPoolExecutor(concurrency) as pool:
        scored = pool.map(lambda text: _prompt_logprobs(url, server.model, text), named.values())
        rows = [{"text": name, "place": place, **token}
                for name, tokens in zip(named, scored, strict=True)
                for place, token in tokens]
    return pd.DataFrame(rows, columns=["text", "place", "token", "nll"])


def _prompt_logprobs(url, model, text):
    body = {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0,
            "prompt_logprobs": 0}
    answer = httpx.post(url, json=body, timeout=600, trust_env=False)
    if answer.status_code != 200:
        raise LabError(f"The engine would not score a text of {len(text.split())} words: "
                       f"{answer.text[:300]}", fix="A text must be shorter than max_model_len.")
    found = json.loads(answer.text)["choices"][0]["prompt_logprobs"]
    tokens = [next(iter(each.values())) if each else None for each in found]
    return [(place, {"token": token["decoded_token"], "nll": -token["logprob"]})
            for place, token in enumerate(tokens) if token]


def answers(server, questions, *, max_tokens=64, concurrency=16):
    """Ask open questions about their passages and mark the answers; one row a question.

    questions: as `open_questions` gives them. Columns: passage, question, answer, right, facts
    (stated), of (facts that the rubric has), missing and errors (lists). Temperature 0.
    """
    prompts = [[{"role": "user", "content": f"Read this passage.\n\n{each['text']}\n\n"
                 f"Answer in one or two sentences: {each['question']}"}] for each in questions]
    rows = client.streams(server, prompts, max_tokens=max_tokens, concurrency=concurrency,
                          chat_template_kwargs={"enable_thinking": False})
    if (failed := rows[rows.outcome != "ok"]).size:
        raise LabError(f"{len(failed)} questions were not answered: {failed.error.iloc[0]}")
    marks = [rubric(text, each["rubric"]) for text, each in zip(rows.text, questions, strict=True)]
    return pd.DataFrame([{"passage": each["passage"], "question": each["question"],
                          "answer": text.strip(), "of": len(each["rubric"]["facts"]), **marked}
                         for each, text, marked in zip(questions, rows.text, marks, strict=True)])


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference of pairs: its 95 percent interval, and `detectable`, the smallest true
    difference that so many pairs, scattered like these, would tell from none in 4 of 5 tries."""

    pairs: int
    mean: float
    low: float
    high: float
    detectable: float

    def __str__(self):
        return (f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f}; smallest that "
                f"{self.pairs} pairs could show: {self.detectable:.4f})")


def paired(a, b):
    """The difference a - b over the same examples: Student's interval of the pairs' mean.

    se = s / sqrt(n), s the standard deviation of the n differences; interval mean ± t(0.975) se;
    detectable = (t(0.975) + t(0.8)) se, n - 1 degrees of freedom (a test at 5 percent, 80 percent
    power; Cohen, Statistical Power Analysis, 1988). Raises ValueError for fewer than two pairs, or
    where a and b, as Series, have different indexes: those are not the same examples.
    """
    _same_examples(a, b)
    if len(a) < 2:
        raise ValueError("one pair has no interval")
    difference = pd.Series(list(a), dtype=float) - pd.Series(list(b), dtype=float)
    error, freedom = stats.sem(difference), len(difference) - 1
    reach = stats.t.ppf(0.975, freedom) * error
    mean = float(difference.mean())
    return Difference(len(difference), mean, float(mean - reach), float(mean + reach),
                      float(reach + stats.t.ppf(0.8, freedom) * error))


def paired_share(a, b):
    """The difference of two shares, a - b, over the same questions; a and b true where right.

    Half a pair is added to each of the four cells (both, only a, only b, neither), so n is two
    more; of the two that differ, with their halves, mean = (only_a - only_b) / n, and
    se = sqrt(only_a + only_b - (only_a - only_b)² / n) / n; interval mean ± 1.96 se, detectable
    (1.96 + 0.84) se. Agresti and Min, Statistics in Medicine 24 (2005). Unlike `paired` it is
    never of width zero: that no answer changed among a few does not show that none would. The
    added pairs draw the mean a little towards 0. Raises ValueError as `paired`.
    """
    found = flips(a, b)
    if len(a) < 2:
        raise ValueError("one pair has no interval")
    only_a, only_b, n = found.only_a + 0.5, found.only_b + 0.5, len(a) + 2
    mean = (only_a - only_b) / n
    error = math.sqrt(only_a + only_b - (only_a - only_b) ** 2 / n) / n
    reach = float(stats.norm.ppf(0.975)) * error
    return Difference(len(a), mean, mean - reach, mean + reach,
                      reach + float(stats.norm.ppf(0.8)) * error)


@dataclass(frozen=True, slots=True)
class Flips:
    """Answers that changed: right only in a, right only in b, and McNemar's exact p."""

    only_a: int
    only_b: int
    p: float

    def __str__(self):
        return f"right only here {self.only_a}, only in the other {self.only_b}, p = {self.p:.2g}"


def flips(a, b):
    """McNemar's test over the same questions, a and b true where right.

    Questions on which both are right, or both wrong, say nothing. Of the others, if there is no
    difference, each is as likely to be right in a as in b: p is the two-sided binomial one, 1
    where none differs. Psychometrika 12 (1947). Raises ValueError as `paired`.
    """
    _same_examples(a, b)
    only_a = sum(bool(x) and not y for x, y in zip(a, b, strict=True))
    only_b = sum(bool(y) and not x for x, y in zip(a, b, strict=True))
    p = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    return Flips(only_a, only_b, float(p))


def disagreements(a, b, *, names=("a", "b")):
    """The questions on which two runs of `evaluate` picked different choices, with both picks.

    Columns: name, question, the right choice, and each run's pick under its name.
    Raises ValueError where the two did not answer the same examples.
    """
    if list(a.task) != list(b.task) or list(a.example) != list(b.example):
        raise ValueError("a and b did not answer the same examples")
    rows = [{"name": x["name"], "question": x.question, "right": x.choices[x.answer],
             names[0]: x.choices[x.picked], names[1]: x.choices[y.picked]}
            for (_, x), (_, y) in zip(a.iterrows(), b.iterrows(), strict=True)
            if x.picked != y.picked]
    return pd.DataFrame(rows, columns=["name", "question", "right", *names])


def _same_examples(a, b):
    indexes = getattr(a, "index", None), getattr(b, "index", None)
    pandas = all(hasattr(index, "equals") for index in indexes)
    if len(a) != len(b) or (pandas and not indexes[0].equals(indexes[1])):
        raise ValueError("a and b are not about the same examples")
