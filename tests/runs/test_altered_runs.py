"""Files of a run, altered at random: every loader gives what was written, or BadInput with the file's name.

What is hashed (checkpoints, published weights, tokenized texts and, through these, the tokenizer) never comes
back as something else; of other files, which people may edit, only the form can be checked.
"""

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from helpers.hostile_files import mutate
from helpers.refusals import at_most

import heedful
from heedful.cli.main import main
from heedful.data.store import Store
from heedful.data.vocab import read_vocab
from heedful.errors import BadInput
from heedful.files import read_json
from heedful.runs import checkpoint
from heedful.tasks import recipe

SIZES = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "model.context": 16,
    "train.batch_tokens": 64,
    "train.warmup_steps": 1,
    "train.steps": 2,
    "checkpoint.every": 1,
    "evaluate.rows": 4,
    "evaluate.examples": 1,
}
TIMES = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A tiny run of a language model, with a checkpoint at each of its two steps."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "text").write_text("".join(f"line {i * i % 17} of éàü {i % 7}\n" for i in range(60)))
    chosen = [f"--set={key}={value}" for key, value in {**SIZES, "data.tokenizer": "char"}.items()]
    assert main(["train", "lm", "--text", str(folder / "text"), "--run", str(folder / "run"), *chosen]) == 0
    return folder / "run"


def model_of(run: Path) -> object:
    loaded = heedful.load(run)
    weights = {name: weight.detach().clone() for name, weight in loaded.model.named_parameters()}
    return loaded.architecture, loaded.config, loaded.tokenizer.to_str(), weights


def checkpoint_of(run: Path) -> object:
    return checkpoint.load(run / "checkpoints" / "step-2")


def tokens_of(run: Path) -> object:
    store = Store.open(run / "train")
    return store.vocab_size, store.about, store.stream("text").tolist(), store.lengths("text").tolist()


def vocabulary_of(run: Path) -> object:
    """As when a run is resumed: the tokenized text must have been made with it."""
    vocab = read_vocab(run / "tokenizer.json")
    return vocab.to_json(), Store.open(run / "train", vocab.hash).about


def words_of(run: Path) -> object:
    vocab = read_vocab(run / "tokenizer.json")
    return vocab.decode(vocab.encode_batch(["line 3 of éàü", "?!"])[0])


def recipe_of(run: Path) -> object:
    found = read_json(run / "recipe.json")
    try:
        return recipe.from_json({part: value for part, value in found.items() if part != "facts"})
    except BadInput as error:
        raise BadInput(f"{run / 'recipe.json'}: {error}") from None


# (file, what reads it, whether it is hashed)
LOADERS = [
    ("checkpoints/step-2/manifest.json", checkpoint_of, True),
    ("checkpoints/step-2/state.json", checkpoint_of, True),
    ("checkpoints/step-2/model.safetensors", checkpoint_of, True),
    ("checkpoints/step-2/optimizer.safetensors", checkpoint_of, True),
    ("model.safetensors", model_of, True),
    ("model.json", model_of, True),
    ("train/store.json", tokens_of, True),
    ("train/text.bin", tokens_of, True),
    ("train/text.idx", tokens_of, True),
    ("tokenizer.json", vocabulary_of, True),
    ("tokenizer.json", words_of, False),
    ("tokenizer.json", model_of, False),
    ("config.json", model_of, False),
    ("recipe.json", recipe_of, False),
]


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def peak() -> int:
    """The most memory in MB since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.parametrize("name, read, hashed", LOADERS, ids=[f"{f}, {r.__name__}" for f, r, _ in LOADERS])
def test_a_file_altered_at_random_is_refused_by_name_or_harmless(name, read, hashed, whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    expected, path = read(run), run / name
    written = path.read_bytes()
    rng = random.Random(f"{name} {read.__name__}")
    outcomes: Counter[str] = Counter()
    forget_peak()
    before = peak()
    for _ in range(TIMES):
        path.write_bytes(mutate(written, rng))
        try:
            with at_most(5):
                found = read(run)
        except BadInput as error:
            said = str(error)
            assert said.isprintable() and len(said) <= 2000
            # The vocabulary that no longer fits the tokens is named by what it does not fit.
            assert path.name in said or (read is vocabulary_of and "another vocabulary" in said), said
            outcomes["refused"] += 1
        else:
            assert not hashed or same(found, expected), "it came back as something else"
            outcomes["read"] += 1
    assert outcomes["refused"] > TIMES / 3, "the damage is too gentle to test anything"
    assert peak() - before <= 500


# Every file of a run at once, through the command line


@pytest.mark.parametrize("seed", range(3))
def test_a_run_altered_anywhere_ends_with_a_sentence_and_an_exit_code(seed, whole, tmp_path, capsys):
    rng = random.Random(seed)
    names = sorted(
        str(path.relative_to(whole))
        for path in whole.rglob("*")
        if path.is_file() and path.name not in ("lock", "recipe.json")
    )
    codes: Counter[int] = Counter()
    for i in range(40):
        run = shutil.copytree(whole, tmp_path / f"run{i}")
        shutil.rmtree(run / "checkpoints" / "step-2")  # so that there is a step to make
        name = rng.choice([name for name in names if "step-2" not in name])
        (run / name).write_bytes(mutate((run / name).read_bytes(), rng))
        with at_most(10):
            code = main(["train", "--resume", str(run)])
        told = capsys.readouterr().err
        codes[code] += 1
        assert code in (0, 2, 4), (name, told)
        assert "Traceback" not in told and (code == 0) != told.splitlines()[-1].startswith("error: ")
        if code == 0:  # what was damaged was made again, or left out
            weights = (run / "model.safetensors").read_bytes()
            assert weights == (whole / "model.safetensors").read_bytes(), name
            assert losses(run) == losses(whole), name
    assert codes[0] and codes[2], codes


def losses(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [line["loss"] for line in map(json.loads, lines) if "loss" in line]
