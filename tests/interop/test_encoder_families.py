"""The encoders after BERT: every class loads, computes the same, and is saved again bit for bit."""

import copy
import json
from dataclasses import replace

import pytest
import torch
import transformers as hf
from helpers import hf_zoo, tiny
from helpers.encoder_cases import (
    CONFIGS,
    SMALL,
    _no_progress_bars,  # noqa: F401 (fixtures)
)
from safetensors.torch import load_file, save_file

import heedful
from heedful.errors import BadInput
from heedful.models import family, find_preset, model_types
from heedful.models.base.skeleton import skeleton
from heedful.parts.disentangled import log_bucket
from heedful.parts.places import Packed

PARTS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
CLASSES = {
    "roberta": [f"Roberta{part}" for part in PARTS],
    "xlm_roberta": [f"XLMRoberta{part}" for part in PARTS],
    "camembert": [f"Camembert{part}" for part in PARTS],
    "electra": [f"Electra{part}" for part in (*PARTS, "ForPreTraining")],
    "mpnet": [f"MPNet{part}" for part in PARTS],
    "distilbert": [f"DistilBert{part}" for part in PARTS],
    "ernie": [f"Ernie{part}" for part in (*PARTS, "ForPreTraining", "ForNextSentencePrediction")],
    "albert": [f"Albert{part}" for part in (*PARTS, "ForPreTraining")],
    "deberta": [f"DebertaV2{part}" for part in PARTS],
    "deberta_v1": [f"Deberta{part}" for part in PARTS],
    "modernbert": [f"ModernBert{part}" for part in PARTS],
    "deit": ["DeiTModel", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"],
}
EVERY = [(name, kind) for name, kinds in CLASSES.items() for kind in kinds]


def case_of(name: str, kind: str, start: int = 0) -> hf_zoo.Case:
    """The first case whose model is of this class."""
    cases = (hf_zoo.make(name, seed) for seed in range(start, start + 200))
    return next(case for case in cases if type(case.theirs).__name__ == kind)


def compared(case: hf_zoo.Case, theirs, ours) -> float:
    """The largest difference."""
    with torch.no_grad():
        pairs = list(case.compare(theirs, ours))
    assert pairs and all(expected.abs().max() > 1e-2 for expected, _ in pairs), "a comparison of nothing"
    assert all(torch.isfinite(found).all() for _, found in pairs), "max() would not see it"
    return max(float((expected - found).abs().max()) for expected, found in pairs)


@pytest.mark.parametrize("name, kind", EVERY)
def test_every_class_gives_their_numbers_in_both_directions(name, kind, tmp_path):
    for start in (0, 50):
        case = case_of(name, kind, start)
        hf_zoo.write(case, tmp_path / "theirs")
        loaded = heedful.load(tmp_path / "theirs")
        assert compared(case, case.theirs, loaded.model) < 1e-5
        heedful.save(loaded, tmp_path / "ours")
        auto = hf.AutoConfig.from_pretrained(tmp_path / "ours")
        assert type(auto) is type(case.theirs.config) and auto.architectures == [kind]
        again, told = type(case.theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
        assert not told["missing_keys"] and not told["unexpected_keys"], told
        assert compared(case, again.eval(), loaded.model) < 1e-5
        assert kept_settings(auto) == kept_settings(case.theirs.config)


def kept_settings(config) -> dict:
    """What a config says, but for who wrote it."""
    said = json.loads(config.to_json_string(use_diff=False))
    return {
        key: value
        for key, value in said.items()
        if key not in ("transformers_version", "_name_or_path", "dtype")
    }


@pytest.mark.parametrize("name, kind", EVERY)
def test_weights_leave_come_back_and_leave_again_bit_for_bit(name, kind, tmp_path):
    hf_zoo.write(case_of(name, kind), tmp_path / "theirs")
    heedful.save(heedful.load(tmp_path / "theirs"), tmp_path / "ours")
    heedful.save(heedful.load(tmp_path / "ours"), tmp_path / "again")
    first, second, third = (
        load_file(tmp_path / f / "model.safetensors") for f in ("theirs", "ours", "again")
    )
    assert first.keys() == second.keys() == third.keys()
    for key in first:
        assert torch.equal(first[key], second[key]) and torch.equal(first[key], third[key]), key
    assert (tmp_path / "ours" / "config.json").read_text() == (tmp_path / "again" / "config.json").read_text()


# Presets

PUBLISHED = {  # parameters of their class with the published sizes
    "roberta-base": (
        124_645_632,
        lambda: hf.RobertaModel(
            hf.RobertaConfig(
                vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
            )
        ),
    ),
    "xlm-roberta-base": (
        278_043_648,
        lambda: hf.XLMRobertaModel(
            hf.XLMRobertaConfig(
                vocab_size=250002, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
            )
        ),
    ),
    "camembert-base": (
        110_621_952,
        lambda: hf.CamembertModel(
            hf.CamembertConfig(
                vocab_size=32005, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
            )
        ),
    ),
    "electra-small": (13_549_057, lambda: hf.ElectraForPreTraining(hf.ElectraConfig())),
    "electra-base": (
        108_891_648 + 591_361,
        lambda: hf.ElectraForPreTraining(
            hf.ElectraConfig(
                hidden_size=768, num_attention_heads=12, intermediate_size=3072, embedding_size=768
            )
        ),
    ),
    "mpnet-base": (
        109_486_464,
        lambda: hf.MPNetModel(hf.MPNetConfig(max_position_embeddings=514, layer_norm_eps=1e-5)),
    ),
    "deberta-base": (
        138_601_728,
        lambda: hf.DebertaModel(
            hf.DebertaConfig(
                relative_attention=True, pos_att_type="p2c|c2p", position_biased_input=False, legacy=False
            )
        ),
    ),
    "modernbert-base": (149_014_272, lambda: hf.ModernBertModel(hf.ModernBertConfig())),
    "distilbert-base": (66_362_880, lambda: hf.DistilBertModel(hf.DistilBertConfig())),
    "ernie-1.0-base": (
        99_866_112,
        lambda: hf.ErnieModel(
            hf.ErnieConfig(
                vocab_size=18000, hidden_act="relu", max_position_embeddings=513, layer_norm_eps=1e-5
            )
        ),
    ),
    "albert-base-v2": (
        11_683_584,
        lambda: hf.AlbertModel(
            hf.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
        ),
    ),
    "deberta-v3-base": (
        183_831_552,
        lambda: hf.DebertaV2Model(
            hf.DebertaV2Config(
                hidden_size=768,
                num_hidden_layers=12,
                num_attention_heads=12,
                intermediate_size=3072,
                relative_attention=True,
                position_buckets=256,
                norm_rel_ebd="layer_norm",
                share_att_key=True,
                pos_att_type="p2c|c2p",
                position_biased_input=False,
                legacy=False,
            )
        ),
    ),
    "deit-b16": (
        87_338_192,
        lambda: hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(num_labels=1000)),
    ),
}


@pytest.mark.parametrize("preset", PUBLISHED)
def test_presets_have_as_many_parameters_as_theirs(preset):
    count, make = PUBLISHED[preset]
    with torch.device("meta"):
        theirs = make()
    assert sum(weight.numel() for weight in theirs.parameters()) == count
    architecture, config = find_preset(preset)
    assert sum(weight.numel() for weight in skeleton(architecture, config).parameters()) == count
    said = type(theirs.config)(**family(architecture).write_config(config)).to_dict()
    different = {key for key, value in theirs.config.to_dict().items() if said.get(key) != value}
    assert different <= {"architectures", "id2label", "label2id", "dtype"}


# Files as they were published: with weights that nothing reads, other spellings, and configs that say little


def published(folder, model, config: dict, change) -> heedful.Model:
    """A folder with the weights of a model under the names that `change` gives them, and this config."""
    folder.mkdir()
    weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    change(weights)
    save_file(
        {name: weight.contiguous().clone() for name, weight in weights.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config))
    return heedful.load(folder)


def sizes_of(config, *left_out: str) -> dict:
    said = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in said.items() if key not in ("architectures", "dtype", *left_out)}


