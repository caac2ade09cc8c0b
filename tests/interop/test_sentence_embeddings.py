"""A sentence embedder's folder gives the vectors that sentence-transformers gives."""

import json
import shutil
import warnings

import pytest
import torch
import transformers as hf
from helpers.sentencepiece_cases import byte_level
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models

import heedful
from heedful.interop.hf.probes import corpus
from heedful.interop.hf.sentences import read_sentences

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "Cat",
    "sat",
    "on",
    "mat",
    "a",
    "##s",
    ".",
    ",",
    "été",
    "ete",
    "query",
    ":",
]
WORDS += [*"bcdefghijklmnopqrstuvwxyz", *(f"##{letter}" for letter in "abcdefghijklmnopqrtuvwxyz")]
TEXTS = [
    "the cat sat on the mat.",
    "Cats",
    "",
    "a",
    "  the   CAT  ",
    "été, ete",
    "the cat " * 20,
    "a [MASK] sat",
    "x",
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A tiny random BERT with words."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(3)
    config = hf.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=23,
    )
    model = hf.BertModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer", "do_lower_case": false}'
    )
    return folder


def embedder(bert, folder, pooling="mean", normalize=False, prompts=None, **settings):
    """A folder of sentence-transformers, as the package itself writes it."""
    steps = [models.Transformer(str(bert)), models.Pooling(12, pooling_mode=pooling)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(
            modules=[*steps, *([models.Normalize()] if normalize else [])], device="cpu", **(prompts or {})
        )
        model.save(str(folder), create_model_card=False)
    said = json.loads((folder / "sentence_bert_config.json").read_text())
    (folder / "sentence_bert_config.json").write_text(json.dumps(said | settings))
    return folder


def agree(folder, texts=TEXTS):
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ours = heedful.load(folder)
    expected = theirs.encode(texts, convert_to_tensor=True, show_progress_bar=False).cpu()
    found = ours.embed(texts, batch=4)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
    return found


POOLINGS = [
    "cls",
    "mean",
    "max",
    "mean_sqrt_len_tokens",
    "weightedmean",
    "lasttoken",
    ("cls", "max"),
    ("mean", "lasttoken", "cls"),
]


@pytest.mark.parametrize("pooling", POOLINGS, ids=str)
def test_every_pooling_gives_their_vectors(pooling, bert, tmp_path):
    found = agree(embedder(bert, tmp_path / "model", pooling))
    assert found.shape == (len(TEXTS), 12 * (len(pooling) if isinstance(pooling, tuple) else 1))


def test_poolings_differ(bert, tmp_path):
    vectors = [agree(embedder(bert, tmp_path / name, name), ["the cat sat"]) for name in POOLINGS[:6]]
    assert all(not torch.allclose(a, b, atol=1e-3) for n, a in enumerate(vectors) for b in vectors[:n])


@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_one_long_where_the_folder_says_so(normalize, bert, tmp_path):
    folder = embedder(bert, tmp_path / "model", normalize=normalize)
    lengths = agree(folder).norm(dim=-1)
    assert torch.allclose(lengths, torch.ones(len(TEXTS)), atol=1e-5) == normalize
    model = heedful.load(folder)
    assert torch.allclose(model.embed("a", normalize=True).norm(), torch.tensor(1.0), atol=1e-5)
    assert not torch.allclose(model.embed("a", normalize=False).norm(), torch.tensor(1.0), atol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [{"max_seq_length": 5}, {"max_seq_length": 3}, {"max_seq_length": None}, {"do_lower_case": True}, {}],
    ids=str,
)
def test_texts_are_cut_and_lowered_as_the_folder_says(settings, bert, tmp_path):
    folder = embedder(bert, tmp_path / "model", **settings)
    if "max_seq_length" in settings:
        said = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(said | {"model_max_length": 17}))
    agree(folder)


