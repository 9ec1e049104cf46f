"""The figures of the course: f(data, *, ax=None) -> Axes. Pure: nothing is read or measured here.

One file for a few lessons; notebooks call them all as `plots.name(...)`.
"""

from helpers.plots.base import COLOURS, SIZE, axes, label
from helpers.plots.measuring import (
    arms,
    clients,
    fits,
    in_order,
    latency,
    queue,
    throughput,
    timeline,
)

__all__ = ["COLOURS", "SIZE", "arms", "axes", "clients", "fits", "in_order", "label", "latency",
           "queue", "throughput", "timeline"]
