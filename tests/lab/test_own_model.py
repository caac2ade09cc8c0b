"""Claims on a model of one's own: on a run and on Hugging Face folders, with numbers computed once more."""

import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from helpers.look_cases import imported, saved
from helpers.page_runs import unpack

import heedful
from heedful.cli.main import main
from heedful.corpora import phrasebook
from heedful.errors import BadInput
from heedful.inside.measuring import Measurer
from heedful.lab.claim import claim_files, combined, find_claim
from heedful.lab.own_model import CAN_TRY, alignment, extrapolation, lookup, mask, offsets, scaling, try_claim
from heedful.lab.own_model.recorded import CHOICE, recorded, texts_for
from heedful.lab.own_model.report import directed
from heedful.lab.rules import VERDICTS
from heedful.lab.run import ROOT
from heedful.parts.masks import full
from heedful.parts.positions.absolute import Learned, frequencies, sinusoids
from heedful.tasks.alignment import error_rates
from heedful.tasks.task import spread
from heedful.use.model import Model

EXISTING = [name for name in CAN_TRY if name in claim_files()]
FOLDERS = ("gpt2", "llama", "bert", "t5")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with the stored runs and tiny Hugging Face folders."""
    folder = unpack(tmp_path_factory.mktemp("own"))
    for name in FOLDERS:
        saved(name, folder / name)
    return folder


@pytest.fixture(scope="module")
def load(world):
    kept = {}

    def get(name):
        return kept.setdefault(name, None) or kept.update({name: heedful.load(world / name)}) or kept[name]

    return get


@pytest.fixture
def here(world, monkeypatch):
    monkeypatch.chdir(world)
    return world


def checked(report):
    """A report says all that it must, everywhere."""
    assert report.verdict in VERDICTS and report.statements
    assert report.asked.endswith("?") and report.finding.endswith(".")
    for each in report.statements:
        assert each.says.endswith(".") and each.verdict in VERDICTS and each.why in report.text()
    assert report.finding in report.text() and f": {report.verdict}\n" in report.text()
    said = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert said["verdict"] == report.verdict and said["numbers"].keys() == report.numbers.keys()
    ElementTree.fromstring(report.svg())
    return report


# Every claim on a run and on Hugging Face folders. Others are refused, with the reason.

TRIED = {
    ("offsets", "runs/demo"): "exact",
    ("mask", "runs/demo"): "exact",
    ("scaling", "runs/demo"): "supported",
    ("lookup", "runs/demo"): "exact",
    ("alignment", "runs/demo"): "supported",
    ("extrapolation", "llama"): "inconclusive",  # fresh weights
    ("offsets", "gpt2"): "supported",
    ("mask", "gpt2"): "exact",
    ("mask", "t5"): "exact",
    ("scaling", "gpt2"): "depends",  # narrow heads
    ("lookup", "llama"): "exact",
    ("alignment", "t5"): "inconclusive",  # fresh weights
}
REFUSED = {
    ("extrapolation", "runs/demo"): "encoder-decoder, and one long text",
    ("extrapolation", "runs/lm"): "its position table ends at 32 tokens, and it was trained on 32",
    ("extrapolation", "gpt2"): "a learned table cannot be read beyond its end",
    ("extrapolation", "bert"): "it is an encoder, and one long text",
    ("offsets", "llama"): r"its positions \(Rotary\) rotate queries and keys",
    ("offsets", "t5"): r"its positions \(T5Buckets\) are a function of the distance",
    ("mask", "bert"): "an encoder attends in both directions",
    ("scaling", "runs/mlm"): "cannot be read: .*--data FILE takes other texts$",
    ("alignment", "runs/lm"): "it is a decoder, and cross-attention joins",
    ("alignment", "bert"): "it is an encoder, and cross-attention joins",
}
FILES = {"extrapolation": extrapolation, "offsets": offsets, "mask": mask, "scaling": scaling}
FILES |= {"lookup": lookup, "alignment": alignment}


@pytest.mark.parametrize(("claim", "folder"), TRIED)
def test_a_claim_is_tried_on_a_model(claim, folder, load):
    report = checked(FILES[claim].try_on(load(folder)))
    assert report.name == claim and report.verdict == TRIED[claim, folder]


@pytest.mark.parametrize(("claim", "folder"), REFUSED)
def test_a_claim_that_does_not_apply_says_why(claim, folder, load):
    with pytest.raises(BadInput, match=REFUSED[claim, folder]):
        FILES[claim].try_on(load(folder))


def test_every_claim_that_can_be_tried_is_tried_here_on_a_run_or_a_folder():
    assert set(FILES) == set(CAN_TRY) == {claim for claim, _ in TRIED}
    assert all(file.NAME == name for name, file in FILES.items())


def test_records_of_claims_do_not_depend_on_this_folder():
    """Only the command imports it: a record depends on what its claim imports."""
    files = [path for path in ROOT.rglob("*.py") if "own_model" in path.read_text(encoding="utf-8")]
    assert {path.relative_to(ROOT).as_posix() for path in files} == {"cli/lab.py"}


# Numbers, computed once more.


def test_offsets_of_sinusoids_are_those_of_the_formula(load):
    """With numpy: sin(a + b) and cos(a + b) of the model's own table."""
    numbers = offsets.try_on(load("runs/demo")).numbers
    w = 10000.0 ** (-2 * np.arange(16) / 32)
    t = np.arange(offsets.MOST)[:, None]
    for row, values in numbers.items():
        k = int(row.removeprefix("k = "))
        here, there = t[:-k] * w, (t + k)[:-k] * w
        turned = np.sin(here) * np.cos(k * w) + np.cos(here) * np.sin(k * w)
        assert np.abs(turned - np.sin(there)).max() < 1e-12 and max(values.values()) < 1e-12


