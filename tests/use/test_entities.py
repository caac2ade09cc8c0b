"""Entities and tags of imported token classifiers are those of transformers' pipeline."""

import json

import pytest
import torch
import transformers as hf
from helpers.loaded_models import spread, template
from helpers.tokenizer_cases import byte_level, word_piece

import heedful
from heedful.cli.main import main
from heedful.use.results import Entities, Tagged

FEW = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 12, "intermediate_size": 20}
TEXTS = [
    "The cat sat on the mat, and l'été dort.",
    "Köln",
    "  We'll   see 1234 cats; isn't it? Привет, мир. 猫",
]
BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-X-Y")
POS = ("NOUN", "VERB", "DET")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Makes a Hugging Face folder of a tiny token classifier with random weights."""
    hf.utils.logging.disable_progress_bar()

    def make(kind: str, labels: tuple[str, ...]):
        folder = tmp_path_factory.mktemp(kind)
        if kind == "wordpiece":
            tokenizer, more = word_piece(), {"unk_token": "[UNK]"}
            config = hf.BertConfig(**FEW, vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=99)
            build = hf.BertForTokenClassification
        else:
            tokenizer, more = template(byte_level(), "<|endoftext|> $A <|endoftext|>"), {}
            config = hf.RobertaConfig(**FEW, vocab_size=330, max_position_embeddings=99, type_vocab_size=1)
            build = hf.RobertaForTokenClassification
        config.id2label = dict(enumerate(labels))
        with torch.no_grad():
            spread(build(config), 3).save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        names = ["input_ids", "attention_mask"]
        said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names, **more}
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
        return folder

    return make


@pytest.mark.parametrize("kind", ["wordpiece", "bytes"])
def test_entities_are_those_of_the_pipeline(kind, folders, capsys):
    folder = folders(kind, BIO)
    pipeline = hf.pipeline("token-classification", str(folder), aggregation_strategy="simple", device="cpu")
    ours = heedful.load(folder)
    assert ours.can == ("tag", "embed", "look")
    found = ours.tag(TEXTS, batch=2)
    kinds = set()
    for text, entities in zip(TEXTS, found, strict=True):
        expected = pipeline(text)
        assert isinstance(entities, Entities) and len(entities) == len(expected) > 0
        for one, theirs in zip(entities, expected, strict=True):
            assert (one.label, one.start, one.end) == (theirs["entity_group"], theirs["start"], theirs["end"])
            assert one.probability == pytest.approx(theirs["score"], abs=1e-5)
            assert one.text == text[one.start : one.end].strip()
            kinds.add(one.label)
    assert len(kinds) > 1 and any(one.end - one.start > 6 for entities in found for one in entities)
    assert main(["tag", str(folder), TEXTS[0]]) == 0
    assert capsys.readouterr().out == f"{found[0]}\n"
    assert main(["tag", str(folder), TEXTS[0], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["entities"]
    assert [(one["text"], one["label"]) for one in told] == [one[:2] for one in found[0]]


@pytest.mark.parametrize("kind", ["wordpiece", "bytes"])
def test_labels_that_name_no_entities_are_the_tags_of_words(kind, folders):
    folder = folders(kind, POS)
    theirs = hf.pipeline("token-classification", str(folder), aggregation_strategy="none", device="cpu")
    found = heedful.load(folder).tag("The cat's mats")
    assert isinstance(found, Tagged) and found.words == (
        ["The", "cat", "'", "s", "mats"] if kind == "wordpiece" else ["The", "cat", "'s", "mats"]
    )
    tokens = theirs("The cat's mats")
    first = [next(one for one in tokens if one["end"] > "The cat's mats".index(word)) for word in found.words]
    assert found.tags == [one["entity"] for one in first]
    assert found.probabilities == pytest.approx([one["score"] for one in first], abs=1e-5)