def test_a_prompt_stands_before_every_text_only_if_the_folder_says_so(bert, tmp_path):
    prompts = {"prompts": {"query": "query: ", "other": "on "}}
    plain = agree(embedder(bert, tmp_path / "plain", prompts=prompts))
    asked = agree(embedder(bert, tmp_path / "asked", prompts=prompts | {"default_prompt_name": "query"}))
    assert not torch.allclose(plain, asked, atol=1e-3)


def test_older_folders_say_it_by_flags(bert, tmp_path):
    folder = embedder(bert, tmp_path / "model")
    older = {
        "word_embedding_dimension": 12,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
        "pooling_mode_max_tokens": True,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(older))
    agree(folder)
    assert read_sentences(folder).poolings == ("cls", "max")


def test_the_corpus_of_probes_embeds_alike(bert, tmp_path):
    agree(embedder(bert, tmp_path / "model", normalize=True), corpus())


def test_what_is_asked_for_goes_before_what_the_folder_says(bert, tmp_path):
    model = heedful.load(embedder(bert, tmp_path / "model", "cls"))
    alone = heedful.load(bert)
    assert torch.equal(model.embed("the cat", pooling="mean"), alone.embed("the cat"))
    assert torch.equal(model.embed("the cat"), alone.embed("the cat", pooling="class"))


def test_the_command_prints_their_vectors(bert, tmp_path, capsys, monkeypatch):
    import io

    from heedful.cli.main import main

    folder = embedder(bert, tmp_path / "model", "max", normalize=True)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na\n")))
    assert main(["embed", str(folder)]) in (0, None)
    printed = [list(map(float, line.split())) for line in capsys.readouterr().out.splitlines()]
    torch.testing.assert_close(torch.tensor(printed), agree(folder, ["the cat", "a"]), atol=1e-5, rtol=1e-4)


# What is written again


FORMS = {
    "names": {"pooling": ("mean", "lasttoken", "cls"), "max_seq_length": 5},
    "flags": {"pooling": ("cls", "max"), "normalize": True, "max_seq_length": 7, "do_lower_case": True},
    "cut": {"normalize": True, "cut": 5},
    "prompts": {"prompts": {"prompts": {"query": "query: ", "other": "on "}, "default_prompt_name": "query"}},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_folder_gives_the_vectors_of_the_original(form, bert, tmp_path):
    given = dict(FORMS[form])
    cut, folder = given.pop("cut", None), tmp_path / "model"
    embedder(bert, folder, **given)
    name = folder / "config_sentence_transformers.json"
    said = json.loads(name.read_text()) | {"truncate_dim": cut, "similarity_fn_name": "dot"}
    name.write_text(json.dumps(said))
    expected = agree(folder)
    assert expected.shape[1] == (cut or 12 * len(heedful.load(folder).sentences.poolings))
    heedful.save(heedful.load(folder), tmp_path / "saved")
    assert torch.equal(agree(tmp_path / "saved"), expected)
    first, again = (
        SentenceTransformer(str(each), device="cpu", local_files_only=True)
        for each in (folder, tmp_path / "saved")
    )
    assert first.prompts == again.prompts and first.default_prompt_name == again.default_prompt_name
    assert again.similarity_fn_name == "dot" and first.truncate_dim == again.truncate_dim == cut
    assert first.max_seq_length == again.max_seq_length
    for some in TEXTS:
        found = (
            each.encode(some, prompt_name="other" if form == "prompts" else None) for each in (first, again)
        )
        assert (next(found) == next(found)).all()


def test_vectors_are_cut_and_then_normalized_if_the_call_says_so(bert, tmp_path):
    folder = embedder(bert, tmp_path / "model", normalize=True)
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True, truncate_dim=5)
    theirs.save(str(tmp_path / "cut"), create_model_card=False)
    model = heedful.load(tmp_path / "cut")
    expected = theirs.encode(TEXTS, normalize_embeddings=True, convert_to_tensor=True)
    torch.testing.assert_close(model.embed(TEXTS, normalize=True), expected, atol=2e-6, rtol=1e-5)
    assert model.embed([]).shape == (0, 5)


