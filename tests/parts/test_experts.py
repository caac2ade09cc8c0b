"""Mixture of experts: the grouped sum is the open one, the losses are the formula's, padding is ignored."""

import json
import math

import pytest
import torch
from helpers.runs import (
    texts,  # noqa: F401 (fixtures)
)
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from heedful.cli.main import main
from heedful.inside.costs import costs, count_active, count_parameters
from heedful.models import family, mixture, mixture_transformer
from heedful.parts.aux_loss import Aux
from heedful.parts.experts import (
    Experts,
    ImportanceAndLoad,
    NoisyTopK,
    Routing,
    SwitchBalance,
    auxiliary,
    cv_squared,
    make_experts,
    mix_grouped,
    mix_plain,
    smooth_load,
)
from heedful.parts.layers import FeedForward, GatedFeedForward
from heedful.parts.watch import watch
from heedful.tasks import lm, translate, translate_rows
from heedful.train.loss import Loss, with_aux
from heedful.train.processes import IdleBatch, with_idle

N, D, F, E, K = 13, 6, 10, 5, 2
B, T = 3, 7
DECODER = mixture.MixtureConfig(
    vocab=29,
    context=31,
    layers=3,
    width=12,
    heads=3,
    ffn_width=20,
    experts=5,
    top_k=2,
    moe_every=2,
    dropout=0.0,
    attention_dropout=0.0,
)
TRANSLATOR = mixture_transformer.MixtureTransformerConfig(
    vocab=29,
    target_vocab=29,
    layers=1,
    decoder_layers=2,
    width=12,
    heads=3,
    decoder_heads=2,
    ffn_width=20,
    decoder_ffn_width=14,
    experts=4,
    top_k=2,
    dropout=0.0,
)


