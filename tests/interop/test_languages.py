"""Translators of many languages: NLLB, M2M100 and mBART write what transformers writes, in each language."""

import json

import pytest
import sentencepiece
import transformers as hf
from helpers import hf_zoo
from helpers.encoder_cases import _no_progress_bars  # noqa: F401 (fixtures)
from helpers.language_cases import CLASSES, CODES, TEXTS, network, pieces, translator  # noqa: F401 (fixtures)

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.interop.hf.language_files import MBART, MORE
from heedful.interop.hf.tokenizer import read_tokenizer


@pytest.mark.parametrize("kind", CLASSES)
def test_each_language_is_translated_as_transformers_does(kind, translator):
    folder, model, tokenizer = translator(kind)
    ours = heedful.load(folder)
    first, _, last = CODES[kind]
    seen = set()
    for source, target in ((first, last), (last, first)):
        tokenizer.src_lang = source
        for text in TEXTS:
            given = tokenizer(text, return_tensors="pt")
            number = tokenizer.convert_tokens_to_ids(target)
            name = "decoder_start_token_id" if kind == "mbart" else "forced_bos_token_id"
            expected = model.generate(
                **given, num_beams=3, max_new_tokens=9, length_penalty=0.0, **{name: number}
            )[0].tolist()
            found = ours.translate(
                text, source_lang=source, target_lang=target, beam=3, max_new_tokens=9, length_alpha=0.0
            )
            new = expected[1:]
            assert found.tokens == tokenizer.convert_ids_to_tokens(new)[: len(found.tokens)]
            seen.add(tuple(found.tokens))
    assert len(seen) > 2  # the languages matter


def test_a_saved_translator_keeps_its_languages(translator, tmp_path):
    folder, _, tokenizer = translator("nllb", src_lang="fra_Latn")
    loaded = heedful.load(folder)
    heedful.save(loaded, tmp_path / "saved")
    again, theirs = heedful.load(tmp_path / "saved"), hf.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in TEXTS:
        ids = tokenizer(text).input_ids
        assert again.wording.source([text])[0].ids == theirs(text).input_ids == ids
        assert theirs.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids, skip_special_tokens=True)
    theirs.src_lang = "deu_Latn"
    assert theirs(TEXTS[0]).input_ids[0] == tokenizer.convert_tokens_to_ids("deu_Latn")
    how = {"target_lang": "deu_Latn", "max_new_tokens": 7}
    assert again.translate(TEXTS, **how) == loaded.translate(TEXTS, **how)


def test_sentencepiece_files_of_m2m100_are_read_as_transformers_reads_them(pieces, tmp_path):
    names = sentencepiece.SentencePieceProcessor(model_file=str(pieces["bpe"]))
    own = ["<s>", "<pad>", "</s>", "<unk>"]
    known = [names.id_to_piece(n) for n in range(3, names.get_piece_size())]
    (tmp_path / "vocab.json").write_text(json.dumps({name: n for n, name in enumerate([*own, *known])}))
    (tmp_path / pieces["bpe"].name).write_bytes(pieces["bpe"].read_bytes())
    tokenizer = hf.M2M100Tokenizer.from_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = network("m2m100", len(own) + len(known) + 100, tmp_path)
    ours = heedful.load(tmp_path)
    for source, target in (("en", "fr"), ("fr", "zu")):
        tokenizer.src_lang = source
        for text in (*TEXTS, "  many   spaces ☃☃ "):
            given = tokenizer(text, return_tensors="pt")
            how = {"max_new_tokens": 5, "do_sample": False}
            expected = model.generate(**given, forced_bos_token_id=tokenizer.get_lang_id(target), **how)
            found = ours.translate(text, source_lang=source, target_lang=target, beam=1, max_new_tokens=5)
            numbers = [ours.tokenizer.token_to_id(token) for token in found.tokens]
            assert numbers == expected[0, 1:].tolist()[: len(numbers)] and numbers[
                0
            ] == tokenizer.get_lang_id(target)


@pytest.mark.parametrize("kind", ["nllb", "mbart50"])
def test_a_sentencepiece_file_and_its_languages_have_the_numbers_of_fairseq(kind, pieces, tmp_path):
    source, codes = pieces["bpe" if kind == "nllb" else "unigram"], CODES[kind]
    codes = codes if kind == "nllb" else MBART + MORE
    (tmp_path / source.name).write_bytes(source.read_bytes())
    theirs = CLASSES[kind].from_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": CLASSES[kind].__name__, "additional_special_tokens": codes})
    )
    size = sentencepiece.SentencePieceProcessor(model_file=str(source)).get_piece_size() + 1
    ours = read_tokenizer(tmp_path, size + len(codes) + 1)
    assert [ours.token_to_id(token) for token in (*codes, "<mask>")] == [*range(size, size + len(codes) + 1)]
    for text in (*TEXTS, "  many   spaces ☃☃ "):
        assert (
            ours.encode(text, add_special_tokens=False).ids
            == theirs(text, add_special_tokens=False).input_ids
        )
    if kind == "nllb":
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizer"}))
        with pytest.raises(BadInput, match="nothing beside .* lists its languages"):
            read_tokenizer(tmp_path)
    else:
        assert ours.get_vocab() == theirs.get_vocab()


def test_a_language_must_be_given_and_known(translator, capsys):
    folder, _, _ = translator("nllb")
    ours = heedful.load(folder)
    with pytest.raises(BadInput, match="translates into 3 languages: give one as `target_lang`"):
        ours.translate(TEXTS[0])
    with pytest.raises(BadInput, match="give one as `target_lang`"):
        ours.score(TEXTS[0], TEXTS[1])
    scored = ours.score(TEXTS[0], TEXTS[1], target_lang="fra_Latn")
    assert scored.tokens[0] == "fra_Latn" and scored.tokens[-1] == "</s>"
    with pytest.raises(BadInput, match='no language "fra" among 3 languages.*did you mean fra_Latn'):
        ours.translate(TEXTS[0], target_lang="fra")
    languages = ["--source-lang", "eng_Latn", "--target-lang", "fra_Latn"]
    assert main(["translate", str(folder), *languages, "--max-new-tokens", "7", "--json", TEXTS[0]]) == 0
    said = json.loads(capsys.readouterr().out)["answers"][0]
    how = {"source_lang": "eng_Latn", "target_lang": "fra_Latn", "max_new_tokens": 7}
    assert said["text"] == ours.translate(TEXTS[0], **how)
    assert said["tokens"][0] == "fra_Latn"


def test_a_model_of_one_language_has_no_choice(tmp_path):
    hf_zoo.write(hf_zoo.make("t5", 0), tmp_path)
    with pytest.raises(BadInput, match="has no tokens that name languages"):
        heedful.load(tmp_path).translate("a text", target_lang="fra_Latn")
