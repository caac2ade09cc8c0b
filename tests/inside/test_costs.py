"""Costs by arithmetic equal what torch counts and keeps when the model really runs."""

import pytest
import torch
from helpers.kept_activations import kept
from torch.utils.flop_counter import FlopCounterMode

from heedful.inside.costs import costs, count_attention, count_parameters, default_length
from heedful.inside.costs.layers import running_sums
from heedful.inside.costs.part import FULL
from heedful.inside.costs.tally import Tally
from heedful.models import family, presets
from heedful.models.albert import AlbertConfig
from heedful.models.bart import BartConfig
from heedful.models.base.shells import EncoderDecoder
from heedful.models.base.skeleton import skeleton
from heedful.models.bert import BertConfig
from heedful.models.deberta import DebertaConfig
from heedful.models.distilbert import DistilBertConfig
from heedful.models.ernie import ErnieConfig
from heedful.models.gpt1 import GPT1Config
from heedful.models.gpt2 import GPT2Config
from heedful.models.gpt3 import GPT3Config
from heedful.models.llama import LlamaConfig
from heedful.models.roberta import RobertaConfig
from heedful.models.t5 import T5Config
from heedful.models.transformer import TransformerConfig
from heedful.models.vit import ViTConfig
from heedful.parts.attention import Additive, attend_plain
from heedful.parts.long.linear import CHUNK, KernelAttention, KernelScore, attend_linear
from heedful.parts.long.sparse import Band, attend_gathered
from heedful.parts.masks import causal, window
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.places import Source
from heedful.parts.view import View
from heedful.parts.watch import watch

B, T, S = 2, 13, 11
PATCHES = 17
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
SIZES = {"vocab": 97, "layers": 3, "width": 48, "ffn_width": 176}
ALL_HEADS = ("pooled", "masked_lm", "next_sentence", "classify", "tag", "span")
TRANSFORMER = {"vocab": 97, "layers": 2, "decoder_layers": 3, "width": 48, "heads": 4, "decoder_heads": 3}
TRANSFORMER |= {"ffn_width": 176, "decoder_ffn_width": 208}

