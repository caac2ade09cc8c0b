"""Positions from syntax, from the parts to the command: subwords inherit, padding changes nothing."""

import json
import shutil
from itertools import islice
from pathlib import Path

import pytest
import torch
from helpers.runs import CPU, TINY, Quiet
from helpers.small_runs import small_run  # noqa: F401 (fixtures)
from helpers.structural_cases import HEADS, LENGTHS, NAMES, WORDS, B, D, H, S, T, inputs, model_of, tree_of
from helpers.treebanks import row

from heedful import load
from heedful.cli.main import main
from heedful.corpora import phrasebook
from heedful.data.conllu import Sentence, written
from heedful.data.trees import Parsed
from heedful.errors import BadInput
from heedful.inside.look.attention import look
from heedful.models import transformer
from heedful.models.base.shells import needs_tree
from heedful.parts.places import At, Lengths
from heedful.parts.positions.base import Tree
from heedful.parts.positions.syntax import (
    StructuralAbsolute,
    StructuralRelative,
    depths,
    of_tokens,
    structural_distances,
)
from heedful.runs import trainer
from heedful.runs.setup import make_job
from heedful.tasks import recipe, translate, translate_data

# Subwords


@pytest.mark.parametrize("scope", ["edge", "path"])
def test_pieces_have_the_place_of_their_word(scope):
    tree = tree_of()
    depth, steps = depths(HEADS), structural_distances(HEADS, scope)
    found_depth, found_steps = of_tokens(depth, tree), of_tokens(steps, tree)
    assert found_depth.shape == (B, S) and found_steps.shape == (B, S, S)
    for b in range(B):
        for i in range(int(LENGTHS[b])):
            assert found_depth[b, i] == depth[b, WORDS[b, i]]
            for j in range(int(LENGTHS[b])):
                assert found_steps[b, i, j] == steps[b, WORDS[b, i], WORDS[b, j]]
                if WORDS[b, i] == WORDS[b, j]:
                    assert found_steps[b, i, j] == 0


def test_where_every_token_is_a_word_nothing_changes():
    whole = torch.arange(4).expand(B, 4)
    for part in (StructuralAbsolute(D), StructuralRelative(2, 4, heads=H)):
        x = torch.randn(B, 4, D), torch.randn(B, H, 4, 4)
        for words in (None, whole):
            tree = Tree(torch.arange(4).expand(B, 4), HEADS, words)
            if isinstance(part, StructuralAbsolute):
                found = part.embed(x[0], tree)
            else:
                found = part.bias(x[1], x[1], tree, tree)
            if words is None:
                expected = found
        torch.testing.assert_close(found, expected)


def test_layers_that_see_the_tree_differently_share_nothing():
    x, tree, memo = torch.randn(B, H, S, 4), tree_of(), {}
    for clip, scope in ((2, "edge"), (2, "path"), (1, "edge")):
        part = StructuralRelative(clip, 4, heads=H, scope=scope)
        torch.testing.assert_close(part.tree_edges(tree, memo), part.tree_edges(tree))
        torch.testing.assert_close(part.bias(x, x, tree, tree, memo), part.bias(x, x, tree, tree))
    assert len(memo) == 3


def test_trees_matter_and_the_order_of_words_still_does():
    source, target = inputs()
    for name in NAMES:
        model = model_of(name)
        out = model(source, target, At(tree_of()))
        other = model(source, target, At(tree_of(heads=torch.tensor([[-1, 0, 1, 2], [1, -1, 1, -1]]))))
        assert (out - other).abs().amax((1, 2)).min() > 1e-3
        swapped = source.clone()
        swapped[:, 0], swapped[:, 3] = source[:, 3], source[:, 0]
        assert (out - model(swapped, target, At(tree_of()))).abs().max() > 1e-3


def test_the_encoder_alone_knows_trees_and_says_so():
    for name in transformer.POSITIONS:
        model = model_of(name)
        assert needs_tree(model.encoder) == (name in NAMES)
        assert not needs_tree(model.decoder)
    with pytest.raises(TypeError, match="positions from syntax need the sentence's tree"):
        model_of("structural")(*inputs())
    with pytest.raises(ValueError, match="relation_scope must be one of edge, path, not 'all'"):
        model_of("structural", relation_scope="all")


