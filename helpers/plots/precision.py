"""The figure of lab 08: what a decoded token reads, for each arm."""

from helpers.plots.lab03 import token_parts


def token_bytes(parts, *, ax=None):
    """One bar an arm: megabytes that a decoded token reads, weights and cache.

    parts: a table of bytes, indexed by arm, with columns weights and cache.
    """
    return token_parts(parts[["weights", "cache"]] / 1e6, ax=ax)
