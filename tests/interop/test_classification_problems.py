"""What the scores of an imported classifier mean: as transformers' pipeline and CrossEncoder have it."""

import json

import pytest
import torch
import transformers as hf
from helpers.loaded_models import spread, template
from helpers.tokenizer_cases import byte_level, word_piece

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.interop.hf.problem import Problem
from heedful.use.results import Label, ScoredLabels, SingleScore

FEW = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 12, "intermediate_size": 20}
TEXTS = ["The cat sat on the mat.", "it's a", "we'll see"]
SECONDS = ["the mat", "on the cat's mat", ""]
NAMES = ("bad", "good", "so-so", "fine")


@pytest.fixture(autouse=True)
def _quiet():
    hf.utils.logging.disable_progress_bar()
    with torch.no_grad():
        yield


def made(folder, kind: str = "bert", labels: int = 3, **said):
    """A Hugging Face folder of a tiny classifier with random weights; said: more of its config.json."""
    if kind == "bert":
        tokenizer, pad = word_piece(), "[PAD]"
        config = hf.BertConfig(**FEW, vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=40)
        build = hf.BertForSequenceClassification
    elif kind == "roberta":
        tokenizer, pad = template(byte_level(), "<|endoftext|> $A"), "!"
        config = hf.RobertaConfig(**FEW, vocab_size=330, max_position_embeddings=40, type_vocab_size=1)
        build = hf.RobertaForSequenceClassification
    else:
        tokenizer, pad = template(byte_level(), "$A <|endoftext|>"), "<|endoftext|>"
        config = hf.LlamaConfig(**FEW, vocab_size=330, num_key_value_heads=1, pad_token_id=0, eos_token_id=0)
        build = hf.LlamaForSequenceClassification
    config.id2label = dict(enumerate(NAMES[:labels])) if labels > 1 else {0: "LABEL_0"}
    spread(build(config), 3).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad}
    tokens["model_input_names"] = ["input_ids", *(["token_type_ids"] * (kind == "bert")), "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | said))
    return folder


@pytest.mark.parametrize(
    ("kind", "labels", "problem", "result"),
    [
        ("bert", 1, None, SingleScore),
        ("bert", 3, "single_label_classification", Label),
        ("bert", 4, "multi_label_classification", ScoredLabels),
        ("roberta", 1, "regression", SingleScore),
        ("roberta", 3, None, Label),
        ("llama", 1, None, SingleScore),
        ("llama", 2, "regression", ScoredLabels),
    ],
)
def test_scores_are_those_of_the_pipeline(kind, labels, problem, result, tmp_path):
    folder = made(tmp_path / "theirs", kind, labels, **({"problem_type": problem} if problem else {}))
    pipeline = hf.pipeline("text-classification", str(folder), device="cpu")
    expected = [{each["label"]: each["score"] for each in pipeline(text, top_k=None)} for text in TEXTS]
    assert max(map(max, (one.values() for one in expected))) < 0.999 or problem == "regression"
    heedful.save(heedful.load(folder), tmp_path / "saved")
    for place in (folder, tmp_path / "saved"):
        found = heedful.load(place).classify(TEXTS)
        assert all(type(one) is result for one in found)
        for one, scores in zip(found, expected, strict=True):
            ours = numbers_of(one)
            assert ours == pytest.approx(scores, abs=1e-5) and list(ours) == list(scores)
    said = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert said.get("problem_type") == problem


def numbers_of(result: Label | ScoredLabels | SingleScore) -> dict[str, float]:
    if isinstance(result, SingleScore):
        return {"LABEL_0": float(result)}
    return result.probabilities if isinstance(result, Label) else dict(result)


IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"sbert_ce_default_activation_function": IDENTITY},
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.0.1"}},
        {"sentence_transformers": {"activation_fn": SIGMOID}, "problem_type": "regression"},
        {"sentence_transformers": {"activation_fn": "elsewhere.Tanh"}},
    ],
)
def test_pairs_are_scored_as_by_a_cross_encoder(said, tmp_path):
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(made(tmp_path / "theirs", labels=1, **said)), device="cpu")
    expected = theirs.predict(list(zip(TEXTS, SECONDS, strict=True))).tolist()
    theirs.save_pretrained(str(tmp_path / "written"))  # by today's version, into a file of its own
    heedful.save(heedful.load(tmp_path / "written"), tmp_path / "saved")
    for name in ("theirs", "written", "saved"):
        assert heedful.load(tmp_path / name).classify(TEXTS, SECONDS) == pytest.approx(expected, abs=1e-5)
    again = CrossEncoder(str(tmp_path / "saved"), device="cpu")
    assert again.predict(list(zip(TEXTS, SECONDS, strict=True))).tolist() == pytest.approx(expected, abs=1e-5)


