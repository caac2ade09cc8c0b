"""The lens is the model itself at the last layer, contributions sum to its score, and rollout is a product of
matrices."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.look_cases import imported

from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.inside.edits import edit
from heedful.inside.lens import grouped, lens
from heedful.inside.rollout import rollout, rollout_of
from heedful.interop.formats import load
from heedful.interop.loaded import Loaded
from heedful.models import bahdanau, vit
from heedful.parts.masks import causal
from heedful.parts.view import View
from heedful.parts.watch import watch

TEXT = "The cat sat on the mat."
NUMBERS, TARGET = "5 3 8 1", "4 7 9"
STARTS = {"bos": 1, "eos": 2, "decoder_start": 1}


def loaded_of(entry, dtype=torch.float64):
    module, config = entry
    return Loaded(module.__name__.rsplit(".", 1)[1], config, tiny.build(entry, dtype), None, STARTS)


def output(loaded, seen):
    """The model's own scores [T, V]."""
    ids = torch.tensor([seen.words.ids])
    with torch.no_grad():
        found = loaded.model(*([ids, torch.tensor([seen.words.read])] if seen.words.read else [ids]))
    return (found["masked_lm"] if isinstance(found, dict) else found)[0]


READERS = [name for name, (_, config) in tiny.ENCODERS.items() if "masked_lm" in config.prediction_heads]
ENTRIES = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}


@pytest.mark.parametrize("name", [*ENTRIES, *READERS])
def test_the_last_layer_is_the_model_itself_exactly(name):
    entry = ENTRIES.get(name) or tiny.ENCODERS[name]
    loaded = loaded_of(entry, torch.float32)
    target = TARGET if name in tiny.ENCODER_DECODERS else None
    seen = lens(loaded, NUMBERS, target)
    expected_TV = output(loaded, seen)
    assert torch.equal(seen.logits(len(seen.layers) - 1), expected_TV)
    assert torch.equal(seen.final_T, expected_TV.argmax(-1)) and bool((seen.rank_LT[-1] == 1).all())
    torch.testing.assert_close(seen.share_LT[-1], expected_TV.softmax(-1).amax(-1))
    assert torch.equal(seen.top_LTk[-1, :, 0], seen.final_T)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_scores_of_all_parts_sum_to_the_score_of_the_predicted_token(name):
    loaded = loaded_of(ENTRIES[name])
    seen = lens(loaded, NUMBERS, TARGET if name in tiny.ENCODER_DECODERS else None)
    score_T = output(loaded, seen).amax(-1)
    assert all(part.score_T is not None for part in seen.parts)
    total_T = sum(part.score_T.double() for part in seen.parts)
    torch.testing.assert_close(total_T, score_T, rtol=1e-5, atol=1e-5)
    sublayers = 3 if name in tiny.ENCODER_DECODERS else 2
    assert len(seen.parts) == 2 + sublayers * (len(seen.layers) - 1)


def test_contributions_are_what_the_sublayers_add():
    """In a pre-norm model the stream is their sum: without one of them, the score of a linear way changes
    by its contribution."""
    loaded = imported("gpt2")
    seen = lens(loaded, TEXT)
    block = loaded.model.stack.blocks[1]
    x_TD = seen.stream[1]
    with torch.no_grad():
        view = View(causal(), len(x_TD), len(x_TD))
        attended_TD = block.attention.layer(block.attention.norm(x_TD[None]), view)[0]
    found = {(part.layer, part.part): part for part in seen.parts}
    torch.testing.assert_close(found[2, "attention"].norm_T, attended_TD.norm(dim=-1))
    norm = loaded.model.stack.norm
    scale_T1 = (seen.stream[-1].var(-1, keepdim=True, correction=0) + norm.eps).sqrt()
    centered_TD = attended_TD - attended_TD.mean(-1, keepdim=True)
    rows_TD = loaded.model.inputs.tokens.weight[seen.final_T]
    expected_T = (norm.weight * centered_TD / scale_T1 * rows_TD).sum(-1)
    torch.testing.assert_close(found[2, "attention"].score_T, expected_T.detach(), rtol=1e-4, atol=1e-5)


def test_an_encoder_with_a_head_of_several_layers_has_norms_and_no_scores():
    seen = lens(imported("bert"), TEXT)
    assert all(part.score_T is None and part.norm_T is not None for part in seen.parts)
    assert "score added" not in seen.position_text(2)


def test_ranks_and_tokens_are_read_off_the_layers_scores():
    seen = lens(imported("t5"), TEXT, "the mat", top=3)
    assert seen.layers == ["embedding", "layer 1", "layer 2", "layer 3"]
    logits_TV = seen.logits(1)
    order_V = logits_TV[2].argsort(descending=True)
    assert order_V.tolist().index(int(seen.final_T[2])) + 1 == int(seen.rank_LT[1, 2])
    assert seen.top_LTk[1, 2].tolist() == order_V[:3].tolist()
    names = [token for token, _ in seen.tokens(1, 3)]
    assert len(names) == 3 and seen.tokens(1, 3)[0][1] == pytest.approx(float(logits_TV[2].softmax(-1).max()))
    torch.testing.assert_close(seen.norm_LT[1], seen.stream[1].norm(dim=-1))
    assert seen.columns[0] == "<pad>" and len(seen.predicted) == len(seen.words.read)
    for layer in (-1, 4):
        with pytest.raises(BadInput, match="3 the last"):
            seen.logits(layer)


