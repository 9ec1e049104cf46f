"""The decision record: a form of facts, claims and a decision, which takes nothing on trust.

    record = decision.Record("Serve the class with INT8?", facts)
    record.claim("INT8 is cheaper at 1.2 of capacity", interval=(0.6, 0.8), below=1)
    record.decide("INT8", because=["INT8 is cheaper at 1.2 of capacity"])

A claim is about a number of which an interval is known. It is supported if all of the interval
lies where the claim says, contradicted if none of it does, and otherwise not decided.
"""

import html
import math
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pandas as pd

from helpers import provenance, quality, results
from helpers.errors import LabError

MARKS = {"supported": "✓", "contradicted": "✗", "not decided": "?"}


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the form: its text, the interval, where it should lie, and the verdict."""

    text: str
    low: float
    high: float
    wanted: str
    verdict: str

    def __str__(self):
        known = "no interval" if math.isnan(self.low) else \
            f"{self.low:.3g} to {self.high:.3g}"
        return f"{MARKS[self.verdict]} {self.text}: {self.verdict} ({known}; {self.wanted})"


def verdict(interval, *, above=-math.inf, below=math.inf):
    """'supported', 'contradicted' or 'not decided': the whole interval, none, or a part of it,
    lies between above and below. An end that is NaN (no interval is known) decides nothing.

    Raises LabError for an interval with its ends the wrong way round, or a claim with no bound.
    """
    low, high = interval
    if above == -math.inf and below == math.inf:
        raise LabError("A claim needs a bound that its number could miss.",
                       fix="Give above=, below=, or both.")
    if low > high:
        raise LabError(f"The interval from {low} to {high} has its ends the wrong way round.",
                       fix="Give (low, high).")
    if above < low and high < below:
        return "supported"
    return "contradicted" if high <= above or low >= below else "not decided"


@dataclass(slots=True)
class Record:
    """The form. facts: {what: text}; the rest is filled by claim() and decide()."""

    question: str
    facts: dict
    claims: list = field(default_factory=list)
    decision: str = "none yet"
    because: list = field(default_factory=list)

    def claim(self, text, *, interval, above=-math.inf, below=math.inf):
        """Put a claim into the form with its verdict, in place of one with the same text; returns
        the verdict."""
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"below {below:g}"] * (
            below < math.inf)
        judged = verdict(interval, above=above, below=below)
        new = Claim(text, *map(float, interval), "must be " + " and ".join(bounds), judged)
        self.claims = [claim for claim in self.claims if claim.text != text] + [new]
        print(new)
        return judged

    def verdict_of(self, text):
        """The verdict of the claim with this text. Raises LabError if there is none."""
        return self._claim(text).verdict

    def _claim(self, text):
        for claim in self.claims:
            if claim.text == text:
                return claim
        raise LabError(f"The form has no claim {text!r}.",
                       fix=f"It has: {'; '.join(claim.text for claim in self.claims) or 'none'}.")

    def decide(self, text, *, because):
        """Fill in the decision. because: texts of the claims that it rests on.

        Raises LabError if one of them is not supported by its interval, or if there is none: the
        form stays as it was.
        """
        if not because:
            raise LabError(f"The decision {text!r} rests on nothing.", fix="Name its claims.")
        weak = [claim for claim in map(self._claim, because) if claim.verdict != "supported"]
        if weak:
            raise LabError(
                f"Refused: {text!r} rests on what was not shown: " + "; ".join(map(str, weak)),
                cause=_why(weak),
                fix="Leave the claim out, weaken it, or measure more: four times the repeats "
                    "halve an interval.")
        self.decision, self.because = text, list(because)

    def rows(self):
        """{heading: text} of the whole form, in its order."""
        claims = {f"claim {n}": str(claim) for n, claim in enumerate(self.claims, 1)}
        return {"question": self.question, **self.facts, **claims, "decision": self.decision,
                "because": "; ".join(self.because) or "nothing yet"}

    def __str__(self):
        rows = self.rows()
        width = max(map(len, rows))
        return "\n".join(f"{name:>{width}}  {text}" for name, text in rows.items())

    def _repr_html_(self):
        cells = "".join(f"<tr><th style='text-align:left;vertical-align:top'>{html.escape(name)}"
                        f"</th><td style='text-align:left'>{html.escape(str(text))}</td></tr>"
                        for name, text in self.rows().items())
        return f"<table>{cells}</table>"


def _why(claims):
    """Why claims that are not supported cannot bear a decision."""
    if any(claim.verdict == "contradicted" for claim in claims):
        return "The measurement says the opposite."
    if any(math.isnan(claim.low) for claim in claims):
        return "Fewer than three repeats, or nothing measured: a number with no interval."
    return "An interval that reaches over the bound allows both answers."


def facts(servers, **more):
    """What a decision record says of its measurements: machine, software, and each server's
    checkpoint (a revision, or the start of the SHA-256 of its files) and flags; then `more`."""
    machine, software = provenance.machine(), provenance.software()
    packages = {name: version for name, version in software["packages"].items() if version}
    found = {"machine": machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores",
             "software": ", ".join(f"{name} {version}" for name, version in packages.items())}
    for server in servers:
        about = provenance.engine(server)
        hashes = ", ".join((about["sha256"] or {}).values())[:12]
        flags = ", ".join(f"{name}={value}" for name, value in about["flags"].items()
                          if name != "served_model_name")
        found[server.name] = f"checkpoint {about['revision'] or hashes}; {flags}"
    return found | {name.replace("_", " "): str(text) for name, text in more.items()}


def losses(arm, *, experiment="08_nll", baseline="BF16"):
    """What each arm of lesson 08 loses to the baseline, in nats a token, paired by stretch of text.

    One row an arm: difference, low, high, detectable (`quality.paired`) and pairs. Of your latest
    run that has `arm`, or of the latest that ships; attrs["from"] says which, and of which model.
    Where there is neither it says so, and the table is empty.
    """
    return _differences(experiment, "nll", ["text", "place"], arm, baseline, quality.paired)


def scores(arm, *, experiment="08_choices", baseline="BF16"):
    """The share of passage questions that each arm gets right, less the baseline's, paired question
    by question (`quality.paired_share`); a table as `losses` gives it."""
    return _differences(experiment, "right", ["passage", "question"], arm, baseline,
                        quality.paired_share)


def _differences(experiment, value, example, arm, baseline, compare):
    columns = ["difference", "low", "high", "detectable", "pairs"]
    try:
        rows = results.load(experiment)
    except LabError as nothing:
        print(nothing)
        return pd.DataFrame(columns=columns, dtype=float)
    with_arm = rows[rows.arm == arm].sort_values(["source", "time"])  # 'yours' comes last
    if with_arm.empty:
        print(f"No run of {experiment!r} has {arm!r}: run notebooks/08_quality.ipynb here.")
        return pd.DataFrame(columns=columns, dtype=float)
    last = with_arm.iloc[-1]
    model = _model(rows.attrs["headers"][last.run], baseline)
    rows = rows[rows.run == last.run].astype({value: float})
    pairs = rows.pivot_table(value, example, "arm", sort=False).dropna()
    found = {arm: compare(pairs[arm], pairs[baseline])
             for arm in pairs.columns.drop(baseline)}
    table = pd.DataFrame.from_dict({arm: [d.mean, d.low, d.high, d.detectable, d.pairs]
                                    for arm, d in found.items()}, orient="index", columns=columns)
    table.attrs["from"] = ", ".join(filter(None, (last.source, last.machine, model)))
    return table


def _model(header, baseline):
    """The folder or hub id that the baseline's engine served, '' where the header has no engine."""
    for engine in header.get("engines") or []:
        served = re.search(r"vllm serve (\S+)", engine.get("command") or "")
        if engine.get("name") == baseline and served:
            folder = PurePosixPath(served[1].strip("'\""))
            if folder.parent.name == "snapshots":  # the hub's cache: models--OWNER--NAME
                return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
            return folder.name
    return ""


def interval(table, row):
    """(low, high) of a row of a table; NaN for both where it has no such row."""
    return tuple(table.loc[row, ["low", "high"]]) if row in table.index else (math.nan, math.nan)
