"""The figures of the course: f(data, *, ax=None) -> Axes. Pure: nothing is read or measured here.

One file for a few lessons; notebooks call them all as `plots.name(...)`.
"""

from helpers.plots.base import COLOURS, SIZE, axes, label
from helpers.plots.batching import (
    batch,
    counts,
    held_out,
    roofline,
    scheduler,
    stalls,
)
from helpers.plots.compression import checkpoints, speed_ratios
from helpers.plots.deciding import cost, ratios
from helpers.plots.lab01 import beats, between, over_one
from helpers.plots.lab02 import progress
from helpers.plots.lab03 import bytes_over_batch, time_over_batch, token_parts
from helpers.plots.lab04 import kept
from helpers.plots.lab05 import anatomy, grown, lanes
from helpers.plots.lab06 import isolation, neighbours
from helpers.plots.lab07 import admitted, node_loss
from helpers.plots.lab10 import ledger, routes, topologies
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
from helpers.plots.memory import by_context, cache_growth, sizing
from helpers.plots.paging import block_table, forgotten, itl_by_arm, saved
from helpers.plots.precision import token_bytes
from helpers.plots.quality import by_examples, differences
from helpers.plots.slo import goodput, knee, schedule, tools

__all__ = ["COLOURS", "SIZE", "admitted", "anatomy", "arms", "axes", "batch", "beats", "between",
           "block_table", "by_context", "by_examples", "bytes_over_batch", "cache_growth",
           "checkpoints", "clients", "cost", "counts", "differences", "fits", "forgotten",
           "goodput", "grown", "held_out", "in_order", "isolation", "itl_by_arm", "kept", "knee",
           "label", "lanes", "latency", "ledger", "neighbours", "node_loss", "over_one", "progress",
           "queue", "ratios", "roofline", "routes", "saved", "schedule", "scheduler", "sizing",
           "speed_ratios", "stalls", "throughput", "time_over_batch", "timeline", "token_bytes",
           "token_parts", "tools", "topologies"]
