"""The encoders after BERT in use: they fill blanks, embed, classify, and look at pictures as theirs do."""

import json

import numpy as np
import pytest
import tokenizers as tk
import torch
import transformers as hf
from helpers.encoder_cases import (
    CONFIGS,
    SMALL,
    _no_progress_bars,  # noqa: F401 (fixtures)
)
from helpers.tokenizer_cases import byte_level, word_piece

import heedful
from heedful.cli.main import main
from heedful.data.images.files import png_bytes
from heedful.models import vit

# In use


def template(tokenizer: tk.Tokenizer, first: str, last: str, pair: str) -> tk.Tokenizer:
    special = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    tokenizer.post_processor = tk.processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=pair, special_tokens=special
    )
    return tokenizer


def roberta_tokens() -> tk.Tokenizer:
    made = byte_level()
    made.add_special_tokens(
        ["<s>", "<pad>", "</s>", "<unk>", tk.AddedToken("<mask>", lstrip=True, special=True)]
    )
    return template(made, "<s>", "</s>", "<s> $A </s> </s> $B </s>")


def bert_tokens() -> tk.Tokenizer:
    return template(word_piece(), "[CLS]", "[SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")


def mpnet_tokens() -> tk.Tokenizer:
    """BERT's pieces between RoBERTa's tokens; <pad> has the number 1."""
    words = ["<s>", "<pad>", "</s>", "[UNK]", "the", "cat", "sat", "on", "mat", "a", "##s", ",", "'", "?"]
    numbers = {word: number for number, word in enumerate(words)}
    made = tk.Tokenizer(tk.models.WordPiece(numbers, unk_token="[UNK]"))
    made.normalizer = tk.normalizers.BertNormalizer()
    made.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["<s>", "<pad>", "</s>", tk.AddedToken("<mask>", lstrip=True, special=True)])
    return template(made, "<s>", "</s>", "<s> $A </s> </s> $B </s>")


def cls_and_bytes() -> tk.Tokenizer:
    made = byte_level()
    mask = tk.AddedToken("[MASK]", lstrip=True, special=True)
    made.add_special_tokens(["[CLS]", "[PAD]", "[SEP]", "[UNK]", mask])
    return template(made, "[CLS]", "[SEP]", "[CLS] $A [SEP] $B [SEP]")


