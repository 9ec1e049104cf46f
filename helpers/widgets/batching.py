"""The scheduler, a step at a time, with a token budget and a limit of sequences."""

from ipywidgets import IntSlider

from helpers import plots
from helpers import scheduler as small
from helpers.widgets.base import show

LESSON = (("Ann", 6, 4), ("Ben", 6, 14), ("Cem", 6, 3), ("Dea", 40, 5), ("Eli", 6, 9),
          ("Fay", 6, 3))  # name, tokens of the prompt and of the answer


def scheduler(requests=None):
    """Step through who runs: sliders for the step, the token budget and max_num_seqs.

    requests: of helpers.scheduler.Request; a small class by default. Returns the box.
    """
    requests = requests or [small.Request(*one) for one in LESSON]

    def draw(steps_shown, token_budget, max_num_seqs):
        steps = small.run(requests, token_budget=token_budget, max_num_seqs=max_num_seqs)
        return plots.scheduler(steps, steps_shown=steps_shown)

    return show(draw, steps_shown=IntSlider(10, 1, 40, description="steps"),
                token_budget=IntSlider(16, 4, 64, description="budget"),
                max_num_seqs=IntSlider(3, 1, len(requests), description="max seqs"))
