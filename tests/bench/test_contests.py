"""Contests: taking turns, medians, and answers that agree. Nothing here is timed."""

import json
from dataclasses import replace

import pytest
import torch
from helpers.bench_cases import CPU, DECODING, TRAINING, contender, play
from safetensors.torch import load_file

from heedful import WAITING
from heedful.bench import beside, measure, ours, peers
from heedful.bench import work as works
from heedful.bench.measure import Result, agreement
from heedful.bench.peers import Contender, Place, Variant
from heedful.bench.worker import WorkerRequests, plain
from heedful.errors import BadInput
from heedful.inside.costs import costs
from heedful.models import family
from heedful.parts.multihead import split_heads
from heedful.parts.positions.rotary import Rotary

pytestmark = pytest.mark.usefixtures("no_pause")


def test_everyone_starts_alone_and_then_they_take_turns():
    diary, _ = play(["heedful", "b", "c"])
    assert diary[:3] == [("build", "heedful"), ("build", "b"), ("build", "c")]
    assert [entry[1] for entry in diary if entry[0] == "turn"] == ["heedful", "b", "c"] * 3
    assert sorted(name for what, name, *_ in diary if what == "close") == ["b", "c", "heedful"]


def test_some_start_side_by_side_and_take_turns_all_the_same():
    diary, results = play(["heedful", "b", "c", "d"], broken={"b": "build", "d": 1}, at_once=3)
    assert sorted(name for what, name, *_ in diary if what == "build") == ["b", "c", "d", "heedful"]
    turns = [entry for entry in diary if entry[0] == "turn"]
    assert turns[:3] == [("turn", name, 2) for name in ("heedful", "c", "d")]  # what a unit takes alone
    assert [entry[1] for entry in turns[3:]] == ["heedful", "c"] * 3
    assert [r.failed is None for r in results] == [True, False, True, False]


@pytest.mark.parametrize("chosen", [{}, {"OMP_WAIT_POLICY": "active"}])
def test_idle_threads_of_peers_wait_as_they_do_without_heedful(chosen, monkeypatch):
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    ours, peers = (measure.environment(2, which) for which in (True, False))
    assert {n: v for n, v in ours.items() if n in WAITING} == chosen  # `import heedful` says the rest
    assert {n: v for n, v in peers.items() if n in WAITING} == (chosen or {"GOMP_SPINCOUNT": "300000"})


def test_a_variant_in_half_precision_trains_in_it():
    half = peers.in_half(Variant("plain", same_weights=True))
    assert (half.name, half.numbers, half.device) == ("plain, bf16", "bf16", "cpu")
    work, bench, losses = works.as_json(works.SMALL["train-gpt2"]), WorkerRequests(), []
    for variant in (Variant("plain"), half):
        found = bench.build(Contender("heedful", variant).as_json(), work, vars(Place("cpu", 1)))
        losses.append(found["answer"])
    assert bench.place.precision == "bf16"
    assert losses[0] != losses[1] and abs(losses[0] - losses[1]) < 2e-2


def test_short_units_are_done_many_times_a_turn():
    diary, _ = play(["heedful", "b"], speeds={"heedful": 0.01, "b": 9.0})
    units_of = {name: n for what, name, *n in diary if what == "turn"}
    assert units_of == {"heedful": [25], "b": [1]}


def test_whoever_fails_is_out_and_the_others_go_on():
    diary, results = play(["heedful", "b", "c"], broken={"b": "build", "c": 2})
    assert [r.failed for r in results] == [None, "ValueError: it will not", "was ended by signal 9"]
    turns = [entry[1] for entry in diary if entry[0] == "turn"]
    assert turns == ["heedful", "c", "heedful", "c", "heedful"]
    assert len(results[0].turns) == 3


def test_the_middle_of_the_turns_counts():
    result = Result(contender("b"), turns=[3.0, 1.0, 2.0, 10.0])
    assert result.seconds == 2.5
    assert result.spread == pytest.approx((4.75 - 1.75) / 2.5)  # quartiles of 1 2 3 10


@pytest.mark.parametrize("units, rounds", [([0.1, 2.0], 5), ([0.001], 15), ([60.0, 0.1], 3)])
def test_the_slowest_decides_how_many_rounds_there_are(units, rounds):
    assert measure.rounds_for(units, seconds=10) == rounds


# Agreement


