"""The table of servers: it has the names that exported folders have, and the page shows it."""

import json
from pathlib import Path

import pytest
from helpers.look_cases import saved

from heedful.interop.formats import load
from heedful.interop.hf.servers import lists, served_families, servers_table
from heedful.interop.hf.write import write
from heedful.models import FAMILIES, family, model_types

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "serving-large.md"
SERVED = {one.model_type: one for one in served_families()}


def test_every_family_that_is_exported_is_in_the_table():
    assert set(SERVED) == set(model_types())
    assert all({one.vllm, one.tgi} <= {"yes", "no", "plugin", "one GPU"} for one in SERVED.values())


@pytest.mark.parametrize("name", [name for name in FAMILIES if hasattr(family(name), "write_config")])
def test_exported_configs_have_the_names_of_the_table(name):
    architecture = family(name)
    for config in architecture.PRESETS.values():
        if name == "transformer":  # its presets are the paper's, which no class of transformers has
            continue
        written = architecture.write_config(config)
        assert written["architectures"] == [SERVED[written["model_type"]].class_name]


def test_classes_of_variants_are_those_of_the_table():
    """What no preset is: the other orders of norms, and Mistral's, Ministral's and Qwen3's names."""
    from heedful.models import bart, transformer
    from heedful.models.hf import llama

    names = {one.class_name for one in SERVED.values()}
    assert {*bart.CLASSES.values(), *transformer.CLASSES.values()} <= names
    assert {SERVED[kind].class_name: kind for kind in llama.VARIANTS} == {
        variant.name: kind for kind, variant in llama.VARIANTS.items()
    }


def test_an_exported_folder_says_what_servers_look_for(tmp_path):
    saved("gpt2", tmp_path / "made")
    write(load(tmp_path / "made"), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == [SERVED[config["model_type"]].class_name]
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_the_page_shows_the_table_and_what_was_checked():
    text = PAGE.read_text()
    assert servers_table() in text
    for server in ("vllm", "tgi"):
        assert lists()[server]["version"] in text and lists()[server]["commit"] in text
    assert lists()["checked"] in text
