"""Other spellings, precisions and files of the same weights are accepted; and where learned tables end."""

import pytest
import torch
from helpers.bad_folders import (
    SINGLE,
    WTE,
    copied,
    same_weights,
    settings,
    tensors,
    tied_case,
    zoo,  # noqa: F401 (fixtures)
)
from safetensors.torch import load_file

import heedful
from heedful.parts.places import IN_ORDER, Lengths


def test_shards_give_the_same_model_as_one_file(zoo):
    assert len(list((zoo / "sharded").glob("model-*.safetensors"))) > 2
    assert same_weights(heedful.load(zoo / "sharded"), heedful.load(zoo / "gpt2"))


# What must be accepted: other spellings of the same weights.

SAME = {
    "a tied copy": ("gpt2", lambda w: w.update({"lm_head.weight": w[WTE]})),
    "only the tied copy": ("gpt2", lambda w: w.update({"lm_head.weight": w.pop(WTE)})),
    "all tied copies of t5": (
        "t5",
        lambda w: w.update(
            {
                f"{side}.weight": w["shared.weight"]
                for side in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
            }
        ),
    ),
    "only a tied copy of t5": (
        "t5",
        lambda w: w.update({"encoder.embed_tokens.weight": w.pop("shared.weight")}),
    ),
    "tied copies of bert": (
        "bert",
        lambda w: w.update(
            {
                "cls.predictions.decoder.weight": w["bert.embeddings.word_embeddings.weight"],
                "cls.predictions.decoder.bias": w["cls.predictions.bias"],
            }
        ),
    ),
    "gpt2 as published, without prefix and with its masks": (
        "gpt2",
        lambda w: (
            [w.update({name.removeprefix("transformer."): w.pop(name)}) for name in list(w)],
            w.update({f"h.{i}.attn.bias": torch.ones(1, 1, 4, 4).tril() for i in range(2)}),
            w.update({f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}),
        ),
    ),
    "gpt2 with masks of truths": (
        "gpt2",
        lambda w: w.update({f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 4, 4).bool() for i in range(2)}),
    ),
    "gpt1 with its masks and position ids": (
        "gpt1",
        lambda w: w.update({"h.0.attn.bias": torch.ones(1, 1, 4, 4), "position_ids": torch.arange(5)}),
    ),
    "bert with gamma and beta": (
        "bert",
        lambda w: [
            w.update({name.replace("LayerNorm.weight", "LayerNorm.gamma"): w.pop(name)})
            if name.endswith("LayerNorm.weight")
            else w.update({name.replace("LayerNorm.bias", "LayerNorm.beta"): w.pop(name)})
            for name in list(w)
            if "LayerNorm." in name
        ],
    ),
    "bert with position ids": (
        "bert",
        lambda w: w.update({"bert.embeddings.position_ids": torch.arange(5)[None]}),
    ),
    "t5 with the table that no layer reads": (
        "t5",
        lambda w: w.update(
            {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(32, 3)}
        ),
    ),
    "llama with its frequencies": (
        "llama",
        lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}),
    ),
    "marian with its sinusoids": (
        "transformer",
        lambda w: w.update(
            {
                "model.encoder.embed_positions.weight": tied_case(
                    "transformer"
                ).theirs.model.encoder.embed_positions.weight.data
            }
        ),
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_another_spelling_is_the_same_model(what, zoo, tmp_path):
    name, change = SAME[what]
    folder = copied(zoo, name, tmp_path)
    before = load_file(folder / SINGLE).keys()
    tensors(change)(folder)
    assert load_file(folder / SINGLE).keys() != before
    found = heedful.load(folder)
    assert same_weights(found, heedful.load(zoo / name))
    case = tied_case(name)
    with torch.no_grad():
        for expected, ours in case.compare(case.theirs, found.model):
            assert (expected - ours).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_another_precision_keep_their_values(dtype, zoo, tmp_path):
    folder = copied(zoo, "llama", tmp_path)
    tensors(lambda w: w.update({name: weight.to(dtype) for name, weight in w.items()}))(folder)
    found = dict(heedful.load(folder).model.named_parameters())
    stored = load_file(folder / SINGLE)["model.embed_tokens.weight"]
    assert stored.dtype == dtype and found["inputs.tokens.weight"].dtype == torch.float32
    assert torch.equal(found["inputs.tokens.weight"], stored.float())
    asked = heedful.load(folder, dtype=torch.bfloat16).model
    assert {weight.dtype for weight in asked.parameters()} == {torch.bfloat16}


def test_special_tokens_are_read_where_the_model_has_them(zoo, tmp_path):
    folder = copied(zoo, "gpt2", tmp_path)
    settings(pad_token_id=-1, bos_token_id=3, eos_token_id=10**9, decoder_start_token_id="x")(folder)
    assert heedful.load(folder).special == {"bos": 3}


# A learned table ends somewhere.


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "bert"])
def test_a_sequence_beyond_the_table_names_both_numbers(name, zoo):
    loaded = heedful.load(zoo / name)
    longest = loaded.config.context
    tokens = torch.zeros(2, longest + 1, dtype=torch.long)
    both = f"{longest + 1} .*{longest}"
    with torch.no_grad():
        loaded.model(tokens[:, :longest])
        for places in (IN_ORDER, Lengths(torch.tensor([longest + 1, 2]))):
            with pytest.raises(ValueError, match=both):
                loaded.model(tokens, places)


@pytest.mark.parametrize("name", ["gpt1", "gpt2"])
@pytest.mark.parametrize("places", [IN_ORDER, Lengths(torch.tensor([3, 1]))], ids=["in order", "padded"])
def test_a_cache_beyond_the_table_names_both_numbers(name, places, zoo):
    loaded = heedful.load(zoo / name)
    longest = loaded.config.context
    start, rest = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, longest - 3, dtype=torch.long)
    with torch.no_grad():
        with pytest.raises(ValueError, match=f"{longest + 1} .*{longest}"):
            loaded.model.static_cache(2, longest + 1)
        for cache in (loaded.model.growing_cache(), loaded.model.static_cache(2, longest)):
            loaded.model(start, places, cache=cache)
            loaded.model(rest, cache=cache)
            with pytest.raises(ValueError, match=f"{longest}"):
                loaded.model(start[:, :1], cache=cache)
