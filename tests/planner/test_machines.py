"""Machines: the table of GPUs, and how they are put together."""

import pytest

from heedful.errors import BadInput
from heedful.planner.machines import find_cluster, find_gpu, gpus, table


@pytest.mark.parametrize("name", gpus())
def test_what_kernels_reach_is_less_than_what_data_sheets_say(name):
    gpu = find_gpu(name)
    assert all(0.5 < share < 1 for share in (gpu.products, gpu.copies, gpu.attention, gpu.ring))
    assert gpu.network in table()["networks"]


@pytest.mark.parametrize(
    ("gpus", "per_machine", "expected"),
    [
        (1, None, (1, 1)),
        (4, None, (1, 4)),
        (8, None, (1, 8)),
        (12, None, (3, 4)),
        (1024, None, (128, 8)),
        (6, 2, (3, 2)),
    ],
)
def test_gpus_are_in_machines_of_eight_unless_somebody_says_otherwise(gpus, per_machine, expected):
    found = find_cluster(find_gpu("h100"), gpus, per_machine)
    assert (found.machines, found.per_machine) == expected


def test_networks_count_by_machine():
    one = find_cluster(find_gpu("h100"), 16)
    assert one.network == 8 * 50e9 and "InfiniBand NDR" in one.describe()
    assert find_cluster(find_gpu("h100"), 16, network="ethernet-100").network == 12.5e9
    assert find_cluster(find_gpu("a100"), 16, network="800").network == 100e9
    assert "GPU" not in find_cluster(find_gpu("a100"), 8).describe()  # one machine has no network


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"gpus": 0}, "--gpus must be from 1 to 1,048,576, not 0"),
        ({"gpus": 12, "per_machine": 5}, "--gpus 12 are not whole machines of --gpus-per-machine 5"),
        ({"gpus": 8, "per_machine": 0}, "not whole machines of --gpus-per-machine 0"),
        ({"gpus": 8, "network": "token-ring"}, "--network is a number of Gb/s per machine or one of ndr"),
        ({"gpus": 8, "network": "0"}, "--network is a number"),
    ],
)
def test_machines_that_cannot_be_are_refused(asked, told):
    with pytest.raises(BadInput, match=told):
        find_cluster(find_gpu("h200"), **asked)


def test_a_gpu_that_is_not_in_the_table_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match='no GPU "h20" in the table; did you mean "h200"'):
        find_gpu("h20")
