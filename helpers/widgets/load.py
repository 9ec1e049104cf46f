"""The SLO explorer of lesson 06: goodput over the rate, as the limits are dragged."""

from ipywidgets import Dropdown, FloatLogSlider

from helpers import metrics, plots
from helpers.widgets.base import show


def slo(requests, *, ttft_s=0.5, tpot_s=0.05):
    """Goodput of recorded open-loop runs under limits on TTFT and TPOT; no engine is needed.

    requests: rows with rate, repeat, and machine where there are runs of several. ttft_s, tpot_s:
    the limits to begin with, in seconds. The axis says up to which rate 95% of the requests are
    good. Returns the box.
    """
    requests = requests if "machine" in requests else requests.assign(machine="this machine")
    machines = list(dict.fromkeys(requests.machine))

    def draw(machine, ttft_ms, tpot_ms):
        runs = metrics.under(requests[requests.machine == machine], ttft_s=ttft_ms / 1000,
                             tpot_s=tpot_ms / 1000)
        runs.attrs["caption"] = machine
        ax = plots.goodput(runs)
        best = metrics.knee(runs)
        ax.set_xlabel("offered (requests a second); 95% are good " +
                      (f"up to {best:.3g}" if best else "at none of these"))
        return ax

    return show(draw, machine=Dropdown(options=machines, description="machine"),
                ttft_ms=_slider("TTFT (ms)", 1000 * ttft_s, 0.5, 5),
                tpot_ms=_slider("TPOT (ms)", 1000 * tpot_s, 0, 3))


def _slider(name, value, low, high):
    return FloatLogSlider(value=value, base=10, min=low, max=high, step=0.02, description=name,
                          readout_format=".0f", continuous_update=False)
