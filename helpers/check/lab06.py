"""Checks of labs/06_partitions.ipynb."""

from helpers import check, decision, intervals, partitions
from helpers.ledger import lab06


def offered(answer, gpus, replicas):
    """answer: how many of the shared resource a node offers."""
    check.number(answer, gpus * replicas, within=0, unit="of nvidia.com/gpu.shared",
                 hint="each GPU is handed out `replicas` times")


def profile(answer, card, config, **need):
    """answer: the name of the smallest MIG profile of the card that holds the deployment."""
    expected = partitions.smallest(card, config, **need)
    check.choice(answer, expected, why=f"{expected} of {card}",
                 hint="weights, cache of all users, and the rest: which is the first profile with "
                      "so many bytes?")


def pressed(answer, mine, theirs, bandwidth):
    """answer: how many times as long a step takes, if bandwidth is shared by what each asks for."""
    check.number(answer, max(1, (mine + theirs) / bandwidth), within=0.02, unit="times as long",
                 hint="both together get the machine's bandwidth, each in proportion to what it "
                      "asks for; if it is enough for both, a step takes as long as before")


def turns(answer, wanting):
    """answer: how many times as long work takes, if so many take turns with the same share each."""
    check.number(answer, wanting, within=0.02, unit="times as long",
                 hint=f"{wanting} want it all the time, and each gets the same share of the time")


def slowdown(answer, requests, arm, kind):
    """answer: time of a token beside a neighbour over that with none, by the reader's own run."""
    if check.unanswered(answer):
        return
    table = lab06.points(requests)[arm]
    check.number(answer, intervals.ratio(table[kind], table["none"])[0], within=0.02,
                 hint=f"the column {kind!r} over the column 'none' of {arm!r}: sum each over the "
                      "repeats")


def row(answer, found):
    """answer: {'compute': ..., 'bandwidth': ...}, 'yes', 'no' or 'not decided' for the split arm.

    found: `lab06.slowdowns`. 'yes': all of the interval lies below FELT; 'no': none of it.
    """
    if check.unanswered(answer):
        return
    split = found[found.arm == "split"].set_index("neighbour")
    words = {"supported": "yes", "contradicted": "no", "not decided": "not decided"}
    for resource, kind in (("compute", "arithmetic"), ("bandwidth", "memory")):
        given = answer.get(resource) if isinstance(answer, dict) else None
        if check.unanswered(given):
            return
        interval = tuple(split.loc[kind, ["low", "high"]])
        expected = words[decision.verdict(interval, below=lab06.FELT)]
        if given != expected:
            raise check.WrongAnswer(
                f"{resource}: beside {kind!r} the interval goes from {interval[0]:.3g} to "
                f"{interval[1]:.3g}; 'yes' if all of it lies below {lab06.FELT}, 'no' if none does")
    check.right("your row: " + ", ".join(f"{name} {word}" for name, word in answer.items()))
