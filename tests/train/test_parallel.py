"""Every way to spread a model over processes gives the losses of one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import parallel_cases, tiny
from helpers.parallel_cases import BUCKET, MODELS, Case, trained

from heedful.errors import BadInput
from heedful.models import llama
from heedful.tasks import recipe
from heedful.train.parallel.splittable import refuse_unsplittable
from heedful.train.parallel.way import ProcessGrid, Way, read_way
from heedful.train.processes import World

LORA = {"lora": True, "recompute": True}
TWO = [
    *(Case(name, "ddp") for name in MODELS),
    Case("gpt2", "ddp", optimizer="muon", ema=True, recompute=True, smoothing=0.1),
    Case("gpt2", "ddp", **LORA),
    Case("mixture", "fsdp", recompute=True),
    Case("transformer", "fsdp", optimizer="muon", ema=True),
    *(Case(name, "ddp,tensor=2") for name in MODELS),
    Case("gpt2", "fsdp,tensor=2", **LORA),
    Case("llama", "ddp,tensor=2", optimizer="muon", ema=True, sizes={"tie_embeddings": True}),
    Case("transformer", "ddp,tensor=2", recompute=True, smoothing=0.1),
]
FOUR = [
    Case("gpt2", "hsdp", local=2, optimizer="muon", ema=True),
    Case("mixture", "hsdp", local=2, recompute=True),
    Case("llama", "fsdp,tensor=2", optimizer="muon", ema=True),
    Case("mixture", "fsdp,tensor=2", recompute=True),
    Case("transformer", "fsdp,tensor=2", smoothing=0.1),
    Case("gpt2", "ddp,tensor=2", **LORA),
    Case("gpt2", "fsdp,tensor=4"),
]
MORE = [{}, {"optimizer": "muon", "ema": True, "recompute": True}, LORA]
WAYS = {
    2: [("ddp", 0), ("fsdp", 0), ("ddp,tensor=2", 0)],
    4: [
        ("ddp", 0),
        ("fsdp", 0),
        ("hsdp", 2),
        ("ddp,tensor=2", 0),
        ("fsdp,tensor=2", 0),
        ("hsdp,tensor=2", 2),
    ],
}
TOLERANCE = 1e-6  # of the loss; seen: 3e-7, rounding in fp32


def told(case: Case) -> str:
    more = [name for name in ("ema", "lora", "recompute", "smoothing", "compiled") if getattr(case, name)]
    return " ".join([case.architecture, case.way, case.optimizer, *more])


def spread_over(processes: int, cases: list[Case], folder: Path) -> list[dict]:
    """What became of each case in so many processes, started once."""
    (folder / "cases").write_text(json.dumps([vars(case) for case in cases]))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launch, parallel_cases.__file__, "cases", "answers"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "answers").read_text())


def assert_like_one(case: Case, found: dict) -> None:
    alone = trained(case.alone, World())
    assert len(found["steps"]) == len(alone["steps"]) == case.steps
    for step, (one, many) in enumerate(zip(alone["steps"], found["steps"], strict=True)):
        assert many[0] == pytest.approx(one[0], rel=TOLERANCE), (told(case), step)
        # The gradient's norm: adapters have small gradients, and Adam makes their rounding large.
        assert many[1] == pytest.approx(one[1], rel=1e-4 if case.lora else 1e-5), (told(case), step)
        assert many[2] == one[2]  # tokens over all processes
    for name, size in alone["weights"].items():
        if not name.endswith("key.bias"):  # the softmax does not notice it: Adam follows rounding errors
            assert found["weights"][name] == pytest.approx(size, rel=1e-4, abs=1e-7), (told(case), name)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[dict]:
    return spread_over(2, TWO, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> list[dict]:
    return spread_over(4, FOUR, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("number", range(len(TWO)), ids=[told(case) for case in TWO])
def test_two_processes_give_the_losses_of_one(number, two):
    assert_like_one(TWO[number], two[number])


@pytest.mark.parametrize("number", range(len(FOUR)), ids=[told(case) for case in FOUR])
def test_four_processes_give_the_losses_of_one(number, four):
    assert_like_one(FOUR[number], four[number])


def test_gradients_are_added_while_the_backward_pass_goes_on(two):
    """Not before the last micro-batch of copies, and long before its last block."""
    kinds = [kind for kind, _ in two[-1]["ddp"]]
    blocks = [place for place, kind in enumerate(kinds) if kind == "block"]
    sums = [place for place, kind in enumerate(kinds) if kind == "sum"]
    assert len(blocks) == 12 and len(sums) > 6  # two micro-batches of six blocks
    assert sums[0] > blocks[5]
    assert sum(place < blocks[-1] for place in sums) >= len(sums) - 6
    sharded = [kind for kind, _ in two[-1]["fsdp"]]
    first_pass = sharded[: [place for place, kind in enumerate(sharded) if kind == "block"][5]]
    assert first_pass.count("sum") >= 4  # a block's shards are added while the next block is computed


def test_gradients_lie_in_the_buckets_that_travel(two):
    """No second copy: what is allocated beside the weights' own size is less than a bucket."""
    seen = two[-1]
    assert {str(place) for kind, place in seen["ddp"] if kind == "sum"} == set(seen["gradients"])
    assert sum(seen["gradients"].values()) <= seen["weights"] + BUCKET


