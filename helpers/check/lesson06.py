"""Checks of notebooks/06_load_and_slo.ipynb; all but the first two judge the reader's own runs."""

import math
import numbers

from helpers import check, metrics, symptoms


def little(e2el_s, in_flight, rate):
    """e2el_s: the time that each request takes where `rate` come a second and so many are in."""
    check.number(e2el_s, in_flight / rate, unit="s",
                 hint="Little's law, in flight = rate x E2EL, solved for E2EL")


def growth(seconds_per_second, rate, capacity):
    """How many seconds the wait grows in one second of a load above the capacity."""
    if check.unanswered(seconds_per_second):
        return
    if math.isclose(seconds_per_second, 1 - capacity / rate, rel_tol=0.02):
        raise check.WrongAnswer("that is by how much each second's requests are too many, as a "
                                "share of them; how long does the engine need for that rest?")
    check.number(seconds_per_second, rate / capacity - 1, unit="s a second",
                 hint="in one second `rate` requests come; how many seconds of the engine's work "
                      "is that, and how many of them have passed?")


def goodput(per_s, run, slo):
    """per_s: good requests a second of this run; slo: its limits, ttft_s and tpot_s."""
    if check.unanswered(per_s):
        return
    if not isinstance(per_s, numbers.Real):
        raise check.WrongAnswer("the answer is one number, requests a second")
    good = metrics.meets(run, **slo).sum()
    if per_s == good and per_s != metrics.goodput(run, **slo):
        raise check.WrongAnswer(f"{good} requests are good; how many is that a second?")
    expected = metrics.goodput(run, **slo)
    if expected == 0:
        check.choice(per_s, 0, hint="no request of this run is good", why="none is good")
    else:
        check.number(per_s, expected, unit="good requests a second", within=0.005,
                     hint="ok, within both limits; their number over the time from the first one "
                          "sent to the last token of the last")


def knee(rate, runs):
    """rate: up to which at least 95 percent are good; runs: rows of metrics.under, with rate."""
    if check.unanswered(rate):
        return
    best = metrics.knee(runs)
    if not isinstance(rate, numbers.Real):
        raise check.WrongAnswer("the answer is one number, a rate")
    if not math.isclose(rate, best, rel_tol=0.02, abs_tol=1e-9):
        raise check.WrongAnswer("the highest rate whose median good_share is 0.95 or more, as are "
                                "those of all lower rates (0 if there is none)")
    check.right(f"{best:.3g} requests a second" if best else "none of these rates was good enough")


def look_first(name, diagnosis):
    """name: of the row of symptoms.TABLE that fits the signs of this Diagnosis."""
    if check.unanswered(name):
        return
    known = [row[0] for row in symptoms.TABLE]
    if name not in known:
        raise check.WrongAnswer(f"one of {', '.join(known)}")
    signs = ", ".join(f"{sign} {moved}" for sign, moved in diagnosis.signs.items())
    check.choice(name, diagnosis.name, why=f"look at {diagnosis.look_at}",
                 hint=f"go through the table from the top; the first row counts in which every "
                      f"sign that is not empty fits: {signs}")
