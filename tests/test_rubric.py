"""The rubric: its rule on constructed answers, and the bee passage's on the answers in data/."""

from pathlib import Path

import pytest
import yaml

from helpers import rubric

DATA = Path(rubric.__file__).parent.parent / "data"
BEES = dict(zip("AB", yaml.safe_load((DATA / "passages" / "bees.yaml").read_text())["open"],
                strict=True))
RUST = {"facts": [{"states": "iron takes up oxygen", "words": [["iron"], ["oxygen"],
                                                               ["tak", "join with"]]}],
        "errors": [{"claims": "rust is paint", "words": [["rust"], ["paint"]], "unless": ["under"]},
                   {"claims": "water does nothing", "words": [["water"], ["role", "matter"]],
                    "negated": True}]}
TIDES = {"topics": {"spring": ["spring", "the first"], "neap": ["neap", "the second"]},
         "facts": [{"states": "spring tides are large", "about": "spring", "words": [["larg"]]},
                   {"states": "neap tides are small", "about": "neap", "words": [["small"]]}]}


@pytest.mark.parametrize("answer", [
    "Iron takes oxygen from the air.",
    "The iron is taken by OXYGEN!",
    "Iron joins slowly with oxygen. Iron took oxygen; iron joins with oxygen.",
    "Iron lies in the rain. It takes up oxygen.",  # 'it' points back
    "Iron does not only take up oxygen.",
    "It is not magic, iron takes up oxygen.",  # only the piece that denies falls away
    "If iron did not take up oxygen, there would be no rust.",
])
def test_a_fact_is_stated(answer):
    assert rubric.mark(answer, RUST) == {"right": True, "facts": 1, "missing": [], "errors": []}


@pytest.mark.parametrize("answer", [
    "", "Iron and oxygen.", "Iron joins slowly with oxygen.", "Iron doesn't take up oxygen.",
    "Iron cannot take oxygen.", "Iron lies there. Something takes oxygen.",
    "Environmental oxygen takes.",  # a stem starts a word
])
def test_a_fact_is_not_stated(answer):
    assert rubric.mark(answer, RUST)["missing"] == ["iron takes up oxygen"]


@pytest.mark.parametrize(("answer", "errors"), [
    ("Rust is a paint.", ["rust is paint"]),
    ("Rust is not a paint.", []),
    ("Rust sits under paint.", []),
    ("Rust is red. Paint is red.", []),
    ("Water does not matter.", ["water does nothing"]),
    ("Water matters.", []),
])
def test_errors(answer, errors):
    marked = rubric.mark("Iron takes oxygen. " + answer, RUST)
    assert marked["errors"] == errors and marked["right"] == (not errors)


@pytest.mark.parametrize("answer", [
    "Spring tides are large and neap tides are small.",
    "Spring tides are large, while neap tides are small.",
    "Spring tides come at full moon. They are large. Neap tides are small.",
    "When they are large they are called spring tides and when they are small neap tides.",
    "The sea rises a large way. This is called a spring tide. It falls a small one. That is neap.",
    "Unlike neap tides, spring tides are large. Neap tides are not: they are small.",
    "The first are large, the second are small.",
])
def test_what_is_said_of_each_topic(answer):
    assert rubric.mark(answer, TIDES)["right"], rubric.parts(answer, TIDES["topics"])


@pytest.mark.parametrize("answer", [
    "Spring tides are small and neap tides are large.",
    "Large and small.", "Spring tides are large.",
    "Spring tides are large, neap tides aren't small.",
    "When they are small they are called spring tides, when they are large neap tides.",
])
def test_topics_that_are_mixed_up_or_left_out(answer):
    assert not rubric.mark(answer, TIDES)["right"]


def answers(name):
    return yaml.safe_load((DATA / "rubric" / f"{name}.yaml").read_text())


def wrongly_marked(name):
    return [entry["answer"] for entry in answers(name)
            if rubric.mark(entry["answer"], BEES[entry["question"]])["right"] != entry["right"]]


def test_the_answers_that_the_bee_rubric_was_developed_on():
    entries = answers("develop")
    assert len(entries) == 20 and sum(entry["right"] for entry in entries) == 10
    assert wrongly_marked("develop") == []


def test_the_answers_by_somebody_who_had_not_seen_the_rubric():
    """The rubric was finished before this set was opened. The bar: at most 2 errors of 20."""
    assert len(answers("blind")) == 20 and len(wrongly_marked("blind")) <= 2
