"""The four parts of a score, derived once more in float64 from the weights; and where there are none."""

from copy import deepcopy

import pytest
import torch
from helpers import tiny
from helpers.look_cases import imported

from heedful.errors import BadInput
from heedful.inside.look.layers import attending_shells, paths_of
from heedful.inside.sublayer import residual_of
from heedful.inside.trace import Trace, trace
from heedful.interop.loaded import Loaded
from heedful.parts.layers import PostNorm

TEXT, TARGET = "the cat sat on the mat", "mat the on sat"
SPLIT = [
    ("gpt1", "self"),
    ("gpt2", "self"),
    ("bert", "self"),
    ("transformer", "self"),
    ("transformer", "encoder"),
]
NAMES = ("content_content", "content_position", "position_content", "position_position")


def seen_by(name, **more):
    return trace(imported(name), TEXT, TARGET if name in ("transformer", "t5") else None, **more)


def sinusoids(T, D):
    """sin(t / 10000^(2i/D)) for all i, then the cosines of the same."""
    angles = torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, D, 2, dtype=torch.float64) / D
    )
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def divided(norm, x_TD, *parts):
    """What a LayerNorm of x makes of its parts; the last of them gets its bias."""
    deviation = x_TD.var(-1, unbiased=False, keepdim=True).add(norm.eps).sqrt()
    done = [norm.weight * (part - part.mean(-1, keepdim=True)) / deviation for part in parts]
    return [*done[:-1], done[-1] + norm.bias]


@torch.no_grad()
def derived(seen, which, head, query):
    """The parts by the formulas alone: (position, word) through norms and projections."""
    model = deepcopy(seen.source.loaded.model).double()
    path = paths_of(model, which)[1]
    attention, residual = model.get_submodule(path), residual_of(model, path, "")
    shells = attending_shells(model)
    inputs = (shells["encoder"] if which == "encoder" else list(shells.values())[-1]).inputs
    given = seen.source.given.words
    ids = torch.tensor(given.ids if which == "encoder" or not given.read else given.read)
    word = inputs.tokens.weight[ids] * inputs.tokens.scale
    word = word if inputs.segments is None else word + inputs.segments.weight[0]
    T, D = word.shape
    table = getattr(inputs.position, "table", None)
    position = sinusoids(T, D) if table is None else table[:T]
    if not isinstance(inputs.norm, torch.nn.Identity):
        position, word = divided(inputs.norm, word + position, position, word)
    if not isinstance(residual, PostNorm):
        position, word = divided(residual.norm, word + position, position, word)
    K, h = attention.key_width, head - 1
    sides = []
    for linear in (attention.query, attention.key):
        rows = slice(h * K, (h + 1) * K)
        bias = 0 if linear.bias is None else linear.bias[rows]
        sides.append((word @ linear.weight[rows].T + bias, position @ linear.weight[rows].T))
    (q_word, q_position), (k_word, k_position) = sides
    t = query - 1
    return {
        "content_content": k_word @ q_word[t],
        "content_position": k_position @ q_word[t],
        "position_content": k_word @ q_position[t],
        "position_position": k_position @ q_position[t],
    }


@pytest.mark.parametrize("name, which", SPLIT)
def test_every_part_equals_its_formula_in_float64_and_they_add_up_to_the_score(name, which):
    seen = seen_by(name)
    kind = seen.kinds[which]
    for head in range(1, kind.heads + 1):
        for query in range(1, len(kind.down) + 1):
            steps = seen.steps(which, 1, head, query)
            found, expected = steps.as_json()["parts"], derived(seen, which, head, query)
            assert tuple(found) == NAMES and "parts_refused" not in steps.as_json()
            for part, numbers in expected.items():
                assert (torch.tensor(found[part], dtype=torch.float64) - numbers).abs().max() <= 1e-5
            total = sum(torch.tensor(found[part]) for part in NAMES)
            assert (total - steps.scores_S).abs().max() <= 1e-5


def test_a_table_shows_the_parts_where_there_are_some():
    seen = seen_by("gpt2")
    lines = seen.steps("self", 1, 1, 3).text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("q·k in four parts"))
    numbers = [float(x) for x in lines[start + 3].split()[-5:]]
    assert sum(numbers[:4]) == pytest.approx(numbers[4], abs=0.03)
    assert "four parts" not in seen.steps("self", 2, 1, 3).text()


def test_without_positions_only_words_are_left():
    steps = seen_by("gpt2", edits=["positions:none"]).steps("self", 1, 2, 3)
    parts = steps.parts()
    assert torch.allclose(parts.content_content_S, steps.scores_S, atol=1e-6)
    assert not any(getattr(parts, f"{name}_S").any() for name in NAMES[1:])


@pytest.mark.parametrize(
    "name, which, layer, why",
    [
        ("gpt2", "self", 2, "layer 2 reads vectors in which the layers before it have mixed"),
        ("transformer", "cross", 1, "cross-attention reads vectors in which layers have mixed"),
        ("llama", "self", 1, r"its positions \(rotary\) enter in the attention itself"),
        ("t5", "encoder", 1, r"its positions \(t5\) enter in the attention itself"),
    ],
)
def test_where_there_is_no_exact_split_a_sentence_says_why(name, which, layer, why):
    steps = seen_by(name).steps(which, layer, 1, 1)
    with pytest.raises(BadInput, match=why):
        steps.parts()
    told = steps.as_json()
    assert told["parts"] is None and told["parts_refused"] == steps.no_parts


def test_a_stream_that_was_patched_is_not_split():
    other = trace(imported("gpt2"), "on the mat sat the cat")
    seen = seen_by("gpt2", edits=["patch:decoder.0<other"], traces={"other": other})
    with pytest.raises(BadInput, match="reads other vectors than the embeddings"):
        seen.steps("self", 1, 1, 1).parts()


def test_the_parts_are_saved_with_a_whole_trace(tmp_path):
    seen = seen_by("gpt2")
    seen.save(tmp_path / "whole", whole=True)
    again = Trace.load(tmp_path / "whole")
    assert again.steps("self", 1, 1, 2).as_json()["parts"] == seen.steps("self", 1, 1, 2).as_json()["parts"]
    assert again.steps("self", 2, 1, 2).no_parts == seen.steps("self", 2, 1, 2).no_parts


EVERY = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}


@pytest.mark.parametrize("name", EVERY)
def test_every_architecture_has_parts_that_add_up_or_says_why_not(name):
    module, config = EVERY[name]
    special = {"eos": 1, "decoder_start": 0} if name in tiny.ENCODER_DECODERS else {}
    loaded = Loaded(
        module.__name__.rsplit(".", 1)[-1], config, tiny.build(EVERY[name], torch.float32), None, special
    )
    seen = trace(loaded, "3 4 5 6 7", "4 5 6" if name in tiny.ENCODER_DECODERS else None)
    for which in seen.kinds:
        steps = seen.steps(which, 1, 1, 2)
        told = steps.as_json()
        if told["parts"] is None:
            assert told["parts_refused"]
            continue
        total = sum(torch.tensor(numbers) for numbers in told["parts"].values())
        assert (total - steps.scores_S).abs().max() <= 1e-5
        assert any(abs(x) > 1e-4 for x in told["parts"]["position_position"])
