"""Checks of labs/10_topologies.ipynb: arithmetic, the engines' own caches, the reader's runs."""

from helpers import check, metrics


def misread(answer):
    """What the bits of 1.0 in BF16 mean as FP16."""
    check.number(answer, 1.875, within=1e-6,
                 hint="2 ** (exponent - 15) * (1 + fraction / 1024): the exponent is the 5 bits "
                      "after the sign, the fraction the last 10")


def too_small(answer, pools, *, requests, tokens):
    """Arms with an engine whose cache holds fewer tokens than its share of the requests needs.

    pools: of experiment.pools; each engine of an arm gets requests / engines.
    """
    if check.unanswered(answer):
        return
    share = requests / pools.groupby("arm").tokens.transform("count")
    expected = set(pools.arm[pools.tokens < share * tokens])
    if set(answer) != expected:
        wrong = ", ".join(sorted(set(answer) ^ expected))
        raise check.WrongAnswer(
            f"look again at: {wrong}. Each engine needs its share of the requests times the "
            "tokens of one; the table says what its cache holds")
    check.right("these arms have an engine that must preempt")


def in_time(answer, requests, *, ttft_s, tpot_s):
    """Output tokens a second of the good requests of one turn."""
    if check.unanswered(answer):
        return
    good = metrics.meets(requests, ttft_s=ttft_s, tpot_s=tpot_s)
    ends = (requests.sent_s + requests.e2el_s).max() - requests.sent_s.min()
    expected = requests.output_tokens[good].sum() / ends
    if not expected:
        check.choice(answer, 0, why="none was in time", hint="count the good ones: there is none")
        return
    check.number(answer, expected, within=0.01, unit="tokens a second",
                 hint=f"{good.sum()} of {len(requests)} requests are within both limits; divide "
                      "their output tokens by the seconds of the whole turn")


def at_random(answer, questions, share):
    """Mean loss of a request where `share` of them, drawn by chance, go to the FP8 engine."""
    expected = share * questions.loss.mean()
    if check.unanswered(answer):
        return
    if abs(answer - expected) > max(1e-9, 0.01 * abs(expected)):
        raise check.WrongAnswer("the mean loss of those that go there, times how many of all they "
                                "are; chance picks them, so theirs is the mean of all")
    check.right(f"{expected:+.5f} nats a token")