# Invariants


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_company_change_nothing(name):
    """Rows of different lengths together, rows padded further, and each row alone give the same."""
    model, (source, target) = model_of(name), inputs()
    together = model(source, target, At(tree_of()))
    for b in range(B):
        n = int(LENGTHS[b])
        alone = Tree(torch.arange(n)[None], HEADS[b : b + 1, : int(WORDS[b].max()) + 1], WORDS[b : b + 1, :n])
        out = model(source[b : b + 1, :n], target[b : b + 1], At(alone))
        torch.testing.assert_close(together[b : b + 1], out)
    more = torch.randint(17, (B, 3))
    wider = tree_of(
        heads=torch.cat([HEADS, torch.full((B, 5), -1)], 1),
        words=torch.cat([WORDS, torch.full((B, 3), -1)], 1),
    )
    padded = model(torch.cat([source, more], 1), target, At(wider))
    torch.testing.assert_close(together, padded)


@pytest.mark.parametrize("name", [*NAMES, "shaw"])
def test_decoding_with_a_cache_equals_decoding_without(name):
    model, (source, target) = model_of(name), inputs()
    places = At(tree_of()) if name in NAMES else Lengths(LENGTHS)
    said = model.read(source, places)
    whole = model.decode(said, target)
    for cache in (model.decoder.growing_cache(), model.decoder.static_cache(B, T)):
        pieces = [model.decode(said, piece, cache=cache) for piece in target.split([2, 1, 1, 1], 1)]
        torch.testing.assert_close(torch.cat(pieces, 1), whole)


@pytest.mark.parametrize("name", NAMES)
def test_recomputed_blocks_give_the_same_gradients(name):
    """What is remembered for all layers of a call must not be in the way of computing them again."""
    source, target = inputs()
    found = []
    for recompute in (False, True):
        model = model_of(name, dropout=0.0).train()
        model.encoder.stack.recompute = recompute
        model(source, target, At(tree_of())).square().sum().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient)
    if name != "structural-absolute":
        assert any("tree.keys" in key and g.abs().max() > 0 for key, g in found[0].items())


# The command


