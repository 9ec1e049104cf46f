"""Tells a learner whether an answer is right: one module a notebook, one function an exercise.

Unanswered (`...`) prints a circle and goes on; wrong raises with one hint; right prints a tick.
"""

import math


class WrongAnswer(AssertionError):
    """An answer that is not right yet; its text is one hint."""

    def _render_traceback_(self):
        return [f"\x1b[33m✗ not yet:\x1b[0m {self}"]


def unanswered(*answers):
    """True, and a circle is printed, if any answer is still `...` or returned nothing."""
    if any(answer is ... or answer is None for answer in answers):
        print("○ not answered yet: put your answer in place of ...")
        return True
    return False


def right(text="right"):
    print(f"✓ {text}")


def number(answer, expected, *, hint, within=0.02, unit=""):
    """A tick if `answer` is within a fraction `within` of `expected`; else WrongAnswer(hint)."""
    if unanswered(answer):
        return
    try:
        close = math.isclose(answer, expected, rel_tol=within)
    except TypeError:
        raise WrongAnswer(f"the answer is a number, not {answer!r}. {hint}") from None
    if not close:
        raise WrongAnswer(hint)
    right(f"{answer:,.{'0f' if abs(answer) >= 1000 else '4g'}} {unit}".strip())


def choice(answer, expected, *, hint, why="right"):
    """A tick if `answer` is the `expected` one; else WrongAnswer(hint)."""
    if unanswered(answer):
        return
    if answer != expected:
        raise WrongAnswer(hint)
    right(why)
