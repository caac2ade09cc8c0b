"""Decoders that classify: they come in from Hugging Face and go out, with their bias moved."""

import dataclasses
import json
import shutil

import pytest
import tokenizers as tk
import torch
import transformers as hf
from helpers.runs import CPU, Quiet
from helpers.small_runs import (
    FILMS,
    PAIRS,
    small_run,  # noqa: F401 (fixtures)
    write_files,
)
from helpers.writer_cases import (
    FEW,
    _no_progress_bars,  # noqa: F401 (fixtures)
    byte_level,
    spread,
    theirs,  # noqa: F401 (fixtures)
)

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.interop.formats import load
from heedful.interop.hf.write import write
from heedful.parts.places import Lengths
from heedful.runs import trainer
from heedful.tasks import recipe

# Decoders that classify

WIDE = {"vocab_size": 290, "n_positions": 40, "n_embd": 12, "n_layer": 2, "n_head": 3, "pad_token_id": 1}


CLASSIFIERS = {
    "gpt2": lambda: hf.GPT2ForSequenceClassification(hf.GPT2Config(**WIDE, num_labels=5)),
    "openai-gpt": lambda: hf.OpenAIGPTForSequenceClassification(hf.OpenAIGPTConfig(**WIDE, num_labels=3)),
    "llama": lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**FEW, num_labels=2)),
    "qwen2": lambda: hf.Qwen2ForSequenceClassification(hf.Qwen2Config(**FEW, num_labels=4)),
    "mistral": lambda: hf.MistralForSequenceClassification(
        hf.MistralConfig(**FEW, sliding_window=3, num_labels=3)
    ),
    "gemma3": lambda: hf.Gemma3TextForSequenceClassification(
        hf.Gemma3TextConfig(
            **FEW | {"rope_parameters": None}, head_dim=4, use_bidirectional_attention=True, num_labels=3
        )
    ),
    "phi3": lambda: hf.Phi3ForSequenceClassification(
        hf.Phi3Config(**FEW | {"rope_parameters": None}, num_labels=2)
    ),
    "qwen3 that sees all": lambda: hf.Qwen3ForSequenceClassification(
        hf.Qwen3Config(**FEW, head_dim=4, is_causal=False, num_labels=2)
    ),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_decoder_that_classifies_comes_in_and_goes_out(name, tmp_path):
    torch.manual_seed(7)
    model = spread(CLASSIFIERS[name]()).eval()
    model.save_pretrained(tmp_path / "theirs")
    byte_level().save(str(tmp_path / "theirs" / "tokenizer.json"))
    ours = heedful.load(tmp_path / "theirs")
    heedful.save(ours, tmp_path / "a")
    heedful.save(heedful.load(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (
        tmp_path / "b" / "model.safetensors"
    ).read_bytes()
    again, told = hf.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "a", output_loading_info=True
    )
    assert not any(told.values()) and type(again) is type(model)
    for key, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], weight), key
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "a")
    texts = list(PAIRS)
    given = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = again.eval()(**given).logits
        found = ours.model(given.input_ids, Lengths(given.attention_mask.sum(1)))
    assert expected.std() > 0.1 and (found - expected).abs().max() < 1e-5
    for label, row in zip(ours.classify(texts), expected.softmax(-1), strict=True):
        assert (
            label == ours.loaded.labels[int(row.argmax())] if ours.loaded.labels else str(int(row.argmax()))
        )
        assert label.probability == pytest.approx(float(row.max()), abs=1e-5)
    assert ours.embed(texts).shape == (len(texts), 12) and ours.look("the cat")


def test_a_run_that_classifies_by_a_decoder_leaves_with_its_bias_moved(small_run, tmp_path):
    """Theirs has no bias on its labels; the last norm's makes up for it."""
    model = heedful.load(small_run("classify-decoder"))
    with torch.no_grad():
        model.model.linear.bias.copy_(torch.tensor([0.7, -1.1]))
    heedful.save(model, tmp_path)
    theirs, told = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values())
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    texts = list(FILMS)
    given = tokenizer(texts, padding=True, return_tensors="pt")
    assert given.input_ids[0, 0] == 1 and int((given.input_ids == 2).sum()) == len(texts)
    with torch.no_grad():
        shares = theirs.eval()(**given).logits.softmax(-1)
    for label, row in zip(model.classify(texts), shares, strict=True):
        assert label == theirs.config.id2label[int(row.argmax())]
        assert label.probability == pytest.approx(float(row.max()), abs=1e-5)
    again = heedful.load(tmp_path)
    assert again.classify(texts) == model.classify(texts)
    assert (again.embed(texts, pooling="class") - model.embed(texts, pooling="class")).abs().max() > 0.01