@pytest.fixture(autouse=True)
def in_full():
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def shaken(model: nn.Module) -> nn.Module:
    """Every weight away from where it began: gates begin at 0."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return model


def layer(gate: str = "noisy", chosen: int = K, capacity: float = 0.0, balance: float = 0.1) -> Experts:
    made = make_experts(lambda: FeedForward(D, F), D, E, chosen, gate, balance, capacity)
    return shaken(made)  # type: ignore[return-value]


def experts_in(model: nn.Module) -> list[Experts]:
    return [module for module in model.modules() if isinstance(module, Experts)]


# The sum


@pytest.mark.parametrize("gate", ["noisy", "switch"])
@pytest.mark.parametrize("chosen", range(1, E + 1))
@pytest.mark.parametrize("training", [True, False])
def test_grouped_tokens_give_the_open_sum_over_all_experts(gate, chosen, training):
    experts, x_ND = layer(gate, chosen).train(training), torch.randn(N, D)
    routing = experts.gate(x_ND)
    found = mix_grouped(x_ND, routing.chosen_NK, routing.gates_NK, list(experts.experts))
    assert torch.allclose(found, mix_plain(x_ND, routing.gates_NE, list(experts.experts)), atol=1e-12)
    assert (routing.gates_NE > 0).sum(1).eq(chosen).all()


def test_all_experts_chosen_is_the_dense_softmax_mixture():
    experts, x_BTD = layer(chosen=E).eval(), torch.randn(B, T, D)
    x_ND = x_BTD.flatten(0, 1)
    gates_NE = (x_ND @ experts.gate.weight).softmax(-1)
    assert torch.allclose(experts(x_BTD).flatten(0, 1), mix_plain(x_ND, gates_NE, list(experts.experts)))


def test_gates_are_a_softmax_over_the_chosen_alone_and_switch_keeps_its_probabilities():
    x_ND = torch.randn(N, D)
    noisy, switch = layer("noisy").eval().gate, layer("switch").gate
    scores_NE = x_ND @ noisy.weight
    found = noisy(x_ND)
    kept_NE = scores_NE.masked_fill(scores_NE < scores_NE.topk(K).values[:, -1:], -math.inf)
    assert torch.allclose(found.gates_NE, kept_NE.softmax(-1))
    probability_NE = (x_ND @ switch.weight).softmax(-1)
    assert torch.allclose(switch(x_ND).gates_NK, probability_NE.topk(K).values)


def test_any_feed_forward_can_be_an_expert():
    made = make_experts(lambda: GatedFeedForward(D, F), D, E, K).eval()
    assert made(torch.randn(B, T, D)).shape == (B, T, D)


def test_an_expert_that_nobody_chose_has_a_gradient_of_zero():
    experts = layer(chosen=1).eval()
    with torch.no_grad():
        experts.gate.weight.zero_()  # all scores alike: everyone goes to the first
    experts(torch.randn(B, T, D)).square().sum().backward()
    first, *others = (sum(float(p.grad.abs().sum()) for p in e.parameters()) for e in experts.experts)
    assert first > 0 and others == [0.0] * (E - 1)


def test_gradients_are_those_of_the_open_sum():
    experts, x_ND = layer().eval(), torch.randn(N, D, requires_grad=True)
    routing = experts.gate(x_ND)
    both = []
    for y_ND in (
        mix_grouped(x_ND, routing.chosen_NK, routing.gates_NK, list(experts.experts)),
        mix_plain(x_ND, routing.gates_NE, list(experts.experts)),
    ):
        both.append(
            torch.autograd.grad(
                y_ND.sin().sum(), [x_ND, *experts.parameters()], retain_graph=True, allow_unused=True
            )
        )
    for a, b in zip(*both, strict=True):
        assert (a is None and b is None) or torch.allclose(a, b, atol=1e-12)


# Noise


def test_noise_is_in_training_only():
    experts, x_BTD = layer(), torch.randn(B, T, D)
    assert not torch.equal(experts(x_BTD), experts(x_BTD))
    experts.eval()
    assert torch.equal(experts(x_BTD), experts(x_BTD))


def test_a_fresh_gate_is_zero_and_its_noise_has_the_spread_of_softplus():
    gate = NoisyTopK(D, E, K)
    assert not gate.weight.any() and not gate.noise.any()
    routing = gate(torch.randn(40_000, D))
    assert torch.allclose(routing.spread_NE, torch.tensor(math.log(2)))
    assert routing.noisy_NE.std().item() == pytest.approx(math.log(2), rel=0.01)
    assert routing.load_E.double().div(40_000 * K).sub(1 / E).abs().max() < 0.01


def test_in_half_precision_scores_are_in_full_and_what_comes_out_is_half():
    experts = layer().float()
    with torch.autocast("cpu", torch.bfloat16):
        assert experts.gate(torch.randn(N, D, dtype=torch.bfloat16)).scores_NE.dtype == torch.float32
        found = experts(torch.randn(B, T, D, dtype=torch.bfloat16))
    assert found.dtype == torch.bfloat16 and found.isfinite().all()


# Balance


def test_even_gates_cost_nothing():
    """Every expert gets the same, of tokens and of gates."""
    chosen_NK = torch.stack([torch.arange(E), (torch.arange(E) + 1) % E], 1)
    zeros = torch.zeros(E, E)
    even = Routing(chosen_NK, torch.full((E, K), 0.5), zeros, zeros)
    assert ImportanceAndLoad(0.1)(even).item() == 0
    assert SwitchBalance(0.01)(even).item() == pytest.approx(0.01)


def test_the_importance_loss_is_the_squared_variation_of_the_sums_of_gates():
    routing = layer().eval().gate(torch.randn(N, D))
    importance_E, load_E = routing.gates_NE.sum(0), routing.load_E.double()
    by_hand = [a.var(unbiased=False) / a.mean() ** 2 for a in (importance_E, load_E)]
    assert ImportanceAndLoad(0.3)(routing).item() == pytest.approx(0.3 * sum(by_hand).item(), rel=1e-8)
    assert cv_squared(torch.zeros(4)).item() == 0


def test_the_smooth_load_is_the_chance_to_be_chosen_if_ones_own_noise_were_drawn_again():
    routing = layer().gate(torch.randn(N, D))
    draws = 20_000
    expected_E = torch.zeros(E)
    for i in range(E):
        noisy_RNE = routing.noisy_NE.repeat(draws, 1, 1)
        noisy_RNE[..., i] = routing.scores_NE[:, i] + torch.randn(draws, N) * routing.spread_NE[:, i]
        others_RN = (
            noisy_RNE.gather(2, torch.tensor([j for j in range(E) if j != i]).expand(draws, N, -1))
            .topk(K)
            .values[..., -1]
        )
        expected_E[i] = (noisy_RNE[..., i] > others_RN).double().mean(0).sum()
    assert torch.allclose(smooth_load(routing), expected_E, atol=0.05)


def test_with_all_experts_chosen_each_is_certain_to_be():
    assert smooth_load(layer(chosen=E).gate(torch.randn(N, D))).tolist() == [N] * E


def test_the_load_loss_reaches_the_noise_and_agrees_with_finite_differences():
    gate, x_ND = layer().gate, torch.randn(N, D)

    def load_loss() -> torch.Tensor:
        torch.manual_seed(5)
        return cv_squared(smooth_load(gate(x_ND)))

    (gradient,) = torch.autograd.grad(load_loss(), gate.noise)
    assert gradient.abs().min() > 0
    step = 1e-6
    with torch.no_grad():
        gate.noise[2, 3] += step
        after = load_loss()
        gate.noise[2, 3] -= 2 * step
        before = load_loss()
    assert gradient[2, 3].item() == pytest.approx((after - before).item() / (2 * step), rel=1e-4)


def test_the_switch_loss_is_the_formula():
    routing = layer("switch").gate(torch.randn(N, D))
    share_E = torch.stack([(routing.chosen_NK == i).sum() / (N * K) for i in range(E)])
    probability_E = routing.scores_NE.softmax(-1).mean(0)
    assert SwitchBalance(0.01)(routing).item() == pytest.approx(
        0.01 * E * (share_E * probability_E).sum().item()
    )


def test_a_tiny_spread_gives_no_infinite_gradient():
    gate = NoisyTopK(D, E, K)
    with torch.no_grad():
        gate.noise.fill_(-1000)
        gate.weight.normal_()
    x_ND = torch.rand(N, D) + 0.5
    ImportanceAndLoad()(gate(x_ND)).backward()
    assert gate.noise.grad.isfinite().all() and gate.weight.grad.isfinite().all()


# Padding


def test_padding_is_neither_counted_nor_computed_and_changes_nothing():
    experts, x_BTD = layer().eval(), torch.randn(B, T, D)
    real_BT = torch.arange(T) < torch.tensor([7, 4, 2])[:, None]
    rows = []
    hooks = [
        e.register_forward_pre_hook(lambda m, given: rows.append(given[0].shape[1])) for e in experts.experts
    ]
    padded, bare = Aux().among(lambda: real_BT), Aux()
    found = experts(x_BTD, padded)
    assert sum(rows) == K * 13
    expected = experts(x_BTD[real_BT][None], bare)
    for hook in hooks:
        hook.remove()
    assert torch.allclose(found[real_BT], expected[0], atol=1e-12) and not found[~real_BT].any()
    a, b = padded.close(), bare.close()
    assert torch.equal(a.expert_load_LE, b.expert_load_LE) and a.expert_load_LE.sum() == K * 13
    assert torch.allclose(a.loss, b.loss)


def test_a_batch_of_nothing_but_padding_costs_nothing():
    experts, aux = layer(), Aux().among(lambda: torch.zeros(B, T, dtype=torch.bool))
    assert not experts(torch.randn(B, T, D), aux).any()
    told = aux.close()
    assert told.loss.item() == 0 and not told.expert_load_LE.any()


def test_a_translators_loss_leaves_padding_out_on_both_sides():
    model = shaken(family("mixture_transformer").build(TRANSLATOR)).train()
    sources = [torch.arange(5, 5 + n).numpy() for n in (4, 1)]
    targets = [torch.arange(3, 3 + n).numpy() for n in (2, 5)]
    found = translate.loss_of(model, translate_rows.collate(sources, targets, 1, 2, 0))
    assert found.expert_load_LE.sum(1).tolist() == [2 * (4 + 1), 2 * (3 + 6), 2 * (3 + 6)]


def test_packed_documents_leave_the_rest_of_a_row_out():
    model = shaken(family("mixture").build(DECODER)).train()
    documents_BT = torch.tensor([[0, 0, 1, -1], [0, -1, -1, -1]])
    tokens_BT = torch.randint(29, (2, 4))
    batch = lm.PackedBatch(tokens_BT, tokens_BT.masked_fill(documents_BT < 0, -100), documents_BT, 4)
    assert (
        lm.loss_of(model, batch).expert_load_LE.sum(1).tolist() == [2 * 4] * 2
    )  # two of its three blocks have experts


# Capacity


def test_no_token_is_dropped_unless_a_capacity_is_asked_for():
    everyone = layer(chosen=1)
    with torch.no_grad():
        everyone.gate.noise.fill_(-1e4)  # no noise
        everyone.gate.weight.zero_()  # and all alike: the first gets everyone
    x_BTD = torch.rand(B, T, D)
    assert torch.allclose(everyone(x_BTD), everyone.experts[0](x_BTD))
    everyone.capacity = 1.5
    room = math.ceil(1.5 * B * T / E)
    found = everyone(x_BTD).flatten(0, 1)
    assert torch.allclose(found[:room], everyone.experts[0](x_BTD.flatten(0, 1)[:room]))
    assert not found[room:].any()
    everyone.eval()
    assert torch.allclose(everyone(x_BTD), everyone.experts[0](x_BTD))


def test_a_capacity_that_is_enough_drops_nobody():
    experts, x_BTD = layer(capacity=float(E)), torch.randn(B, T, D)
    torch.manual_seed(1)
    found = experts(x_BTD)
    experts.capacity = None
    torch.manual_seed(1)
    assert torch.allclose(found, experts(x_BTD))


# How what is said reaches the loss


def test_losses_of_all_layers_are_added_and_weigh_as_many_times_as_there_are_targets():
    model = shaken(family("mixture").build(DECODER)).eval()
    batch = lm.WindowBatch(torch.randint(29, (2, 9)))
    layers = experts_in(model)
    assert len(layers) == 2
    heard = []
    hooks = [e.gate.register_forward_hook(lambda m, given, out: heard.append(out)) for e in layers]
    found = lm.loss_of(model, batch)
    for hook in hooks:
        hook.remove()
    expected = sum(e.balance(routing) for e, routing in zip(layers, heard, strict=True))
    assert (found.total - found.nll).item() == pytest.approx(16 * expected.item())
    assert torch.equal(found.expert_load_LE, torch.stack([routing.load_E for routing in heard]))


def test_micro_batches_weigh_by_their_tokens():
    """The rule for accumulation: each balances itself, and counts by its share of the targets."""
    parts = [(3, 0.5), (9, 0.1)]
    total = 0.0
    for count, balance in parts:
        aux = Aux()
        aux.say(torch.tensor(balance), torch.ones(E))
        total += with_aux(Loss(torch.tensor(0.0), torch.tensor(0.0), count), aux).total.item() / 12
    assert total == pytest.approx((3 * 0.5 + 9 * 0.1) / 12)


@pytest.mark.parametrize("name", ["mixture", "mixture_transformer"])
def test_recomputed_blocks_give_the_same_gradients_and_speak_once(name, monkeypatch):
    config = DECODER if name == "mixture" else TRANSLATOR
    model = shaken(family(name).build(config)).train()
    if name == "mixture":
        loss_of, batch = lm.loss_of, lm.WindowBatch(torch.randint(29, (2, 9)))
    else:
        rows = [torch.randint(29, (n,)).numpy() for n in (4, 6)]
        loss_of, batch = translate.loss_of, translate_rows.collate(rows, rows[::-1], 1, 2, 0)
    found = []
    for recompute in (False, True):
        for stack in (m for m in model.modules() if hasattr(m, "recompute")):
            stack.recompute = recompute
        model.zero_grad()
        torch.manual_seed(8)
        aux = Aux()
        monkeypatch.setattr(f"{loss_of.__module__}.auxiliary", lambda model, aux=aux: aux)
        loss = loss_of(model, batch)
        loss.total.backward()
        found.append((loss.total.item(), loss.expert_load_LE, [p.grad.clone() for p in model.parameters()]))
    (a, loads_a, grads_a), (b, loads_b, grads_b) = found
    assert a == pytest.approx(b, rel=1e-12) and torch.equal(loads_a, loads_b)
    assert torch.equal(
        aux.close().expert_load_LE, loads_b
    )  # what was said again in the backward pass was not heard
    assert all(torch.allclose(x, y, atol=1e-12) for x, y in zip(grads_a, grads_b, strict=True))
    assert any(
        g.any()
        for g, (n, _) in zip(grads_a, model.named_parameters(), strict=True)
        if n.endswith("gate.noise")
    )


def test_an_idle_process_says_as_much_as_the_others_and_counts_nothing():
    model = family("mixture").build(DECODER)
    batch = lm.WindowBatch(torch.randint(29, (2, 9)))
    found = with_idle(lm.loss_of)(model, IdleBatch(batch))
    assert found.total.item() == 0 and found.expert_load_LE.shape == (2, 5) and not found.expert_load_LE.any()


def test_a_model_without_experts_is_asked_nothing():
    assert auxiliary(nn.Linear(2, 3)) is None and auxiliary(layer()) is not None
    assert Aux().close() is None


# Models


def test_gates_begin_where_they_should_and_experts_differ():
    model = family("mixture").build(DECODER)
    for experts in experts_in(model):
        assert not experts.gate.weight.any() and not experts.gate.noise.any()
        first, second = (e.up.weight for e in list(experts.experts)[:2])
        assert not torch.equal(first, second) and 0.01 < first.std() < 0.03


@pytest.mark.parametrize("name, config", [("mixture", DECODER), ("mixture_transformer", TRANSLATOR)])
def test_costs_count_the_experts_that_a_token_meets(name, config):
    model = family(name).build(config).eval()
    tokens = torch.randint(29, (B, T))
    given, lengths = ((tokens,), (T, None)) if name == "mixture" else ((tokens[:, :5], tokens), (T, 5))
    found = costs(model, B, *lengths)
    with watch(model), FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*given)
    assert found.whole.flops == counter.get_total_flops()
    idle = sum((config.experts - config.top_k) * count_parameters(e.experts[0]) for e in experts_in(model))
    assert found.parameters == count_parameters(model)
    assert found.active == count_active(model) == count_parameters(model) - idle


def test_info_tells_active_parameters_beside_all(capsys):
    assert main(["info", "mixture-8x124m", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"] - told["active_parameters"] == 12 * 6 * (2 * 768 * 3072 + 3072 + 768)
    assert main(["info", "gpt2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"] == told["active_parameters"]
