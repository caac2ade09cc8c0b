"""heedful evaluate: every figure against one computed another way."""

import gzip
import json
import math
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from helpers.runs import CPU, TINY, Quiet

import heedful
from heedful.corpora import phrasebook
from heedful.data.vocab import Vocab
from heedful.parts.places import Lengths
from heedful.runs import trainer
from heedful.tasks import mlm, recipe
from heedful.tasks.metrics import confusion, macro_f1, scores_by_label, translation_scores
from heedful.tasks.next_sentence import Lines

LABELS = ("back", "front", "mixed")


def opened(path: Path) -> tuple[torch.nn.Module, Vocab]:
    return heedful.load(path).model, Vocab.from_json((path / "tokenizer.json").read_text())


def lines_of(path) -> list[str]:
    return Path(path).read_text().splitlines()


def wilson(share: float, n: int) -> list[float]:
    """The shares p from which the one seen is 1.96 standard errors away: roots of (share - p)^2 = z^2 p (1
    - p) / n."""
    z2 = 1.96**2
    return sorted(np.roots([1 + z2 / n, -(2 * share + z2 / n), share * share]).real.tolist())


# Translate


def translated(model, vocab, source: str) -> str:
    """One sentence, one word at a time, nothing cached."""
    read = torch.tensor(vocab.encode_batch([source]))
    written = [vocab.bos]
    while len(written) <= 2 * read.shape[1] + 20:
        scores = model(read, torch.tensor([written]))[0, -1]
        if (token := int(scores.argmax())) == vocab.eos:
            break
        written.append(token)
    return vocab.decode(written[1:])


def surprise(model, vocab, source: str, target: str, other: Vocab | None = None) -> tuple[float, int]:
    """The summed loss of one pair, and its tokens; the target may have another vocabulary."""
    (a,), (b,) = vocab.encode_batch([source]), (other or vocab).encode_batch([target])
    scores = model(torch.tensor([a]), torch.tensor([[vocab.bos, *b]]))[0]
    return float(F.cross_entropy(scores, torch.tensor([*b, vocab.eos]), reduction="sum")), len(b) + 1


