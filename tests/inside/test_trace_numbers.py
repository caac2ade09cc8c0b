"""Every number of a trace, derived once more in float64 from the weights by the formulas of the slides."""

import math
import random
from copy import deepcopy

import pytest
import torch
from helpers.look_cases import imported

from heedful.inside.hooks import Hook, hooked
from heedful.inside.look.layers import paths_of
from heedful.inside.model_inputs import forward
from heedful.inside.sublayer import residual_of
from heedful.inside.trace import trace
from heedful.parts.layers import PostNorm, layer_norm, rms_norm

TEXT, TARGET = "the cat sat on the mat", "mat the on sat"
FAMILIES = ("transformer", "gpt2", "llama", "bert", "t5")
PAIRS = ("transformer", "t5")
TURNED = "llama"  # the one with rotary positions
BIASED = "t5"  # the one that adds a bias to scores, and does not scale them


def normalized(norm, x):
    if not hasattr(norm, "bias"):
        return rms_norm(x, norm.weight, norm.eps)
    return layer_norm(x, norm.weight, norm.bias, norm.eps)


def rotated(x_SK, base):
    """Pairs (i, i + K/2) turned by the angle position * base^(-2i / K)."""
    S, K = x_SK.shape
    angles = torch.arange(S, dtype=torch.float64)[:, None] * base ** (
        -2 * torch.arange(K // 2, dtype=torch.float64) / K
    )
    first, second = x_SK[:, : K // 2], x_SK[:, K // 2 :]
    turned = first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()
    return torch.cat(turned, dim=-1)


def distance_bias(table_RH, head, T, both_ways):
    """T5's bias: a number for each distance, exact where near and coarser where far (Raffel et al.)."""

    def bucket(ahead):
        half = len(table_RH) // 2 if both_ways else len(table_RH)
        first = half if both_ways and ahead > 0 else 0
        far = abs(ahead) if both_ways else max(0, -ahead)
        exact = half // 2
        if far < exact:
            return first + far
        coarse = math.log(far / exact) / math.log(128 / exact) * (half - exact)
        return first + min(half - 1, exact + int(coarse))

    return torch.stack([torch.stack([table_RH[bucket(s - t), head] for s in range(T)]) for t in range(T)])


def near(found, expected):
    assert (found.double() - expected).abs().max() <= 1e-5


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    """A trace in float32, and the same model in float64 with what flows into each of its sublayers."""
    loaded = imported(request.param)
    seen = trace(loaded, TEXT, TARGET if request.param in PAIRS else None)
    model = deepcopy(loaded.model).double()
    given, kinds = {}, seen.kinds
    places = [(which, n) for which, kind in kinds.items() for n in range(1, kind.layers + 1)]
    hooks = []
    for which, n in places:
        residual = residual_of(model, paths_of(model, which)[n], "")

        def before(args, key=(which, n)):
            given[key] = args[0][0], args[2][0] if len(args) > 2 and args[2] is not None else None

        hooks.append(Hook(residual, before))
    with hooked(hooks):
        outputs = forward(model, seen.source.given)
    return request.param, seen, model, given, outputs, loaded.config


@torch.no_grad()
def test_every_station_equals_its_formula_in_float64(case):
    name, seen, model, given, _, config = case
    rng = random.Random(3)
    for _ in range(20):
        which = rng.choice(list(seen.kinds))
        kind = seen.kinds[which]
        layer, head = rng.randint(1, kind.layers), rng.randint(1, kind.heads)
        query = rng.randint(1, len(kind.down))
        attention = model.get_submodule(paths_of(model, which)[layer])
        residual = residual_of(model, paths_of(model, which)[layer], "")
        steps, sub = seen.steps(which, layer, head, query), seen.sublayer(which, layer)
        rows = seen.projections(which, layer, head)
        x, source = given[which, layer]
        after = isinstance(residual, PostNorm)
        read = x if after else normalized(residual.norm, x)
        source = read if source is None else source

        near(sub.x_TD, x)
        near(sub.normed_TD, read)
        near(sub.source_SD, source)
        H, G, K, L = attention.heads, attention.kv_heads, attention.key_width, attention.value_width
        outs = []
        for h in range(H):
            g = h * G // H
            q = read @ attention.query.weight[h * K : (h + 1) * K].T
            k = source @ attention.key.weight[g * K : (g + 1) * K].T
            v = source @ attention.value.weight[g * L : (g + 1) * L].T
            if attention.query.bias is not None:
                q, k, v = (
                    one + bias
                    for one, bias in (
                        (q, attention.query.bias[h * K : (h + 1) * K]),
                        (k, attention.key.bias[g * K : (g + 1) * K]),
                        (v, attention.value.bias[g * L : (g + 1) * L]),
                    )
                )
            products = rows.normed_TD[query - 1].double() * rows.W_q_KD.double()  # one number of q as a sum
            if h == head - 1:
                near(products.sum(-1) + (0 if rows.bias_q_K is None else rows.bias_q_K), q[query - 1])
                made = rows.source_SD.double() @ rows.W_v_LD.double().T
                near(made + (0 if rows.bias_v_L is None else rows.bias_v_L), v)
            if name == TURNED:
                q, k = rotated(q, config.rotary_base), rotated(k, config.rotary_base)
            scores = torch.tensor([[float(sum(a * b)) for b in k] for a in q], dtype=torch.float64)
            scaled = scores if name == BIASED else scores / math.sqrt(K)
            biased = scaled
            if name == BIASED and which != "cross":
                biased = scaled + distance_bias(attention.position.table, h, len(q), which == "encoder")
            causal = which == "self" and name != "bert"
            allowed = torch.ones_like(scaled).tril().bool() if causal else torch.ones_like(scaled).bool()
            powers = biased.exp() * allowed
            weights = powers / powers.sum(-1, keepdim=True)
            outs.append(weights @ v)
            if h == head - 1:
                t = query - 1
                near(steps.q_K, q[t])
                near(steps.k_SK, k)
                near(steps.v_SL, v)
                near(steps.scores_S, scores[t])
                near(steps.scaled_S, scaled[t])
                near(steps.masked_S[allowed[t]], biased[t][allowed[t]])
                assert steps.allowed_S.tolist() == allowed[t].tolist()
                near(steps.weights_S, weights[t])
                near(steps.weighted_SL, weights[t][:, None] * v)
                near(steps.output_L, outs[h][t])
        joined = torch.cat(outs, dim=-1)
        near(sub.heads_TX, joined)
        out = joined @ attention.out.weight.T + (0 if attention.out.bias is None else attention.out.bias)
        near(sub.out_TD, out)
        near(sub.sum_TD, x + out)
        near(sub.after_TD, normalized(residual.norm, x + out) if after else x + out)


def test_the_last_station_is_the_output_of_the_model(case):
    name, seen, _, _, outputs, _ = case
    expected = outputs["masked_lm" if name == "bert" else "logits"]
    near(seen.logits, expected)
