"""Memory of one GPU: beside sums over weights, and a published formula for activations."""

import pytest

from heedful.models import find_preset
from heedful.models.base.skeleton import skeleton
from heedful.models.gpt2 import GPT2Config
from heedful.planner.machines import find_cluster, find_gpu
from heedful.planner.memory import checkpointed, kept_activations, memory_of
from heedful.planner.shardings import Sharding, shardings
from heedful.planner.training_step import count_costs

CLUSTER = find_cluster(find_gpu("h100"), 32)


def gpt2(**sizes):
    sizes = {"dropout": 0.1, "attention_dropout": 0.1, "vocab": 512, "context": 256, **sizes}
    return skeleton("gpt2", GPT2Config(**sizes))


@pytest.mark.parametrize(
    ("parallel", "tensor", "shards", "copies"),
    [
        ("ddp", 1, 1, 32),
        ("ddp", 4, 4, 8),
        ("fsdp", 1, 32, 1),
        ("fsdp", 8, 32, 1),
        ("hsdp", 1, 8, 4),
        ("hsdp", 2, 8, 4),
    ],
)
def test_weights_are_divided_by_shards(parallel, tensor, shards, copies):
    sharding, found = Sharding(parallel, tensor, CLUSTER), count_costs(gpt2(), 2, 256)
    assert (sharding.shards, sharding.copy_group.size) == (shards, copies)
    assert sharding.shard_group.size * tensor == shards
    memory = memory_of(sharding, found, checkpointing=False)
    state = memory.weights + memory.gradients + memory.optimizer
    assert state == pytest.approx(16 * found.parameters / shards)
    assert memory.copies == found.memory["copies"] / tensor
    assert (memory.buffers > 0) == (parallel != "ddp")


def test_one_gpu_takes_what_info_says():
    found = count_costs(gpt2(), 2, 256)
    alone = Sharding("ddp", 1, find_cluster(find_gpu("h100"), 1))
    assert memory_of(alone, found, checkpointing=False).total == found.memory["training"]


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_activations_of_a_block_are_those_of_a_published_formula(tensor):
    """Korthikanti et al. 2022, "Reducing activation recomputation", equation 2, without the table of scores,
    which a fused kernel does not keep: 10 + 24 / t bytes a number, of which 4 are inputs of norms in fp16."""
    B, T, D, H, L = 3, 256, 512, 8, 5
    found = count_costs(gpt2(layers=L, width=D, heads=H, ffn_width=4 * D), B, T)
    more = 4  # our norms keep fp32
    dropout, softmax = 2, 4 / (D / H)  # masks of the residuals; one log-sum-exp a row
    expected = L * B * T * D * (10 + more - dropout + 24 / tensor + (dropout + softmax) / tensor)
    (blocks,) = [part for part in found.whole.parts if part.name.endswith("blocks")]
    outside = kept_activations(found, 1) - blocks.kept
    assert kept_activations(found, tensor) - outside == pytest.approx(expected, rel=0.05)


def test_checkpointing_keeps_the_inputs_of_blocks_and_one_block():
    found = count_costs(gpt2(layers=6, width=128, heads=4), 2, 256)
    (blocks,) = [part for part in found.whole.parts if part.name.endswith("blocks")]
    outside = kept_activations(found, 1) - blocks.kept
    inputs = 6 * 2 * 2 * 256 * 128  # blocks, bytes, rows, tokens, numbers
    assert checkpointed(found, 1) == pytest.approx(inputs + blocks.kept / 6 + outside)
    assert checkpointed(found, 1) < kept_activations(found, 1) / 3


@pytest.mark.parametrize(
    ("name", "gpus", "count"),
    [
        ("gpt2", 1, 1),  # one way alone
        ("gpt2", 8, 2 + 2 + 2),  # 12 heads are for 1, 2 or 4 GPUs; one machine has no hsdp
        ("gpt2", 16, 3 + 3 + 3),
        (
            "gpt3-175b",
            16,
            3 + 3 + 3 + 2,
        ),  # tensor=8 leaves nothing to shard in a machine
        ("smollm2-135m", 8, 2),  # three heads of keys
    ],
)
def test_the_ways_that_differ(name, gpus, count):
    found = list(shardings(find_cluster(find_gpu("h100"), gpus), skeleton(*find_preset(name))))
    assert len(found) == len(set(found)) == count


def test_encoder_and_decoder_are_both_counted():
    found = count_costs(skeleton(*find_preset("transformer-base")), 4, 128, 128)
    assert kept_activations(found, 1) == pytest.approx(found.memory["activations"], rel=0.02)