# Sizes all differ, so that no product can be mistaken for another.
MODELS = {
    "transformer": (
        "transformer",
        TransformerConfig(**TRANSFORMER, target_vocab=89, share_embeddings=False, **NO_DROPOUT),
    ),
    "transformer, shared, pre-norm": (
        "transformer",
        TransformerConfig(**TRANSFORMER, target_vocab=97, norm="pre", output_bias=True, **NO_DROPOUT),
    ),
    "gpt1": ("gpt1", GPT1Config(**SIZES, context=31, heads=4, **NO_DROPOUT)),
    "gpt2": ("gpt2", GPT2Config(**SIZES, context=31, heads=4, **NO_DROPOUT)),
    "gpt2, untied, relu": (
        "gpt2",
        GPT2Config(**SIZES, context=31, heads=4, tie_embeddings=False, activation="relu", **NO_DROPOUT),
    ),
    "gpt2, sigmoid": (
        "gpt2",
        GPT2Config(**SIZES, context=31, heads=4, activation="gelu_sigmoid", **NO_DROPOUT),
    ),
    "gpt3": ("gpt3", GPT3Config(vocab=97, layers=3, width=48, context=31, heads=4, window=5)),
    "bert": (
        "bert",
        BertConfig(**SIZES, context=31, heads=4, prediction_heads=ALL_HEADS, labels=5, **NO_DROPOUT),
    ),
    "roberta": (
        "roberta",
        RobertaConfig(
            **SIZES,
            context=31,
            offset=3,
            heads=4,
            prediction_heads=("masked_lm", "classify", "tag", "span"),
            labels=5,
            **NO_DROPOUT,
        ),
    ),
    "distilbert": (
        "distilbert",
        DistilBertConfig(
            **SIZES,
            context=31,
            heads=4,
            prediction_heads=("masked_lm", "classify", "tag", "span"),
            labels=5,
            classifier_dropout=0.0,
            span_dropout=0.0,
            **NO_DROPOUT,
        ),
    ),
    "ernie": (
        "ernie",
        ErnieConfig(
            **SIZES, context=31, heads=4, tasks=6, prediction_heads=ALL_HEADS, labels=5, **NO_DROPOUT
        ),
    ),
    "albert": (
        "albert",
        AlbertConfig(
            **SIZES,
            context=31,
            heads=4,
            embedding_width=20,
            labels=5,
            classifier_dropout=0.0,
            **NO_DROPOUT,
            prediction_heads=("pooled", "masked_lm", "sentence_order", "classify", "tag", "span"),
        ),
    ),
    "deberta": (
        "deberta",
        DebertaConfig(
            **SIZES,
            context=31,
            heads=4,
            buckets=10,
            labels=5,
            segments=3,
            absolute_positions=True,
            prediction_heads=("masked_lm", "classify", "tag", "span"),
            **NO_DROPOUT,
        ),
    ),
    "deberta, projections apart, convolution": (
        "deberta",
        DebertaConfig(
            **SIZES,
            context=31,
            heads=4,
            buckets=None,
            share_projections=False,
            norm_distances=False,
            convolution=5,
            ways=("p2c",),
            prediction_heads=("masked_lm",),
            **NO_DROPOUT,
        ),
    ),
    "t5": (
        "t5",
        T5Config(
            vocab=97, layers=2, decoder_layers=3, width=48, heads=4, key_width=10, ffn_width=176, dropout=0.0
        ),
    ),
    "t5, gated, untied": (
        "t5",
        T5Config(
            vocab=97,
            layers=2,
            decoder_layers=3,
            width=48,
            heads=4,
            key_width=10,
            ffn_width=176,
            dropout=0.0,
            gated=True,
            activation="gelu_tanh",
            tie_embeddings=False,
        ),
    ),
    "llama": ("llama", LlamaConfig(**SIZES, context=31, heads=6, kv_heads=2, key_width=10)),
    "llama, relu": (
        "llama",
        LlamaConfig(**SIZES, context=31, heads=6, kv_heads=6, key_width=8, activation="relu"),
    ),
    "llama, stretched, with biases": (
        "llama",
        LlamaConfig(
            **SIZES,
            context=31,
            heads=6,
            kv_heads=2,
            key_width=10,
            attention_bias=True,
            out_bias=False,
            rope_scaling="llama3",
            rope_factor=4.0,
        ),
    ),
    "bart": (
        "bart",
        BartConfig(
            vocab=97,
            context=31,
            layers=2,
            decoder_layers=3,
            width=48,
            heads=4,
            decoder_heads=6,
            ffn_width=176,
            decoder_ffn_width=120,
            **NO_DROPOUT,
            activation_dropout=0.0,
        ),
    ),
    "vit": (
        "vit",
        ViTConfig(
            image_size=20,
            patch_size=5,
            layers=3,
            width=48,
            heads=4,
            ffn_width=176,
            labels=7,
            prediction_heads=("class_token", "pooled", "classify", "classify_mean"),
        ),
    ),
    "deit": (
        "vit",
        ViTConfig(
            image_size=20,
            patch_size=5,
            layers=3,
            width=48,
            heads=4,
            ffn_width=176,
            labels=7,
            distilled=True,
            prediction_heads=("class_token", "pooled", "classify_mean", "classify_both"),
        ),
    ),
}


def build(name):
    """The model with numbers in it, what to call it with, and its lengths."""
    torch.manual_seed(0)
    architecture, config = MODELS[name]
    model = family(architecture).build(config)
    if architecture == "vit":
        return model, (torch.randn(B, 3, 20, 20, requires_grad=True),), (PATCHES + (name == "deit"), None)
    if isinstance(model, EncoderDecoder):
        return model, (torch.randint(89, (B, S)), torch.randint(89, (B, T))), (T, S)
    return model, (torch.randint(97, (B, T)),), (T, None)


def total(output):
    return sum(total(each) for each in output.values()) if isinstance(output, dict) else output.float().sum()


def counted(model, run):
    """FLOPs torch sees. Watched, attention is open: torch counts plain products and knows no CPU kernel."""
    with watch(model), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", MODELS)
def test_flops_equal_what_torch_counts(name):
    model, inputs, lengths = build(name)
    found = costs(model, B, *lengths)
    forward = counted(model, lambda: model(*inputs))
    assert found.whole.flops == forward
    assert counted(model, lambda: total(model(*inputs)).backward()) == 3 * forward
    assert found.flops_per_token["forward"] == round(forward / (B * lengths[0]))
    assert found.flops_per_token["training"] == round(3 * forward / (B * lengths[0]))


