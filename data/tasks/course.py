"""The course's passages and texts as lm-eval wants them: data sets with one split, 'test'."""

from pathlib import Path

import yaml

DATA = Path(__file__).resolve().parent.parent


def passages(**_):
    """One example a question; the first of each passage first, so that a limit takes from all."""
    read = [(path.stem, yaml.safe_load(path.read_text(encoding="utf-8")))
            for path in sorted((DATA / "passages").glob("*.yaml"))]
    return _split({"name": name, "passage": each["passage"], **each["questions"][number]}
                  for number in range(5) for name, each in read)


def first_passages(**_):
    """`passages`, but for the last 16: on those helpers/kv_scales.py calibrates."""
    kept = {path.stem for path in sorted((DATA / "passages").glob("*.yaml"))[:-16]}
    return {"test": passages()["test"].filter(lambda each: each["name"] in kept)}


def prose(**_):
    """One example a text."""
    return _split({"name": path.stem, "text": path.read_text(encoding="utf-8").strip()}
                  for path in sorted((DATA / "prose").glob("*.txt")))


def _split(examples):
    from datasets import Dataset

    return {"test": Dataset.from_list(list(examples))}
