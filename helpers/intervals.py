"""How far a number could be off: intervals from the measurements themselves. Pure.

A bootstrap asks: had chance handed us other requests of the same kind, what would the number
have been? Requests of one run share its luck (one queue, one busy minute), so an interval over
requests says how well this run is known, and one over repeats how well the machine is.
"""

import math

import numpy as np
from scipy import stats


def bootstrap(data, statistic, *, seed, resamples=2000, level=0.95, by=None):
    """(low, high): the middle `level` of statistic(resample), by the percentile method.

    data: values, or a DataFrame whose rows are drawn (requests). A resample has as many as there
    are, drawn with replacement. statistic: resample -> number, in its unit.
    by: a column of the DataFrame, such as 'repeat': then its groups are drawn, each as a whole.
    Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13; the same as
    scipy.stats.bootstrap(method='percentile'), which takes no table and no groups.
    Raises ValueError for fewer than two values, rows or groups, or a level not within 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not at {level}")
    dice, take, number = np.random.default_rng(seed), *_drawn(data, by)
    if number < 2:
        raise ValueError(f"there is no interval from {number} of them: two are the least")
    found = [statistic(take(dice.integers(number, size=number))) for _ in range(resamples)]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _drawn(data, by):
    """(function of places that gives a resample, how many places there are)."""
    if not hasattr(data, "iloc") or data.ndim == 1:
        values = np.asarray(data)
        return values.__getitem__, len(values)
    if by is None:
        return data.iloc.__getitem__, len(data)
    groups = list(data.reset_index(drop=True).groupby(by).indices.values())
    return lambda places: data.iloc[np.concatenate([groups[k] for k in places])], len(groups)


def of_mean(values, *, level=0.95):
    """(low, high): Student's interval of the mean of a few repeats, mean ± t * s / sqrt(n).

    For three repeats a bootstrap cannot leave the range of the three, so it is too narrow; this
    one supposes that repeats scatter like a bell curve. Student, Biometrika 6 (1908); t from
    scipy.stats. Raises ValueError for fewer than two values.
    """
    values = np.asarray(values, dtype=float)
    if values.size < 2:
        raise ValueError(f"there is no interval from {values.size} of them: two are the least")
    half = stats.t.ppf((1 + level) / 2, values.size - 1) * stats.sem(values)
    return float(values.mean() - half), float(values.mean() + half)


def ratio(over, under, *, level=0.95):
    """(value, low, high) of sum(over) / sum(under), from one pair of numbers a repeat.

    value ± t * s, s² = n / (n - 1) * sum((over - value * under)²) / sum(under)², with Student's t
    at n - 1 degrees of freedom: the ratio estimator (Cochran, Sampling Techniques, 3rd edition,
    section 6.4). What slows both numbers of a pair alike cancels. With all `under` equal it is
    `of_mean`. low is 0 at least; both ends are NaN for fewer than three pairs. Where sum(under) is
    0 the value and the high end are infinite. Raises ValueError for lists of unequal length.
    """
    over, under = np.asarray(over, dtype=float), np.asarray(under, dtype=float)
    if over.shape != under.shape:
        raise ValueError(f"{len(over)} and {len(under)} numbers are no pairs")
    n, total = len(over), under.sum()
    value = float(over.sum() / total) if total else math.inf
    if n < 3:
        return value, math.nan, math.nan
    if not total:
        return value, 0.0, math.inf
    error = math.sqrt(n / (n - 1) * np.sum((over - value * under) ** 2)) / total
    half = stats.t.ppf((1 + level) / 2, n - 1) * error
    return value, max(0.0, float(value - half)), float(value + half)


def strayed(again, base):
    """The share by which something, measured twice, differed from itself: the most of any repeat.

    again, base: pandas Series by repeat (base may be a number). 0.1 is a tenth; NaN where no
    repeat has both.
    """
    return float((again / base - 1).abs().max())


def widened(found, strayed):
    """(value, low, high) of a ratio, its interval wide enough for what the control showed.

    strayed: the share by which something differed from itself, 0.1 for a tenth. The interval
    reaches at least value * strayed to both sides; NaN where it, or a control, is missing.
    """
    value, low, high = (float(number) for number in found)
    reach = value * strayed
    return value, float(np.minimum(low, value - reach)), float(np.maximum(high, value + reach))
