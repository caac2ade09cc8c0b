"""heedful look: the attention that it shows is the model's own, head by head and step by step."""

import dataclasses
import json
import math

import pytest
import torch
from helpers.look_cases import imported

from heedful.corpora import phrasebook
from heedful.data.pieces import labels
from heedful.data.vocab import Vocab
from heedful.errors import BadInput
from heedful.inside.look.attention import look, run
from heedful.inside.look.heads import MEASURE, TRIED, Head, information, practice
from heedful.interop.formats import load
from heedful.parts.positions.relative import Shaw
from heedful.parts.watch import watch
from heedful.tasks import alignment
from heedful.tasks.translate import translate

TEXT = "The cat sat on the mat."


# Numbers


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "llama", "bert", "t5", "transformer"])
def test_weights_are_those_of_the_model_at_work(name):
    loaded = imported(name)
    pair = name in ("t5", "transformer")
    for which in ("cross", "self", "encoder") if pair else ("self",):
        seen = look(loaded, TEXT, which=which)
        ids = torch.tensor([loaded.tokenizer.encode(TEXT).ids])
        with torch.no_grad(), watch(loaded.model) as trace:
            loaded.model(*([ids, torch.tensor([seen.words.read])] if pair else [ids]))
        part = {"cross": "cross", "self": "attention", "encoder": "attention"}[which]
        place = {"cross": "decoder", "self": "decoder" if pair else "", "encoder": "encoder"}[which]
        expected = {
            path: w[0]
            for path, w in trace.weights().items()
            if f".{part}." in path and path.startswith(place)
        }
        assert list(seen.weights) == list(expected) and len(seen.heads) == sum(map(len, expected.values()))
        for path, found in seen.weights.items():
            torch.testing.assert_close(found, expected[path])
            assert found.shape[1:] == (len(seen.down), len(seen.across))


def test_cross_attention_is_read_at_the_row_that_predicts_each_word():
    loaded = imported("t5")
    seen = look(loaded, TEXT, target="the mat sat")
    answers = [*loaded.tokenizer.encode("the mat sat", add_special_tokens=False).ids, 1]
    assert seen.words.read == [0, *answers[:-1]] and seen.words.answers == answers
    assert seen.down == labels(loaded.tokenizer, answers) and seen.down[-1] == "</s>"
    assert look(loaded, TEXT, target="the mat sat", which="self").down[0] == "<pad>"


def test_without_a_target_it_is_the_models_own_greedy_translation(runs):
    loaded = load(runs("translate"))
    vocab = Vocab.from_json(loaded.tokenizer.to_str())
    for line in ("ba de fi go", "ku ka"):
        seen = look(loaded, line)
        assert seen.words.translation == translate(loaded.model, vocab, [line])[0] != ""
        assert seen.across == line.split()
        again = look(loaded, line, target=seen.words.translation)
        written = len(seen.down)  # cut off at the greatest length, it lacks the end of sentence
        assert again.down[:written] == seen.down
        for path, weights in seen.weights.items():
            torch.testing.assert_close(again.weights[path][:, :written], weights)


def test_a_vocabulary_for_each_side_labels_each_side_by_its_own(runs):
    seen = look(load(runs("separate")), "ba de fi", target="FI DE BA")
    assert (seen.across, seen.down) == (["ba", "de", "fi"], ["FI", "DE", "BA", "[EOS]"])


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("lm", ["b", "a", "␣", "d", "e"]),
        ("mlm", ["[CLS]", "b", "a", "␣", "d", "e", "[SEP]"]),
        ("classify", ["[CLS]", "ba", "de", "[SEP]"]),
        ("decoder", ["[BOS]", "b", "a", "␣", "d", "e", "[EOS]"]),
    ],
)
def test_a_run_reads_what_its_task_taught_it_to_read(runs, kind, expected):
    seen = look(load(runs(kind)), "ba de")
    assert seen.down == seen.across == expected


# Which heads


