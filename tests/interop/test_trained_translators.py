"""Translators trained by heedful translate in transformers, or are refused with the difference."""

import dataclasses
import json

import pytest
import torch
import transformers as hf
from helpers.runs import CPU, Quiet
from helpers.small_runs import PAIRS, SIZES, write_files
from helpers.writer_cases import (
    NEW,
    _no_progress_bars,  # noqa: F401 (fixtures)
    same_files,
    spread,
)

import heedful
from heedful.errors import BadInput
from heedful.interop.loaded import Loaded
from heedful.models import transformer
from heedful.parts.places import Lengths
from heedful.runs import trainer
from heedful.tasks import recipe

# Translators of our own


SETTINGS = {
    "pre": {},
    "post": {"model.norm": "post"},
    "bytes": {"data.tokenizer": "bpe", "data.vocab_size": 300, "train.steps": 120},
    "apart": {"model.norm": "post", "data.joint": False, "train.steps": 150},
    "pre-apart": {"data.joint": False, "train.steps": 2},
    "rotary": {"model.positions": "sinusoidal+rotary", "train.steps": 2},
    "shaw": {"model.positions": "shaw", "model.norm": "post", "train.steps": 2},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run with these settings, trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("writers")
    files = write_files(folder)
    pairs = {"data.source": files["src"], "data.target": files["tgt"], "train.steps": 60}
    pairs |= {"data.valid_source": files["src"], "data.valid_target": files["tgt"]}

    def get(name: str):
        path = folder / name
        if not path.exists():
            settings = SIZES | pairs | SETTINGS[name]
            settings |= {"evaluate.every": settings["train.steps"]}
            with torch.enable_grad():
                trainer.start(recipe.make("translate", settings=settings), path, Quiet(), CPU)
        return path

    return get


def their_texts(folder, texts, tokenizer, target=None, **how):
    model, told = hf.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), "a weight is missing, or has no place"
    found = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt")
        rows = model.generate(**given, **how)
        found.append((target or tokenizer).decode(rows[0], skip_special_tokens=True))
    return found


TEXTS = [*PAIRS, "the cat eats a fish", "i am a dog [EOS] the"]


@pytest.mark.parametrize("name, kind", [("pre", "pegasus"), ("post", "marian"), ("bytes", "pegasus")])
def test_a_translator_trained_here_translates_in_transformers(name, kind, trained, tmp_path):
    model = heedful.load(trained(name))
    heedful.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == kind
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert tokenizer(text).input_ids == model.wording.source([text])[0].ids
    greedy = model.translate(TEXTS, beam=1, max_new_tokens=NEW)
    assert list(PAIRS.values()) == greedy[: len(PAIRS)]
    assert their_texts(tmp_path, TEXTS, tokenizer, num_beams=1, max_new_tokens=NEW) == greedy
    beam = {"beam": 4, "length_penalty": "power", "length_alpha": 0.6, "max_new_tokens": NEW}
    assert their_texts(tmp_path, TEXTS, tokenizer, max_new_tokens=NEW) == model.translate(TEXTS, **beam)
    again = heedful.load(tmp_path)
    assert again.translate(TEXTS, max_new_tokens=NEW) == model.translate(TEXTS, **beam)
    assert again.translate(TEXTS, beam=1, max_new_tokens=NEW) == greedy


def test_the_folder_says_how_to_write(trained, tmp_path):
    heedful.save(heedful.load(trained("pre")), tmp_path)
    said = hf.GenerationConfig.from_pretrained(tmp_path)
    assert (said.decoder_start_token_id, said.eos_token_id, said.pad_token_id) == (1, 2, 0)
    assert (said.num_beams, said.length_penalty, said.max_length) == (4, 0.6, 1024)
    assert said.forced_bos_token_id is None and said.forced_eos_token_id is None
    assert hf.AutoConfig.from_pretrained(tmp_path).forced_eos_token_id is None  # theirs would be [BOS]
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token) == ("[PAD]", "[EOS]", "[BOS]")
    rows = tokenizer(list(PAIRS), padding=True, return_tensors="pt")
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    found = tokenizer.batch_decode(model.generate(**rows, max_new_tokens=NEW), skip_special_tokens=True)
    assert found == list(PAIRS.values())


def test_a_vocabulary_for_each_side_leaves_with_both(trained, tmp_path):
    model = heedful.load(trained("apart"))
    heedful.save(model, tmp_path)
    source = hf.AutoTokenizer.from_pretrained(tmp_path)
    target = hf.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "target_tokenizer.json"))
    assert source.get_vocab() != target.get_vocab()
    found = their_texts(tmp_path, TEXTS, source, target, num_beams=1, max_new_tokens=NEW)
    assert found == model.translate(TEXTS, beam=1, max_new_tokens=NEW)
    assert found[: len(PAIRS)] == list(PAIRS.values())
    again = heedful.load(tmp_path)
    assert again.translate(TEXTS) == model.translate(TEXTS)


@pytest.mark.parametrize(
    "name, words",
    [
        ("rotary", "otherwise (sinusoidal+rotary positions, interleaved sinusoids, no bias on its scores)"),
        ("shaw", "otherwise (shaw positions,"),
        ("pre-apart", "otherwise (pre-norm with a vocabulary for each side): it cannot be saved"),
    ],
)
def test_a_translator_without_a_counterpart_is_refused_with_the_difference(name, words, trained, tmp_path):
    with pytest.raises(BadInput) as refused:
        heedful.save(heedful.load(trained(name)), tmp_path / "saved")
    assert words in str(refused.value) and not (tmp_path / "saved").exists()


SIZED = transformer.TransformerConfig(
    vocab=19,
    target_vocab=19,
    context=31,
    layers=2,
    decoder_layers=3,
    width=12,
    heads=3,
    decoder_heads=2,
    ffn_width=20,
    decoder_ffn_width=14,
)


@pytest.mark.parametrize(
    "change",
    [
        {"norm": "pre"},
        {"norm": "post", "activation": "silu"},
        {"norm": "pre", "scale_embeddings": False, "output_bias": True, "activation": "gelu"},
        {"norm": "post", "share_embeddings": False, "target_vocab": 23},
        {"norm": "pre", "sinusoid_layout": "halves", "max_distance": 5},
    ],
)
def test_reordered_coordinates_give_the_same_scores(change, tmp_path):
    torch.manual_seed(3)
    config = dataclasses.replace(SIZED, **change)
    model = spread(transformer.build(config)).eval()
    special = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1}
    heedful.save(Loaded("transformer", config, model, None, special), tmp_path / "a")
    theirs = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "a").eval()
    source, target = torch.randint(19, (3, 7)), torch.randint(config.target_vocab, (3, 5))
    lengths = torch.tensor([7, 4, 1])
    seen = (torch.arange(7) < lengths[:, None]).long()
    with torch.no_grad():
        found = theirs(input_ids=source, attention_mask=seen, decoder_input_ids=target).logits
        expected = model(source, target, Lengths(lengths))
    assert expected.abs().max() > 0.5 and (found - expected).abs().max() < 1e-5
    loaded = heedful.load(tmp_path / "a")
    with torch.no_grad():
        assert (loaded.model(source, target, Lengths(lengths)) - expected).abs().max() < 1e-5
    heedful.save(loaded, tmp_path / "b")
    same_files(tmp_path / "a", tmp_path / "b")
