"""The tables of isolation and of MIG's profiles: complete, sourced, and what follows from them."""

import re

import pandas as pd
import pytest

from helpers import machine, models, partitions
from helpers.errors import LabError

WORDS = {"yes", "partly", "no", "disputed", "not stated"}


def test_every_cell_has_a_word_a_reason_and_a_source():
    rows = partitions.statements()
    assert set(rows.isolated) <= WORDS and rows.how.str.len().min() > 10
    assert rows.source.map(lambda address: bool(re.fullmatch(r"https://\S+", address))).all()
    assert len(rows) == len(rows.drop_duplicates(["mechanism", "resource"]))


def test_the_table_is_whole():
    table = partitions.isolation()
    assert list(table.columns) == partitions.RESOURCES and not table.isna().any(axis=None)
    assert {"time slicing", "MPS", "MIG", "nvtaskset", "CPU pinning"} <= set(table.index)
    assert set(table.loc["MIG"]) == {"yes"}  # what the study read of it


def test_every_cell_links_to_its_source():
    shown = partitions.linked().to_html()
    for row in partitions.statements().itertuples():
        assert f'href="{row.source}"' in shown and f">{row.isolated}</a>" in shown


def test_every_card_with_mig_has_its_profiles():
    sheet = machine.hardware()
    cards = set(pd.read_csv(partitions.DATA / "mig.csv").card)
    assert cards == set(partitions.with_mig())
    for card in cards:
        table = partitions.profiles(card)
        assert table.instances.max() == sheet.mig_max_instances[card]
        assert table.source.str.match(r"https://\S+").all()


@pytest.mark.parametrize("card", partitions.with_mig())
def test_profiles_fit_the_card_and_their_names(card):
    memory_gb = machine.hardware().memory_gb[card]
    for row in partitions.profiles(card).itertuples():
        slices, size = re.fullmatch(r"(\d)g\.(\d+)gb", row.profile).groups()
        assert int(slices) == row.sm_sevenths
        assert int(size) == pytest.approx(memory_gb * row.memory_eighths / 8, rel=0.05, abs=1)
        assert row.instances * row.memory_eighths <= 8 and row.instances * row.sm_sevenths <= 7
        assert not row.l2_eighths > row.memory_eighths


def test_a_profile_has_its_share_of_bytes_and_bandwidth():
    row = partitions.profiles("H200").set_index("profile").loc["3g.71gb"]
    assert row.bytes == pytest.approx(0.9 * 141 * 2**30 / 2)
    assert row.bandwidth == pytest.approx(4800e9 / 2)


def test_the_smallest_profile_holds_it_and_the_one_below_does_not():
    need = {"weight_bits": 16, "cache_bits": 16, "users": 30, "tokens": 2048,
            "rest_bytes": 2 * 2**30}
    llama = models.config("shape:Llama-3.1-8B")  # 15.0 + 7.5 + 2 GiB
    assert partitions.smallest("H200", llama, **need) == "1g.35gb"
    assert partitions.smallest("H200", llama, **need | {"users": 1}) == "1g.35gb"
    assert partitions.smallest("H200", llama, **need | {"users": 1, "weight_bits": 4}) == "1g.18gb"
    assert partitions.smallest("A100 40 GB", models.config("shape:Llama-3.1-70B"), **need) is None


def test_a_card_without_mig_says_so():
    with pytest.raises(LabError, match="RTX 4090 has no MIG"):
        partitions.profiles("RTX 4090")
