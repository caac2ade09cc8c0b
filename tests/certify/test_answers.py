"""What people call is certified too: labels of texts and pictures, chat prompts, vectors of texts."""

import json
from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.export_cases import ENDS
from helpers.look_cases import imported
from helpers.tokenizer_cases import word_piece

import heedful
from heedful.certify.checks import chat, classify, embed, generation, pictures
from heedful.certify.sides import opened
from heedful.interop.formats import load
from heedful.interop.hf import write as to_hf
from heedful.models import bert, vit


def encoder(heads, **other):
    tokenizer = word_piece()
    sizes = {"vocab": tokenizer.get_vocab_size(), "context": 41, "layers": 1, "width": 12, "heads": 3}
    config = bert.BertConfig(**sizes, ffn_width=20, prediction_heads=heads, **other)
    return heedful.Loaded("bert", config, tiny.build((bert, config), torch.float32), tokenizer, {"pad": 0})


def painter():
    sizes = {"image_size": 12, "patch_size": 4, "layers": 1, "width": 12, "heads": 3, "ffn_width": 20}
    config = vit.ViTConfig(**sizes, prediction_heads=("classify",), labels=5)
    return heedful.Loaded("vit", config, tiny.build((vit, config), torch.float32), None, {})


def change_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


PREPROCESSING = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 12, "width": 12},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.3, 0.25],
}
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}"
PARTS = ("Transformer", "Pooling", "Normalize")


def sentence_files(folder):
    listed = [
        {
            "idx": n,
            "name": str(n),
            "path": "" if n == 0 else f"{n}_{part}",
            "type": f"sentence_transformers.models.{part}",
        }
        for n, part in enumerate(PARTS)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    pooling = {
        "word_embedding_dimension": 12,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 32, "do_lower_case": False})
    )


def several_labels(folder):
    change_json(folder / "config.json", problem_type="multi_label_classification")


CASES = {
    "labels": (
        classify.check,
        lambda: encoder(("pooled", "classify"), labels=3),
        lambda folder: None,
        several_labels,
    ),
    "several labels": (
        classify.check,
        lambda: encoder(("pooled", "classify"), labels=3),
        several_labels,
        lambda folder: change_json(folder / "config.json", problem_type="single_label_classification"),
    ),
    "pictures": (
        pictures.check,
        painter,
        lambda folder: (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING)),
        lambda folder: change_json(folder / "preprocessor_config.json", image_mean=[0.5, 0.5, 0.5]),
    ),
    "chat": (
        chat.check,
        lambda: replace(imported("gpt2"), special=ENDS),
        lambda folder: (folder / "chat_template.jinja").write_text(TEMPLATE),
        lambda folder: (folder / "chat_template.jinja").write_text(TEMPLATE.replace(" | trim", "")),
    ),
    "generation": (
        generation.check,
        lambda: replace(imported("gpt2"), special=ENDS),
        lambda folder: change_json(folder / "generation_config.json", num_beams=3, no_repeat_ngram_size=2),
        lambda folder: change_json(folder / "generation_config.json", num_beams=1, no_repeat_ngram_size=1),
    ),
    "generation of a translator": (
        generation.check,
        lambda: replace(imported("t5")),
        lambda folder: change_json(folder / "generation_config.json", num_beams=2, repetition_penalty=1.5),
        lambda folder: change_json(
            folder / "generation_config.json", num_beams=2, suppress_tokens=[*range(20)]
        ),
    ),
    "embed": (
        embed.check,
        lambda: encoder(("pooled",)),
        sentence_files,
        lambda folder: change_json(
            folder / "1_Pooling" / "config.json", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_answers_are_equal_and_another_setting_around_the_network_is_found(name, tmp_path):
    check, make, surround, change = CASES[name]
    source, export = tmp_path / "source", tmp_path / "export"
    to_hf.write(make(), source)
    surround(source)
    loaded = load(source)
    to_hf.write(loaded, export)
    sides = opened(loaded, export, "hf", "float32", lambda line: None, str(source))
    found = check(sides)
    assert found is not None and found.faults == (), found
    change(export)
    changed = check(opened(loaded, export, "hf", "float32", lambda line: None, str(source)))
    assert changed.faults != ()