def test_a_model_that_is_changed_is_seen_as_it_is_changed():
    loaded = imported("gpt2")
    before = lens(loaded, TEXT)
    with edit(loaded, ["zero:self.2.1"]):
        after = lens(loaded, TEXT)
    assert torch.equal(after.logits(1), before.logits(1)) and not torch.equal(
        after.logits(2), before.logits(2)
    )


def test_pictures_and_tables_show_every_layer_and_position():
    seen = lens(imported("t5"), TEXT, "the mat")
    root = ET.fromstring(seen._repr_html_())
    words = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert set(seen.layers) <= set(words) and words.count(seen.predicted[0]) >= 1
    lines = seen.text(60).splitlines()
    assert lines[0].startswith("read") and all(len(line) <= 60 for line in lines)
    assert "layer 3" in seen.text(60) and "sum: its score" in seen.position_text("<pad>")
    found = seen.as_json()
    assert len(found["layers"]) == 4 and found["parts"][0]["part"] == "embedding"
    assert grouped([10, 10, 10], 23) == [[0, 1], [2]] and grouped([99], 10) == [[0]]


# Refusals


def test_models_without_scores_at_every_position_say_why(runs):
    bert = imported("bert")
    bare = replace(bert, model=bert.model.__class__(bert.model.encoder, {}))
    with pytest.raises(BadInput, match="no head at all"):
        lens(bare, TEXT)
    with pytest.raises(BadInput, match="off the last token alone"):
        lens(load(runs("decoder")), "ba de")
    with pytest.raises(BadInput, match="only the heads"):
        lens(load(runs("classify")), "ba de")
    config = bahdanau.BahdanauConfig(vocab=19, target_vocab=19, width=7, embedding_width=5)
    with pytest.raises(BadInput, match="residual stream"):
        lens(loaded_of((bahdanau, config)), "5 3", "4")
    with pytest.raises(BadInput, match="no self-attention"):
        rollout_of(loaded_of((bahdanau, config)), "5 3", "4")
    image = loaded_of((vit, tiny.VIT))
    with pytest.raises(BadInput, match="class token or the mean of the patches"):
        lens(image, "cat.png")


# Rollout


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_the_rollout_of_a_text_follows_the_weights_of_all_layers(name):
    loaded = imported(name)
    seen = rollout_of(loaded, TEXT)
    with torch.no_grad(), watch(loaded.model) as records:
        loaded.model(torch.tensor([seen.words.ids]))
    eye = torch.eye(len(seen.down), dtype=torch.float64)
    expected = eye
    for weights in records.weights().values():
        expected = (0.5 * weights[0].double().mean(0) + 0.5 * eye) @ expected
    torch.testing.assert_close(seen.weights_TS, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(seen.weights_TS.sum(-1), torch.ones(len(eye), dtype=torch.float64))


def test_the_rollout_of_an_encoder_decoder_is_that_of_one_graph_of_source_and_target():
    """All sublayers as matrices over source and target tokens together; their product has both parts."""
    loaded = imported("t5")
    cross, own = (rollout_of(loaded, TEXT, "the mat", which=which) for which in ("cross", "self"))
    S, T = len(cross.across), len(cross.down)
    with torch.no_grad(), watch(loaded.model) as records:
        loaded.model(torch.tensor([cross.words.ids]), torch.tensor([cross.words.read]))
    every = torch.eye(S + T, dtype=torch.float64)

    def step(rows, columns, weights):
        matrix = torch.eye(S + T, dtype=torch.float64)
        matrix[rows, rows] /= 2
        matrix[rows, columns] += weights[0].double().mean(0) / 2
        return matrix

    source, target = slice(0, S), slice(S, S + T)
    for path, weights in records.weights().items():
        if path.startswith("encoder"):
            every = step(source, source, weights) @ every
        else:
            every = step(target, source if "cross" in path else target, weights) @ every
    torch.testing.assert_close(cross.weights_TS, every[target, source], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(own.weights_TS, every[target, target], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(cross.rest_T, own.weights_TS.sum(-1))
    encoder = rollout_of(loaded, TEXT, "the mat", which="encoder")
    torch.testing.assert_close(encoder.weights_TS, every[source, source], rtol=1e-6, atol=1e-7)
    assert "the target's own tokens" in cross.text() and "<svg" in cross._repr_html_()
    assert cross.as_json()["down"] == cross.down and "rest" in cross.as_json()


def test_a_rollout_of_what_is_not_there_is_refused():
    with pytest.raises(BadInput, match="has no cross-attention"):
        rollout_of(imported("gpt2"), TEXT, which="cross")
    assert rollout([torch.full((2, 3, 3), 1 / 3)]).shape == (3, 3)


# The command


def test_the_command_shows_layers_positions_and_rollout(runs, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    line = ["look", str(runs("translate")), "ba de fi"]
    for more, expected in {
        "--lens": "embedding",
        "--lens --query 1": "sum: its score",
        "--rollout": "cross-attention through all layers",
        "--rollout --which encoder": "encoder-attention through all layers",
    }.items():
        assert main([*line, *more.split()]) == 0
        assert expected in capsys.readouterr().out
    assert {"lens.svg", "rollout.svg"} <= {path.name for path in tmp_path.iterdir()}
    assert main([*line, "--lens", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) >= 2
    for more, expected in {
        "--lens --head 1": "leave --head out",
        "--rollout --query 1": "leave --query out",
        "--lens --rollout": "give one of them",
    }.items():
        assert main([*line, *more.split()]) == 2
        assert expected in capsys.readouterr().err
