"""Checks of a recipe: settings that do nothing are refused, and so are settings that do not fit together."""

from __future__ import annotations

from collections.abc import Collection
from reprlib import repr as short

from ...errors import BadInput
from .presets import ARCHITECTURES, BEFORE
from .settings import LORA_LAYERS, PICTURES, TASKS, TEXTS, TUNED, Recipe, lora_layers

# Settings that only some tasks have a use for.
ONLY_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "data.source",
            "data.target",
            "data.valid_source",
            "data.valid_target",
            "data.joint",
            "data.trees",
            "data.valid_trees",
            "model.scope",
            "data.packed",
        ),
        ("translate",),
    ),
    **dict.fromkeys(
        ("data.source_column", "data.target_column", "model.positions", "model.clip"),
        ("translate", "summarize"),
    ),
    **dict.fromkeys(
        ("data.title_column", "data.extract", "data.max_summary_length", "data.sources"), ("summarize",)
    ),
    **dict.fromkeys(("data.text", "data.valid_text"), ("lm", "mlm")),
    **dict.fromkeys(
        ("data.table", "data.valid_table"),
        ("translate", "classify", "tag", "span", "choose", "parse", "summarize"),
    ),
    "data.max_length": (
        "translate",
        "classify",
        "tag",
        "span",
        "choose",
        "parse",
        "summarize",
        "caption",
        "text-to-image",
    ),
    **dict.fromkeys(("data.window_overlap", "data.max_answer_length"), ("span",)),
    "train.word_dropout": ("tag", "parse"),
    **dict.fromkeys(
        ("data.pair_column", "data.label_column", "data.label", "data.both_orders"), ("classify",)
    ),
    **dict.fromkeys(("train.mix_l2", "model.mix_norm", "model.at_output"), ("classify", "tag")),
    "train.from": (*TUNED, "image-classify", "text-to-image"),
    **dict.fromkeys(
        ("train.tune", "train.lora_rank", "train.lora_alpha", "train.lora_dropout", "train.lora_layers"),
        TUNED,
    ),
    "train.lm_loss_weight": ("classify", "choose", "summarize"),
    "data.text_column": ("lm", "mlm", "classify"),
    "data.pack": ("lm",),
    "model.architecture": ("translate", "lm", "summarize"),
    "data.pairs": ("mlm",),
    "model.norm": ("translate", "mlm", "classify", "tag", "span", "choose", "parse", "summarize"),
    "model.context": ("lm", "mlm", "classify", "span", "choose"),
    **dict.fromkeys(
        ("data.tokenizer", "data.vocab_size", "data.lowercase"), (*TEXTS, "caption", "text-to-image")
    ),
    **dict.fromkeys(
        (
            "data.images",
            "data.valid_images",
            "data.image_size",
            "data.resize",
            "data.color",
            "data.mean",
            "data.std",
            "data.random_shift",
            "data.random_zoom",
            "data.random_flip",
            "model.patch",
        ),
        PICTURES,
    ),
    **dict.fromkeys(("data.random_erase", "model.pool"), ("image-classify",)),
    "model.sees": ("caption",),
    **dict.fromkeys(
        (
            "model.codes",
            "model.reach",
            "train.stage",
            "train.final_temperature",
            "train.temperature_decay_fraction",
            "train.kl_weight",
            "train.kl_warmup_fraction",
            "train.text_loss_weight",
        ),
        ("text-to-image",),
    ),
}
ONLY_IN: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("model.experts", "model.chosen", "model.every", "model.gate", "model.balance", "model.capacity"),
    ("mixture", "mixture_dmca"),
)
ONLY_IN |= {
    **dict.fromkeys(("model.memory", "model.recall"), ("xl",)),
    **dict.fromkeys(("model.pattern", "model.turns", "model.stride", "model.tail"), ("sparse",)),
    **dict.fromkeys(
        ("model.kinds", "model.block", "model.look_back", "model.compressed"), ("dmca", "mixture_dmca")
    ),
}
ONLY_IN |= dict.fromkeys(("model.input", "model.letters", "model.filters"), ("elmo",))
ALONE = ("dmca", "mixture_dmca")  # decoders that read an article and write its summary in one row
OWN_ACTIVATION = ("sparse",)
# What came before the Transformer: settings of cells and windows, what it has no use for, and what differs
# for it.
ONLY_FOR |= dict.fromkeys(
    ("model.cell", "model.score", "model.input_feeding", "model.kernel"), ("translate", "summarize")
)
ONLY_IN |= {
    "model.cell": ("seq2seq", "luong"),
    "model.score": ("luong",),
    "model.input_feeding": ("luong",),
    "model.kernel": ("convs2s",),
}
IDLE_BEFORE = (
    "model.heads",
    "model.hidden",
    "model.norm",
    "model.activation",
    "model.positions",
    "train.activation_checkpointing",
    "train.compile",
)
IDLE_IN_ELMO = (
    "model.heads",
    "model.norm",
    "model.activation",
    "train.activation_checkpointing",
    "train.compile",
    "data.pack",
)
LORA = ("train.lora_rank", "train.lora_alpha", "train.lora_dropout", "train.lora_layers")
IDLE_FEATURES = ("model.heads", "model.hidden", "model.norm", "model.activation", "train.word_dropout")
OF_FEATURES = ("model.mix_norm", "model.at_output", "train.mix_l2")
ONLY_AT = {
    **dict.fromkeys(
        (
            "model.codes",
            "train.final_temperature",
            "train.temperature_decay_fraction",
            "train.kl_weight",
            "train.kl_warmup_fraction",
        ),
        ("codes",),
    ),
    **dict.fromkeys(("model.reach", "train.text_loss_weight", "train.from"), ("decoder",)),
    **dict.fromkeys(("model.heads", "model.hidden", "model.activation"), ("decoder", "ranker")),
    **dict.fromkeys(
        ("data.tokenizer", "data.vocab_size", "data.lowercase", "data.max_length"), ("decoder", "ranker")
    ),
    "model.patch": ("codes", "ranker"),
    "train.label_smoothing": ("judge",),
    **dict.fromkeys(("data.mean", "data.std"), ("ranker", "judge")),
    **dict.fromkeys(("data.random_shift", "data.random_zoom", "data.random_flip"), ()),
}


