"""Small tasks whose answers a rule can mark: instructions and arithmetic, the same for all arms.

    rows = tasks.ask(server, tasks.arithmetic(40) + tasks.instructions(40))
"""

import re

import numpy as np
import pandas as pd

from helpers import client
from helpers.errors import LabError

WORDS = ("river", "window", "bread", "garden", "stone", "music", "winter", "paper",
         "bridge", "salt")


def arithmetic(count, *, seed=9):
    """`count` sums and differences of numbers below 50: dicts with task, prompt, rule."""
    dice, found = np.random.default_rng(seed), []
    for place in range(count):
        a, b = (int(x) for x in dice.integers(2, 50, 2))
        a, b = max(a, b), min(a, b)
        text, result = (f"{a} + {b}", a + b) if place % 2 else (f"{a} - {b}", a - b)
        found.append({"task": "arithmetic", "rule": ("number", result),
                      "prompt": f"What is {text}? Answer with the number only."})
    return found


def instructions(count):
    """`count` of the 60 instructions of which a rule can tell whether they were followed."""
    found = []
    for word in WORDS:
        found += [{"task": "instructions", "prompt": prompt, "rule": rule} for prompt, rule in (
            (f"Write one sentence that contains the word '{word}'.", ("contains", word)),
            (f"Write one sentence about a {word}, in capital letters only.", ("capitals", None)),
            (f"Answer with the single word '{word}' and nothing else.", ("exactly", word)),
            (f"Write about a {word} without using a comma.", ("without", ",")),
            (f"Begin your answer with the word '{word.title()}'.", ("begins", word)),
            (f"Write the word '{word}' three times.", ("times", (word, 3))))]
    return found[:count]


def follows(answer, rule):
    """Whether an answer keeps a rule (name, argument). Raises ValueError for an unknown rule."""
    name, wanted = rule
    text, low = answer.strip(), answer.strip().lower()
    if name == "number":
        found = re.findall(r"-?\d+", text.replace(",", ""))
        return bool(found) and int(found[-1]) == wanted
    if name == "times":
        return len(re.findall(rf"\b{wanted[0]}\b", low)) == wanted[1]
    rules = {"contains": lambda: wanted in low, "begins": lambda: low.startswith(wanted),
             "capitals": lambda: text.isupper(),
             "without": lambda: bool(text) and wanted not in text,
             "exactly": lambda: low.strip("'\".!") == wanted}
    if name not in rules:
        raise ValueError(f"there is no rule {name!r}")
    return rules[name]()


def ask(server, questions, *, max_tokens=32, concurrency=16):
    """Ask all questions at temperature 0; one row each: task, example, answer, right."""
    chats = [[{"role": "user", "content": each["prompt"]}] for each in questions]
    rows = client.streams(server, chats, max_tokens=max_tokens, concurrency=concurrency,
                          chat_template_kwargs={"enable_thinking": False})
    if (failed := rows[rows.outcome != "ok"]).size:
        raise LabError(f"{len(failed)} questions were not answered: {failed.error.iloc[0]}")
    return pd.DataFrame([{"task": each["task"], "example": f"{place} {each['prompt']}",
                          "answer": text.strip(), "right": follows(text, each["rule"])}
                         for place, (each, text) in enumerate(
                             zip(questions, rows.text, strict=True))])


def science(rows):
    """Rows of `quality.evaluate` on a task of choices in the columns of `ask`."""
    return pd.DataFrame({"task": "science", "example": rows.example.astype(str) + " "
                         + rows.question, "answer": rows.picked.astype(str),
                         "right": rows.right.astype(bool)})
