"""The scheduler, a step at a time, with a token budget and a limit of sequences."""

from ipywidgets import IntSlider

from helpers import plots
from helpers import scheduler as small
from helpers.widgets.base import show

LESSON = (("Ann", 6, 4), ("Ben", 6, 14), ("Cem", 6, 3), ("Dea", 40, 5), ("Eli", 6, 9),
          ("Fay", 6, 3))  # name, tokens of the prompt and of the answer


def scheduler(requests=None, *, rule=None):
    """Step through who runs: sliders for the step, the token budget and max_num_seqs.

    requests: of helpers.scheduler.Request; a small class by default. rule: the reader's own
    schedule(...), asked in each step too; the axis says whether it agrees. Returns the box.
    """
    requests = requests or [small.Request(*one) for one in LESSON]

    def draw(steps_shown, **limits):
        steps, agrees = compare(rule or small.schedule, requests, **limits)
        ax = plots.scheduler(steps, steps_shown=steps_shown)
        if rule is None:
            return ax
        wrong = [step.number for step, same in zip(steps, agrees, strict=True) if not same]
        ax.set_xlabel(f"step (your rule differs first in step {wrong[0]})" if wrong else
                      f"step (your rule agrees in all {len(steps)})")
        return ax

    least = len(requests)  # vLLM takes no budget below max_num_seqs
    most = len(small.run(requests, token_budget=least, max_num_seqs=1))
    return show(draw, steps_shown=IntSlider(10, 1, most, description="steps"),
                token_budget=IntSlider(16, least, 64, description="budget"),
                max_num_seqs=IntSlider(3, 1, len(requests), description="max seqs"))


def compare(rule, requests, **limits):
    """(the steps of helpers.scheduler, for each whether `rule` gives the same tokens)."""
    agrees = []

    def both(running, waiting, **limits):
        tokens = small.schedule(running, waiting, **limits)
        agrees.append(small.ask(rule, running, waiting, **limits) == tokens)
        return tokens

    return small.run(requests, rule=both, **limits), agrees