def test_structbert_and_minilm_are_berts_that_say_little(tmp_path):
    """Gains and biases by their old names, position ids, a prefix without a head, and no architectures."""
    config = hf.BertConfig(**SMALL, vocab_size=31, max_position_embeddings=19)
    model, ids = hf.BertForMaskedLM(config).eval(), torch.randint(31, (2, 7))
    few = {key: value for key, value in sizes_of(config).items() if not key.startswith(("id2", "label2"))}

    def old(weights):
        for name in [name for name in weights if "LayerNorm" in name]:
            new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            )
            weights[new] = weights.pop(name)
        weights["bert.embeddings.position_ids"] = torch.arange(19)[None]

    ours = published(
        tmp_path / "structbert", model, few | {"classifier_dropout": 0.3, "pooler_fc_size": 768}, old
    )
    assert ours.can[0] == "fill" and ours.config.classifier_dropout == 0.3
    with torch.no_grad():
        assert torch.equal(ours.model(ids)["masked_lm"], model(ids).logits)
        bare = published(tmp_path / "minilm", model.bert, few, lambda weights: None)
        assert torch.equal(bare.model.encoder(ids), model.bert(ids).last_hidden_state)
    heedful.save(ours, tmp_path / "again")
    assert hf.AutoConfig.from_pretrained(tmp_path / "again").classifier_dropout == 0.3