def test_a_saved_decoder_can_still_be_padded(tmp_path):
    """config.json of GPT-2 names no padding: only the tokenizer's settings do."""
    byte_level(tmp_path / "gpt2", ["<|endoftext|>"])
    sizes = {"n_embd": 12, "n_layer": 1, "n_head": 3, "n_positions": 23, "bos_token_id": 0, "eos_token_id": 0}
    hf.GPT2Model(hf.GPT2Config(vocab_size=331, **sizes)).save_pretrained(tmp_path / "gpt2")
    said = {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<|endoftext|>"}
    (tmp_path / "gpt2" / "tokenizer_config.json").write_text(json.dumps(said))
    folder = embedder(tmp_path / "gpt2", tmp_path / "model", "lasttoken", max_seq_length=19)
    texts = [text for text in TEXTS if text]
    expected = agree(folder, texts)
    heedful.save(heedful.load(folder), tmp_path / "saved")
    assert torch.equal(agree(tmp_path / "saved", texts), expected)


def test_a_cross_encoder_is_saved_though_it_lists_modules(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "model")
    (folder / "modules.json").write_text(json.dumps([module("Transformer")]))
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    heedful.save(heedful.load(folder), tmp_path / "saved")
    assert not (tmp_path / "saved" / "modules.json").exists()


def test_what_would_be_lost_is_not_saved(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "model")
    (folder / "modules.json").write_text(json.dumps([*GOOD, module("Dense", "2_Dense")]))
    with pytest.raises(heedful.BadInput, match=r"would be lost: .*Dense"):
        heedful.save(heedful.load(folder), tmp_path / "saved")


# Folders that are not read


def module(kind, path=""):
    return {"idx": 0, "name": "0", "path": path, "type": f"sentence_transformers.models.{kind}"}


GOOD = [module("Transformer"), module("Pooling", "1_Pooling")]
BROKEN = {
    "a dense layer": ("modules.json", [*GOOD, module("Dense", "2_Dense")], "Dense"),
    "no pooling": ("modules.json", [module("Transformer")], "Transformer"),
    "an object": ("modules.json", {}, "a list"),
    "steps that are numbers": ("modules.json", [1, 2], "a type and a path"),
    "a path that climbs": ("modules.json", [GOOD[0], module("Pooling", "../1_Pooling")], "plain names"),
    "a path from the root": ("modules.json", [GOOD[0], module("Pooling", "/etc")], "plain names"),
    "an unknown pooling": ("1_Pooling/config.json", {"pooling_mode": "median"}, "median"),
    "a pooling that is a number": ("1_Pooling/config.json", {"pooling_mode": 7}, "7"),
    "a flag that is a word": (
        "1_Pooling/config.json",
        {"pooling_mode_cls_token": "yes"},
        "pooling_mode_cls_token",
    ),
    "a length that is a word": ("sentence_bert_config.json", {"max_seq_length": "long"}, "long"),
    "a length of nothing": ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length"),
    "a cut that is a word": ("config_sentence_transformers.json", {"truncate_dim": "5"}, "truncate_dim"),
    "prompts that are a list": ("config_sentence_transformers.json", {"prompts": [1]}, "prompts"),
    "a prompt that is not there": ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "'x'"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_folder_that_says_something_else_is_refused(what, bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "model")
    (folder / "1_Pooling").mkdir()
    (folder / "modules.json").write_text(json.dumps(GOOD))
    name, content, words = BROKEN[what]
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(heedful.BadInput, match=words) as told:
        heedful.load(folder).embed("a")
    assert str(folder) in str(told.value)


def test_a_link_that_leads_out_is_not_followed(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "model")
    (folder / "modules.json").write_text(json.dumps(GOOD))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.json").write_text("{}")
    (folder / "1_Pooling").symlink_to(tmp_path / "outside")
    with pytest.raises(heedful.BadInput, match="leads out"):
        heedful.load(folder).embed("a")
