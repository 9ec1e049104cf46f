"""The sheet of the two texts' figures: whole, used by the notebooks, and typed into no prose."""

import csv
import math
import re

import nbformat.v4 as v4
import pytest

from helpers import study
from helpers.errors import LabError
from helpers.make import style

NOTEBOOKS = [
    "00_start_here", "01_first_request", "02_measuring_latency", "03_memory",
    "04_paged_and_prefix", "05_batching", "06_load_and_slo", "07_compression", "08_quality",
    "09_cost", "labs/01_two_engines", "labs/02_mps", "labs/03_batch_and_bytes",
    "labs/04_mixed_models", "labs/05_where_the_time_goes", "labs/06_partitions",
    "labs/07_admission", "labs/08_kv_precision", "labs/09_precision_quality",
    "labs/10_topologies",
]
# Units of speed, time and memory, as prose would spell them. Tokens, pupils or bits are left out:
# small whole numbers of those are general.
SECOND = r"(?:/s\b|\s+(?:a|per) second)"
UNITS = {
    "s": r"(?:s|seconds?)\b", "ms": r"(?:ms|milliseconds?)\b",
    "tok/s": rf"tok(?:ens?)?{SECOND}", "req/s": rf"req(?:uests?)?{SECOND}",
    **{unit: rf"{unit}\b" for unit in ("GB", "TB", "KiB", "MiB", "GiB", "GB/s", "TB/s",
                                       "MB/token", "TOPS", "TFLOPS")},
}


def sheet():
    with study.CSV.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# The sheet itself


def test_columns_and_keys():
    rows = sheet()
    assert list(rows[0]) == ["key", "source", "kind", "value", "unit", "hardware", "note",
                             "notebook"]
    keys = [row["key"] for row in rows]
    assert len(keys) == len(set(keys)), "a key is used twice"


def test_every_row_is_well_formed():
    for row in sheet():
        key = row["key"]
        assert re.fullmatch(r"(study|tutorial)(_[a-z0-9]+)+", key), key
        assert row["source"] == key.split("_")[0], key
        assert row["kind"] in ("figure", "flag", "finding"), key
        assert row["value"] and row["note"], key
        assert row["notebook"] in NOTEBOOKS, f"{key}: no notebook is called {row['notebook']}"
        assert None not in row and all(text == text.strip() for text in row.values()), key


def test_figures_are_numbers_or_versions():
    for row in sheet():
        if row["kind"] == "figure":
            number = isinstance(study.value(row["key"]), (int, float))
            assert number or row["unit"] == "version", row["key"]


def test_figures_agree_with_each_other():
    """Arithmetic that the two texts state, redone: a misread figure would show here."""
    v = study.value
    assert v("study_requests") * v("study_output_tokens") / v("study_duration") == pytest.approx(
        v("study_output_throughput"), rel=1e-3)
    assert v("study_requests") / v("study_duration") == pytest.approx(
        v("study_request_throughput"), rel=1e-3)
    assert (v("study_e2el_mean") - v("study_ttft_mean")) / (
        v("study_output_tokens") - 1) == pytest.approx(v("study_tpot_mean"), rel=1e-3)
    assert v("study_b300_memory") / v("study_laptop_vram") == v("study_b300_memory_ratio")
    assert (v("tutorial_kv_factor") * v("tutorial_kv_layers") * v("tutorial_kv_heads")
            * v("tutorial_kv_head_dim") * v("tutorial_kv_bytes_per_element")
            == v("tutorial_kv_bytes_per_token") * 1024)
    assert (v("tutorial_kv_bytes_per_token") * v("tutorial_kv_request_tokens")
            == v("tutorial_kv_request") * 1024)
    assert v("tutorial_kv_request") * v("tutorial_kv_requests") == v("tutorial_kv_total") * 1024
    for bits in (16, 8, 4):
        assert v("tutorial_70b_parameters") * bits / 8 == v(f"tutorial_70b_weights_{bits}_bit")


# The helper


def test_value_converts_numbers_and_keeps_versions():
    assert study.value("study_ttft_mean") == 84.35
    assert study.value("study_bench_flag_num_prompts") == 128
    assert isinstance(study.value("study_bench_flag_num_prompts"), int)
    assert study.value("study_bench_flag_request_rate") == math.inf
    assert study.value("study_model_name") == "Qwen/Qwen3-0.6B"
    assert study.value("tutorial_host_python") == "3.11"


def test_unknown_key_names_near_ones():
    with pytest.raises(LabError) as error:
        study.value("study_tftt_mean")
    assert "study_tftt_mean" in str(error.value) and "study_ttft_mean" in str(error.value)
    with pytest.raises(LabError, match="look the key up"):
        study.row("xyzzy")


def test_row_is_a_copy():
    study.row("study_ttft_mean")["value"] = 0
    assert study.value("study_ttft_mean") == 84.35


def test_table_of_keys_keeps_their_order():
    table = study.table("study_ttft_mean", "study_requests").data
    assert list(table.columns) == ["what it is", "the engine-sharing study", "hardware"]
    assert list(table["the engine-sharing study"]) == ["84.35 ms", "128 requests"]


def test_table_by_prefix():
    table = study.table("study_requests", prefix="tutorial_kv_").data
    assert table.iloc[0]["the engine-sharing study"] == "128 requests" and len(table) > 5
    assert "hardware" not in study.table(prefix="tutorial_70b_").data
    with pytest.raises(LabError, match="no row"):
        study.table(prefix="nothing_")