def test_what_ends_a_text_is_no_padding_to_a_classifier(small_run, tmp_path, capsys):
    """Published GPT-2s have one token for everything; theirs would read the last one before it."""
    run = small_run("classify-decoder")
    loaded = heedful.load(run).loaded
    one = {**loaded.special, "pad": loaded.special["eos"], "bos": loaded.special["eos"]}
    write(dataclasses.replace(loaded, special=one), tmp_path)
    assert "pad_token_id" not in json.loads((tmp_path / "config.json").read_text())
    theirs = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    ids_1T = torch.tensor([[1, 9, 7, 2]])
    with torch.no_grad():
        expected = loaded.model(ids_1T, Lengths(torch.tensor([4])))
        assert (theirs(ids_1T).logits - expected).abs().max() < 1e-5
    assert main(["info", str(run)]) == 0 and "export formats: hf" in capsys.readouterr().out


@pytest.mark.parametrize("tune", ["whole", "head"])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_gpt2_of_theirs_fine_tuned_here_goes_back(pairs, tune, theirs, tmp_path):
    """Before, between and after texts it reads tokens that its tokenizer never had, if all of it learned."""
    _, folder = theirs("gpt2")
    shutil.copytree(folder, tmp_path / "gpt2")
    plain = byte_level()
    plain.post_processor = tk.processors.ByteLevel(trim_offsets=False)
    plain.save(str(tmp_path / "gpt2" / "tokenizer.json"))
    files = write_files(tmp_path)
    table = files["pairs.tsv" if pairs else "films.tsv"]
    settings = {"data.table": table, "data.valid_table": table, "train.steps": 4, "evaluate.every": 4}
    settings |= {"train.from": str(tmp_path / "gpt2"), "train.batch_tokens": 128, "train.tune": tune}
    settings |= {"data.pair_column": "second"} if pairs else {}
    with torch.enable_grad():
        trainer.start(recipe.make("classify", settings=settings), tmp_path / "run", Quiet(), CPU)
    model = heedful.load(tmp_path / "run")
    heedful.save(model, tmp_path / "back")
    theirs_back, told = hf.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not any(told.values())
    assert theirs_back.config.vocab_size == 290 + 3 * (tune == "whole")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "back")
    texts = list(FILMS)
    seconds = texts[::-1] if pairs else None
    given = tokenizer(texts, seconds, padding=True, return_tensors="pt")
    with torch.no_grad():
        shares = theirs_back.eval()(**given).logits.softmax(-1)
    again = heedful.load(tmp_path / "back")
    for one in (model, again):
        for label, row in zip(one.classify(texts, seconds), shares, strict=True):
            assert label.probability == pytest.approx(float(row.max()), abs=1e-5)


def test_a_classifier_whose_formula_is_another_is_refused(small_run, tmp_path):
    model = heedful.load(small_run("classify-decoder"))
    other = dataclasses.replace(model.loaded, unlike="it reads its pairs in both orders")
    with pytest.raises(BadInput, match="it reads its pairs in both orders, as no model of Hugging Face does"):
        heedful.save(other, tmp_path / "saved")
    with torch.no_grad():
        model.model.linear.bias.copy_(torch.tensor([0.7, -1.1]))
        model.model.linear.weight[1] = model.model.linear.weight[0]
    with pytest.raises(BadInput, match="the head's bias cannot be put elsewhere"):
        heedful.save(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_run_that_reads_pairs_in_both_orders_says_so(small_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(small_run("classify-decoder"), folder)
    said = json.loads((folder / "recipe.json").read_text())
    said["data"]["both_orders"] = True
    (folder / "recipe.json").write_text(json.dumps(said))
    with pytest.raises(BadInput, match="reads its pairs in both orders and judges the sum, as no model"):
        heedful.save(load(folder), tmp_path / "saved")