def test_heads_are_chosen_by_layer_number_mean_and_best():
    loaded = imported("transformer")

    def chosen(**how):
        return [(head.layer, head.head) for head in look(loaded, TEXT, target="mat", **how).chosen]

    assert chosen() == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    assert chosen(layer=2) == [(2, 1), (2, 2)]
    assert chosen(head=2) == [(1, 2), (2, 2), (3, 2)]
    assert chosen(layer=3, head=1) == [(3, 1)]
    assert chosen(head="mean") == [(1, None), (2, None), (3, None)]
    assert chosen(which="encoder", layer=1) == [(1, 1), (1, 2), (1, 3)]
    seen = look(loaded, TEXT, target="mat", layer=2, head="mean")
    expected = seen.weights["decoder.stack.blocks.1.cross.layer"].mean(0)
    torch.testing.assert_close(seen.chosen[0].weights_TS, expected)


def test_information_is_nothing_unless_queries_look_at_different_places():
    eye = torch.eye(8)
    assert information(torch.full((8, 8), 1 / 8)) == pytest.approx(0)
    assert information(eye[[3] * 8]) == pytest.approx(0)
    assert information(eye) == pytest.approx(3)  # log2 8
    assert 0 < information(0.5 * eye + 0.5 / 8) < 3


def test_without_gold_alignments_the_best_head_is_the_one_that_tells_most():
    seen = look(imported("gpt2"), TEXT, head="best")
    assert [seen.best] == seen.chosen
    told = {(head.layer, head.head): information(head.weights_TS) for head in seen.heads}
    assert (seen.best.layer, seen.best.head) == max(told, key=told.get)
    assert seen.best_by == MEASURE
    within = look(imported("gpt2"), TEXT, layer=2, head="best")
    assert within.best.layer == 2 and within.best_by.endswith("of layer 2")


