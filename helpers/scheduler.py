"""A small scheduler with the rule of vLLM's: who gets how many tokens in the next step. Pure.

The rule is that of vllm/v1/core/sched/scheduler.py, `Scheduler.schedule`, without what these
lessons do not use: priorities, prefix hits, speculation, and a cache that runs out.
"""

from dataclasses import dataclass, replace

from helpers.errors import LabError


@dataclass(slots=True)
class Request:
    """One request, in tokens. A step computes tokens: `computed` counts those of the prompt and
    those of the answer that have been through the model."""

    name: str
    prompt: int
    output: int  # tokens of the answer
    arrives: int = 0  # the first step in which it may run
    computed: int = 0

    @property
    def needs(self):
        """Tokens that are known and not computed: the rest of the prompt, or the last token."""
        return max(self.prompt - self.computed, 1)

    @property
    def made(self):
        """Tokens of the answer there are: the step that ends the prompt makes the first one."""
        return max(self.computed - self.prompt + 1, 0)

    @property
    def ended(self):
        return self.made >= self.output


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did. tokens: {name: tokens computed}; the others by name, in order."""

    number: int
    tokens: dict
    prefill: tuple  # those that run and whose prompt was not computed when the step began
    waiting: tuple  # those that had arrived and have no place


def schedule(running, waiting, *, token_budget, max_num_seqs):
    """{name: tokens} of the next step.

    First the running requests in their order, each what it needs, as far as the token budget goes:
    one token for an answer, the rest of the prompt or a chunk of it for a prefill. Then the
    waiting ones, first come first served, while there is budget and fewer than max_num_seqs run.
    """
    places = max_num_seqs - len(running)
    tokens = {}
    for request in [*running, *waiting[:places]]:
        share = min(request.needs, token_budget)
        if share > 0:
            tokens[request.name] = share
            token_budget -= share
    return tokens


def ask(rule, running, waiting, **limits):
    """What a reader's rule gives for copies of the requests, so that it can change none.

    Raises LabError, with the rule's own message, where the rule fails.
    """
    copies = [replace(one) for one in running], [replace(one) for one in waiting]
    try:
        return rule(*copies, **limits)
    except Exception as error:
        raise LabError(f"Your rule failed: {type(error).__name__}: {error}.",
                       fix=f"It was asked with {len(running)} running, {len(waiting)} waiting "
                           f"and {limits}.") from error


def run(requests, *, token_budget, max_num_seqs, rule=schedule):
    """The steps, a list of Step, until every request has ended; the requests stay as they are.

    rule: what decides a step; a function like `schedule`.

    A request leaves in the step that makes its last token; its place is free in the next one.
    Steps in which nobody is there are no steps. Raises LabError where nothing could ever run.
    """
    if token_budget < 1 or max_num_seqs < 1:
        raise LabError("Nothing can run.", fix="Give a token budget and a place of at least 1.")
    if len({request.name for request in requests}) < len(requests):
        raise LabError("Two requests have the same name.", fix="Name each differently.")
    todo = [replace(request) for request in sorted(requests, key=lambda r: r.arrives)]
    running, steps, number = [], [], 0
    while running or todo:
        number = number if running else max(number, todo[0].arrives)
        waiting = [request for request in todo if request.arrives <= number]
        tokens = rule(running, waiting, token_budget=token_budget, max_num_seqs=max_num_seqs)
        running += [request for request in waiting if request.name in tokens]
        todo = [request for request in todo if request not in running]
        prefill = tuple(r.name for r in running if r.computed < r.prompt)
        steps.append(Step(number, tokens, prefill, tuple(r.name for r in waiting if r in todo)))
        for request in running:
            request.computed += tokens.get(request.name, 0)
        running, number = [r for r in running if not r.ended], number + 1
    return steps
