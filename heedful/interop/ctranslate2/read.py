"""In from CTranslate2: a folder with model.bin and its vocabularies, read by heedful's own reader and made fp32 again.

What the settings among its variables say together is one of our architectures, or the folder is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import BadInput
from ...files import MEGABYTE, inside, naming, present, read_json, read_text, short
from ...models.bert import BertConfig
from ...models.gpt1 import GPT1Config
from ...models.gpt2 import GPT2Config
from ...models.llama import LlamaConfig
from ...models.t5 import T5Config
from ...models.transformer import TransformerConfig
from ...parts.positions.absolute import Sinusoidal
from ..binary import mapped
from ..hf.beside import reads_special_tokens_as_text
from ..hf.tokenizer import guarded, read_target, read_tokenizer
from ..load import CONFIG, Loaded, by, parameters, sized, some, with_room
from .file import EXTENDED, Variable, Variables, read_variables
from .layout import NUMBERS, STRETCHES, names

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODEL = "model.bin"
VOCABULARIES = (
    "source_vocabulary.json",
    "shared_vocabulary.json",
    "vocabulary.json",
    "target_vocabulary.json",
)
WORDS = 64 * MEGABYTE  # of a vocabulary
FAR, FAR_HALF = 1e-3, 1e-2  # what a table of sinusoids may be off, far out: in fp32, and in 16 bits
PADDING = "<pad>"

# What changes nothing of a model's numbers.
IGNORED = (
    "alignment_layer",
    "alignment_heads",
    "multi_query_attention",
    "alibi_use_positive_positions",
    "scale_alibi",
)


def is_one(path: Path) -> bool:
    """Whether a folder is CTranslate2's."""
    endings = [name.replace(".json", ending) for name in VOCABULARIES for ending in (".json", ".txt")]
    with naming(path):
        return (path / MODEL).is_file() and any(present(path / name) for name in endings)