@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_each_side_of_an_encoder_decoder_is_counted_by_its_own_tokens(name):
    model, (source, target), lengths = build(name)
    found = costs(model, B, *lengths).flops_per_token
    encoder = counted(model, lambda: model.encoder(source))
    decoder = counted(model, lambda: model.decode(Source(torch.randn(B, S, 48)), target))
    assert found["encoder"] * B * S == pytest.approx(encoder, abs=B * S)
    assert found["decoder"] * B * T == pytest.approx(decoder, abs=B * T)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_the_parts_add_up_to_the_model(name):
    model, _, lengths = build(name)
    found = costs(model, B, *lengths)

    def check(part):
        if part.parts:
            assert part.parameters == sum(inner.parameters for inner in part.parts)
            assert part.flops == sum(inner.flops for inner in part.parts)
            assert part.kept >= sum(inner.kept for inner in part.parts)
        for inner in part.parts:
            check(inner)

    check(found.whole)
    assert found.parameters == count_parameters(model) == sum(p.numel() for p in set(model.parameters()))


def test_equal_blocks_are_one_part():
    found = costs(build("gpt2")[0], B, T)
    assert [part.name for part in found.whole.parts] == ["embeddings", "3 blocks", "final norm", "head"]
    blocks = found.whole.parts[1]
    assert [part.name for part in blocks.parts] == ["attention", "feed-forward", "norms"]
    assert blocks.parameters == 3 * (4 * (48 * 48 + 48) + 2 * 48 * 176 + 176 + 48 + 4 * 48)


# Memory


@pytest.mark.parametrize("name", MODELS)
def test_activations_are_what_autograd_keeps(name, gpu_kernels):
    model, inputs, lengths = build(name)
    found = costs(model, B, *lengths).memory
    assert found["activations"] == pytest.approx(kept(model, inputs), rel=0.05)


@pytest.mark.parametrize("name", MODELS)
def test_activations_in_bf16_are_what_autocast_keeps(name, gpu_kernels):
    model, inputs, lengths = build(name)
    found = costs(model, B, *lengths, precision="bf16").memory
    assert found["activations"] + found["copies"] == pytest.approx(kept(model, inputs, "bf16"), rel=0.15)


def test_dropout_keeps_a_byte_a_number(gpu_kernels):
    sizes = {**TRANSFORMER, "target_vocab": 97, "dropout": 0.2, "attention_dropout": 0.0}
    for dropout in (0.0, 0.3):
        model = family("transformer").build(TransformerConfig(**sizes, activation_dropout=dropout))
        inputs = torch.randint(97, (B, S)), torch.randint(97, (B, T))
        assert costs(model, B, T, S).memory["activations"] == pytest.approx(kept(model, inputs), rel=0.01)


def test_activations_grow_with_length_and_never_with_its_square():
    model = build("gpt2")[0]
    one, two = (costs(model, B, length).memory["activations"] for length in (15, 30))
    assert two == 2 * one
    assert costs(model, 5 * B, 15).memory["activations"] == 5 * one


@pytest.mark.parametrize(
    "name", [name for name in MODELS if not hasattr(MODELS[name][1], "prediction_heads")]
)
@pytest.mark.parametrize("precision, dtype", [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_cache_is_exactly_what_a_growing_cache_holds(name, precision, dtype):
    model, inputs, lengths = build(name)
    model = model.to(dtype).eval()
    decoder = model.decoder if isinstance(model, EncoderDecoder) else model
    cache = decoder.growing_cache()
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            model.decode(model.read(inputs[0]), inputs[1], cache=cache)
        else:
            model(inputs[0], cache=cache)
    tensors = [t for layer in cache.layers for t in (*layer.kv, *(layer.source_kv or ()))]
    assert costs(model, B, *lengths, precision).memory["cache"] == sum(t.nbytes for t in tensors)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_largest_scores(name):
    model, inputs, lengths = build(name)
    found = model(*inputs)
    if isinstance(found, dict):
        found = max(
            (t for head, t in found.items() if head not in ("pooled", "class_token")), key=torch.numel
        )
    assert costs(model, B, *lengths).memory["logits"] == found.nbytes


def test_memory_of_weights_gradients_and_optimizer():
    model = build("gpt2")[0]
    found, half = costs(model, B, T).memory, costs(model, B, T, precision="bf16").memory
    numbers = count_parameters(model)
    assert (found["weights"], found["gradients"], found["optimizer"]) == (
        4 * numbers,
        4 * numbers,
        8 * numbers,
    )
    assert found["copies"] == 0
    matrices = [w for name, w in model.named_parameters() if w.ndim == 2 and "position" not in name]
    assert half["copies"] == 2 * sum(w.numel() for w in matrices)  # the tied embedding among them
    assert found["training"] == 16 * numbers + found["activations"] + 2 * found["logits"]
    assert half["inference"] == 2 * numbers + half["cache"]


# Presets and lengths


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("gpt2", 124_439_808),
        ("bert-base", 109_482_240),
        ("t5-small", 60_506_624),
        ("gpt3-175b", 174_604_259_328),
    ],
)
def test_presets_have_their_known_size(name, parameters):
    model = skeleton(*presets()[name])
    assert costs(model).parameters == parameters


