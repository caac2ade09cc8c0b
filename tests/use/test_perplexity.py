"""The perplexity of a long text: equal to a loop over windows and to transformers, for whatever loads."""

import json
import math

import pytest
import torch
from helpers.look_cases import saved

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.use.perplexity import FEWEST, UNIT, perplexity, standard_error, token_numbers, windows_of

TEXT = "The old man who lived by the sea had three daughters, a boat and some bread. " * 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Hugging Face folders, and a text beside them."""
    root = tmp_path_factory.mktemp("folders")
    (root / "text.txt").write_text(TEXT)
    for name in ("gpt2", "llama", "bert", "t5"):
        saved(name, root / name)
    return root


def by_hand(model, ids, context, stride):
    """Every window alone; of its predictions, those of tokens that have none yet."""
    found = {}
    for start in range(0, len(ids) - 1, stride):
        window = torch.tensor([ids[start : start + context]])
        log_p = model.model(window).double().log_softmax(-1)[0]
        for place in range(window.shape[1]):
            target = start + place + 1
            if target < len(ids):
                found.setdefault(target, -float(log_p[place, ids[target]]))
    return [found[i] for i in range(1, len(ids))]


@pytest.mark.parametrize(("context", "stride"), [(9, 9), (10, 4), (11, 1), (None, None)])
def test_every_token_counts_once_as_its_first_window_predicts_it(folders, context, stride):
    model = heedful.load(folders / "gpt2")
    ids = token_numbers(model, TEXT)
    found = perplexity(model, TEXT, context, stride, batch=3)
    with torch.no_grad():
        expected = by_hand(model, ids, found.context, found.stride)
    assert len(found.nll) == len(ids) - 1
    assert torch.allclose(torch.tensor(found.nll), torch.tensor(expected), atol=1e-5)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(sum(expected) / len(expected)), rel=1e-5)
    bits = sum(expected) / math.log(2) / len(TEXT.encode())
    assert found.metrics["bits_per_byte"] == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_it_is_the_loss_of_transformers_on_the_same_windows(folders, name):
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folders / name).eval()
    ours = heedful.load(folders / name)
    ids, context, stride = token_numbers(ours, TEXT), 12, 5
    total, count = 0.0, 0
    for start, first, end in windows_of(len(ids), context, stride):
        labels = torch.tensor([ids[start : end + 1]])
        window = labels.clone()
        labels[:, : first - start] = -100  # counted by an earlier window, or given
        with torch.no_grad():
            loss = theirs(window, labels=labels).loss
        total, count = total + float(loss) * (end + 1 - first), count + end + 1 - first
    found = perplexity(ours, TEXT, context, stride)
    assert count == len(found.nll) and found.loss == pytest.approx(total / count, rel=1e-5)


def test_windows_cover_every_token_once():
    for tokens, context, stride in ((2, 5, 5), (17, 5, 5), (17, 5, 3), (16, 5, 1), (40, 7, 7)):
        counted = [i for _, first, end in windows_of(tokens, context, stride) for i in range(first, end + 1)]
        assert counted == list(range(1, tokens))
        assert all(end - start <= context for start, _, end in windows_of(tokens, context, stride))


def test_the_interval_is_that_of_independent_units():
    torch.manual_seed(0)
    nll = torch.randn(64 * UNIT).add(3).tolist()
    assert standard_error(nll) == pytest.approx(1 / math.sqrt(64 * UNIT), rel=0.3)
    assert standard_error(nll[: FEWEST * UNIT - 1]) is None
    assert standard_error([value for value in nll[:64] for _ in range(UNIT)]) > 6 * standard_error(nll)


def test_the_command_evaluates_folders_rounded_or_not(folders, capsys):
    given = ["evaluate", str(folders / "llama"), "--text", str(folders / "text.txt"), "--context", "16"]
    assert main([*given, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    expected = perplexity(heedful.load(folders / "llama"), TEXT, 16)
    assert plain["metrics"]["loss"] == pytest.approx(expected.loss)
    assert plain["data"]["tokens"] == len(expected.nll) and plain["signature"]["loss"].endswith("stride:16")
    assert main([*given, "--weights", "int8"]) == 0
    out = capsys.readouterr().out
    assert "nats per token; fp32: " in out and "perplexity" in out and "bits per byte" in out


def test_a_gguf_file_is_evaluated_like_its_folder(folders, tmp_path, capsys):
    assert main(["export", str(folders / "llama"), str(tmp_path / "out"), "--to", "gguf"]) == 0
    capsys.readouterr()
    losses = []
    for where in (folders / "llama", tmp_path / "out"):
        assert main(["evaluate", str(where), "--text", str(folders / "text.txt"), "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["metrics"]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "more", "refusal"),
    [
        ("bert", [], "is an encoder, which gives a text alone no probability: use a decoder"),
        ("t5", [], "is an encoder-decoder, which gives a text alone no probability: use heedful score"),
        ("gpt2", ["--stride", "99"], "--stride must be 1 to"),
        ("gpt2", ["--context", "9999"], "--context must be at least 1 to"),
        ("gpt2", ["--beam", "2"], "--beam does not fit --text on a language model"),
    ],
)
def test_what_has_no_perplexity_is_refused(folders, name, more, refusal, capsys):
    assert main(["evaluate", str(folders / name), "--text", str(folders / "text.txt"), *more]) == 2
    assert refusal in capsys.readouterr().err


def test_a_text_of_one_token_has_nothing_to_predict(folders):
    with pytest.raises(BadInput, match="has none to predict"):
        perplexity(heedful.load(folders / "gpt2"), "")