@torch.no_grad()
def test_translations_are_judged_on_every_held_out_pair(trained, files, evaluate):
    found = evaluate(trained("translate"), "--beam", 1)
    model, vocab = opened(trained("translate"))
    pairs = list(zip(lines_of(files["v.src"]), lines_of(files["v.tgt"]), strict=True))
    assert found["examples"] == len(pairs) == 37 > TINY["evaluate.rows"]
    mine = [translated(model, vocab, source) for source, _ in pairs]
    theirs = [target for _, target in pairs]
    losses = [surprise(model, vocab, *pair) for pair in pairs]
    loss, tokens = (sum(column) for column in zip(*losses, strict=True))
    metrics = found["metrics"]
    assert metrics["loss"] == pytest.approx(loss / tokens, rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(loss / tokens), rel=1e-5)
    assert metrics["bleu"] == pytest.approx(sacrebleu.corpus_bleu(mine, [theirs]).score)
    assert metrics["chrf"] == pytest.approx(sacrebleu.corpus_chrf(mine, [theirs]).score)
    assert metrics["exact"] == sum(a == b for a, b in zip(mine, theirs, strict=True)) / 37
    assert found["baselines"]["bleu"]["score"] == pytest.approx(
        sacrebleu.corpus_bleu([source for source, _ in pairs], [theirs]).score
    )
    assert found["signature"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.")
    assert found["signature"]["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.")
    assert found["data"] == {
        "source": files["v.src"],
        "target": files["v.tgt"],
        "tokens": tokens,
        "dropped": 0,
    }


@torch.no_grad()
def test_own_files_and_translations_that_stay_in_step_with_them(trained, files, evaluate, tmp_path):
    model, vocab = opened(trained("translate"))
    sources = [*lines_of(files["v.src"])[:5], "", "ba DE ?", *lines_of(files["v.src"])[5:8], "ba"]
    right = [translated(model, vocab, source) if source else "" for source in sources]
    assert all(right[i] for i in (0, 2, 6, 7, 9))  # else they would be dropped as targets
    targets = [right[0], "wrong", right[2], "", "wrong", "no source", *right[6:8], "wrong", right[9], ""]
    (tmp_path / "s.gz").write_bytes(gzip.compress("\n".join(sources).encode()))
    (tmp_path / "t").write_text("\n".join(targets) + "\n")
    own = ["--source", tmp_path / "s.gz", "--target", tmp_path / "t"]
    found = evaluate(trained("translate"), *own, "--output", tmp_path / "out", "--batch", 3, "--beam", 1)
    assert "3 lines dropped: 3 empty" in evaluate.said and found["data"]["dropped"] == 3
    assert found["examples"] == 8 and found["metrics"]["exact"] == 5 / 8
    assert found["metrics"]["exact_interval"] == pytest.approx(wilson(5 / 8, 8))
    kept = [i for i, (a, b) in enumerate(zip(sources, targets, strict=True)) if a and b]
    assert (tmp_path / "out").read_text().split("\n") == [
        right[i] if i in kept else "" for i in range(11)
    ] + [""]
    # "DE" and "?" are unknown to the vocabulary, as are wrong translations.
    texts = [text for i in kept for text in (sources[i], targets[i])]
    ids = [token for text in texts for token in vocab.encode_batch([text])[0]]
    assert found["metrics"]["unknown"] == ids.count(vocab.unk) / len(ids) > 0


@pytest.mark.parametrize(
    ("words", "options", "signature"),
    [
        ([], {}, "beam:4|length_penalty:gnmt|length_alpha:0.6"),
        (
            ["--beam=2", "--length-alpha=1.5"],
            {"beam": 2, "length_alpha": 1.5},
            "beam:2|length_penalty:gnmt|length_alpha:1.5",
        ),
        (["--beam=1"], {"beam": 1}, "greedy"),
    ],
)
def test_evaluate_searches_as_translate_does_and_says_how(
    words, options, signature, trained, files, evaluate, tmp_path
):
    found = evaluate(trained("translate"), *words, "--output", tmp_path / "out")
    sources, targets = lines_of(files["v.src"]), lines_of(files["v.tgt"])
    expected = heedful.load(trained("translate")).translate(sources, **options)
    assert (tmp_path / "out").read_text().splitlines() == expected
    assert found["metrics"]["bleu"] == pytest.approx(sacrebleu.corpus_bleu(expected, [targets]).score)
    assert found["signature"]["decoding"] == signature


@torch.no_grad()
def test_tables_of_pairs_and_a_vocabulary_for_each_side(trained, files, evaluate, tmp_path, fails):
    path = trained("tables")
    model, vocab = opened(path)
    other = Vocab.from_json((path / "target_tokenizer.json").read_text())
    assert vocab.hash != other.hash
    lines = lines_of(files["v.pairs"])[1:]
    (tmp_path / "t.tsv").write_text("\n".join(["en\tfr", *lines[:6], "bad", *lines[6:9]]))
    columns = ["--set", "data.source_column=en", "--set", "data.target_column=fr"]
    own = ["--data", tmp_path / "t.tsv", *columns, "--output", tmp_path / "out"]
    for args, some in (([], lines), (own, lines[:9])):
        found = evaluate(path, *args)
        losses = [surprise(model, vocab, *line.split("\t"), other) for line in some]
        loss, tokens = (sum(column) for column in zip(*losses, strict=True))
        assert found["examples"] == len(some) and found["data"]["tokens"] == tokens
        assert found["metrics"]["loss"] == pytest.approx(loss / tokens, rel=1e-5)
    assert (found["data"]["dropped"], found["data"]["data"]) == (1, str(tmp_path / "t.tsv"))
    assert len((tmp_path / "out").read_text().split("\n")) == 11  # a line for each row, and the end
    assert evaluate(trained("translate"), *own[:-2])["examples"] == 9  # whose own held-out data are two files
    copy = shutil.copytree(path, tmp_path / "copy")
    shutil.copy(copy / "tokenizer.json", copy / "target_tokenizer.json")
    assert "target_tokenizer.json is not the one its model was trained with" in fails(copy)


def test_a_recipe_without_capitals_is_judged_without_them(trained, files, evaluate, tmp_path):
    found = evaluate(trained("lower"), "--beam", 1)
    model, vocab = opened(trained("lower"))
    with torch.no_grad():
        mine = [translated(model, vocab, source) for source in lines_of(files["v.src"])]
    theirs = lines_of(files["v.tgt"])
    assert found["metrics"]["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(mine, [theirs], lowercase=True).score
    )
    assert "case:lc" in found["signature"]["bleu"] and "case:lc" in found["signature"]["chrf"]
    (tmp_path / "loud").write_text("".join(f"{line.upper() or '-'}\n" for line in mine))
    own = ["--source", files["v.src"], "--target", tmp_path / "loud"]
    loud = evaluate(trained("lower"), *own, "--beam", 1)
    assert loud["metrics"]["exact"] == sum(bool(line) for line in mine) / 37 > 0


@pytest.mark.parametrize("lower", [False, True])
def test_without_sacrebleu_the_score_is_the_same_and_the_signature_says_who_computed_it(lower, monkeypatch):
    found, expected = ["The cat sat on a mat.", "no"], ["the cat sat on the mat.", "No, 3.5 %"]
    scores, signature = translation_scores(found, expected, lower)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    ours, signed = translation_scores(found, expected, lower)
    assert ours == {"bleu": pytest.approx(scores["bleu"])} and set(scores) == {"bleu", "chrf"}
    theirs, _, version = signature["bleu"].rpartition("|")
    assert version == f"version:{sacrebleu.__version__}"
    assert signed == {"bleu": f"{theirs}|version:heedful-{heedful.__version__}"}


def test_splits_of_the_phrasebook_and_files_beside_it(tmp_path, files, evaluate, fails, monkeypatch):
    whole = phrasebook.split
    monkeypatch.setattr(phrasebook, "split", lambda name: whole(name)[: 150 if name == "train" else 5])
    settings = TINY | {"train.steps": 1}
    trainer.start(recipe.make("translate", "tiny", "phrasebook", settings), tmp_path / "run", Quiet(), CPU)
    for args, split in (([], "valid"), (["--split", "test"], "test"), (["--split", "long"], "long")):
        found = evaluate(tmp_path / "run", *args)
        assert found["data"]["corpus"] == "phrasebook" and found["data"]["split"] == split
        pairs = [(pair.source, pair.target) for pair in phrasebook.split(split)]
        model, vocab = opened(tmp_path / "run")
        with torch.no_grad():
            losses = [surprise(model, vocab, *pair) for pair in pairs]
        loss, tokens = (sum(column) for column in zip(*losses, strict=True))
        assert found["examples"] == len(pairs) == 5
        assert found["metrics"]["loss"] == pytest.approx(loss / tokens, rel=1e-5)
    found = evaluate(tmp_path / "run", "--source", files["v.src"], "--target", files["v.tgt"])
    assert found["examples"] == 37 and "corpus" not in found["data"]
    assert "--split takes valid or test or" in fails(tmp_path / "run", "--split", "train")


# Language models


def nats(model, ids: list[int], context: int) -> tuple[float, int]:
    """Window by window: each begins with the last token of the one before, which it does not predict
    again."""
    total, count = 0.0, 0
    for start in range(0, len(ids) - context, context):
        window = torch.tensor(ids[start : start + context + 1])
        total += float(F.cross_entropy(model(window[None, :-1])[0], window[1:], reduction="sum"))
        count += context
    return total, count


@torch.no_grad()
def test_a_language_model_is_judged_on_the_whole_of_its_held_out_text(trained, files, evaluate):
    found = evaluate(trained("lm"), "--batch", 5)
    model, vocab = opened(trained("lm"))
    text = Path(files["text"]).read_text()
    held_out = text[int(0.9 * len(text)) :]
    total, count = nats(model, vocab.encode_batch([held_out])[0], 13)
    metrics = found["metrics"]
    assert found["examples"] == count // 13 > TINY["evaluate.rows"]
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    assert metrics["bits_per_byte"] == pytest.approx(total / count / math.log(2), rel=1e-5)  # a byte a token
    assert found["data"] == {
        "text": files["text"],
        "part": "the last tenth",
        "tokens": len(held_out),
        "bytes": len(held_out),
        "dropped": 0,
    }
    learned = np.array(vocab.encode_batch([text[: int(0.9 * len(text))]])[0])
    chances = [(1 + (learned == token).sum()) / (vocab.size + len(learned)) for token in range(vocab.size)]
    guessed = [-math.log(chances[token]) for token in vocab.encode_batch([held_out])[0]]
    assert found["baselines"]["loss"]["score"] == pytest.approx(sum(guessed) / len(guessed))


@torch.no_grad()
def test_bits_a_byte_are_of_the_bytes_of_ones_own_text(trained, evaluate, tmp_path):
    text = "bé dà ku\n" * 9 + "ko ga"
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a").write_text(text[:36])
    (tmp_path / "texts" / "b").write_bytes(gzip.compress(text[36:].encode()))
    found = evaluate(trained("lm"), "--text", tmp_path / "texts")
    model, vocab = opened(trained("lm"))
    ids = vocab.encode_batch([text])[0]
    total, count = nats(model, ids, 13)
    assert found["data"]["bytes"] == len(text.encode()) > len(ids) == found["data"]["tokens"]
    bits = total / count / math.log(2) * len(ids) / len(text.encode())
    assert found["metrics"]["bits_per_byte"] == pytest.approx(bits, rel=1e-5)
    assert found["metrics"]["unknown"] == pytest.approx(2 * 9 / len(ids))  # é and à


@torch.no_grad()
def test_a_text_shorter_than_a_window_is_one_window(trained, evaluate, tmp_path):
    (tmp_path / "short").write_text("ba de fi")
    found = evaluate(trained("lm"), "--text", tmp_path / "short")
    model, vocab = opened(trained("lm"))
    total, count = nats(model, vocab.encode_batch(["ba de fi"])[0], 7)
    assert (found["examples"], count) == (1, 7)
    assert found["metrics"]["loss"] == pytest.approx(total / 7, rel=1e-5)


def test_the_held_out_text_is_that_of_training_even_if_the_file_has_gone(trained, evaluate, tmp_path, fails):
    before = evaluate(trained("lm"))
    copy = shutil.copytree(trained("lm"), tmp_path / "copy")
    asked = json.loads((copy / "recipe.json").read_text())
    asked["data"]["text"] = "gone.txt"
    (copy / "recipe.json").write_text(json.dumps(asked))
    assert evaluate(copy)["metrics"] == before["metrics"]
    (copy / "recipe.json").write_text(json.dumps(asked | {"data": asked["data"] | {"corpus": "pylib"}}))
    assert "pylib has no split test; it has valid" in fails(copy, "--split", "test")
    found = evaluate(copy, "--split", "valid")
    assert found["metrics"] == before["metrics"] and found["data"]["corpus"] == "pylib"
    (copy / "recipe.json").write_text(json.dumps(asked))
    shutil.rmtree(copy / "valid")
    sentence = fails(copy)
    assert "gone.txt that is not there any more: give --text PATH" in sentence
    asked["data"]["text"] = before["data"]["text"]
    (copy / "recipe.json").write_text(json.dumps(asked))
    again = evaluate(copy)  # tokenized once more
    assert again["metrics"] == pytest.approx(before["metrics"]) and not (copy / "valid").exists()


@torch.no_grad()
def test_documents_kept_apart_are_judged_apart(trained, evaluate, tmp_path):
    texts = ["ba de fi go ku ba de fi\n", "ku", "go go fi\nbé"]
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_text(text)
    found = evaluate(trained("documents"), "--text", tmp_path)
    model, vocab = opened(trained("documents"))
    total, count, size = 0.0, 0, len("".join(texts).encode())
    for text in texts:
        ids = vocab.encode_batch([text])[0]
        for start in range(0, len(ids), 13):  # a document longer than the context is cut
            read = torch.tensor(ids[start : start + 13])
            answers = torch.tensor([*ids, vocab.eos][start + 1 : start + 1 + len(read)])
            total += float(F.cross_entropy(model(read[None])[0], answers, reduction="sum"))
            count += len(read)
    assert found["metrics"]["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["metrics"]["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-5)
    assert found["signature"]["loss"].startswith("documents:")


@pytest.mark.parametrize("kind", ["mlm", "pairs"])
@torch.no_grad()
def test_a_masked_model_is_judged_by_every_blank(kind, trained, evaluate):
    found = evaluate(trained(kind), "--batch", 3)
    model, vocab = opened(trained(kind))
    pairs, seed = (True, 3) if kind == "pairs" else (False, 0)
    stream = np.memmap(trained(kind) / "valid" / "text.bin", "<u2", "r")
    room = 13 - (3 if pairs else 2)
    lengths = np.diff(np.memmap(trained(kind) / "valid" / "text.idx", "<i8", "r"))
    lines = Lines.of(stream, lengths, vocab.eos) if pairs else None
    total = right = blanks = follows = rows = 0
    for start in range(0, len(stream) - room + 1, room):
        row = mlm.batch_of(stream, [start], room, pairs, vocab.size, seed, mlm.HELD_OUT, lines)
        out = model(row.tokens_BT, segments_BT=row.segments_BT)
        for place in row.places_N.tolist():
            scores, answer = out["masked_lm"][0, place], row.originals_BT[0, place]
            total += float(F.cross_entropy(scores, answer))
            right += int(scores.argmax() == answer)
            blanks += 1
        rows += 1
        if pairs:
            follows += int(out["next_sentence"][0].argmax() == row.follows_B[0])
    metrics = found["metrics"]
    assert found["examples"] == rows > TINY["evaluate.rows"] and found["data"]["blanks"] == blanks
    assert metrics["loss"] == pytest.approx(total / blanks, rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(total / blanks), rel=1e-5)
    assert metrics["accuracy"] == right / blanks
    assert metrics["accuracy_interval"] == pytest.approx(wilson(right / blanks, blanks))
    assert ("next_sentence" in metrics) == pairs
    if pairs:
        assert metrics["next_sentence"] == follows / rows
        assert metrics["next_sentence_interval"] == pytest.approx(wilson(follows / rows, rows))


# Classify


def brute(found: list[str], right: list[str], label: str) -> tuple[float, float, float]:
    """Precision, recall and F1 from their definitions; what would be 0 / 0 is 0."""
    there = [i for i, x in enumerate(right) if x == label]
    given = [i for i, x in enumerate(found) if x == label]
    precision = len(set(there) & set(given)) / len(given) if given else 0.0
    recall = len(set(there) & set(given)) / len(there) if there else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return precision, recall, f1


@pytest.mark.parametrize("seed", range(5))
def test_f1_and_its_parts_are_what_their_definitions_say(seed):
    rng = random.Random(seed)
    n = rng.choice([1, 7, 50])
    found, right = (
        rng.choices([0, 1, 2, 4], k=n),
        rng.choices([0, 2, 3, 4], k=n),
    )  # 1 never right, 3 never found
    scores = scores_by_label(found, right, 7)  # 5 and 6 occur nowhere
    for label, s in enumerate(scores):
        assert (s.precision, s.recall, s.f1) == pytest.approx(brute(found, right, label))
        assert s.count == sum(x == label for x in right)
    occur = set(found) | set(right)
    assert macro_f1(found, right) == pytest.approx(sum(brute(found, right, x)[2] for x in occur) / len(occur))
    table = confusion(found, right)
    for a in range(7):
        for b in range(7):
            pairs = sum(x == a and y == b for x, y in zip(found, right, strict=True))
            assert table.get(b, {}).get(a, 0) == pairs
    assert macro_f1([], []) == 0 and confusion([], []) == {}


@pytest.mark.parametrize("kind", ["classify", "decoder"])
@torch.no_grad()
def test_labels_are_judged_on_every_row(kind, trained, files, evaluate):
    found = evaluate(trained(kind))
    model, vocab = opened(trained(kind))
    rows = [line.split("\t") for line in lines_of(files["v.tsv"])[1:]]
    right, mine, loss = [label for _, label in rows], [], 0.0
    for text, label in rows:
        ids = vocab.encode_batch([text])[0]
        if kind == "classify":
            assert len(ids) <= 10
            scores = model(torch.tensor([[vocab.cls, *ids, vocab.sep]]))["classify"][0]
        else:  # letters, of which many texts have more than fit: they are cut
            row = torch.tensor([[vocab.bos, *ids[:11], vocab.eos]])
            scores = model(row, Lengths(torch.tensor([row.shape[1]])))[0]
        mine.append(LABELS[int(scores.argmax())])
        loss += float(F.cross_entropy(scores, torch.tensor(LABELS.index(label))))
    metrics = found["metrics"]
    accuracy = sum(a == b for a, b in zip(mine, right, strict=True)) / 37
    assert found["examples"] == 37 and metrics["accuracy"] == accuracy
    assert metrics["accuracy_interval"] == pytest.approx(wilson(accuracy, 37))
    assert metrics["loss"] == pytest.approx(loss / 37, rel=1e-5)
    assert set(metrics["labels"]) == set(LABELS)
    for label, s in metrics["labels"].items():
        assert (s["precision"], s["recall"], s["f1"]) == pytest.approx(brute(mine, right, label))
        assert s["count"] == right.count(label) > 0
    occur = set(mine) | set(right)
    assert metrics["macro_f1"] == pytest.approx(sum(brute(mine, right, x)[2] for x in occur) / len(occur))
    for a in LABELS:
        for b in LABELS:
            seen = sum(x == a and y == b for x, y in zip(mine, right, strict=True))
            assert metrics["confusion"].get(b, {}).get(a, 0) == seen
    often = max(LABELS, key=[line.split("\t")[1] for line in lines_of(files["a.tsv"])[1:]].count)
    assert found["baselines"]["accuracy"]["score"] == right.count(often) / 37
    if kind == "classify":
        assert len(set(mine)) == 3 and accuracy > 0.5  # else little was tested


def test_a_table_of_ones_own_may_have_other_columns(trained, evaluate, tmp_path, fails):
    (tmp_path / "t.jsonl").write_text(
        '{"words": "ba ba", "gold": "back"}\nnot JSON\n{"words": "de", "gold": "front"}\n'
    )
    columns = ["--set", "data.text_column=words", "--set", "data.label_column=gold"]
    found = evaluate(trained("classify"), "--data", tmp_path / "t.jsonl", *columns)
    assert found["examples"] == 2 and found["data"] == {"data": str(tmp_path / "t.jsonl"), "dropped": 1}
    assert "--set data.text_column=NAME" in fails(trained("classify"), "--data", tmp_path / "t.jsonl")
    strict = [*columns, "--set", "data.bad_lines=refuse"]
    assert "t.jsonl:2: not a JSON object" in fails(
        trained("classify"), "--data", tmp_path / "t.jsonl", *strict
    )
