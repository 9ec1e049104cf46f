"""What keeps tenants of one device apart, from its makers' documents; MIG's profiles. Read only.

Each statement has its source beside it, an address in the column `source`. Sizes are bytes.
"""

import html
from pathlib import Path

import pandas as pd

from helpers import machine, sizing
from helpers.errors import LabError

DATA = Path(__file__).parent.parent / "data"
RESOURCES = ["compute", "cache", "bandwidth", "memory", "faults"]
USABLE = 0.9  # of a slice's memory: the driver keeps a part (0.95 of an A100's 1g.5gb is left)


def statements():
    """One row a mechanism and resource: isolated, how, and source.

    isolated: yes, partly, no, disputed (documents disagree) or not stated.
    """
    return pd.read_csv(DATA / "isolation.csv")


def isolation():
    """The statements as a table: a row a mechanism, a column a resource."""
    table = statements().pivot(index="mechanism", columns="resource", values="isolated")
    return table.loc[statements().mechanism.unique(), RESOURCES]


def linked():
    """The table of `isolation` to show: each cell a link to its source, with how as its title."""
    rows = statements()
    rows["cell"] = [f'<a href="{row.source}" title="{html.escape(row.how)}">{row.isolated}</a>'
                    for row in rows.itertuples()]
    table = rows.pivot(index="mechanism", columns="resource", values="cell")
    return table.loc[rows.mechanism.unique(), RESOURCES].rename_axis(
        index=None, columns=None).style


def profiles(card):
    """MIG's profiles of a card of data/hardware.csv, the smallest first, by memory, then SMs.

    Columns: profile, memory_eighths, sm_sevenths, l2_eighths (NaN: not stated), instances (the
    most of one card), bytes (USABLE * the card's memory * eighths / 8), bandwidth (bytes a
    second, the card's * eighths / 8), source. Raises LabError for a card without MIG.
    """
    sheet, table = machine.hardware(), pd.read_csv(DATA / "mig.csv")
    table = table[table.card == card].drop(columns="card").reset_index(drop=True)
    if table.empty:
        raise LabError(f"{card} has no MIG profiles.", fix="data/mig.csv has the cards with MIG.")
    share = table.memory_eighths / 8
    return table.assign(bytes=USABLE * sheet.memory_gb[card] * 2**30 * share,
                        bandwidth=sheet.bandwidth_gb_s[card] * 1e9 * share)


def smallest(card, config, **need):
    """The name of the smallest profile of a card that holds a deployment; None if none does.

    need: as in `sizing.need`, without card_bytes.
    """
    for slice_ in profiles(card).itertuples():
        if sizing.need(config, card_bytes=slice_.bytes, **need).over <= 0:
            return slice_.profile
    return None


def with_mig():
    """Names of the cards on the hardware sheet that MIG can cut."""
    sheet = machine.hardware()
    return list(sheet.index[sheet.mig_max_instances > 0])