def check_settings(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse every setting that was given and that does nothing in this recipe."""
    for key in settings:
        if recipe.task not in ONLY_FOR.get(key, TASKS):
            raise BadInput(f"{key} does nothing in {recipe.task}: it is for {' and '.join(ONLY_FOR[key])}")
    check_architecture(recipe, settings)
    check_tuning(recipe, settings)
    check_features(recipe, settings)
    check_positions(recipe, settings)
    check_summaries(recipe, settings)
    check_stage(recipe, settings)


def check_stage(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse what a stage of text-to-image has no use for, or cannot do without."""
    if recipe.task != "text-to-image":
        return
    stage = recipe.train.stage
    for key in settings:
        fitting = ONLY_AT.get(key, (stage,))
        if stage not in fitting:
            of = f"it is for {' and '.join(fitting)}" if fitting else "captions say where things are"
            raise BadInput(f"{key} does nothing at the stage {stage} of text-to-image: {of}")


def check_architecture(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse an architecture that a task does not have, and settings that the chosen one has no use for."""
    chosen, there = recipe.model.architecture, ARCHITECTURES.get(recipe.task, ())
    if there and chosen not in there:
        raise BadInput(
            f"{recipe.task} has no architecture {chosen}: model.architecture is {' or '.join(there)}"
        )
    for key in settings:
        if chosen in BEFORE and key in IDLE_BEFORE:
            raise BadInput(f"{key} does nothing in {chosen}, which came before the Transformer: leave it out")
        if chosen == "elmo" and key in IDLE_IN_ELMO:
            raise BadInput(
                f"{key} does nothing in elmo, which is recurrent and reads sentences: leave it out"
            )
        if chosen in OWN_ACTIVATION and key == "model.activation":
            raise BadInput(f"{key} does nothing in {chosen}, which has its paper's: leave it out")
        fitting = ONLY_IN.get(key)
        if fitting and chosen not in fitting:
            named = chosen if there else recipe.task
            raise BadInput(
                f"{key} does nothing in {named}: it is for model.architecture={' or '.join(fitting)}"
            )


def check_tuning(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse settings of tuning without a model to start from, and sizes and vocabularies with one."""
    t = recipe.train
    if t.tune != "whole" and not t.from_:
        raise BadInput(
            f"train.tune={t.tune} needs a model to start from: give --from FOLDER, or leave it out"
        )
    for key in settings:
        if key in LORA and t.tune != "lora":
            raise BadInput(f"{key} does nothing without train.tune=lora: leave it out, or give that too")
        used = {"lm": "model.context", "mlm": "model.context", "choose": "model.dropout"}.get(recipe.task)
        brought = key.startswith(("model.", "data.tokenizer", "data.lowercase")) and key != used
        if t.from_ and brought and recipe.task in ("translate", "lm", "mlm", "span", "choose"):
            raise BadInput(
                f"{key} does nothing beside --from: sizes and vocabulary come with the model there"
            )
    known = set(lora_layers(t))
    if t.tune == "lora" and (not known or not known <= set(LORA_LAYERS)):
        raise BadInput(
            f"train.lora_layers names layers of a block, with commas between them: {', '.join(LORA_LAYERS)}; "
            "not "
            f"{short(t.lora_layers)}"
        )


def check_features(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse settings of ELMo's vectors where none are read, and settings of an encoder where they are."""
    for key in settings:
        if key in OF_FEATURES and not recipe.train.from_:
            raise BadInput(f"{key} does nothing without an elmo: give --from RUN, or leave it out")
        if key in IDLE_FEATURES and recipe.task == "tag" and recipe.train.from_:
            raise BadInput(
                f"{key} does nothing beside --from: neither an encoder that is there nor a network that "
                "reads an elmo has "
                f"a use for it"
            )


def check_positions(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse settings of distances where positions know none."""
    positions = recipe.model.positions
    for key, fitting in RELATIVE.items():
        if key in settings and positions not in fitting:
            told = f"{key} does nothing with positions {positions}"
            raise BadInput(f"{told}: it is for model.positions={' or '.join(fitting)}")


def idle_in_summary(key: str, architecture: str) -> bool:
    """Whether a setting does nothing in an architecture that summarizes."""
    if architecture in ALONE:  # which have sinusoids
        return key in ("model.positions", "model.clip")
    return key == "train.lm_loss_weight"


def check_summaries(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse what does nothing to a summary, or cannot be had of one."""
    if recipe.task != "summarize":
        return
    architecture = recipe.model.architecture
    for key in settings:
        if idle_in_summary(key, architecture):
            others = [name for name in ARCHITECTURES["summarize"] if not idle_in_summary(key, name)]
            raise BadInput(
                f"{key} does nothing in {architecture}: it is for model.architecture={' or '.join(others)}"
            )
    if recipe.model.positions.startswith("structural"):
        raise BadInput("structural positions come from the trees of sentences, which articles have none of")


RELATIVE = {
    "model.clip": ("shaw", "structural-relative", "structural"),
    "model.scope": ("structural-relative", "structural"),
}


def consistent(recipe: Recipe) -> Recipe:
    """The recipe, if its settings fit together."""
    m = recipe.model
    if m.width % m.heads and m.architecture not in (*BEFORE, "elmo"):
        raise BadInput(f"model.heads must divide model.width, and {m.heads} does not divide {m.width}")
    if m.architecture in ("mixture", "mixture_dmca") and m.chosen > m.experts:
        raise BadInput(
            f"model.chosen is {m.chosen} and model.experts {m.experts}: a token is sent to no more experts "
            "than there are"
        )
    if recipe.data.packed and (
        m.architecture not in ("transformer", "mixture") or m.positions.startswith("structural")
    ):
        told = f"{m.positions} positions" if m.architecture in ("transformer", "mixture") else m.architecture
        raise BadInput(f"{told} cannot keep packed pairs apart: leave out data.packed")
    if m.architecture == "xl" and recipe.data.pack == "documents":
        raise BadInput("xl remembers one long text: data.pack is stream for it, not documents")
    if recipe.train.ema_decay and recipe.train.average_checkpoints:
        raise BadInput(
            "train.ema_decay and train.average_checkpoints are two ways to do one thing: give one of them"
        )
    return recipe
