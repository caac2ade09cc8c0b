"""What makes no sense is refused in a sentence that says why."""

import pytest
from helpers.loaded_models import copied

import heedful
import heedful.use.model
from heedful import BadInput, Loaded
from heedful.models import vit
from heedful.use.texts import LONGEST


@pytest.mark.parametrize(
    "name, call, sentence",
    [
        (
            "demo",
            lambda m: m.generate("x"),
            "is an encoder-decoder, which cannot generate; it can translate, stream, score, embed and look",
        ),
        ("demo", lambda m: m.classify("x"), "cannot classify"),
        (
            "lm",
            lambda m: m.translate("x"),
            "is a decoder, which cannot translate; it can generate, stream, score, embed and look",
        ),
        ("lm", lambda m: m.fill("x [MASK]"), "cannot fill"),
        (
            "mlm",
            lambda m: m.generate("x"),
            "is an encoder, which cannot generate; it can fill, embed and look",
        ),
        ("mlm", lambda m: m.stream("x"), "cannot stream"),
        ("classify", lambda m: m.score("x"), "cannot score; it can classify, embed and look"),
        ("classify-decoder", lambda m: m.generate("x"), "is a classifier, which cannot generate"),
        ("demo", lambda m: m.translate("x", beem=3), 'there is no option "beem"; did you mean "beam"?'),
        ("demo", lambda m: m.translate("x", beam=0), "`beam` must be a whole number from 1 to 1,000, not 0"),
        ("demo", lambda m: m.translate("x", beam=2.0), "`beam` must be a whole number"),
        ("demo", lambda m: m.translate("x", batch=0), "`batch` must be a whole number"),
        ("demo", lambda m: m.translate("x", max_new_tokens=-3), "`max_new_tokens` must be a whole number"),
        ("demo", lambda m: m.translate("x", seed="a"), "`seed` must be a whole number"),
        (
            "demo",
            lambda m: m.translate("x", temperature=0.5),
            "`temperature` has no effect without `sample`",
        ),
        ("demo", lambda m: m.translate("x", top_k=5), "`top_k` has no effect"),
        ("demo", lambda m: m.translate("x", sample=True, beam=3), "give one of them"),
        (
            "demo",
            lambda m: m.translate("x", sample=True, temperature=0.0),
            "`temperature` must be a number from 0.001 to 1,000.0, not 0.0",
        ),
        (
            "demo",
            lambda m: m.translate("x", sample=True, top_p=1.5),
            "`top_p` must be a number from 0.0 to 1.0, not 1.5",
        ),
        (
            "demo",
            lambda m: m.translate("x", length_alpha=float("nan")),
            "`length_alpha` must be a number from -5.0 to 5.0, not nan",
        ),
        ("demo", lambda m: m.translate("x", beam=10**20), "`beam` must be a whole number from 1 to 1,000"),
        ("demo", lambda m: m.translate("x", batch=True), "`batch` must be a whole number"),
        (
            "demo",
            lambda m: m.translate("x", max_new_tokens=10**20),
            "`max_new_tokens` must be a whole number from 1 to 1,000,000",
        ),
        (
            "demo",
            lambda m: m.translate("x", sample=True, temperature=1e-300),
            "`temperature` must be a number from 0.001",
        ),
        (
            "demo",
            lambda m: m.translate("x", repetition_penalty=0),
            "`repetition_penalty` must be a number from 0.001",
        ),
        ("demo", lambda m: m.translate("x", sample=True, n_best=2), "`n_best` has no effect without `beam`"),
        (
            "demo",
            lambda m: m.translate("x", beam=1, length_alpha=1.0),
            "`length_alpha` has no effect without `beam`: give a `beam` of 2 or more",
        ),
        ("demo", lambda m: m.translate("x", n_best=5), "a beam of 4 cannot find 5 hypotheses"),
        (
            "demo",
            lambda m: m.translate("x", length_penalty="gnm"),
            "`length_penalty` must be one of gnmt, power, not 'gnm'",
        ),
        ("demo", lambda m: m.translate("x", beam_groups=2), "`diversity_penalty` above 0 go together"),
        ("demo", lambda m: m.translate("x", bad_words="chat"), '`bad_words` takes a list of words: ["chat"]'),
        ("demo", lambda m: m.translate("x", logit_bias={3: 101}), "the bias of token 3 is 101: tokens are"),
        ("demo", lambda m: m.translate("x", logit_bias={-1: 1}), "the bias of token -1 is 1: tokens are"),
        ("demo", lambda m: m.translate("x", logit_bias={"a": 1}), "such as 198=-100, not ('a', 1)"),
        ("demo", lambda m: m.translate("x", logit_bias="3"), "such as {198: -100}, not '3'"),
        (
            "demo",
            lambda m: m.translate("the", logit_bias={999: 1}),
            "token 999 does not exist in a vocabulary",
        ),
        ("demo", lambda m: m.translate("x", presence_penalty=3), "`presence_penalty` must be a number from"),
        ("demo", lambda m: m.translate("x", bad_words=["zebra"]), '"zebra" is not in the vocabulary'),
        ("demo", lambda m: m.translate("x", bad_words=[" "]), "an empty word cannot be forbidden"),
        ("demo", lambda m: m.translate("x", draft_tokens=3), "`draft_tokens` is an option of generate"),
        ("lm", lambda m: m.generate("x", draft_tokens=3), "give `draft` too"),
        (
            "demo",
            lambda m: m.translate("x", beam="4"),
            "`beam` must be a whole number from 1 to 1,000, not '4'",
        ),
        ("demo", lambda m: m.translate("x", bad_words=[3]), "`bad_words` takes a list of words, not [3]"),
        (
            "demo",
            lambda m: m.translate("x", min_new_tokens=5, max_new_tokens=4),
            "`min_new_tokens` is 5 and `max_new_tokens` is 4",
        ),
        (
            "demo",
            lambda m: m.translate("x", draft=m),
            "`draft` is an option of generate and not of translate",
        ),
        ("demo", lambda m: m.translate(3), "texts are a string or a list of strings, not int"),
        ("demo", lambda m: m.translate(["a", None]), "text 2 is NoneType: texts are strings"),
        ("demo", lambda m: m.translate("\ud800"), "a text cannot be tokenized"),
        ("demo", lambda m: m.stream("x", beam=2), "beam search decides at the end"),
        ("demo", lambda m: m.stream(["x"]), "stream takes one text"),
        ("demo", lambda m: m.score("x"), "which scores pairs: give their targets too"),
        ("demo", lambda m: m.score(["x"], ["y", "z"]), "there are 1 and 2"),
        ("demo", lambda m: m.score("x", ["y"]), "two by two"),
        ("demo", lambda m: m.score(["the", ""], ["y", "z"]), "text 2 is empty"),
        ("demo", lambda m: m.embed(["the", " "]), "text 2 is empty"),
        ("demo", lambda m: m.embed("x", pooling="max"), '`pooling` is "mean" or "class"'),
        ("demo", lambda m: m.embed("x", batch=0), "`batch` must be a whole number"),
        (
            "lm",
            lambda m: m.generate("x", prefix="y"),
            "`prefix` is an option of translate, summarize, caption and not of generate",
        ),
        ("lm", lambda m: m.generate(["the", ""]), "text 2 is empty, and"),
        ("lm", lambda m: m.generate("the", n_best=2), "`n_best` has no effect without `beam`"),
        (
            "lm",
            lambda m: m.generate("the", beam=2, coverage_penalty=0.5),
            "needs cross-attention to a source",
        ),
        ("lm", lambda m: m.generate("the", draft=m, beam=2), "`draft` works with one hypothesis"),
        (
            "lm",
            lambda m: m.generate("the", draft="runs/lm"),
            "a draft is a decoder that was loaded by heedful.load",
        ),
        ("lm", lambda m: m.score("the", "cat"), "it has no use for targets"),
        ("lm", lambda m: m.score("t"), "text 1 has one token"),
        (
            "lm",
            lambda m: m.score(["the", "the cat " * 9]),
            "text 2 has 72 tokens, and the model reads at most 24: cut it",
        ),
        ("lm", lambda m: m.embed("the cat " * 9), "text 1 has 72 tokens"),
        ("mlm", lambda m: m.fill("the cat"), "text 1 has no [MASK] to fill in"),
        ("mlm", lambda m: m.fill("the [MASK]", top=0), "`top` must be a whole number"),
        ("mlm", lambda m: m.fill(["[MASK]", "the [MASK] " * 20]), "text 2 has 42 tokens"),
        ("classify", lambda m: m.classify("x", "y"), "was trained on single texts"),
        ("classify-pairs", lambda m: m.classify("x"), "was trained on pairs of texts"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(name, call, sentence, load):
    with pytest.raises(BadInput) as error:
        call(load(name))
    assert sentence in str(error.value)


def test_what_a_hugging_face_folder_lacks_is_named(theirs, tmp_path):
    _, ours, _ = theirs("t5")
    copied(ours, tmp_path, decoder_start_token_id=None, bos_token_id=None)
    with pytest.raises(BadInput, match="lacks decoder_start_token_id"):
        heedful.load(tmp_path).translate("x")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="has no tokenizer"):
        heedful.load(tmp_path).translate("x")


def test_a_model_of_images_says_so():
    config = vit.ViTConfig(image_size=12, patch_size=4, layers=1, width=12, heads=3, ffn_width=20, labels=5)
    model = heedful.Model(Loaded("vit", config, vit.build(config), None, {}), "here")
    with pytest.raises(BadInput, match="here reads pictures: look_at takes the name of a file"):
        model.look("x")
    assert model.can == ("look",) and "can look" in repr(model)
    for method in (model.embed, model.classify):  # it has no head for labels
        with pytest.raises(BadInput, match="here is a model of images, which cannot .*; it can look"):
            method("x")


@pytest.mark.parametrize(
    "name, method",
    [("demo", "translate"), ("lm", "generate"), ("mlm", "embed"), ("classify", "classify"), ("lm", "score")],
)
def test_python_refuses_the_same_long_texts_as_the_shell(name, method, load):
    with pytest.raises(BadInput, match=f"text 2 is longer than {LONGEST} characters: cut it"):
        getattr(load(name), method)(["a film", "a" * (LONGEST + 1)])
