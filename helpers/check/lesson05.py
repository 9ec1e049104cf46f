"""Checks of notebooks/05_batching.ipynb."""

import random

from helpers import check, paging, scheduler


def schedule(answer):
    """answer: the reader's schedule(running, waiting, *, token_budget, max_num_seqs)."""
    for number, (running, waiting, limits) in enumerate(cases()):
        expected = scheduler.schedule(running, waiting, **limits)
        got = scheduler.ask(answer, running, waiting, **limits)
        if number == 0 and check.unanswered(got):
            return
        if got != expected:
            raise check.WrongAnswer(
                f"with {limits}, running {_short(running)} and waiting {_short(waiting)} it gives "
                f"{got}, not {expected}")
    check.right(f"as the engine's rule has it, in {number + 1} cases")


def cases(number=200, seed=5):
    """(running, waiting, limits) of random moments in the life of a scheduler."""
    dice = random.Random(seed)
    for case in range(number):
        seqs = dice.randint(1, 8)
        running = [_request(dice, f"r{k}") for k in range(dice.randint(0, seqs))]
        waiting = [_request(dice, f"w{k}", fresh=True) for k in range(dice.randint(0, 4))]
        if case == 0:  # one that leaves no way to give nothing
            running, waiting = [scheduler.Request("r0", 8, 4, computed=8)], []
        yield running, waiting, {"token_budget": dice.randint(1, 64), "max_num_seqs": seqs}


def _request(dice, name, *, fresh=False):
    prompt = dice.randint(1, 60)
    computed = 0 if fresh else dice.choice([dice.randint(1, prompt), prompt + dice.randint(0, 9)])
    return scheduler.Request(name, prompt=prompt, output=12, computed=computed)


def _short(requests):
    return ", ".join(f"{r.name} (needs {r.needs})" for r in requests) or "nobody"


def places(place_s, requests, places):
    """place_s: when each request got its place; requests: rows in the order they were sent."""
    if check.unanswered(place_s):
        return
    ends = sorted(requests.sent_s + requests.e2el_s)
    expected = [sent if k < places else max(sent, ends[k - places])
                for k, sent in enumerate(requests.sent_s)]
    if len(place_s) != len(expected):
        raise check.WrongAnswer(f"one time for each of the {len(expected)} requests")
    for number, (got, wanted) in enumerate(zip(place_s, expected, strict=True)):
        if abs(got - wanted) > 1e-6:
            raise check.WrongAnswer(
                f"request {number + 1} got its place after {wanted:.2f} s, not {got:.2f} s: of the "
                f"others, {max(number - places + 1, 0)} must have ended")
    check.right(f"{sum(p > s for p, s in zip(place_s, requests.sent_s, strict=True))} "
                f"of {len(expected)} waited")


def slowed(steps, prompt_tokens, token_budget):
    """steps: in how many steps a prompt goes through beside one running answer."""
    chunk = token_budget - 1
    check.number(steps, paging.blocks(prompt_tokens, chunk), unit="steps", within=0,
                 hint="the running answer takes its token first: a chunk is the budget less one, "
                      "and the last chunk may be smaller")


def floor(step_s, weight_bytes, cache_bytes, bandwidth):
    """step_s: the shortest time of a step that reads the weights once, and all the caches."""
    check.number(step_s, (weight_bytes + cache_bytes) / bandwidth, unit="s",
                 hint="all bytes of the step over the bytes that memory gives in a second")


def fitting(requests, blocks, tokens, block_size):
    """requests: how many of `tokens` tokens each fit into so many blocks until they end."""
    check.number(requests, blocks // paging.blocks(tokens, block_size), unit="requests", within=0,
                 hint="blocks that one request holds at its end, rounded up; then how many times "
                      "that goes into the blocks there are")