SMALL = {**TINY, "model.dropout": 0.0, "evaluate.rows": 6, "train.batch_tokens": 256, "model.max_distance": 3}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pairs with trees, cut into bytes, so that most words are several pieces."""
    folder = tmp_path_factory.mktemp("files")
    for name, pairs in {"a": phrasebook.split("valid")[:60], "v": phrasebook.split("test")[:12]}.items():
        trees = [Sentence(tuple(phrasebook.words(p.source)), heads=p.heads) for p in pairs]
        (folder / f"{name}.en").write_text("".join(f"{p.source}\n" for p in pairs))
        (folder / f"{name}.fr").write_text("".join(f"{p.target}\n" for p in pairs))
        (folder / f"{name}.conllu").write_text("".join(map(written, trees)))
    return folder


def settings(files, **more):
    named = {
        "source": "a.en",
        "target": "a.fr",
        "trees": "a.conllu",
        "valid_source": "v.en",
        "valid_target": "v.fr",
    }
    named |= {"valid_trees": "v.conllu"}
    return {
        **SMALL,
        **{f"data.{key}": str(files / name) for key, name in named.items()},
        "data.vocab_size": 300,
        "model.positions": "structural",
        "train.steps": 4,
        **more,
    }


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    trainer.start(recipe.make("translate", settings=settings(files)), path, Quiet(), CPU)
    return path


def test_files_with_their_trees_train_and_are_evaluated(files, trained, capsys):
    assert main(["evaluate", str(trained), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["examples"] == 12
    own = [
        "--source",
        str(files / "v.en"),
        "--target",
        str(files / "v.fr"),
        "--trees",
        str(files / "v.conllu"),
    ]
    assert main(["evaluate", str(trained), *own, "--json", "--batch", "1"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["metrics"]["loss"] == pytest.approx(whole["metrics"]["loss"], rel=1e-5)
    assert main(["evaluate", str(trained), *own[:4]]) == 2
    assert "give --trees FILE, CoNLL-U, too" in capsys.readouterr().err
    main(["doctor", str(trained)])
    assert "14 ok, 1 warnings, 1 failed" in capsys.readouterr().out  # it has learned nothing yet


def test_the_batches_have_the_trees_of_their_sentences(files, tmp_path):
    job = make_job(recipe.make("translate", settings=settings(files)), tmp_path, Quiet())
    pairs, seen = phrasebook.split("valid")[:60], 0
    for step in range(job.steps_per_epoch):
        for batch in job.batches(step):
            for b, i in enumerate(batch.ids):
                words = batch.words_BS[b][batch.words_BS[b] >= 0]
                assert len(words) == batch.source_lengths_B[b] and words.max() == len(pairs[i].heads) - 1
                assert batch.heads_BW[b, : len(pairs[i].heads)].tolist() == list(pairs[i].heads)
                assert len(words) > len(pairs[i].heads)  # pieces
                seen += 1
    assert seen == 60


def test_lines_are_translated_with_the_trees_of_a_file_whatever_the_batch(
    files, trained, capsysbinary, monkeypatch
):
    import io
    import sys

    def translated(*options):
        stdin = io.TextIOWrapper(io.BytesIO(b"\n" + (files / "v.en").read_bytes()))
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(["translate", str(trained), *options])
        return code, capsysbinary.readouterr()

    trees = ["--trees", str(files / "v.conllu")]
    code, said = translated(*trees)
    assert code == 0 and said.out.count(b"\n") == 13 and said.out.startswith(b"\n")
    assert translated(*trees, "--batch", "1")[1].out == said.out
    model = load(trained)
    texts = [Parsed(p.source, phrasebook.words(p.source), p.heads) for p in phrasebook.split("test")[:12]]
    assert "\n".join(["", *model.translate(texts), ""]).encode() == said.out
    assert model.translate(texts, beam=1) == [model.translate(text, beam=1) for text in texts]
    greedy = translate.translate(model.model, translate_data.read_vocabs(trained, True), texts)
    assert [text for text in model.translate(texts, beam=1)] == greedy
    code, said = translated()
    assert code == 2 and b"reads sentences with their trees, and text 1 has none: give --trees" in said.err
    (files / "one.conllu").write_text(written(texts[0].sentence))
    code, said = translated("--trees", str(files / "one.conllu"))
    assert code == 2 and b"one.conllu has no tree for line 3" in said.err


def test_a_score_needs_the_tree_too_and_depends_on_it(trained, capsys):
    model = load(trained)
    text = Parsed("The cat sleeps.", ["The", "cat", "sleeps", "."], [1, 2, -1, 2])
    chain = Parsed("The cat sleeps.", ["The", "cat", "sleeps", "."], [-1, 0, 1, 2])
    assert model.can == ("translate", "stream", "score")
    assert model.score(text, "Le chat dort.").total != model.score(chain, "Le chat dort.").total
    assert "".join(model.stream(text)) == model.translate(text, beam=1)
    with pytest.raises(BadInput, match="text 1 has none"):
        model.score("The cat sleeps.", "Le chat dort.")
    for line, said in {
        ("The cat",): "reads sentences with their trees",
        ("--positions",): "the sentence's tree",
    }.items():
        assert main(["look", str(trained), *line]) == 2
        assert said in capsys.readouterr().err


def test_a_text_is_looked_at_with_its_tree(files, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model, words = load(trained), ["The", "cat", "sleeps", "."]
    text = Parsed("The cat sleeps.", words, [1, 2, -1, 2])
    chain = Parsed("The cat sleeps.", words, [-1, 0, 1, 2])
    seen, other = (look(model.loaded, one, which="encoder", target="Le chat.") for one in (text, chain))
    assert not all(torch.equal(seen.weights[path], other.weights[path]) for path in seen.weights)
    Path("t.conllu").write_text(written(text.sentence))
    for which in ("cross", "self", "encoder"):
        asked = ["look", str(trained), str(text), "--trees", "t.conllu", "--which", which, "--json"]
        assert main(asked) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["translation"] == model.translate(text, beam=1)
    drawn = torch.tensor([head["weights"] for head in found["heads"]])
    torch.testing.assert_close(drawn, torch.cat(list(seen.weights.values())))  # the encoder reads no target
    assert main(["look", str(trained), "The dog sleeps.", "--trees", "t.conllu"]) == 2
    assert "the tree has the word 'cat' where the text has 'dog sleeps.'" in capsys.readouterr().err
    assert main(["look", str(trained), str(text)]) == 2
    assert "this model reads sentences with their trees: give --trees" in capsys.readouterr().err


def test_interrupted_and_resumed_is_the_same_run(files, tmp_path):
    from helpers.runs import Interrupted, state_of

    made = recipe.make("translate", settings=settings(files, **{"train.steps": 6, "checkpoint.every": 2}))
    trainer.start(made, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(made, tmp_path / "broken", Quiet(until=5), CPU)
    trainer.resume(tmp_path / "broken", Quiet(), CPU)
    assert state_of(tmp_path / "whole") == state_of(tmp_path / "broken")


def test_the_phrasebook_trains_with_its_own_trees_by_one_command(tmp_path, monkeypatch):
    monkeypatch.setattr(phrasebook, "split", lambda name: list(islice(phrasebook.pairs(3), 30)))
    words = [
        "train",
        "translate",
        "--corpus",
        "phrasebook",
        "--size",
        "tiny",
        "--steps",
        "2",
        "--run",
        str(tmp_path / "r"),
    ]
    small = [
        f"--set={key}={value}"
        for key, value in SMALL.items()
        if key.startswith(("model", "evaluate", "train"))
    ]
    assert (
        main(
            [
                *words,
                *small,
                "--set",
                "model.positions=structural-relative",
                "--set",
                "model.relation_scope=path",
            ]
        )
        == 0
    )
    config = json.loads((tmp_path / "r" / "config.json").read_text())["config"]
    assert (config["positions"], config["relation_scope"], config["max_distance"]) == (
        "structural-relative",
        "path",
        3,
    )
    assert main(["evaluate", str(tmp_path / "r"), "--split", "long"]) == 0


REFUSED = {
    "no trees": (
        {"data.trees": ""},
        "give --trees and --valid-trees, CoNLL-U files, beside --source and --valid-source",
    ),
    "no held-out trees": ({"data.valid_trees": ""}, "give --trees and --valid-trees"),
    "trees in vain": (
        {"model.positions": "sinusoidal", "model.max_distance": None},
        "has trees, which positions sinusoidal do not read",
    ),
    "trees that are not there": ({"data.trees": "gone.conllu"}, "gone.conllu is missing"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_go_together_is_refused_in_a_sentence(what, files, tmp_path):
    more, said = REFUSED[what]
    asked = {key: value for key, value in settings(files, **more).items() if value is not None}
    with pytest.raises(BadInput) as caught:
        trainer.start(recipe.make("translate", settings=asked), tmp_path / "run", Quiet(), CPU)
    assert said in str(caught.value) and not (tmp_path / "run").exists()


def test_a_tree_of_another_sentence_is_refused_with_both_places(files, tmp_path):
    lines = (files / "a.conllu").read_text().split("\n\n")
    lines[4] = "\n".join([row(1, "Nonsense")])
    (tmp_path / "t").write_text("\n\n".join(lines))
    with pytest.raises(
        BadInput, match=r"/t:\d+: the tree of .*a.en:5: the tree has the word 'Nonsense' where"
    ):
        asked = settings(files, **{"data.trees": str(tmp_path / "t")})
        trainer.start(recipe.make("translate", settings=asked), tmp_path / "run", Quiet(), CPU)


def test_a_config_without_one_of_its_sizes_is_refused(tmp_path, small_run):
    folder = tmp_path / "run"
    shutil.copytree(small_run("demo"), folder)
    config = json.loads((folder / "config.json").read_text())
    del config["config"]["max_distance"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="the config is not that of a transformer"):
        load(folder)
