"""The files in data/: each has its line in the README, and each holds what that line says."""

import csv
import json
import re

import pytest

from helpers import study

DATA = study.CSV.parent
SHAPES = {
    "Qwen3-0.6B": dict(num_hidden_layers=28, hidden_size=1024, num_attention_heads=16,
                       num_key_value_heads=8, head_dim=128, intermediate_size=3072,
                       max_position_embeddings=40960),
    "Qwen2.5-1.5B-Instruct": dict(num_hidden_layers=28, hidden_size=1536, num_attention_heads=12,
                                  num_key_value_heads=2, intermediate_size=8960,
                                  max_position_embeddings=32768),
}


def undescribed(names, readme):
    """Names in data/ that no line of the README's table starts with."""
    described = re.findall(r"^\| `([^`]+?)/?` \|", readme, re.MULTILINE)
    return sorted(set(names) - set(described) - {"README.md"})


def test_undescribed_names_are_found():
    readme = "| `study.csv` | figures |\n| `shapes/` | configs |\n"
    assert undescribed(["README.md", "study.csv", "shapes"], readme) == []
    assert undescribed(["study.csv", "passages.txt"], readme) == ["passages.txt"]


def test_every_entry_has_its_readme_line():
    names = [path.name for path in DATA.iterdir() if not path.name.startswith(".")]
    missing = undescribed(names, (DATA / "README.md").read_text(encoding="utf-8"))
    assert not missing, f"data/README.md has no line for {', '.join(missing)}"


def hardware():
    with (DATA / "hardware.csv").open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_hardware_rows_are_well_formed():
    for name, row in hardware().items():
        assert row["kind"] in ("laptop", "workstation", "datacentre"), name
        assert float(row["memory_gb"]) > 0 and float(row["bandwidth_gb_s"]) > 0, name
        assert 0 <= int(row["mig_max_instances"]) <= 7 and row["source"], name
        bf16, fp8 = row["bf16_dense_tflops"], row["fp8_dense_tflops"]
        assert not bf16 or float(bf16) > 0, name
        assert not fp8 or float(fp8) == pytest.approx(2 * float(bf16), rel=0.02), name


def test_hardware_agrees_with_the_study():
    rows, value = hardware(), study.value
    laptop, b300 = rows["RTX 3000 Ada Laptop"], rows["B300"]
    assert float(laptop["memory_gb"]) == value("study_laptop_vram")
    assert float(laptop["bandwidth_gb_s"]) == value("study_laptop_bandwidth")
    assert int(laptop["mig_max_instances"]) == 0  # the study: MIG is not supported there
    assert float(b300["memory_gb"]) == value("study_b300_memory")
    assert float(b300["bandwidth_gb_s"]) == 1000 * value("study_b300_bandwidth")
    assert int(rows["B200"]["mig_max_instances"]) == value("study_mig_b200_partitions")


@pytest.mark.parametrize("name", SHAPES)
def test_shape_loads_in_transformers(name):
    from transformers import AutoConfig  # slow to import: only here

    config = AutoConfig.from_pretrained(DATA / "shapes" / name)
    assert {key: getattr(config, key) for key in SHAPES[name]} == SHAPES[name]
    assert config.vocab_size == 151936 and config.tie_word_embeddings
    on_disk = json.loads((DATA / "shapes" / name / "config.json").read_text(encoding="utf-8"))
    assert config.architectures == on_disk["architectures"]


def test_the_two_shapes_are_the_two_texts_models():
    models = {study.value("study_model_name"), study.value("tutorial_compress_model")}
    assert {f"Qwen/{name}" for name in SHAPES} == models


def test_every_shape_has_its_line_with_a_source():
    readme = (DATA / "shapes" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+/[^`]+)` \|.{20,}\|$", readme, re.MULTILINE))
    assert sorted(rows) == sorted(path.name for path in (DATA / "shapes").iterdir()
                                  if path.is_dir())
    assert len(rows) >= 12 and all(hub.endswith(name) for name, hub in rows.items())