def test_a_skeleton_has_the_shapes_of_the_model():
    for name, (architecture, config) in MODELS.items():
        real = {key: w.shape for key, w in build(name)[0].named_parameters()}
        bones = dict(skeleton(architecture, config).named_parameters())
        assert {key: w.shape for key, w in bones.items()} == real
        assert all(w.is_meta for w in bones.values())


def test_gpt2_costs_six_times_its_matrices_and_the_attention():
    found = costs(skeleton(*presets()["gpt2"]), 8, 1024)
    matrices = 12 * 12 * 768**2 + 50257 * 768
    assert found.flops_per_token["training"] == 6 * matrices + 12 * 12 * 1024 * 768


def test_default_length_is_the_longest_the_model_is_made_for():
    expected = {"gpt2": 31, "bert": 31, "t5": 512, "vit": PATCHES, "transformer": 1024}
    assert {name: default_length(build(name)[0], MODELS[name][1]) for name in expected} == expected


@pytest.mark.parametrize(
    "name, given, sentence",
    [
        ("gpt2", {"length": 32}, "32 tokens does not fit the learned position table of 31"),
        ("bert", {"length": 32}, "32 tokens does not fit the learned position table of 31"),
        ("vit", {"length": 16}, "20 x 20 pixels are always 17 tokens .* never 16"),
        ("gpt2", {"length": 5, "source_length": 5}, "only an encoder-decoder"),
        ("gpt2", {"batch": 0}, "batch must be at least 1, not 0"),
        ("t5", {"source_length": 0}, "source length must be at least 1, not 0"),
        ("t5", {"precision": "fp64"}, 'fp32 or bf16, not "fp64"'),
    ],
)
def test_what_cannot_be_is_refused_with_its_numbers(name, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        costs(build(name)[0], **given)


def test_a_part_without_a_rule_is_counted_not_guessed():
    model, inputs, lengths = build("gpt2")
    model.stack.blocks[1].attention.layer.score = Additive(12, 12, 7)
    assert costs(model, B, *lengths).whole.flops == counted(model, lambda: model(*inputs))


def test_any_attention_alone_is_counted_by_the_pairs_that_it_computes():
    n, wide, heads = 96, 8, 3
    pair = 4 * heads * wide  # a score and a weighted value, two FLOPs each for every number

    def near(q, k, v):
        return attend_gathered(q, k, v, View(causal() & window(9), n, n, q.device))

    plain, kept = count_attention(attend_plain, n, heads=heads, width=wide)
    assert plain == pair * n**2 and kept > FULL * heads * n**2
    assert count_attention(attend_plain, n, 7, width=wide)[0] == 4 * wide * 7 * n
    assert count_attention(near, n, heads=heads, width=wide)[0] == pair * Band(8).scores(n)
    layer = KernelAttention(MultiHeadAttention(heads * wide, heads, score=KernelScore()))
    projections = 4 * 2 * n * (heads * wide) ** 2
    of_rule = running_sums(Tally(1, FULL), layer, n, n).flops - projections
    padded = -(-n // CHUNK) * CHUNK
    assert of_rule == 2 * heads * padded * (2 * wide * (wide + 1) + CHUNK * (2 * wide + 1))
    assert count_attention(attend_linear, n, heads=heads, width=wide)[0] == of_rule