TOKENS = {
    "roberta": roberta_tokens,
    "xlm_roberta": roberta_tokens,
    "camembert": roberta_tokens,
    "electra": bert_tokens,
    "mpnet": mpnet_tokens,
    "deberta_v1": cls_and_bytes,
    "modernbert": cls_and_bytes,
    "distilbert": bert_tokens,
    "ernie": bert_tokens,
    "albert": bert_tokens,
    "deberta": bert_tokens,
}
PREFIX = {
    "xlm_roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "mpnet": "MPNet",
    "deberta_v1": "Deberta",
    "modernbert": "ModernBert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "ernie": "Ernie",
    "albert": "Albert",
    "deberta": "DebertaV2",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(folder, their model, its tokenizer) of a family's class, small but with every weight in use."""
    root, made = tmp_path_factory.mktemp("folders"), {}

    def get(name: str, part: str):
        if (name, part) not in made:
            torch.manual_seed(3)
            tokenizer = TOKENS[name]()
            pad = next(
                tokenizer.token_to_id(t) for t in ("<pad>", "[PAD]") if tokenizer.token_to_id(t) is not None
            )
            config = CONFIGS[name](tokenizer.get_vocab_size() + 3, pad)
            labels = ("start", "end") if part == "ForQuestionAnswering" else ("bad", "good", "so-so")
            config.id2label = dict(enumerate(labels))
            model = getattr(hf, PREFIX[name] + part)(config)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(torch.randn_like(weight) * 0.2)
            folder = root / f"{name} {part}"
            model.eval().save_pretrained(folder)
            tokenizer.save(str(folder / "tokenizer.json"))
            if name in ("albert", "deberta"):  # whose own tokenizers would lower, strip accents, add spaces
                said = {"do_lower_case": False, "keep_accents": True, "add_prefix_space": False}
                (folder / "tokenizer_config.json").write_text(json.dumps(said))
            made[name, part] = folder, model, tokenizer
        return made[name, part]

    return get


def said_of(model, encoding: tk.Encoding, **given):
    """Their output of one row; classes that tell no segments apart are given none."""
    if getattr(model.config, "type_vocab_size", 0) > 0:
        given["token_type_ids"] = torch.tensor([encoding.type_ids])
    with torch.no_grad():
        return model(torch.tensor([encoding.ids]), **given)


@pytest.mark.parametrize("name", TOKENS)
def test_they_fill_blanks_and_embed(name, folders):
    folder, model, tokenizer = folders(name, "ForMaskedLM")
    ours = heedful.load(folder)
    assert ours.can == ("fill", "embed", "look")
    mask = next(token for token in ("[MASK]", "<mask>") if tokenizer.token_to_id(token) is not None)
    texts = ["the [MASK] sat on the mat", "the cat's [MASK], isn't [MASK]?"]
    for text, filled in zip(texts, ours.fill(texts, top=4), strict=True):
        encoding = tokenizer.encode(text.replace("[MASK]", mask))
        shares = said_of(model, encoding).logits[0].softmax(-1)
        places = [i for i, number in enumerate(encoding.ids) if number == tokenizer.token_to_id(mask)]
        assert len(places) == len(filled.blanks) == text.count("[MASK]")
        for place, guesses in zip(places, filled.blanks, strict=True):
            assert [g.probability for g in guesses] == pytest.approx(
                shares[place].topk(4).values.tolist(), abs=1e-5
            )
    encoding = tokenizer.encode("the cat")
    hidden = said_of(model.base_model, encoding).last_hidden_state[0]
    torch.testing.assert_close(ours.embed("the cat"), hidden.mean(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.embed("the cat", pooling="class"), hidden[0], atol=1e-5, rtol=0)
    assert len(ours.look("the cat").weights) == model.config.num_hidden_layers


@pytest.mark.parametrize("name", TOKENS)
def test_they_classify_texts_and_pairs(name, folders):
    folder, model, tokenizer = folders(name, "ForSequenceClassification")
    ours = heedful.load(folder)
    for texts in (("the cat",), ("the cat sat", "on the mat")):
        shares = said_of(model, tokenizer.encode(*texts)).logits[0].softmax(-1).tolist()
        found = ours.classify(*texts).probabilities
        assert found == pytest.approx(dict(zip(["bad", "good", "so-so"], shares, strict=True)), abs=1e-5)


@pytest.mark.parametrize("name", ["xlm_roberta", "electra", "mpnet", "deberta_v1", "modernbert"])
def test_they_answer_and_tag(name, folders):
    folder, model, tokenizer = folders(name, "ForQuestionAnswering")
    question, context = "the cat", "on the mat a cat sat"
    found = heedful.load(folder).answer(question, context)
    encoding = tokenizer.encode(question, context)
    said = said_of(model, encoding)
    inside = [i for i, part in enumerate(encoding.sequence_ids) if part == 1]
    spans = [(i, j) for i in inside for j in inside if i <= j]
    best = max(spans, key=lambda ij: float(said.start_logits[0, ij[0]] + said.end_logits[0, ij[1]]))
    start, end = encoding.offsets[best[0]][0], encoding.offsets[best[1]][1]
    assert found.strip() == context[start:end].strip()
    folder, model, tokenizer = folders(name, "ForTokenClassification")
    encoding = tokenizer.encode("the cat sat")
    shares = said_of(model, encoding).logits[0].softmax(-1).amax(-1)
    loaded = heedful.load(folder)
    assert "tag" in loaded.can
    real = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
    with torch.no_grad():
        ours = loaded.model(torch.tensor([encoding.ids]))["tag"][0].softmax(-1).amax(-1)
    torch.testing.assert_close(ours[real], shares[real], atol=1e-5, rtol=0)
    assert loaded.tag("the cat sat") is not None


@pytest.mark.parametrize("name", TOKENS)
def test_info_and_doctor_read_them(name, folders, capsys):
    for part in ("ForMaskedLM", "ForSequenceClassification"):
        folder, model, _ = folders(name, part)
        assert main(["info", str(folder), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["parameters"] == sum(weight.numel() for weight in model.parameters())
        assert main(["doctor", str(folder)]) == 0, capsys.readouterr()
        capsys.readouterr()


def test_a_deit_classifies_pictures_and_shows_where_it_looks(tmp_path, capsys):
    torch.manual_seed(5)
    config = hf.DeiTConfig(**SMALL, image_size=12, patch_size=4, num_labels=3)
    model = hf.DeiTForImageClassificationWithTeacher(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(tmp_path / "deit")
    (tmp_path / "deit" / "preprocessor_config.json").write_text(json.dumps({"size": 12, "crop_size": 12}))
    pixels = np.random.default_rng(2).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(png_bytes(pixels))
    ours = heedful.load(tmp_path / "deit")
    assert ours.can == ("classify", "look")
    with torch.no_grad():
        x = (torch.from_numpy(pixels[None]).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
        shares = model(x).logits[0].softmax(-1).tolist()
    found = ours.classify(str(tmp_path / "a.png")).probabilities
    assert found == pytest.approx({f"LABEL_{i}": share for i, share in enumerate(shares)}, abs=1e-5)
    seen = ours.look_at(str(tmp_path / "a.png"))
    assert seen.through.shape == (3, 3) and seen.grid(seen.chosen[0]).shape == (3, 3)
    assert dict(seen.labels) == pytest.approx(found, abs=1e-6)
    assert main(["info", str(tmp_path / "deit"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert main(["doctor", str(tmp_path / "deit")]) == 0, capsys.readouterr()


@pytest.mark.parametrize("image", [8, 20])
def test_a_deit_reads_pictures_of_another_size_as_theirs_does(image, tmp_path):
    torch.manual_seed(6)
    theirs = hf.DeiTModel(hf.DeiTConfig(**SMALL, image_size=12, patch_size=4)).eval()
    torch.nn.init.normal_(theirs.embeddings.position_embeddings)
    theirs.save_pretrained(tmp_path)
    loaded = heedful.load(tmp_path)
    images = torch.randn(2, 3, image, image)
    model, resized = vit.resized(loaded.model, loaded.config, image)
    with torch.no_grad():
        expected = theirs(images, interpolate_pos_encoding=True).last_hidden_state
        torch.testing.assert_close(model.eval().encoder(images), expected, atol=1e-5, rtol=0)
    assert resized.tokens == 2 + (image // 4) ** 2