@pytest.mark.slow
@pytest.mark.parametrize("processes", WAYS)
def test_every_architecture_is_like_one_in_every_way(processes, tmp_path):
    cases = [
        Case(name, way, local=local, **more)
        for name in MODELS
        for way, local in WAYS[processes]
        for more in MORE
    ]
    for case, found in zip(cases, spread_over(processes, cases, tmp_path), strict=False):
        assert_like_one(case, found)


@pytest.mark.slow
def test_compiled_blocks_are_like_one_in_every_way(tmp_path):
    cases = [Case("gpt2", way, compiled=True) for way, _ in WAYS[2]]
    for case, found in zip(cases, spread_over(2, cases, tmp_path), strict=False):
        assert_like_one(case, found)


# The setting


def test_a_way_is_read_and_written():
    for text in ("auto", "ddp", "fsdp", "hsdp", "auto,tensor=8", "fsdp,tensor=2"):
        assert str(read_way(text)) == text
    assert recipe.make("lm").train.parallel == "auto"


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "fdsp": "train.parallel is auto, ddp, fsdp or hsdp, not 'fdsp'; did you mean fsdp",
        "true": "train.parallel is auto, ddp, fsdp or hsdp, not 'true'",
        "fsdp,tensor": "as in fsdp,tensor=2, not ',tensor'",
        "ddp,tensor=0": "as in ddp,tensor=2, not ',tensor=0'",
        "ddp,tesnor=2": "as in ddp,tensor=2, not ',tesnor=2'",
    }.items(),
)
def test_what_is_no_way_is_refused(text, said):
    with pytest.raises(BadInput, match=said):
        recipe.make("lm", settings={"train.parallel": text})


def test_grids_have_shards_within_machines_and_parts_side_by_side():
    assert Way("ddp").grid(8, 4) == ProcessGrid(8, 1, 1)
    assert Way("fsdp", 2).grid(8, 4) == ProcessGrid(1, 4, 2)
    assert Way("hsdp", 2).grid(8, 4) == ProcessGrid(2, 2, 2)
    with pytest.raises(BadInput, match="in 3 processes, and 8 cannot be divided by 3"):
        Way("fsdp", 3).grid(8, 4)
    with pytest.raises(BadInput, match="8 processes, 4 of them on this machine, cannot be grouped so"):
        Way("hsdp", 8).grid(8, 4)


UNSPLITTABLE = {
    "bloom": "the positions ALiBi tell each head something else",
    "t5": "the positions T5Buckets tell each head something else",
    "deberta": "cannot split attention of the kind",
}


@pytest.mark.parametrize("name", UNSPLITTABLE)
def test_what_cannot_be_split_is_refused_in_one_sentence(name):
    cases = tiny.DECODERS | tiny.ENCODERS | tiny.ENCODER_DECODERS
    with pytest.raises(BadInput, match=UNSPLITTABLE[name]):
        refuse_unsplittable(tiny.build(cases[name]), 2)


def test_heads_and_widths_that_cannot_be_divided_are_named_with_their_numbers():
    def built(**sizes):
        return llama.build(llama.LlamaConfig(**MODELS["llama"] | sizes))

    with pytest.raises(BadInput, match="tensor=3 cannot divide 4 heads evenly"):
        refuse_unsplittable(built(), 3)
    with pytest.raises(BadInput, match="tensor=4 cannot divide 2 key/value heads evenly"):
        refuse_unsplittable(built(), 4)
    with pytest.raises(BadInput, match="tensor=2 cannot divide a feed-forward width of 25 evenly"):
        refuse_unsplittable(built(ffn_width=25), 2)
