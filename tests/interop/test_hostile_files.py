"""Files altered at random or on purpose load or are refused, soon, in little memory, and run nothing."""

import ast
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import hf_zoo
from helpers.hostile_files import loads_or_says_why, mutate, small_tokenizer

import heedful

SOURCE = Path(heedful.__file__).parent
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """A folder of each family, those with words also with a tokenizer; gpt2 also in shards."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    root = tmp_path_factory.mktemp("zoo")
    for name in hf_zoo.FAMILIES:
        hf_zoo.write(hf_zoo.make(name, 2), root / name)
    hf_zoo.write(hf_zoo.make("gpt2", 2), root / "sharded", max_shard_size="2KB")
    for name in ("gpt2", "sharded"):
        (root / name / "tokenizer.json").write_text(small_tokenizer().to_str(pretty=True))
    return root


# Random damage


FILES = [
    ("gpt2", "config.json", 150),
    ("llama", "config.json", 50),
    ("t5", "config.json", 50),
    ("gpt2", SINGLE, 200),
    ("sharded", INDEX, 150),
    ("sharded", "model-00001-of-", 50),
    ("gpt2", "tokenizer.json", 250),
]


@pytest.mark.parametrize("name, file, times", FILES)
def test_a_file_altered_at_random_loads_or_is_refused(name, file, times, zoo, tmp_path):
    folder = shutil.copytree(zoo / name, tmp_path / "model")
    path = next(folder.glob(f"{file}*"))
    whole = path.read_bytes()
    assert loads_or_says_why(folder)
    rng = random.Random(f"{name} {file}")
    results = []
    for _ in range(times):
        path.write_bytes(mutate(whole, rng))
        results.append(loads_or_says_why(folder))
    assert results.count(False) > times / 3, "the damage is too gentle to test anything"


ODD = [
    0, 1, -1, 3, 2**20, 2**31 - 1, 2**31, 2**63, 10**400, 0.5, -0.5, 1e308, "", "12", "\ud800\n", None,
    True, False, [], [[]], ["x"], [1] * 1000, {}, {"a": 1}, {"rope_type": {}}, "x" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("name", hf_zoo.FAMILIES)
def test_no_value_of_any_setting_does_worse_than_be_refused(name, zoo, tmp_path):
    folder = shutil.copytree(zoo / name, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= dict.fromkeys(("rope_scaling", "head_dim", "id2label", "num_labels", "n_inner", "auto_map"))
    rng = random.Random(name)
    for key in config:
        for value in rng.sample(ODD, 4):
            (folder / "config.json").write_text(json.dumps(config | {key: value}))
            loads_or_says_why(folder)


# Memory


LYING = """
import json, pathlib, resource, sys
import heedful

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

folder = pathlib.Path(sys.argv[1])
honest = json.loads((folder / "config.json").read_text())
heedful.load(folder)
before = peak()
lies = [{"vocab_size": 2**31 - 1}, {"n_positions": 2**28}, {"n_inner": 2**31 - 1}, {"n_layer": 2**31 - 1},
        {"n_embd": 2**20, "n_head": 1}, {"n_embd": 2**31 - 4, "n_head": 1}, {"tie_word_embeddings": False}]
for lie in lies:
    (folder / "config.json").write_text(json.dumps(honest | lie))
    try:
        heedful.load(folder)
        sys.exit(f"{lie} was believed")
    except heedful.BadInput:
        pass
(folder / "config.json").write_text(json.dumps(honest))
for name, start in {"tokenizer.json": b"{", "model.safetensors": (99 << 20).to_bytes(8, "little") + \
b"{"}.items():
    with open(folder / name, "wb") as file:
        file.write(start)
        file.truncate(200 << 20)  # a file of holes: it takes no room on the disk
    try:
        heedful.load(folder)
        sys.exit(f"{name} of 200 MB was read")
    except heedful.BadInput:
        pass
print(peak() - before)
"""


def test_a_lie_about_sizes_takes_no_memory(zoo, tmp_path):
    folder = shutil.copytree(zoo / "gpt2", tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", LYING, folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 50


# Nothing is run


NEVER = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "torch.hub.load",
    "yaml.load", "yaml.unsafe_load", "runpy.run_path", "torch.jit.load",
    "torch.package.PackageImporter",
}  # fmt: skip
NEVER_IMPORTED = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def dotted(node):
    """`a.b.c` as it is written; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def dangers(code):
    """Every place in a program that could run what a file says."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = {*source, *(".".join([*source, alias.name]) for alias in node.names)}
            found += [name for name in names if name.split(".")[0] in NEVER_IMPORTED or name in NEVER]
        elif isinstance(node, ast.Call):
            found += [dotted(node.func)] if dotted(node.func) in NEVER else []
            asked = {word.arg: word.value for word in node.keywords}
            found += ["trust_remote_code"] if "trust_remote_code" in asked else []
            for word in ("shell", "allow_pickle"):
                value = asked.get(word, ast.Constant(False))
                found += [word] if not isinstance(value, ast.Constant) or value.value else []
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_source_runs_what_a_file_says(path):
    assert dangers(path.read_text()) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "eval('1')",
        "exec('1')",
        "import shelve",
        "import marshal as m",
        "yaml.load(f)",
        "__import__('os')",
        "f(trust_remote_code=False)",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=flag)",
        "import os\nos.system('ls')",
        "from joblib import load",
        "import dill.source",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_the_search_for_dangers_finds_them(code):
    assert dangers(code)


def test_the_search_for_dangers_knows_what_is_harmless():
    assert dangers("model.eval()\nre.compile('a')\njson.load(f)\nrun(['ls'], shell=False)\nload('x')") == []