def test_table_spells_flags_as_vllm_does():
    table = study.table(prefix="study_serve_flag_").data
    assert {"--max-num-seqs", "--gpu-memory-utilization", "--dtype"} <= set(table["flag"])
    assert not [flag for flag in table["flag"] if "env" in flag]


# The notebooks use every row that is named for them


def code_of(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def unused_keys(keys, code):
    """Keys that code names neither as a string nor by study.table(prefix=...).

    A prefix counts if it has two words or more ('study_bench'): one word would cover everything.
    """
    named = set(re.findall(r"""["'](\w+)["']""", code))
    prefixes = [prefix for prefix in re.findall(r"""prefix\s*=\s*["'](\w+)["']""", code)
                if len(prefix.strip("_").split("_")) >= 2]
    return [key for key in keys if key not in named and not key.startswith(tuple(prefixes))]


def test_unused_keys_are_found():
    keys = ["study_ttft_mean", "study_bench_flag_seed", "study_model_name"]
    assert unused_keys(keys, "") == keys
    assert unused_keys(keys, "# study_ttft_mean") == keys
    assert unused_keys(keys, "study.value('study_ttft_mean')") == keys[1:]
    assert unused_keys(keys, 'study.table(prefix="study_bench_flag_")') == [keys[0], keys[2]]
    assert unused_keys(keys, 'study.table(prefix="study_")') == keys


def test_notebooks_use_every_row_named_for_them():
    books = style.notebooks()
    if not books:
        print("There are no notebooks yet, so every row may wait.")
    for name, notebook in books.items():
        keys = [row["key"] for row in sheet() if row["notebook"] == name]
        unused = unused_keys(keys, code_of(notebook))
        assert not unused, f"{name} does not use {', '.join(unused)}"


# No figure of the texts is typed into prose


def typed_figures(markdown, rows):
    """(key, text) of the figures of `rows` that stand in the prose of a markdown cell.

    A number counts where it is unmistakable (four digits or more and a decimal point: 900.35),
    or has its unit and at least two significant digits (256 GB/s, 8.28 ms, 1.2 GB).
    """
    found = []
    for row in rows:
        whole, _, decimals = row["value"].partition(".")
        if not whole.isdigit() or not (decimals or "0").isdigit() or row["unit"] == "version":
            continue
        number = f"{int(whole):,}".replace(",", ",?") + (rf"\.{decimals}" if decimals else "")
        patterns = [number] if decimals and len(whole + decimals) >= 4 else []
        if row["unit"] in UNITS and len((whole + decimals).strip("0")) >= 2:
            short = number.rstrip("0") + "0*" if decimals else number
            patterns.append(rf"{short}(?:\s|&nbsp;|-)*{UNITS[row['unit']]}")
        for pattern in patterns:
            match = re.search(rf"(?<![\d.,]){pattern}(?!\d)", style.prose(markdown))
            if match:
                found.append((row["key"], match.group()))
    return found


@pytest.mark.parametrize(("text", "key"), [
    ("The laptop gave 900.35 tokens/s.", "study_output_throughput"),
    ("It took 84.35 ms to the first token.", "study_ttft_mean"),
    ("Its card moves 256 GB/s at best.", "study_laptop_bandwidth"),
    ("It fell from 116.41 to less.", "study_dram_batch_16"),
    ("In all 4,501.74 tokens per second.", "study_total_throughput"),
    ("In all 4501.74.", "study_total_throughput"),
    ("The run lasted 18.2 s.", "study_duration"),
    ("A token took 8.28 ms.", "study_tpot_mean"),
    ("It served 7.03 requests a second.", "study_request_throughput"),
    ("The weights are about 1.2&nbsp;GB.", "study_model_weights"),
    ("Weights of 140 GB.", "tutorial_70b_weights_16_bit"),
    ("A request needs 512 MiB.", "tutorial_kv_request"),
])
def test_a_typed_figure_is_found_in_a_bad_notebook(text, key):
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title"), v4.new_markdown_cell(text)])
    found = [key for cell in notebook.cells for key, _ in typed_figures(cell.source, sheet())]
    assert key in found


@pytest.mark.parametrize("text", [
    "A class of 30 pupils, 4 bits, 8 streams, 2 engines, 3 lessons, 128 tokens, 28 layers.",
    "Python 3.11 and vLLM 0.30; blocks 7, 21 and 4; a prompt of 1,000 tokens; port 8000.",
    "About 40 minutes. A share of 0.65. See [84.35 ms](https://example.org/84.35).",
    "Run `--max-model-len 2048`, or `256 GB/s` as code; 1256 GB/s and 116.412 are other numbers.",
])
def test_general_numbers_are_no_false_alarm(text):
    assert typed_figures(text, sheet()) == []


def test_no_figure_is_typed_into_prose():
    books = style.notebooks()
    if not books:
        print("There are no notebooks yet, so there is no prose to check.")
    wrong = [f"{name}, cell {number}: '{text}' is {key}" for name, notebook in books.items()
             for number, cell in enumerate(notebook.cells, 1) if cell.cell_type == "markdown"
             for key, text in typed_figures(cell.source, sheet())]
    assert not wrong, "\n".join(wrong)


def test_a_table_of_both_texts_shows_no_nan():
    shown = study.table("study_next_larger_model", "tutorial_kv_total").data
    assert shown.shape[0] == 2 and not shown.isna().any(axis=None)
