"""Checks of labs/03_batch_and_bytes.ipynb: the study's four figures, and the reader's own steps."""

from helpers import check, decision, memory


def saved(answer, config, *, small, large):
    """MB a token that the larger batch saves; no context in it."""
    at = [memory.decode_bytes_per_token(config, batch=batch, context=0)
          for batch in (small, large)]
    check.number(answer, (at[0] - at[1]) / 1e6, within=0.005, unit="MB a token",
                 hint="each sequence reads its own cache, whatever the batch: only the weights' "
                 "part changes, weights / batch. Take it at both batches; MB are 10^6 bytes")


def context(answer, config, *, mb, batch):
    """Tokens of context at which a token moves so many MB."""
    weights = memory.decode_bytes_per_token(config, batch=batch, context=0)
    check.number(answer, (mb * 1e6 - weights) / memory.kv_bytes_per_token(config), within=0.005,
                 unit="tokens", hint="take the weights' part, weights / batch, off the figure: "
                 "what is left is the cache of one sequence. Divide by the bytes of a cached token")


def batch(answer, config, *, bf16_mb, fp8_mb):
    """The batch that a pair of figures belongs to, which differ only in the cache's precision."""
    cache = 2 * (bf16_mb - fp8_mb) * 1e6
    weights = memory.decode_bytes_per_token(config, batch=1, context=0)
    check.number(answer, weights / (bf16_mb * 1e6 - cache), within=0.03, unit="sequences",
                 hint="FP8 saves half of the cache's part: so twice the difference is the cache. "
                 "The rest of the first figure is weights / batch")


def balance(answer, config, *, context):
    """The batch at which a step reads as many bytes of caches as of weights."""
    weights = memory.decode_bytes_per_token(config, batch=1, context=0)
    check.number(answer, weights / memory.kv_bytes(config, tokens=context), within=0.02,
                 unit="sequences", hint="batch * context * bytes of a cached token = weights")


def time_ratio(answer, points, *, small, large):
    """Time of a token at the larger batch over that at the smaller, from the reader's own run."""
    table = points.pivot(index="repeat", columns="batch", values="token_s")
    check.number(answer, table[large].sum() / table[small].sum(), within=0.01,
                 hint=f"token_s at {large} over token_s at {small}: sum each over the repeats")


def verdict(answer, row):
    """The verdict on a row of the table of verdicts, whose number should be below 1."""
    low, high = row["low"], row["high"]
    check.choice(answer, decision.verdict((low, high), below=1), why=f"{low:.3g} to {high:.3g}",
                 hint="supported if all of the interval lies below 1, contradicted if none of it "
                 "does, else (or where there is no interval) not decided")