def read(path: Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Loaded:
    """The model of a folder, ready for use."""
    with naming(path):
        said = read_json(inside(path, CONFIG)) if present(path / CONFIG) else {}
        file = inside(path, MODEL)
        with mapped(file) as data, naming(file):
            kind, variables = read_variables(data)
            if kind not in KINDS:
                raise BadInput(f"{file} is a {short(kind)}; heedful reads {', '.join(KINDS)}")
            architecture, config = KINDS[kind](variables, said)
            zero = kind == "TransformerSpec" and bool(
                variables.setting("decoder/start_from_zero_embedding", 0)
            )
            if zero:
                config = with_start(variables, config)
            model = sized(architecture, config)
            plan = check(variables, names(model), parameters(model))
            words = read_words(path, config, zero)
            tokenizer, target = tokenizers(path, config, words, said)
            model = with_room(model.to(dtype), device)
            with torch.no_grad():
                for theirs, ours in plan.items():
                    value = variables.tensor(theirs)
                    parts = [model.get_parameter(name) for name in ours]
                    for part, piece in zip(parts, value.split([len(part) for part in parts]), strict=True):
                        part.copy_(piece)
    special = special_numbers(said, words[-1], zero, encodes=kind == "TransformerEncoderSpec")
    return Loaded(architecture, config, model.eval(), tokenizer, special, target)


def with_start(variables: Variables, config: TransformerConfig) -> TransformerConfig:
    """A decoder that starts from a vector of zeros starts from a word that has it, and that is never written."""
    if not config.shared:
        raise BadInput(f"{variables.path} starts from zeros and has two vocabularies, which is not read")
    variables.extra = 1
    if not config.output_bias:
        rows = variables.get("decoder/projection/weight").shape[0]
        nothing = Variable(torch.float32, (rows,), memoryview(bytes(4 * rows)))
        variables.found["decoder/projection/bias"] = nothing
    return replace(config, vocab=config.vocab + 1, target_vocab=config.vocab + 1, output_bias=True)


def check(variables: Variables, table: dict[str, tuple[str, ...]], ours: Any) -> dict[str, tuple[str, ...]]:
    """Hold every variable against the model, before memory is taken: {theirs: ours}."""
    shapes = {name: tuple(weight.shape) for name, weight in ours.items()}
    where = variables.path
    plan = {}
    for theirs, parts in table.items():
        known = [part for part in parts if part in shapes]  # a tied weight is filled once
        stored = variables.get(theirs)
        extra = variables.extra if theirs in EXTENDED else 0
        if not known:
            continue
        needed = (sum(shapes[part][0] for part in parts) - extra, *shapes[parts[0]][1:])
        if stored.shape != needed:
            raise BadInput(f"{where}: {theirs} is {by(stored.shape)}, where {by(needed)} is due")
        if stored.dtype in (torch.int8, torch.int16):
            variables.asked.add(variables.others.get(theirs, theirs) + "_scale")
            variables.get(variables.others.get(theirs, theirs) + "_scale")
        elif not stored.dtype.is_floating_point:
            raise BadInput(f"{where}: {theirs} is stored as {stored.dtype}")
        plan[theirs] = parts
    asked = variables.asked | {variables.others.get(name, name) for name in variables.asked}
    left = [name for name in variables.found if name not in asked and name.rpartition("/")[2] not in IGNORED]
    if left:
        raise BadInput(f"{where} holds {some(sorted(left))}, which heedful has no place for")
    return plan


# What it is


def activation(variables: Variables, side: str) -> str:
    number = variables.setting(f"{side}/activation")
    found = next((name for name, theirs in NUMBERS.items() if theirs == number), None)
    if found is None:
        raise BadInput(f"{variables.path}: {side}/activation is {number}; heedful knows {', '.join(NUMBERS)}")
    return found


def longest(said: dict[str, Any], default: int) -> int:
    """How long a text may be, of positions that have no table; heedful writes it, others do not."""
    found = said.get("max_position_embeddings")
    return found if type(found) is int else default


def epsilon(said: dict[str, Any], default: float) -> float:
    found = said.get("layer_norm_epsilon")
    if found is not None and (not isinstance(found, float) or not 0 < found < 1):
        raise BadInput(f"{CONFIG}: layer_norm_epsilon is {short(found)}")
    return default if found is None else found


def common(variables: Variables, side: str, scaled: bool) -> tuple[int, int, int, int]:
    """(layers, heads, width of the model, width of the feed-forward), and a look at what must not be there."""
    variables.may(f"{side}/alibi", 0)
    layers = variables.layers(side)
    if not layers:
        raise BadInput(f"{variables.path} has no layers in its {side}")
    tokens = "embeddings_0" if side == "encoder" else "embeddings"
    width = variables.shape(f"{side}/{tokens}/weight")[1]
    if not scaled:
        variables.need(f"{side}/scale_embeddings", 0, 1.0)
        if variables.get(f"{side}/scale_embeddings").dtype == torch.int8:  # a yes or no, where yes is a root
            variables.need(f"{side}/scale_embeddings", 0)
    hidden = variables.shape(f"{side}/layer_0/ffn/linear_0/weight")[0]
    return layers, variables.setting(f"{side}/num_heads"), width, hidden


def attention(
    variables: Variables,
    side: str,
    layers: int,
    wanted: Mapping[str, tuple[float, ...]],
    allowed: Mapping[str, tuple[float, ...]],
) -> None:
    """Each layer's settings of attention must be these, or may be those."""
    for i in range(layers):
        for name, values in wanted.items():
            variables.need(f"{side}/layer_{i}/self_attention/{name}", *values)
        for part in ("self_attention", "attention"):
            for name, values in allowed.items():
                variables.may(f"{side}/layer_{i}/{part}/{name}", *values)


def is_scaled(variables: Variables, side: str, width: int) -> bool:
    """Whether embeddings are multiplied by the root of their width: a yes or no, or the number."""
    name = f"{side}/scale_embeddings"
    found = variables.setting(name, 1)
    if name not in variables or variables.get(name).dtype == torch.int8:
        return bool(found)
    if math.isclose(found, math.sqrt(width), rel_tol=1e-6) or found == 1:
        return found != 1
    raise BadInput(
        f"{variables.path}: {name} is {found}, which is neither 1 nor the root of the width {width}"
    )


def of_transformer(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    """An encoder-decoder: T5's if it has relative biases, else the Transformer as it was published."""
    if "encoder/layer_0/self_attention/relative_attention_bias" in variables:
        return of_t5(variables, said)
    layers, heads, width, hidden = common(variables, "encoder", scaled=True)
    decoder_layers, decoder_heads, _, decoder_hidden = common(variables, "decoder", scaled=True)
    pre = bool(variables.setting("encoder/pre_norm"))
    variables.need("decoder/pre_norm", int(pre))
    variables.may("encoder/embeddings_merge", 0, 1)  # there is one
    variables.need("decoder/activation", variables.setting("encoder/activation"))
    if epsilon(said, 1e-5) != 1e-5:
        raise BadInput(f"layer_norm_epsilon is {epsilon(said, 1e-5)}; heedful's transformer has 1e-5")
    positions, layout, context = positions_of(variables, width)
    context = longest(said, context) if positions == "rotary" else context
    if not variables.same("decoder/projection/weight", "decoder/embeddings/weight"):
        raise BadInput(f"{variables.path} scores words by other vectors than it reads them by")
    turns = {"rotary_interleave": (1,), "rotary_base": (10000.0,)}
    for side, number, size in (("encoder", heads, layers), ("decoder", decoder_heads, decoder_layers)):
        key_width = max(width // max(number, 1), 1)
        usual = float(torch.tensor(key_width**-0.5))
        allowed = {"queries_scale": (usual,), "head_dim": (key_width,)}
        wanted = turns | {"rotary_dim": (0, key_width)} if positions == "rotary" else {}
        attention(variables, side, size, wanted, allowed)
    scaled = is_scaled(variables, "encoder", width)
    if is_scaled(variables, "decoder", width) != scaled:
        raise BadInput(f"{variables.path} scales the embeddings of one side only")
    return "transformer", TransformerConfig(
        vocab=variables.shape("encoder/embeddings_0/weight")[0],
        target_vocab=variables.shape("decoder/embeddings/weight")[0],
        shared=variables.same("encoder/embeddings_0/weight", "decoder/embeddings/weight"),
        context=context,
        layers=layers,
        decoder_layers=decoder_layers,
        width=width,
        heads=heads,
        decoder_heads=decoder_heads,
        hidden=hidden,
        decoder_hidden=decoder_hidden,
        activation=activation(variables, "encoder"),
        norm="pre" if pre else "post",
        positions=positions,
        layout=layout,
        scaled=scaled,
        output_bias="decoder/projection/bias" in variables,
    )


def positions_of(variables: Variables, width: int) -> tuple[str, str, int]:
    """(our name of the positions, the layout of the sinusoids, how many are stored)."""
    names = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")
    turns = "encoder/layer_0/self_attention/rotary_dim" in variables
    if turns and not any(name in variables for name in names):
        return "rotary", "interleaved", TransformerConfig().context
    if not all(name in variables for name in names) or not variables.same(*names):
        raise BadInput(
            f"{variables.path} has other positions than sinusoids, the same for both sides, or rotary ones"
        )
    rows, columns = variables.shape(names[0])
    table, far = (
        variables.tensor(names[0]),
        FAR if variables.get(names[0]).dtype == torch.float32 else FAR_HALF,
    )
    for layout in ("interleaved", "halves"):
        if columns == width and width % 2 == 0:
            ours = Sinusoidal(width, layout=layout).encode(torch.arange(rows))
            if bool(((table - ours).abs() <= far).all()):
                return "sinusoidal", layout, rows
    raise BadInput(f"{variables.path}: {names[0]} are not the sinusoids of Vaswani et al. 2017")


def of_t5(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    layers, heads, width, hidden = common(variables, "encoder", scaled=False)
    decoder_layers, _, _, _ = common(variables, "decoder", scaled=False)
    variables.need("decoder/num_heads", heads)
    variables.may("encoder/embeddings_merge", 0, 1)
    variables.need("decoder/activation", variables.setting("encoder/activation"))
    variables.may("decoder/start_from_zero_embedding", 0)
    bias = variables.shape("encoder/layer_0/self_attention/relative_attention_bias")
    longest = variables.setting("encoder/layer_0/self_attention/relative_attention_max_distance")
    key_width = variables.shape("encoder/layer_0/self_attention/linear_1/weight")[1] // max(heads, 1)
    wanted = {"relative_attention_max_distance": (longest,), "queries_scale": (1.0,)}
    for side, count in (("encoder", layers), ("decoder", decoder_layers)):
        variables.need(f"{side}/pre_norm", 1)
        attention(variables, side, count, wanted, {"head_dim": (key_width,)})
        for i in range(count if side == "decoder" else 0):
            variables.need(f"{side}/layer_{i}/attention/queries_scale", 1.0)
        first = f"{side}/layer_0/self_attention/relative_attention_bias"
        for i in range(count):
            if not variables.same(first, f"{side}/layer_{i}/self_attention/relative_attention_bias"):
                raise BadInput(f"{variables.path} has other biases of distance in layer {i}")
    scale = variables.setting("decoder/scale_outputs", 1.0)
    if not (scale == 1 or math.isclose(scale, width**-0.5, rel_tol=1e-6)):
        raise BadInput(f"{variables.path}: decoder/scale_outputs is {scale}")
    if not variables.same("encoder/embeddings_0/weight", "decoder/embeddings/weight"):
        raise BadInput(f"{variables.path} has two vocabularies, and T5 has one")
    return "t5", T5Config(
        vocab=variables.shape("encoder/embeddings_0/weight")[0],
        layers=layers,
        decoder_layers=decoder_layers,
        width=width,
        heads=heads,
        key_width=key_width,
        hidden=hidden,
        activation=activation(variables, "encoder"),
        gated="encoder/layer_0/ffn/linear_0_noact/weight" in variables,
        buckets=bias[0],
        longest=longest,
        eps=epsilon(said, 1e-6),
        tied=variables.same("decoder/projection/weight", "decoder/embeddings/weight"),
        scaled=scale != 1,
    )


def of_decoder(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    """GPT-1, GPT-2 or LLaMA: by where the norm stands, and whether positions turn."""
    layers, heads, width, hidden = common(variables, "decoder", scaled=False)
    vocab = variables.shape("decoder/embeddings/weight")[0]
    tied = variables.same("decoder/projection/weight", "decoder/embeddings/weight")
    variables.may("decoder/start_from_zero_embedding", 0)
    pre, first = bool(variables.setting("decoder/pre_norm")), "decoder/layer_0/self_attention"
    if f"{first}/rotary_dim" in variables:
        return "llama", llama(variables, said, layers, heads, width, hidden, vocab, tied)
    attention(variables, "decoder", layers, {}, {"head_dim": (width // max(heads, 1),)})
    kind = GPT2Config if pre else GPT1Config
    return "gpt2" if pre else "gpt1", kind(
        vocab=vocab,
        context=variables.shape("decoder/position_encodings/encodings")[0],
        layers=layers,
        width=width,
        heads=heads,
        hidden=hidden,
        activation=activation(variables, "decoder"),
        eps=epsilon(said, 1e-5),
        tied=tied,
    )


def llama(
    variables: Variables,
    said: dict[str, Any],
    layers: int,
    heads: int,
    width: int,
    hidden: int,
    vocab: int,
    tied: bool,
) -> LlamaConfig:
    first = "decoder/layer_0/self_attention"
    kv_heads = variables.setting(f"{first}/num_heads_kv", heads)
    key_width = variables.setting(f"{first}/head_dim", width // max(heads, 1))
    base = variables.setting(f"{first}/rotary_base", 10000.0)
    wanted = {"rotary_dim": (0, key_width), "rotary_interleave": (0,), "rotary_base": (base,)}
    stretch, named = read_stretch(variables, first)
    wanted |= {"num_heads_kv": (kv_heads,)} if kv_heads != heads else {}
    wanted |= {name: (variables.setting(f"{first}/{name}"),) for name in named}
    wanted |= {"head_dim": (key_width,)} if key_width * heads != width else {}
    attention(variables, "decoder", layers, wanted, {"num_heads_kv": (kv_heads,), "head_dim": (key_width,)})
    if base <= 0:
        raise BadInput(f"{variables.path}: {first}/rotary_base is {base}")
    return LlamaConfig(
        vocab=vocab,
        context=longest(said, LlamaConfig().context),
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        key_width=key_width,
        hidden=hidden,
        activation=activation(variables, "decoder"),
        attention_bias=f"{first}/linear_0/bias" in variables,
        out_bias=f"{first}/linear_0/bias" not in variables or f"{first}/linear_1/bias" in variables,
        feed_forward_bias="decoder/layer_0/ffn/linear_0/bias" in variables,
        rotary_base=base,
        eps=epsilon(said, 1e-6),
        tied=tied,
        **stretch,
    )


def read_stretch(variables: Variables, first: str) -> tuple[dict[str, Any], list[str]]:
    """How rotary positions are stretched, and which settings say it."""
    if f"{first}/rotary_scaling_type" not in variables:
        return {}, []
    number = variables.setting(f"{first}/rotary_scaling_type")
    kind = next((name for name, theirs in STRETCHES.items() if theirs == number), None)
    if kind is None:
        raise BadInput(
            f"{variables.path}: {first}/rotary_scaling_type is {number}, which heedful does not read"
        )
    named = {"stretch_factor": "rotary_scaling_factor"}
    if kind == "llama3":
        named |= {"stretch_low": "rotary_low_freq_factor", "stretch_high": "rotary_high_freq_factor"}
        named |= {"stretch_original": "original_max_position_embeddings"}
    found = {ours: variables.setting(f"{first}/{theirs}") for ours, theirs in named.items()}
    return {"stretch": kind, **found}, ["rotary_scaling_type", *named.values()]


def of_encoder(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    """BERT without a head, or with the pooled vector."""
    layers, heads, width, hidden = common(variables, "encoder", scaled=False)
    variables.need("encoder/pre_norm", 0)
    if "encoder/embeddings_1/weight" not in variables:
        raise BadInput(f"{variables.path} is an encoder without segments, where BERT's are read")
    variables.need("encoder/embeddings_merge", 1)
    attention(variables, "encoder", layers, {}, {"head_dim": (width // max(heads, 1),)})
    pooled = "pooler_dense/weight" in variables
    if pooled:
        variables.need("pooler_activation", NUMBERS["tanh"])
    return "bert", BertConfig(
        vocab=variables.shape("encoder/embeddings_0/weight")[0],
        context=variables.shape("encoder/position_encodings/encodings")[0],
        segments=variables.shape("encoder/embeddings_1/weight")[0],
        layers=layers,
        width=width,
        attention_heads=heads,
        hidden=hidden,
        activation=activation(variables, "encoder"),
        eps=epsilon(said, 1e-5),
        heads=("pooled",) if pooled else (),
    )


KINDS: dict[str, Callable[[Variables, dict[str, Any]], tuple[str, Any]]] = {
    "TransformerSpec": of_transformer,
    "TransformerDecoderSpec": of_decoder,
    "TransformerEncoderSpec": of_encoder,
}


# Its words


def read_words(folder: Path, config: Any, zero: bool) -> list[list[str]]:
    """The vocabularies: one, or those of source and target."""
    found = []
    for name in VOCABULARIES:
        for path in (folder / name, (folder / name).with_suffix(".txt")):
            if present(path):
                found.append(read_vocabulary(inside(folder, path.name)) + ([PADDING] if zero else []))
                break
    for words, rows in zip(
        found, (config.vocab, getattr(config, "target_vocab", config.vocab)), strict=False
    ):
        if len(words) != rows:
            raise BadInput(f"{folder} has {len(words)} words in a vocabulary, and vectors for {rows}")
    return found


def read_vocabulary(path: Path) -> list[str]:
    """A JSON list of words, or one on each line."""
    text = read_text(path, WORDS)
    if path.suffix == ".txt":
        return text.removesuffix("\n").split("\n")
    with naming(path):
        try:
            words = json.loads(text)
        except RecursionError:
            raise BadInput(f"{path} is nested too deeply to be read") from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadInput(f"{path} is not a list of words")
    return words


def tokenizers(
    folder: Path, config: Any, words: list[list[str]], said: dict[str, Any]
) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizers beside the model; without them, texts are words between spaces, as CTranslate2 itself reads them."""
    two = not getattr(config, "shared", True)
    tokenizer = read_tokenizer(folder, config.vocab)
    if tokenizer is not None:
        target = read_target(folder, config.target_vocab) if hasattr(config, "target_vocab") else None
        for each in (tokenizer, target):
            if each is not None and reads_special_tokens_as_text(folder):
                each.encode_special_tokens = True
        return tokenizer, target
    made = [guarded(folder / MODEL, len(each), lambda each=each: spaced(each, said)) for each in words]  # type: ignore[misc]
    return made[0], made[-1] if two else None


def spaced(words: list[str], said: dict[str, Any]) -> Tokenizer:
    """Words between spaces, the ends of a source put around them where the config asks for it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    numbers = {word: number for number, word in reversed(list(enumerate(words)))}  # of equal words, the first
    unknown = said.get("unk_token")
    known = unknown if isinstance(unknown, str) and unknown in numbers else None
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=known) if known else models.WordLevel(numbers))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [
        said.get(f"{end}_token") if said.get(f"add_source_{end}") is True else None for end in ("bos", "eos")
    ]
    if any(end is not None for end in ends):
        for end in ends:
            if end is not None and (not isinstance(end, str) or end not in numbers):
                raise BadInput(f"{CONFIG} puts {short(end)} around a source, which the vocabulary lacks")
        around = [f"{end}" for end in ends if end is not None]
        template = [*([ends[0]] if ends[0] else []), "$A", *([ends[1]] if ends[1] else [])]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(end, numbers[end]) for end in dict.fromkeys(around)]
        )
    return tokenizer


def special_numbers(said: dict[str, Any], words: list[str], zero: bool, encodes: bool) -> dict[str, int]:
    """The numbers of the words that have a meaning."""
    named = {
        "pad": "pad_token",
        "bos": "bos_token",
        "eos": "eos_token",
        "decoder_start": "decoder_start_token",
    }
    numbers = {word: number for number, word in reversed(list(enumerate(words)))}
    found = {}
    for name, key in named.items():
        word = said.get(key)
        if isinstance(word, str) and word in numbers and not encodes:
            found[name] = numbers[word]
    if zero:
        found |= {"pad": len(words) - 1, "decoder_start": len(words) - 1}
    return found