def test_roberta_as_published_keeps_its_pooling_layer_and_a_copy_of_its_words(tmp_path):
    config = hf.RobertaConfig(**SMALL, vocab_size=31, max_position_embeddings=21, type_vocab_size=1)
    model, ids = hf.RobertaForMaskedLM(config).eval(), torch.randint(2, 31, (2, 7))

    def more(weights):
        weights["roberta.pooler.dense.weight"], weights["roberta.pooler.dense.bias"] = (
            torch.ones(20, 20),
            torch.ones(20),
        )
        weights["roberta.embeddings.position_ids"] = torch.arange(21)[None]

    ours = published(
        tmp_path / "m", model, sizes_of(config) | {"architectures": ["RobertaForMaskedLM"]}, more
    )
    assert ours.config.prediction_heads == ("pooled", "masked_lm") and ours.config.context == 19
    with torch.no_grad():
        assert torch.equal(ours.model(ids)["masked_lm"], model(ids).logits)


def test_places_count_from_the_padding_of_the_table_whatever_else_is_called_padding(tmp_path):
    hf_zoo.write(case_of("roberta", "RobertaForMaskedLM"), tmp_path / "theirs")
    loaded = heedful.load(tmp_path / "theirs").loaded
    other = replace(loaded, special={**loaded.special, "pad": 9})
    heedful.save(other, tmp_path / "ours")
    said = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert said["pad_token_id"] == loaded.config.offset - 1 != 9


def test_deberta_v3_as_published_has_places_and_a_discriminator_that_nothing_reads(tmp_path):
    config = CONFIGS["deberta"](31, 0)
    config.legacy = False
    model, ids = hf.DebertaV2ForMaskedLM(config).eval(), torch.randint(31, (2, 9))

    def more(weights):
        weights["deberta.embeddings.position_embeddings.weight"] = torch.ones(60, 20)
        for layer, rows in (("dense", 20), ("classifier", 1)):
            weights[f"mask_predictions.{layer}.weight"] = torch.ones(rows, 20)
            weights[f"mask_predictions.{layer}.bias"] = torch.ones(rows)
        weights["mask_predictions.LayerNorm.weight"] = weights["mask_predictions.LayerNorm.bias"] = (
            torch.ones(20)
        )

    said = sizes_of(config, "legacy", "id2label", "label2id") | {"pos_att_type": "p2c|c2p"}
    ours = published(tmp_path / "m", model, said, more)
    assert ours.can[0] == "fill" and not ours.config.legacy
    with torch.no_grad():
        assert (ours.model(ids)["masked_lm"] - model(ids).logits).abs().max() < 1e-5


def test_a_folder_that_was_saved_without_its_head_is_an_encoder_whatever_its_config_says(tmp_path):
    """As all-mpnet-base-v2 and all-distilroberta-v1, whose configs name the class they were trained from."""
    config = hf.MPNetConfig(**SMALL, vocab_size=31, max_position_embeddings=21)
    model, ids = hf.MPNetModel(config).eval(), torch.randint(2, 31, (2, 7))
    said = sizes_of(config) | {"architectures": ["MPNetForMaskedLM"]}
    ours = published(tmp_path / "m", model, said, lambda weights: None)
    assert ours.config.prediction_heads == ("pooled",) and "embed" in ours.can
    with torch.no_grad():
        assert (ours.model.encoder(ids) - model(ids).last_hidden_state).abs().max() < 1e-5


# Parts


def test_log_buckets_are_theirs_at_every_distance():
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position as theirs

    for buckets, farthest in ((256, 512), (32, 128), (8, 60), (6, 9), (4, 513)):
        steps = torch.arange(-700, 701)
        assert torch.equal(log_bucket(steps, buckets, farthest), theirs(steps, buckets, farthest).long())


