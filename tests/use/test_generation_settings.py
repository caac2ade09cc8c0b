"""A folder's generation settings are the defaults of decoding, and answers equal those of `generate`."""

import json
import shutil

import pytest
from helpers.generation_cases import GenerationCase, folders

import heedful
from heedful import BadInput
from heedful.cli.main import main
from heedful.decode.options import DecodingOptions


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return folders(tmp_path_factory.mktemp("models"))


def test_twelve_random_settings_write_what_generate_writes(models, tmp_path):
    for seed in range(12):
        GenerationCase(seed, models, tmp_path).compare()


@pytest.mark.slow
def test_a_hundred_random_settings_write_what_generate_writes(models, tmp_path):
    for seed in range(100, 200):
        GenerationCase(seed, models, tmp_path).compare()


@pytest.fixture
def with_settings(models, tmp_path):
    """A folder of a family, loaded with generation settings."""

    def load(name: str, **settings):
        shutil.copytree(models[name], tmp_path / name, dirs_exist_ok=True)
        path = tmp_path / name / "generation_config.json"
        path.write_text(json.dumps(json.loads((models[name] / path.name).read_text()) | settings))
        return heedful.load(tmp_path / name)

    return load


def test_what_is_given_goes_before_what_the_folder_says(with_settings):
    model = with_settings("bart", num_beams=3, length_penalty=2.0, no_repeat_ngram_size=2, max_length=7)
    how = model.decoding("translate", {})
    assert (how.beam, how.length_penalty, how.length_alpha, how.no_repeat_ngram_size) == (3, "power", 2.0, 2)
    given = {"length_alpha": 0.5, "no_repeat_ngram_size": 0, "max_new_tokens": 9}
    how = model.decoding("translate", given)
    assert (how.beam, how.length_alpha, how.no_repeat_ngram_size, how.bounds(1, 50)[1]) == (3, 0.5, 0, 9)
    assert model.decoding("translate", {"sample": True}).beam is None
    assert model.decoding("translate", {"folder_settings": "ignore"}) == DecodingOptions(
        folder_settings="ignore"
    )
    assert len(model.translate("the cat").tokens) <= 6 < len(model.translate("the cat", **given).tokens)
    assert "".join(model.stream("the cat")) == model.translate("the cat", beam=1)


def test_a_folder_that_samples_searches_if_a_beam_is_given(with_settings):
    model = with_settings("gpt2", do_sample=True, temperature=0.7, max_new_tokens=4)
    how = model.decoding("generate", {})
    assert (how.sample, how.temperature, how.top_k) == (True, 0.7, 50)  # transformers' own top-k
    greedy = model.decoding("generate", {"beam": 1})
    assert not greedy.sample and greedy.temperature == 1


@pytest.mark.parametrize(
    "settings, options, words",
    [
        ({"guidance_scale": 3.0}, {}, "have guidance_scale 3.0, which heedful does not have"),
        ({"num_beam_groups": 2, "num_beams": 4}, {}, "num_beam_groups 2"),
        ({"penalty_alpha": 0.6, "top_k": 4}, {}, "penalty_alpha 0.6"),
        ({"do_sample": True, "typical_p": 0.5}, {}, "typical_p 0.5"),
        ({"do_sample": True, "num_beams": 3}, {}, "combine beam search with sampling"),
        ({"max_length": 1}, {}, "the folder's generation settings have a max_length of 1 with the text"),
        ({"temperature": 0.5}, {"temperature": 0.7}, "`temperature` has no effect without `sample`"),
    ],
)
def test_settings_that_heedful_does_not_have_are_refused_by_name(settings, options, words, with_settings):
    model = with_settings("gpt2", **settings)
    with pytest.raises(BadInput) as refused:
        model.generate("the c", **options)
    assert words in str(refused.value)


def test_settings_without_an_effect_are_no_hindrance(with_settings):
    silent = {"typical_p": 0.5, "temperature": 0.5, "length_penalty": 3.0, "guidance_scale": 1}
    assert with_settings("gpt2", **silent).generate("the cat", max_new_tokens=3).tokens


def test_json_says_which_settings_were_used(with_settings, capfd):
    model = with_settings("marian", num_beams=2, bad_words_ids=[[9], [12, 5]], max_length=6)
    assert main(["translate", model.folder, "--json", "--length-alpha", "0.5", "the cat"]) == 0
    assert json.loads(capfd.readouterr().out)["settings"] == {
        "beam": 2, "length_penalty": "power", "length_alpha": 0.5, "bad_tokens": [[9], [12, 5]],
        "max_length": 6,
    }  # fmt: skip


def test_settings_survive_saving(with_settings, tmp_path):
    settings = {"num_beams": 2, "suppress_tokens": [5], "typical_p": 0.5, "stop_strings": ["x"]}
    heedful.save(with_settings("t5", **settings), tmp_path / "saved")
    said = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert {name: said[name] for name in settings} == settings and "max_length" not in said
