"""Checks of notebooks/02_measuring_latency.ipynb: each against the reader's own run."""

from helpers import check


def tpot(tpot_s, arrivals, tokens):
    expected = (arrivals[-1] - arrivals[0]) / (tokens - 1)
    check.number(tpot_s, expected, unit="s", within=0.001,
                 hint="from the first arrival to the last, over the tokens after the first")


def duration(predicted_s, point):
    """point: the run's row of metrics.points; ends of the run may cost a fifth."""
    check.number(predicted_s, point.duration_s, unit="s", within=0.2,
                 hint="number of requests times mean E2EL, over the requests in flight")


def chunks_as_tokens(naive_tpot_s, row):
    expected = (row.e2el_s - row.ttft_s) / (len(row.chunk_times_s) - 1)
    check.number(naive_tpot_s, expected, unit="s", within=0.001,
                 hint="the same formula, with the number of chunks where the tokens were")