def test_a_convolution_refuses_packed_rows():
    model = tiny.build(tiny.ENCODERS["deberta"]).encoder
    with pytest.raises(ValueError, match="a row of its own"):
        model(torch.randint(tiny.VOCAB, (1, 4)), Packed(torch.tensor([[0, 0, 1, 1]])))


def test_alberts_layers_share_their_weights_also_after_they_were_loaded_and_copied(tmp_path):
    cases = (hf_zoo.make("albert", seed) for seed in range(99))
    hf_zoo.write(next(case for case in cases if case.theirs.config.num_hidden_layers == 3), tmp_path)
    model = heedful.load(tmp_path).model
    for one in (model, copy.deepcopy(model), model.double()):
        first, *others = one.encoder.stack.blocks
        assert len(others) == 2 and first is not others[0]
        for other in others:
            for a, b in zip(first.parameters(), other.parameters(), strict=True):
                assert a is b


def test_an_albert_may_have_more_layers_than_its_file_has_tensors_for(tmp_path):
    config = hf.AlbertConfig(**SMALL | {"num_hidden_layers": 12}, embedding_size=12, vocab_size=31)
    theirs, ids = hf.AlbertModel(config).eval(), torch.randint(31, (2, 7))
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        found = heedful.load(tmp_path).model.encoder(ids)
        assert (found - theirs(ids).last_hidden_state).abs().max() < 1e-5


# What is refused

WRONG = {
    "albert in groups": ("albert", {"num_hidden_groups": 2}, "num_hidden_groups"),
    "albert in inner groups": ("albert", {"inner_group_num": 3}, "inner_group_num"),
    "albert without end": ("albert", {"num_hidden_layers": 2**30}, "num_hidden_layers"),
    "albert's embeddings of nothing": ("albert", {"embedding_size": 0}, "embedding_size"),
    "deberta's other way": ("deberta", {"pos_att_type": ["p2p"]}, "pos_att_type"),
    "deberta's ways as a number": ("deberta", {"pos_att_type": 3}, "pos_att_type"),
    "deberta's other norm": ("deberta", {"norm_rel_ebd": "rms"}, "norm_rel_ebd"),
    "deberta's narrow embeddings": ("deberta", {"embedding_size": 3}, "embedding_size"),
    "deberta's convolution in groups": ("deberta", {"conv_kernel_size": 3, "conv_groups": 2}, "conv_groups"),
    "deberta's lopsided convolution": ("deberta", {"conv_kernel_size": 4}, "convolution"),
    "deberta's buckets for everything": ("deberta", {"position_buckets": 10**6}, "buckets"),
    "deberta's single bucket": ("deberta", {"position_buckets": 1}, "buckets"),
    "deberta's distances that are a word": (
        "deberta",
        {"max_relative_positions": "far"},
        "max_relative_positions",
    ),
    "deberta's segments that are negative": ("deberta", {"type_vocab_size": -7}, "type_vocab_size"),
    "deberta's wide pooling": ("deberta", {"pooler_hidden_size": 1}, "pooler_hidden_size"),
    "roberta's padding far away": ("roberta", {"pad_token_id": 10**6}, "pad_token_id"),
    "roberta's padding of nothing": ("roberta", {"pad_token_id": None}, "pad_token_id"),
    "roberta without places": (
        "roberta",
        {"max_position_embeddings": 2, "pad_token_id": 1},
        "max_position_embeddings",
    ),
    "roberta's other places": (
        "roberta",
        {"position_embedding_type": "relative_key"},
        "position_embedding_type",
    ),
    "roberta untied": ("roberta", {"tie_word_embeddings": False}, "tie_word_embeddings"),
    "roberta's other class": ("roberta", {"architectures": ["RobertaForCausalLM"]}, "architectures"),
}


@pytest.mark.parametrize("what", WRONG)
def test_settings_that_make_no_sense_are_refused_by_name(what, tmp_path):
    name, changed, field = WRONG[what]
    hf_zoo.write(case_of(name, CLASSES[name][1]), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changed))
    with pytest.raises(BadInput, match=field):
        heedful.load(tmp_path)


def test_every_class_named_here_is_one_that_heedful_says_it_reads():
    for name, kinds in CLASSES.items():
        config = case_of(name, kinds[0]).theirs.config
        file = family(model_types()[config.model_type])
        assert set(kinds) == set(file.ARCHITECTURES.get(config.model_type, file.ARCHITECTURES))