@pytest.mark.parametrize(
    ("how", "verdict", "start"),
    [("turned", "contradicted", "Yes, nearly"), ("random", "supported", "No, as expected")],
)
def test_a_learned_table_is_linear_if_it_has_learned_to_rotate(how, verdict, start):
    """Sinusoids in other axes rotate as well; a random table does not."""
    loaded = imported("gpt2")
    position = Learned(96, 12)
    if how == "turned":
        axes, _ = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))
        table = sinusoids(torch.arange(96), frequencies(12)) @ axes
        position.table.data = table.float()
    loaded.model.inputs.position = position
    report = checked(offsets.try_on(Model(loaded, "mine")))
    assert report.verdict == verdict and report.finding.startswith(start)
    found = [row["this table"] for row in report.numbers.values()]
    assert max(found) < 1e-3 if how == "turned" else min(found) > 0.5


def test_the_penalty_of_a_fit_is_chosen_by_leaving_out_each_row():
    """The shortcut for leaving out one row equals fitting without it."""
    x, m = torch.randn(9, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    y = x @ m + 0.3 * torch.randn(9, 4, dtype=torch.float64)
    largest = torch.linalg.matrix_norm(x, 2).square()

    def ridge(x, y, penalty):
        return torch.linalg.solve(x.T @ x + penalty * torch.eye(4, dtype=torch.float64), x.T @ y)

    def left_out(penalty):
        rows = [[j for j in range(9) if j != i] for i in range(9)]
        return sum(
            (y[i] - x[i] @ ridge(x[some], y[some], penalty)).square().sum() for i, some in enumerate(rows)
        )

    best = min((largest * share for share in offsets.PENALTIES), key=left_out)
    torch.testing.assert_close(offsets.fitted_map(x, y), ridge(x, y, best))


def test_recorded_scores_give_the_weights_of_the_model(load):
    """In every layer: the softmax of what was recorded, with its bias and mask, is what the model used."""
    for name in ("runs/demo", "t5", "llama"):
        model = load(name)
        samples = texts_for(model, None, count=3)
        texts = list(recorded(model, samples))
        for batch in Measurer(model.loaded, samples.samples).batches:
            for seen in batch.attention():
                for kind, (weights_NTS, _) in seen.kinds.items():
                    layers = [one for (which, _), one in texts[seen.index].items() if which == kind]
                    found_NTS = torch.cat([scores.weights() for scores in layers])
                    torch.testing.assert_close(found_NTS, weights_NTS.double(), rtol=0, atol=1e-5)


def test_the_gradient_of_a_softmax_is_its_jacobian(load):
    """By autograd, of one head and one query of the demo, with the division and without."""
    model = load("runs/demo")
    samples = texts_for(model, None, count=2)
    scores = next(iter(recorded(model, samples)))["cross", 2]
    K, h = scores.width, 1
    raw_HTS, scale = scaling.undivided(model, scores)
    assert K == 8 and scale == 1 / math.sqrt(8)
    found = scaling.both_ways(scores, raw_HTS)[h]
    for way, x_TS in (("divided", raw_HTS[h] / math.sqrt(K)), ("undivided", raw_HTS[h])):
        rows = [torch.func.jacrev(lambda x_S: x_S.softmax(-1))(x_S).norm() for x_S in x_TS]
        weights_TS = x_TS.softmax(-1)
        bits = -(weights_TS * weights_TS.log2()).sum(-1).mean()
        expected = [torch.stack(rows).mean(), weights_TS.amax(-1).mean(), bits]
        assert [found[f"{name}, {way}"] for name in scaling.MEASURES] == pytest.approx(
            [float(x) for x in expected]
        )


def test_queries_with_little_choice_do_not_count(load):
    scores = next(iter(recorded(load("llama"), texts_for(load("llama"), None, count=2))))["self", 1]
    T = scores.allowed_HTS.shape[1]
    assert scores.counted_HT[0].tolist() == [t + 1 >= CHOICE for t in range(T)]
    ones_HT = torch.arange(T).expand(scores.counted_HT.shape).double()
    assert scores.mean(ones_HT)[0] == pytest.approx(sum(range(CHOICE - 1, T)) / (T - CHOICE + 1))


def test_a_lookup_takes_the_mean_of_equally_good_keys(load):
    scores = next(iter(recorded(load("runs/demo"), texts_for(load("runs/demo"), None, count=2))))["cross", 1]
    tied_HTS = scores.scores_HTS.clone()
    tied_HTS[:, :, :2] = tied_HTS.max() + 1  # two keys that are better than all others
    tied = replace(scores, scores_HTS=tied_HTS)
    expected = tied.values_HSL[:, :2].mean(1, keepdim=True).expand(-1, tied_HTS.shape[1], -1)
    torch.testing.assert_close(lookup.best_values(tied), expected)
    assert lookup.limit(tied) <= lookup.TOLERANCE
    best = {row["weight at 0.0001"] for row in lookup.cooled(tied)}
    assert best == {0.5}


def test_a_leak_is_found_and_said(load):
    loaded = imported("gpt2")
    loaded.model.masks = tuple(full() for _ in loaded.model.masks)
    report = checked(mask.try_on(Model(loaded, "mine")))
    assert report.verdict == "contradicted" and report.finding.startswith("Yes, it leaks")
    later = [row[mask.GRADIENT] for row in report.numbers.values()]
    assert max(later) > 0
    sound = mask.try_on(load("gpt2"))
    assert max(row[mask.GRADIENT] for row in sound.numbers.values()) == 0


def test_error_rates_of_heads_are_those_of_evaluation(load):
    """tasks.alignment computes those of the prediction row another way."""
    model = load("runs/demo")
    pairs = spread(list(phrasebook.split("valid")), 10)
    samples = [
        alignment.with_reference(one, pair)
        for one, pair in zip(alignment.read(model, pairs), pairs, strict=True)
    ]
    found = alignment.errors(model, samples)
    expected = error_rates(model.model, model.vocab, pairs)
    assert found.means(alignment.PREDICTION) == pytest.approx(expected.tolist(), abs=1e-6)
    assert found.heads[0] == "cross.1.1" and len(found.heads) == len(expected) == 12


def test_a_head_is_judged_on_sentences_that_it_was_not_chosen_by():
    first, other = [0.0, 0.5], [0.9, 0.1]  # the first head is best in the sentences that choose
    found = alignment.HeadErrors(["a", "b"], {"row": [first, other, first, other]}, [])
    assert found.best("row") == 0 and found.judged("row") == [0.9, 0.9]


# Beyond the training length.


def test_losses_beyond_the_training_length_are_those_of_the_last_tokens(load):
    """Token by token: in place after all tokens, and after the last ones at positions of training."""
    model, trained, size = load("llama"), 8, 15
    ids_NT = torch.randint(model.config.vocab, (4, size + 1))
    found = extrapolation.measured(model, ids_NT, trained)

    def loss(n, start, t):
        with torch.no_grad():
            scores_V = model.model(ids_NT[n : n + 1, start : t + 1])[0, -1].double()
        return -float(scores_V.log_softmax(-1)[ids_NT[n, t + 1]])

    half = trained // 2
    for n in range(4):
        in_place = [loss(n, 0, t) for t in range(size)]
        recent = [loss(n, half + (t - trained) // half * half, t) for t in range(trained, size)]
        fresh = [loss(n, half, t) for t in range(half, half + trained // 4)]
        assert found.losses_NT[n].tolist() == pytest.approx(in_place, abs=1e-4)
        assert found.recent_NB[n].tolist() == pytest.approx(recent, abs=1e-4)
        assert found.fresh_NC[n].tolist() == pytest.approx(fresh, abs=1e-4)
    _, counts = ids_NT[:, 1:].unique(return_counts=True)
    shares = counts / counts.sum()
    assert found.frequencies == pytest.approx(-float((shares * shares.log()).sum()), abs=1e-5)


def windows_with(rise, gain=0.5, trained=8, size=16):
    """Losses of eight windows: beyond the training length, this much higher in place."""
    noise_NT = 0.01 * torch.randn(8, size, dtype=torch.float64)
    losses_NT = 1.0 + noise_NT
    recent_NB = losses_NT[:, trained:] - rise + 0.001 * torch.randn(8, size - trained)
    fresh_NC = losses_NT[:, trained // 2 : trained // 2 + 2] + gain + 0.001 * torch.randn(8, 2)
    return extrapolation.LongWindows(trained, losses_NT, recent_NB, fresh_NC, 3.0)


@pytest.mark.parametrize(
    ("rise", "gain", "absolute", "verdict", "start"),
    [
        (0.5, 0.5, True, "supported", "No. Tokens 9 to 16"),
        (0.5, 0.5, False, "contradicted", "No. Tokens 9 to 16"),
        (0.5, 0.0, True, "supported", "No. Tokens 9 to 16"),  # it is hurt, whatever it used before
        (0.0, 0.5, True, "contradicted", "Yes, to 16 tokens."),
        (0.0, 0.5, False, "supported", "Yes, to 16 tokens."),
        (0.0, -0.1, False, "inconclusive", "Nothing can be said: this model makes no use"),
        (extrapolation.MARGIN, 0.5, True, "inconclusive", "Tokens 9 to 16 cost"),
    ],
)
def test_a_rise_of_the_loss_is_judged_by_what_the_lectures_say_of_positions(
    rise, gain, absolute, verdict, start
):
    found = windows_with(rise, gain)
    if rise == extrapolation.MARGIN:  # exactly: the mean is the margin
        found = replace(found, recent_NB=found.recent_NB + torch.tensor(found.rises).mean() - rise)
    statements = extrapolation.judged(found, absolute)
    assert combined([(each.control, each.verdict) for each in statements]) == verdict
    assert extrapolation.finding(found, statements, "Rotary").startswith(start)


def test_a_model_that_has_learned_nothing_shows_nothing():
    found = replace(windows_with(0.5), frequencies=0.5)
    statements = extrapolation.judged(found, True)
    assert statements[1].control and statements[1].verdict == "contradicted"
    assert extrapolation.finding(found, statements, "").startswith("Nothing can be said")


def test_no_range_of_positions_is_on_both_sides_of_the_training_length():
    for trained, size in ((8, 16), (41, 82), (5, 7), (100, 163)):
        found = windows_with(0.1, trained=trained, size=size)
        ranges = extrapolation.bins_of(found)
        assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
        assert ranges[0][0] == 0 and ranges[-1][1] == size
        assert not any(start < trained < end for start, end in ranges)


def test_a_text_that_is_too_short_is_refused(load, tmp_path):
    (tmp_path / "short").write_text("The cat sat on the mat.\n")
    with pytest.raises(
        BadInput, match="windows of 82, and extrapolation needs 4: --data FILE takes a longer"
    ):
        extrapolation.try_on(load("llama"), str(tmp_path / "short"))
    long = tmp_path / "long"
    long.write_text("The cat sat on the mat.\n" * 100)
    assert str(long) in checked(extrapolation.try_on(load("llama"), str(long))).measured


def test_a_difference_is_judged_by_its_interval():
    assert directed([0.1, 0.11, 0.12], "texts").verdict == "supported"
    assert directed([0.1, 0.11, 0.12], "texts", 0.2).verdict == "contradicted"
    assert directed([0.1, -0.1, 0.05], "texts").verdict == "inconclusive"
    assert directed([math.nan, 0.1], "texts").verdict == "inconclusive"
    assert "over 3 texts, 95 % interval" in directed([0.1, 0.11, 0.12], "texts").why


# The command.


def state(folder):
    """{file: hash} of a folder."""
    files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_word_run_may_be_left_out(tmp_path, capsys):
    run = ["--seeds", "3", "--run", str(tmp_path)]
    assert main(["lab", "e", *run]) == main(["lab", "run", "e", *run]) == main(["lab", "offsets", *run]) == 0
    out = capsys.readouterr().out
    assert out.count("e  offsets: exact\n") == 3


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("scalling", 'there is no claim "scalling"; did you mean "scaling"?'),
        ("rnu", 'there is no claim "rnu"; did you mean "run"?'),
        ("zebra", 'there is no claim "zebra"; there are distance,'),
        ("?", 'there is no claim "?"; there are '),
    ],
)
def test_an_unknown_word_gives_the_nearest_claim(word, said, capsys):
    assert main(["lab", word]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["e", "--standard"], "--standard is for small models"),
        (["e", "--quick"], "--quick is for small models"),
        (["e", "--seeds", "3"], "--seeds is for small models"),
        (["e", "--run", "elsewhere"], "--run keeps records, and --on makes none"),
        (["e", "--data", "gpt2/config.json"], "offsets reads no texts"),
        (["h", "--data", "gone"], "--data gone is not there"),
        (["e", "--report", "runs/demo/report"], "is in the folder of the model, which is only read"),
        (
            ["order"],
            "leave out --on, or take one of extrapolation, offsets, mask, scaling, lookup, alignment",
        ),
        (["e", "order"], "order trains small models of its own"),
        ([], "--on needs a CLAIM to try"),
    ],
)
def test_what_does_not_go_with_a_model_of_ones_own_is_refused(words, said, here, capsys):
    before = state(here)
    assert main(["lab", *words, "--on", "runs/demo"]) == 2
    assert said in capsys.readouterr().err and state(here) == before


def test_texts_are_for_a_model_of_ones_own(here, capsys):
    assert main(["lab", "h", "--data", "gpt2/config.json"]) == 2
    assert "give --on RUN with it" in capsys.readouterr().err


def test_a_model_is_tried_and_only_read(here, tmp_path, capsys):
    before = state(here)
    assert main(["lab", "e", "--on", "runs/demo"]) == main(["lab", "run", "e", "--on", "runs/demo"]) == 0
    out, err = capsys.readouterr()
    assert out.count("e  offsets on runs/demo: exact\n   claim        With sinusoidal positions") == 2
    assert err == 2 * "trying offsets on runs/demo\n"
    assert main(["lab", "h", "--on", "gpt2", "--json", "--report", str(tmp_path / "kept")]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert said["model"] == "gpt2" and not said["not_applicable"] and not err
    assert said["claims"] == [json.loads((tmp_path / "kept" / "report.json").read_text())]
    assert said["claims"][0]["letter"] == "h" and said["claims"][0]["lecture"]
    ElementTree.fromstring((tmp_path / "kept" / "figure.svg").read_text())
    assert state(here) == before


def test_all_claims_that_apply_are_tried(here, tmp_path, capsys):
    assert main(["lab", "all", "--on", "bert", "--report", str(tmp_path / "all"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in said["claims"]} == {"offsets", "scaling", "lookup"}
    assert set(said["not_applicable"]) == set(EXISTING) - {"offsets", "scaling", "lookup"}
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"offsets", "scaling", "lookup"}
    assert main(["lab", "g", "e", "--on", "bert"]) == 0
    out, err = capsys.readouterr()
    assert "e  offsets on bert: supported" in out
    assert "not tried: mask does not apply to bert: an encoder attends in both directions" in err


def test_a_single_claim_that_does_not_apply_is_an_error(here, capsys):
    assert main(["lab", "mask", "--on", "bert"]) == 2
    assert "error: mask does not apply to bert" in capsys.readouterr().err
    assert main(["lab", "e", "--on", "gone"]) == 2
    assert "gone is not" in capsys.readouterr().err


def test_texts_of_a_file_are_read(here, tmp_path, capsys):
    (tmp_path / "lines").write_text("The cat sat on the mat.\nA dog and a bird sing.\n")
    assert main(["lab", "lookup", "--on", "runs/lm", "--data", str(tmp_path / "lines")]) == 0
    assert f"8 heads in 2 texts ({tmp_path / 'lines'})" in capsys.readouterr().out


@pytest.mark.parametrize("name", EXISTING)
def test_a_report_has_the_words_of_its_claim(name, load):
    claim = find_claim(name)
    folder = {"extrapolation": "llama"}.get(name, "runs/demo")
    report = try_claim(claim, load(folder))
    assert (report.letter, report.says, report.lecture) == (claim.letter, claim.says, claim.lecture)
    assert report.text().startswith(f"{claim.letter}  {name} on ") and claim.says in report.text()


def test_a_table_is_cut_and_says_so(load):
    report = scaling.try_on(load("runs/demo"))
    assert len(report.numbers) == 36
    assert report.table()[-1] == "   and 20 more; --json has all" and len(report.table()) == 18
    assert mask.try_on(load("gpt2")).table() == []


def test_numbers_that_are_not_finite_are_said(world, tmp_path):
    shutil.copytree(world / "gpt2", tmp_path / "gpt2")
    model = heedful.load(tmp_path / "gpt2")
    with torch.no_grad():
        model.model.inputs.position.table[3] = math.nan
    for file in (offsets, scaling, lookup):
        with pytest.raises(BadInput, match="not finite: `heedful doctor` names the weights"):
            file.try_on(model)