def test_losses_agree_by_their_difference_and_tokens_up_to_the_first_other_one():
    assert agreement(2.5, 2.25) == {"loss": 2.5, "difference": 0.25}
    assert agreement([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]) == {"tokens": 3, "alike": 3}
    assert agreement([[1, 9, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]) == {"tokens": 3, "alike": 2}
    assert agreement([[1, 2], [4, 5]], [[1, 2, 3], [4, 5, 6]]) == {"tokens": 3, "alike": 2}  # stopped early


@pytest.mark.parametrize("name", ["decode-gpt2", "decode-llama", "translate-beam1", "translate-beam4"])
def test_equal_answers_mean_something(name, tmp_path):
    """The weights write different tokens in a row, and different rows for different sources."""
    answer = ours.prepare(works.SMALL[name], CPU, tmp_path)["answer"]
    assert len({tuple(row) for row in answer}) > 1
    assert max(len(set(row)) for row in answer) > 1
    saved = load_file(tmp_path / "model.safetensors")
    if "translate" in name:  # nobody may write the end or the padding, from whose zeros a translation begins
        assert saved["final_logits_bias"][0, [0, -1]].tolist() == [ours.NEVER] * 2
        assert saved["model.shared.weight"][-1].abs().max() == 0 < saved["model.shared.weight"][0].abs().max()


# Every kind of work, by heedful and by the peers that tests have


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", works.SMALL)
def test_heedful_transformers_and_torch_do_the_same_work(name, tmp_path):
    work = works.SMALL[name]
    place = replace(CPU, weights=str(tmp_path))
    expected = ours.prepare(work, place, tmp_path)["answer"]
    asked = [("heedful", None), ("transformers", None), ("torch.nn", None)]
    compared = set()
    for peer, path in asked:
        file = peers.find(peer, path)
        for variant in file.variants(work):
            if variant.compiled:
                continue
            run = file.build(work, variant, place)
            first, second = plain(run(), work), plain(run(), work)
            if works.dropout_of(work):
                assert 0 < abs(first - expected) < 0.5  # by what it dropped
                compared |= {peer} if variant.same_weights else set()
                continue
            if work.trains:
                assert second < first  # it learns
            else:
                assert second == first and [len(row) for row in first] == [work.new] * work.batch
            if variant.same_weights:
                compared.add(peer)
                found = agreement(first, expected)
                assert found.get("difference", 0) < 1e-5 and found.get("alike") == found.get("tokens")
    assert compared == {"heedful", "transformers"}


@pytest.mark.parametrize("attention", ["window 3", "strided 2"])
def test_sparse_attention_is_heedfuls_alone_and_changes_the_loss(attention):
    work = replace(TRAINING, attention=attention)
    assert [name for name in peers.PEERS if peers.find(name, None).variants(work)] == []
    torch.manual_seed(0)
    losses = {}
    for each in (TRAINING, work):
        losses[each.attention] = ours.build(each, Variant("bare step"), CPU)().item()
    assert losses[attention] != losses["full"] and losses[attention] == pytest.approx(losses["full"], abs=0.5)


def test_what_nanogpt_and_gpt_fast_need(tmp_path):
    for name, work in (("nanogpt", TRAINING), ("gpt-fast", DECODING)):
        file = peers.find(name, str(tmp_path))
        with pytest.raises(BadInput, match=f"--peer {name}=PATH: the folder holds no model.py"):
            file.build(work, file.variants(work)[0], replace(CPU, path=str(tmp_path)))
    assert {v.name.startswith("no biases") for v in peers.find("nanogpt", None).variants(TRAINING)} == {
        False,
        True,
    }


def test_gpt_fast_is_compiled_with_the_settings_of_its_own_script():
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    from heedful.bench.peers import gptfast

    with (
        inductor.patch(coordinate_descent_tuning=False, fx_graph_cache=False),
        functorch.patch(enable_autograd_cache=False),
    ):
        gptfast.set_compiler()
        assert inductor.coordinate_descent_tuning and inductor.fx_graph_cache
        assert inductor.triton.unique_kernel_names and functorch.enable_autograd_cache


def test_gpt_fast_gets_heedfuls_weights_in_its_own_order(tmp_path):
    """Halves of a head become pairs: rotated side by side, queries and keys have the same products."""
    from heedful.bench.peers.gptfast import converted

    work = works.SMALL["decode-llama"]
    ours.prepare(work, CPU, tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    weights = converted(found, work)
    assert sum(w.numel() for w in weights.values()) == sum(w.numel() for w in found.values())
    x_BTD, scores = torch.randn(2, 5, work.width), []
    theirs = weights["layers.1.attention.wqkv.weight"].chunk(3)[:2]
    mine = [found[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qk"]
    for layout, pair in (("interleaved", theirs), ("halves", mine)):
        rotary = Rotary(work.width // work.heads, layout)
        q, k = (split_heads(x_BTD @ weight.T, work.heads) for weight in pair)
        scores.append(rotary.rotate(q, torch.arange(5)) @ rotary.rotate(k, torch.arange(5)).mT)
    torch.testing.assert_close(*scores)


def test_the_grid_is_measured_only_when_it_is_asked_for():
    assert works.choose([], works.CUDA) == works.CUDA
    found = works.choose(["grid-llama-355m"], works.CUDA)
    assert len(found) == 16 and {type(work) for work in found.values()} == {works.DecodeLlama}
    assert {(w.batch, w.prompt, w.new) for w in found.values()} == {
        (batch, prompt, new) for batch in (1, 4, 16, 64) for prompt in (32, 1024) for new in (1, 128)
    }
    point = works.GRID["grid-gpt2-1.56b-b4-p1024"]
    assert works.GRID["grid-gpt2-1.56b-b4-p1024-read"] == point.reading == replace(point, new=1)


def test_writing_is_what_is_left_without_the_prompt():
    """Two of three seconds are the prompt's: 6 tokens a row after the first one in the third."""
    names = ("decode-gpt2", "decode-gpt2-read")
    records = [
        {"work": name, "contender": who, "peer": who, "failed": None, "numbers": "fp32", "ms": ms}
        | {"sizes": works.as_json(replace(DECODING, new=7))}
        for who, times in (("heedful", (3000, 2000)), ("b", (5000, 2000)), ("c", (1000, 1000)))
        for name, ms in zip(names, times, strict=True)
    ]
    ours_, theirs = beside.reading_and_writing(records)  # c took no longer than its prompt: noise
    assert (ours_["contender"], theirs["contender"]) == ("heedful", "b")
    assert ours_["read_per_second"] == 3 * 4 / 2 and ours_["written_per_second"] == 3 * 6 / 1
    assert ours_["ratio"] == 3 and theirs["ratio"] == 1


# What a work cannot do without


def model_of(work):
    name, config = ours.architecture(work)
    return family(name).build(config)


def test_floors_count_what_costs_counts():
    """At lengths where nothing is hidden by a mask, arithmetic is exactly that of heedful info."""
    one = replace(DECODING, prompt=1, new=1)
    assert one.flops == costs(model_of(one), one.batch, 1).whole.flops
    first = replace(works.SMALL["translate-beam1"], new=1)
    assert first.flops == costs(model_of(first), first.batch, 1, first.source).whole.flops


def test_every_matrix_is_read_once_a_token():
    one = replace(DECODING, prompt=1, new=1, batch=1)
    matrices = [p.numel() for n, p in model_of(one).named_parameters() if p.ndim == 2 and "position" not in n]
    cache = 2 * one.layers * one.width
    assert one.traffic("fp32", "fp32") == 4 * sum(matrices) + 4 * cache
    assert one.traffic("int8", "fp32") == sum(matrices) + 4 * cache
    more = replace(one, new=3)
    assert more.traffic("bf16", "bf16") == 2 * (3 * sum(matrices) + (1 + 2 + 3) * cache)


def test_beams_share_the_source_and_the_weights():
    narrow, wide = (replace(works.SMALL["translate-beam1"], beam=beam) for beam in (1, 4))
    L, D, N = narrow.layers, narrow.width, narrow.new
    assert (
        wide.traffic("fp32", "fp32") - narrow.traffic("fp32", "fp32")
        == 4 * narrow.batch * 3 * 2 * L * D * N * (N - 1) // 2
    )
    assert narrow.flops < wide.flops < 4 * narrow.flops


@pytest.mark.parametrize("work", [*works.SMALL.values(), *works.CPU.values(), *works.CUDA.values()])
def test_works_survive_being_sent(work):
    assert works.from_json(json.loads(json.dumps(works.as_json(work)))) == work
    assert work.tokens > 0 and str(work.batch) in work.describe()


def test_works_are_chosen_by_name_or_its_beginning():
    assert list(works.choose(["translate-b1"], works.CPU)) == ["translate-b1-beam1", "translate-b1-beam4"]
    assert list(works.choose(["train-gpt2"], works.CUDA)) == ["train-gpt2"]
    assert works.choose([], works.CPU) == works.CPU
    with pytest.raises(BadInput, match='there is no workload "tranlate"; did you mean "translate-'):
        works.choose(["tranlate"], works.CPU)


def test_llama_cpp_writes_one_row_by_llamas_parts():
    variants = peers.find("llama.cpp", None).variants
    one = works.CPU["decode-smollm2"]
    assert [each.name for each in variants(one)] == ["", "int8"]
    assert [each.name for each in variants(replace(one, ffn=100))] == [""]  # q8_0 takes 32 weights together
    assert variants(replace(one, batch=2)) == variants(works.CPU["decode-gpt2"]) == []


def test_smollm2_has_its_published_number_of_parameters():
    work = works.CPU["decode-smollm2"]
    assert 134_515_008 == work.inside + work.vocab * work.width + (2 * work.layers + 1) * work.width  # norms
