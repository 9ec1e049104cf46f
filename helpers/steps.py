"""Decode steps alone: a batch that is set, at a context that is set, with no prompt in between."""

import math
import random

import numpy as np
import pandas as pd

from helpers import client

TOKEN_IDS = range(1000, 20_000)  # what the texts are made of: any vocabulary has these


def decode_steps(server, pairs, *, output_len, seed=0):
    """Decode with `batch` sequences of about `context` tokens each, for each (batch, context).

    The texts are sent once before, so that the prefix cache knows them (it must be on, and have
    room for the largest batch at the longest context): all sequences of a batch then decode side
    by side from their first token on, and their TPOT is the time of a step. Returns one row a
    request with columns batch and context, the tokens in the cache halfway through the answer.
    """
    longest, widest = max(c for _, c in pairs), max(b for b, _ in pairs)
    texts = [random.Random(f"{seed} {n}").choices(TOKEN_IDS, k=longest) for n in range(widest)]
    client.streams(server, texts, concurrency=4, max_tokens=1)
    frames = []
    for batch, context in pairs:
        rows = client.streams(server, [text[:context] for text in texts[:batch]],
                              concurrency=batch, max_tokens=output_len, ignore_eos=True)
        frames.append(rows.assign(batch=batch, context=rows.input_tokens + output_len / 2))
    return pd.concat(frames, ignore_index=True)


def step_times(rows):
    """Seconds of a step, a row a request: the median gap a token in the later half of its answer.

    By then the whole batch has arrived, if the answers are long enough: an engine takes in its
    requests one after another. A chunk may have several tokens. NaN for an answer of one chunk.
    """
    return pd.Series([_later_half(row.chunk_times_s, row.chunk_tokens)
                      for row in rows.itertuples()], index=rows.index, dtype=float)


def _later_half(times, tokens):
    half = len(times) // 2
    gaps = np.diff(times[half:]) / tokens[half + 1:]
    return float(np.median(gaps)) if len(gaps) else math.nan