def test_several_labels_of_a_cross_encoder_exclude_each_other_unless_each_has_a_sigmoid(tmp_path):
    names = {"sentence_transformers": {"activation_fn": IDENTITY}}
    one = heedful.load(made(tmp_path / "a", **names)).classify("the cat", "the mat")
    assert isinstance(one, Label) and sum(one.probabilities.values()) == pytest.approx(1)
    names = {"sentence_transformers": {"activation_fn": SIGMOID}}
    each = heedful.load(made(tmp_path / "b", **names)).classify("the cat", "the mat")
    assert isinstance(each, ScoredLabels) and each.probabilities
    assert each.labels == [name for name, share in each.items() if share >= 0.5]


def test_an_activation_that_heedful_lacks_is_refused(tmp_path):
    said = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}
    with pytest.raises(BadInput, match="activation_fn is Tanh; heedful knows Identity and Sigmoid"):
        heedful.load(made(tmp_path, labels=1, **said)).classify("the cat")
    with pytest.raises(BadInput, match="problem_type is 'ranking'; heedful knows regression"):
        heedful.load(made(tmp_path, problem_type="ranking"))
    with pytest.raises(BadInput, match="single_label_classification, and it has one score"):
        said = {"problem_type": "single_label_classification"}
        heedful.load(made(tmp_path, labels=1, **said)).classify("the cat")
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps({"model_type": "CrossEncoder", "default_prompt_name": "query"})
    )
    with pytest.raises(BadInput, match="heedful puts no prompt before pairs"):
        heedful.load(made(tmp_path))


def test_the_command_prints_numbers_and_labels(tmp_path, capsys):
    def lines(folder, *more) -> str:
        assert main(["classify", str(folder), "the cat sat", *more]) == 0
        return capsys.readouterr().out.strip()

    one = made(tmp_path / "one", labels=1)
    assert float(lines(one)) == pytest.approx(float(heedful.load(one).classify("the cat sat")), abs=1e-6)
    assert json.loads(lines(one, "--json")).keys() == {"line", "input", "unknown", "score"}
    many = made(tmp_path / "many", problem_type="multi_label_classification")
    found = heedful.load(many).classify("the cat sat")
    assert lines(many) == str(found) and all(name in str(found) for name in NAMES[:3])
    shown = json.loads(lines(many, "--json"))
    assert shown["labels"] == found.labels and list(shown["probabilities"]) == list(found)
    plain = made(tmp_path / "plain", problem_type="regression")
    assert json.loads(lines(plain, "--json"))["scores"] == pytest.approx(
        dict(heedful.load(plain).classify("the cat sat"))
    )


def test_peft_keeps_what_the_base_says(tmp_path):
    import peft

    folder = made(tmp_path / "base", labels=4, problem_type="multi_label_classification")
    base = hf.AutoModelForSequenceClassification.from_pretrained(folder)
    lora = peft.LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS", init_lora_weights=False)
    with torch.enable_grad():
        adapted = peft.get_peft_model(base, lora)
    adapted.eval().save_pretrained(tmp_path / "adapter")
    ours = heedful.load(tmp_path / "adapter", base=folder)
    assert ours.loaded.problem == Problem("multi_label_classification")
    tokens = hf.AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
    expected = adapted(**tokens).logits[0].sigmoid().tolist()
    found = ours.classify(TEXTS[0])
    assert [found[name] for name in NAMES] == pytest.approx(expected, abs=1e-5)
    heedful.save(ours, tmp_path / "merged")
    assert heedful.load(tmp_path / "merged").classify(TEXTS[0]) == pytest.approx(found, abs=1e-6)