def test_with_gold_alignments_the_best_head_is_the_one_that_aligns_best(phrases):
    loaded, vocab, pairs = phrases
    seen = look(loaded, pairs[0].source, target=pairs[0].target, head="best", gold=pairs[1:])
    rates = alignment.error_rates(loaded.model, vocab, pairs[1:])
    one_by_one = torch.stack([alignment.error_rates(loaded.model, vocab, [pair]) for pair in pairs[1:]])
    torch.testing.assert_close(rates, one_by_one.mean(0))
    place = int(rates.argmin())
    assert (seen.best.layer, seen.best.head) == (place // 2 + 1, place % 2 + 1)
    assert f"error rate {rates.min():.2f} on 29 other sentences" in seen.best_by


def test_a_head_that_follows_the_gold_alignment_has_no_error(phrases):
    loaded, _, pairs = phrases
    pair = next(p for p in pairs if len({t for _, t in p.alignment}) == len(phrasebook.words(p.target)))
    seen = look(loaded, pair.source, target=pair.target)
    assert seen.beside(None).error_rate(seen.best) is None
    assert seen.beside(dataclasses.replace(pair, target="Autre chose.")).pair is None
    seen = seen.beside(pair)
    sharp = torch.zeros(len(seen.down), len(seen.across))
    for target, source in seen.marked:
        sharp[target, source] = 1 if source == min(s for t, s in seen.marked if t == target) else 0
    gold = {t: s for s, t in sorted(pair.alignment, reverse=True)}  # the first source word of each
    expected = 1 - 2 * len(gold) / (len(gold) + len(pair.alignment))
    assert seen.error_rate(Head(1, 1, "", sharp)) == pytest.approx(expected)
    assert seen.error_rate(Head(1, 1, "", sharp.roll(1, 1))) > expected
    words = phrasebook.words(pair.source), phrasebook.words(pair.target)
    for target, source in seen.marked:
        links = {(words[0][s].lower(), words[1][t].lower()) for s, t in pair.alignment}
        assert any(seen.across[source].lower() in a and seen.down[target].lower() in b for a, b in links)
    assert (
        "frames: the reference alignment"
        in look(loaded, pair.source, target=pair.target, layer=1, head=1).beside(pair).svg()
    )


def test_only_a_run_of_the_phrasebook_has_sentences_to_practise_with(tmp_path):
    assert practice(tmp_path) == []
    (tmp_path / "recipe.json").write_text(json.dumps({"data": {"corpus": "pylib"}}))
    assert practice(tmp_path) == []
    (tmp_path / "recipe.json").write_text(json.dumps({"data": {"corpus": "phrasebook"}}))
    assert len(practice(tmp_path)) == TRIED


def test_a_sentence_is_found_in_any_split_of_the_phrasebook(monkeypatch, phrases):
    pairs = phrases[2]
    monkeypatch.setattr(phrasebook, "split", lambda name: pairs[4:6] if name == "long" else pairs[:4])
    assert alignment.find_pair(pairs[5].source) == pairs[5]
    assert alignment.find_pair("Nobody says this.") is None


# One query, step by step


def head_output(loaded, seen, head, place):
    """What the model itself takes home, caught where its heads are joined."""
    attention, caught = loaded.model.get_submodule(head.path), []
    hook = attention.out.register_forward_pre_hook(lambda module, given: caught.append(given[0]))
    run(loaded.model, seen.words)
    hook.remove()
    return caught[-1][0, place].unflatten(0, (attention.heads, -1))[head.head - 1]


OF_FAMILIES = [("gpt2", "self"), ("llama", "self"), ("bert", "self")]
OF_FAMILIES += [("t5", "encoder"), ("t5", "self"), ("transformer", "cross")]


@pytest.mark.parametrize("name, which", OF_FAMILIES)
def test_every_step_is_the_formulas_and_the_last_is_the_models(name, which):
    loaded = imported(name)
    for layer, number in ((1, 2), (2, 1)):
        seen = look(loaded, TEXT, which=which, layer=layer, head=number)
        found = seen.steps(4)
        torch.testing.assert_close(found.scores_S, found.k_SK @ found.q_K)
        width = len(found.q_K)
        assert found.scale == (1 if name == "t5" else pytest.approx(1 / math.sqrt(width)))
        torch.testing.assert_close(found.scaled_S, found.scores_S * found.scale)
        assert (found.bias_S is not None) == (name == "t5")
        masked = found.scaled_S + (0 if found.bias_S is None else found.bias_S)
        if which == "self" and name != "bert":
            masked[4:] = -math.inf
        torch.testing.assert_close(found.masked_S, masked)
        torch.testing.assert_close(found.weights_S, masked.softmax(-1), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(found.weights_S, seen.chosen[0].weights_TS[3])
        torch.testing.assert_close(found.output_L, head_output(loaded, seen, seen.chosen[0], 3))


def test_relative_values_are_part_of_what_a_query_takes_home():
    loaded = imported("gpt2")
    torch.manual_seed(3)
    for block in loaded.model.stack.blocks:
        block.attention.layer.position = Shaw(2, 4)
    seen = look(loaded, TEXT, layer=2, head=1)
    found = seen.steps(5)
    assert found.bias_S is not None and found.added_L is not None and found.added_L.norm() > 0.01
    torch.testing.assert_close(found.output_L, head_output(loaded, seen, seen.chosen[0], 4))
    assert "\npositions " in found.text()


def test_the_table_shows_every_key_and_the_sum():
    seen = look(imported("gpt2"), TEXT, layer=1, head=2)
    found = seen.steps(3)
    lines = found.text().splitlines()
    table = lines[lines.index("") + 1 :]
    assert table[0].split()[:3] == ["key", "q·k", "×"] and "masked" in table[0]
    assert [line.split()[0] for line in table[1:]] == [*seen.across, "sum"]
    assert [line.split()[3] for line in table[4:-1]] == ["-inf"] * (len(seen.across) - 3)
    assert table[-1].split()[1] == "1.000"
    assert len({line.index("[") for line in table[1:]}) == 1  # columns stand below each other
    json.dumps(found.as_json(), allow_nan=False)
    assert found.as_json()["masked"][3:] == [None] * (len(seen.across) - 3)


def test_a_query_is_found_by_word_and_by_number():
    seen = look(imported("bert"), "the cat, the mat", layer=1, head=1)
    assert (
        seen.down[1] == "the" and seen.steps("THE").query == 2 == seen.steps(2).query == seen.steps("2").query
    )
    with pytest.raises(BadInput, match=r'no query teh: give a number from 1 to .*did you mean "the"'):
        seen.steps("teh")
    with pytest.raises(BadInput, match=r"no query 99: .* there are \[CLS\], the, cat"):
        seen.steps(99)
    with pytest.raises(BadInput, match=r'did you mean "\[CLS\]"'):  # as the table spells it
        seen.steps("[clss]")
    with pytest.raises(BadInput, match="shows one head"):
        look(imported("bert"), "the cat", layer=1, head="mean").steps(1)
