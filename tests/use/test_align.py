"""Word alignments: from attention between tokens to links between words."""

import json

import pytest
import torch

from heedful import BadInput
from heedful.cli.main import main
from heedful.use import align
from heedful.use.texts import Tokenized


def test_words_are_what_stands_between_spaces():
    text = " a bcd  e."
    spans = [(0, 2), (2, 4), (4, 6), (6, 9), (9, 10), (7, 7), (6, 8)]
    assert align.words_of(text, spans) == [0, 1, 1, 2, 2, -1, -1]


def test_links_add_up_the_tokens_of_a_word_on_both_sides():
    """Source words of 1, 2 and 1 tokens, and an end that is no word; target words of 2, 1 and 1 tokens."""
    read, written = [0, 1, 1, 2, -1], [0, 0, 1, 2]
    weights = torch.tensor(
        [
            [0.5, 0.2, 0.2, 0.0, 0.1],  # alone, the first token would go to word 0,
            [0.0, 0.3, 0.3, 0.4, 0.0],  # but its word attends to word 1 more: 1.0 against 0.5
            [0.1, 0.0, 0.1, 0.3, 0.5],  # most attention goes to the end, which has no words
            [0.4, 0.3, 0.2, 0.1, 0.0],  # two tokens together outweigh one
            [9.0, 9.0, 9.0, 9.0, 9.0],  # what predicts the end of the target is no word
        ]
    )
    assert align.links(weights, read, written) == [(1, 0), (1, 2), (2, 1)]
    assert align.links(weights, [-1, -1], written) == align.links(weights, read, []) == []


@pytest.mark.parametrize("how", [{"beam": 1}, {}, {"beam": 3, "n_best": 3}, {"sample": True}])
def test_every_answer_gets_the_links_of_its_own_words(how, load, monkeypatch):
    model, sources = load("demo"), ["the cat sleeps", "", "the dog eats a fish"]

    def diagonal(model, read, rows: list[Tokenized], fed: list[list[int]]) -> torch.Tensor:
        T, S = max(map(len, fed)), max(len(row.ids) for row in rows)
        return torch.eye(T, S).flip(1).expand(len(rows), T, S)  # the first target token sees the last place

    monkeypatch.setattr(align, "cross_attention", diagonal)
    for source, answer in zip(sources, model.translate(sources, **how, align=True, batch=1), strict=True):
        for one in answer.n_best:
            T, S = len(one.split()), len(source.split())
            mirrored = {(max(S - 1 - t, 0), t) for t in range(T)} if one else set()
            assert {t for _, t in one.alignment} == {t for _, t in mirrored}
            assert set(one.alignment) >= {(s, t) for s, t in mirrored if t < S}
    assert model.translate("the cat sleeps", **how).alignment is None


def test_attention_is_the_mean_over_all_heads_where_each_token_is_predicted(load):
    from heedful.parts.watch import watch

    model = load("demo")
    row = model.wording.source(["the cat sleeps"], spans=True)[0]
    fed = [model.wording.start, *model.wording.target(["le chat dort"])[0]]
    with torch.no_grad(), watch(model.model) as trace:
        model.model(torch.tensor([row.ids]), torch.tensor([fed]))
    heads = torch.cat([weights for path, weights in trace.weights().items() if ".cross." in path], 1)
    assert torch.allclose(
        align.cross_attention(model, lambda network, rows: network, [row], [fed]), heads.mean(1), atol=1e-6
    )


def test_the_command_line_prints_pharaohs_links_after_a_tab(small_run, load, capsys):
    expected = load("demo").translate("the dog eats a fish", align=True, n_best=2)
    links = [" ".join(f"{s}-{t}" for s, t in one.alignment) for one in expected.n_best]
    assert main(["translate", small_run("demo"), "--align", "the dog eats a fish"]) == 0
    assert capsys.readouterr().out == f"{expected}\t{links[0]}\n"
    assert main(["translate", small_run("demo"), "--align", "--n-best=2", "the dog eats a fish"]) == 0
    assert [line.split("\t")[2] for line in capsys.readouterr().out.splitlines()] == links
    assert main(["translate", small_run("demo"), "--align", "--json", "the dog eats a fish"]) == 0
    found = json.loads(capsys.readouterr().out)["answers"][0]["alignment"]
    assert found == [list(link) for link in expected.alignment]
    assert main(["translate", small_run("demo"), "--json", "the dog eats a fish"]) == 0
    assert "alignment" not in json.loads(capsys.readouterr().out)["answers"][0]


def test_a_stream_has_no_alignment(load):
    with pytest.raises(BadInput, match="leave out `align`"):
        load("demo").stream("the cat sleeps", align=True)
