"""Where samples come from: the held-out data of a run, a file, given texts, or built-in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..corpora import phrasebook, stories
from ..data.conllu import read_sentences
from ..data.images.prepare import normal
from ..data.lines import read_lines
from ..data.report import Report
from ..data.trees import Parsed
from ..decode.greedy import greedy_translation
from ..decode.prompts import pad
from ..errors import BadInput
from ..files import inside, one_line, read_json
from ..interop.loaded import IN_WORDS, Captioner, ImageEncoder, Loaded, Stage
from ..interop.run_folder import LABELS
from ..models.base.shells import Decoder, EncoderDecoder, needs_tree, shells_of
from ..tasks import classify, classify_data, image_classify, lm, lm_data, mlm, summarize, translate_data
from ..tasks.evaluation import EvaluationRequest, by_length
from ..tasks.origin import find_origin, vocab_of, vocabulary
from ..tasks.recipe.settings import Recipe
from ..tasks.task import spread
from ..train.loss import NOTHING
from .look.inputs import decode, encode, ends_of
from .look.layers import kinds_of, rows_of
from .samples import Sample, Samples, blank_sample, marks_in, next_sample, read_ids

COUNT = 64  # samples, unless said
LONGEST = 256  # tokens of a sample
SHORTEST = 5  # words of a built-in sentence
Text = str | tuple[str, str]  # a text, or a source and its target


def samples_of(
    loaded: Loaded,
    folder: Path | None = None,
    recipe: Recipe | None = None,
    *,
    texts: Iterable[Text] | None = None,
    data: str | None = None,
    count: int = COUNT,
    longest: int = LONGEST,
) -> Samples:
    """Samples to measure a model by.

    texts: given ones; of an encoder-decoder, also (source, target). data: a file of texts. Without either:
    the held-out data of the run in `folder`, or built-in sentences. count: how many samples at most.
    longest: tokens of a sample at most.
    """
    check_model(loaded)
    if count < 2:
        raise BadInput(f"an interval needs at least 2 texts, not {count}")
    run = None if recipe is None or folder is None else EvaluationRequest(folder, recipe)
    if loaded.kind is ImageEncoder and (run is None or texts is not None or data is not None):
        raise BadInput(
            "this model reads images, whose heads are measured on the held-out images of a run only"
        )
    longest = min([longest, *(size for size in tables(loaded) if size is not None)])
    if texts is not None:
        given: list[Text] = list(islice(texts, count))
        return made(loaded, given, "given", longest)
    if data is not None:
        return made(loaded, list(islice(texts_in(data), count)), data, longest)
    if run is not None and run.recipe.task in HELD_OUT:
        try:
            return HELD_OUT[run.recipe.task](loaded, run, count, longest)
        except BadInput as error:
            why = f"the held-out data of {folder} cannot be read"
            raise BadInput(f"{why}: {error}; `heedful heads --data FILE` takes other texts") from None
    return made(loaded, built_in(loaded, count), BUILT_IN, longest)


BUILT_IN = "built-in English sentences; --data FILE takes others"


def check_model(loaded: Loaded) -> None:
    """Refuse models without heads, and those whose input is no text and no image alone."""
    model = loaded.model
    if loaded.kind in (Stage, Captioner):
        raise BadInput(f"heads are measured in texts and images, and this model is {IN_WORDS[loaded.kind]}")
    if not shells_of(model) or not kinds_of(model):
        raise BadInput(f"this {loaded.architecture} has no attention heads")
    if needs_tree(model):
        raise BadInput(
            "this model reads sentences with their trees, and heads are measured in plain texts: "
            "`heedful look --trees` shows one sentence"
        )


def tables(loaded: Loaded) -> list[int | None]:
    """The longest row of each side, where positions end."""
    return [shell.inputs.position.longest for shell in shells_of(loaded.model).values()]


# Files and texts


def texts_in(file: str) -> Iterator[Text]:
    """One text a line, or a source and its target with a tab between; CoNLL-U sentences with their trees."""
    if file.endswith((".conllu", ".conllu.gz")):
        for sentence in read_sentences(file):
            text = sentence.text or " ".join(sentence.forms)
            yield Parsed(
                text, sentence.forms, sentence.heads, sentence.tags, sentence.relations, sentence.surfaces
            )
        return
    for line in read_lines(file):
        source, tab, target = line.partition("\t")
        if line.strip():
            yield (source, target) if tab else line


def made(loaded: Loaded, texts: Sequence[Text], source: str, longest: int) -> Samples:
    """Texts as samples of this model."""
    if len(texts) < 2:
        raise BadInput(one_line(f"{source}: an interval needs at least 2 texts, and there are {len(texts)}"))
    if isinstance(loaded.model, EncoderDecoder):
        return paired(loaded, loaded.model, texts, source, longest)
    if any(isinstance(text, tuple) for text in texts):
        raise BadInput(
            one_line(
                f"{source}: texts with a target are for encoder-decoders: give one text a line, without a tab"
            )
        )
    plain = [text for text in texts if isinstance(text, str)]
    return Samples([one(loaded, text, i, longest) for i, text in enumerate(plain)], source)


def one(loaded: Loaded, text: str, number: int, longest: int) -> Sample:
    """A text for a decoder or an encoder."""
    ids = read_ids(loaded, text, longest + isinstance(loaded.model, Decoder))
    tree = text if isinstance(text, Parsed) else None
    if not isinstance(loaded.model, Decoder):
        return blank_sample(str(text), ids, marks_in(loaded), number, tree)
    if len(ids) < 2:
        raise BadInput(
            one_line(
                f'"{text}" has {len(ids)} tokens, and the next one is predicted from the first: '
                f"give longer texts"
            )
        )
    return next_sample(str(text), ids, tree)


def paired(
    loaded: Loaded, model: EncoderDecoder, texts: Sequence[Text], source: str, longest: int
) -> Samples:
    """Sources with their targets; where there is none, with what the model itself writes."""
    start, eos = ends_of(loaded)
    written = loaded.target_tokenizer or loaded.tokenizer
    sources = [text[0] if isinstance(text, tuple) else text for text in texts]
    rows = [read_ids(loaded, text, longest) for text in sources]
    own = [i for i, text in enumerate(texts) if not isinstance(text, tuple)]
    answers = dict(zip(own, own_answers(model, [rows[i] for i in own], start, eos, longest), strict=True))
    samples = []
    for i, text in enumerate(texts):
        if isinstance(text, tuple):
            answers[i] = [*encode(written, text[1], False, rows_of(model.decoder))[: longest - 1], eos]
        target = text[1] if isinstance(text, tuple) else decode(written, answers[i])
        tree = sources[i] if isinstance(sources[i], Parsed) else None
        sample = Sample(
            str(sources[i]), rows[i], answers[i], written=[start, *answers[i][:-1]], target=target
        )
        samples.append(replace(sample, tree=tree))  # type: ignore[arg-type]
    told = f"{source}; targets are the model's own translations" if own else source
    return Samples(samples, told, "pairs")


@torch.no_grad()
def own_answers(
    model: EncoderDecoder, rows: list[list[int]], start: int, eos: int, longest: int
) -> list[list[int]]:
    """What the model writes, always taking the most likely token, with the end of sentence."""
    device = next(model.parameters()).device
    found: list[list[int]] = [[]] * len(rows)
    for some in by_length([len(row) for row in rows], 16):
        source_BS, lengths_B = pad([rows[i] for i in some], device)
        most = min(longest - 1, 2 * source_BS.shape[1] + 20)
        for i, words in zip(
            some, greedy_translation(model, source_BS, lengths_B, start, eos, most), strict=True
        ):
            found[i] = [*words, eos]
    return found


def built_in(loaded: Loaded, count: int) -> list[Text]:
    """English sentences of the built-in corpora; a model without a tokenizer has none."""
    if loaded.tokenizer is None:
        raise BadInput("this model has no tokenizer: give --data, a file with token numbers, one text a line")
    if isinstance(loaded.model, EncoderDecoder):
        return [pair.source for pair in islice(phrasebook.split("valid"), count)]
    told = (sentence.text for story in stories.split("valid") for sentence in story.sentences)
    return list(islice((text for text in told if len(text.split()) >= SHORTEST), count))


# The held-out data of runs


def held_out_pairs(loaded: Loaded, asked: EvaluationRequest, count: int, longest: int) -> Samples:
    """Sentence pairs; those of the phrasebook with reference alignments and trees."""
    d = asked.recipe.data
    report = Report(d.bad_lines)
    pairs = spread(list(islice(translate_data.pairs_of(asked.recipe, "valid", report), 16 * count)), count)
    found = made(loaded, pairs, f"held-out data of {asked.run}", longest)
    if d.corpus != "phrasebook":
        return found
    known = {pair.source: pair for pair in phrasebook.split("valid")}
    return replace(found, samples=[with_reference(sample, known[sample.text]) for sample in found.samples])


def with_reference(sample: Sample, pair: phrasebook.Pair) -> Sample:
    """A pair of the phrasebook with its reference alignment and the tree of its source."""
    tree = Parsed(pair.source, phrasebook.words(pair.source), pair.heads, pair.tags)
    return replace(sample, gold=frozenset(pair.alignment), tree=tree)


def held_out_summaries(loaded: Loaded, asked: EvaluationRequest, count: int, longest: int) -> Samples:
    """Articles with their summaries, cut to `longest` tokens."""
    if not isinstance(loaded.model, EncoderDecoder):
        raise BadInput(
            f"{asked.run} reads article and summary in one row: give --data, a file with one text a line"
        )
    found, _ = summarize.held_out_examples(asked.recipe, Report(asked.recipe.data.bad_lines))
    vocab, d = asked.vocab(), asked.recipe.data
    some = spread(found, count)
    sources = summarize.read_by(
        vocab, [article for article, _ in some], d.extract, min(longest, d.max_length)
    )
    samples = []
    for ids, (_, summaries) in zip(sources, some, strict=True):
        answers = [*vocab.encode_batch([summaries[0]])[0][: longest - 1], vocab.eos]
        written = [vocab.bos, *answers[:-1]]
        samples.append(Sample(vocab.decode(ids), list(ids), answers, written=written, target=summaries[0]))
    return Samples(samples, f"held-out data of {asked.run}", "articles")


def held_out_windows(loaded: Loaded, asked: EvaluationRequest, count: int, longest: int) -> Samples:
    """Windows of the held-out text, which do not overlap."""
    model: Any = loaded.model
    vocab = vocab_of(asked.run, asked.recipe)
    stream = lm_data.held_out_text(asked, vocab, 2).stream
    context = min(longest, lm.context_of(model, asked.recipe, stream))
    starts = spread(list(range(0, len(stream) - context, context)), count)
    rows = [stream[start : start + context + 1].astype(np.int64).tolist() for start in starts]
    return windows(loaded, [next_sample(decode(loaded.tokenizer, row), row) for row in rows], asked, context)


def held_out_blanks(loaded: Loaded, asked: EvaluationRequest, count: int, longest: int) -> Samples:
    """Windows of the held-out text with blanks, as training evaluates them."""
    model: Any = loaded.model
    recipe, vocab = asked.recipe, vocab_of(asked.run, asked.recipe)
    pairs = recipe.data.pairs
    room = mlm.room_of(min(longest, mlm.context_of(model, recipe)), pairs)
    text = lm_data.held_out_text(asked, vocab, 3 * room if pairs else 1)
    lines = mlm.lines_of(text.stream, text.lengths, vocab, pairs)
    made = mlm.held_out_batches(
        text.stream, room, pairs, mlm.marks_of(vocab), recipe.train.seed, count, lines
    )
    samples = [sample for batch in made for sample in with_blanks(loaded, batch)]
    return windows(loaded, samples, asked, room)


def with_blanks(loaded: Loaded, batch: mlm.MaskedBatch) -> Iterator[Sample]:
    """The rows of a batch."""
    chosen_BT = torch.zeros_like(batch.originals_BT, dtype=torch.bool)
    chosen_BT.view(-1)[batch.places_N] = True
    answers_BT = batch.originals_BT.where(chosen_BT, NOTHING)
    for row in zip(batch.originals_BT, answers_BT, batch.tokens_BT, batch.segments_BT, strict=True):
        ids, answers, fed, segments = (side.tolist() for side in row)
        yield Sample(decode(loaded.tokenizer, ids), ids, answers, fed, segments=segments)


def windows(loaded: Loaded, samples: list[Sample], asked: EvaluationRequest, size: int) -> Samples:
    if len(samples) < 2:
        raise BadInput(
            f"the held-out text of {asked.run} has {len(samples)} windows of {size} tokens, and an interval "
            f"needs at least 2: give --data, a file with one text a line"
        )
    return Samples(samples, f"held-out data of {asked.run}", f"windows of {size} tokens")


def held_out_labels(loaded: Loaded, asked: EvaluationRequest, count: int, longest: int) -> Samples:
    """Texts with their labels."""
    recipe, run = asked.recipe, asked.run
    labels, _ = classify_data.read_labels(recipe, run)
    origin = find_origin(recipe.train.from_, run) if recipe.train.from_ else None
    vocab = vocabulary(run, origin) if origin else asked.vocab()
    config, kind = classify.model_of(recipe, vocab, origin, len(labels))
    rows = classify_data.held_out_rows(recipe, labels, Report(recipe.data.bad_lines))
    if recipe.data.both_orders:
        raise BadInput(f"{run} reads pairs in both orders at once: give --data, a file with one text a line")
    rows = spread(rows, count)
    room = min(longest - 3, classify.room_of(recipe.data, config.context, vocab))
    samples = []
    for row, (a, b) in zip(rows, classify_data.encoded(vocab, rows), strict=True):
        ids, segments = kind.layout(vocab, *classify.fit(a, b, room))
        told = " / ".join(text for text in (row.first, row.second) if text)
        samples.append(Sample(told, ids.tolist(), segments=segments.tolist(), label=row.number))
    return Samples(samples, f"held-out data of {run}")


def held_out_images(loaded: Loaded, asked: EvaluationRequest, count: int, longest: int) -> Samples:
    """Images with their labels."""
    d, counted = asked.recipe.data, read_json(inside(asked.run, LABELS), 1 << 24)
    number = {label: i for i, label in enumerate(counted)}
    rows = islice(image_classify.evaluation_rows(asked, Report(d.bad_lines, "image")), 4 * count)
    inputs: Any = loaded.model.encoder.inputs  # type: ignore[union-attr]
    samples = []
    for i, row in enumerate(spread(list(rows), count)):
        pixels_1HWC = torch.from_numpy(np.array(row.pixels_HWC))[None]
        image_1CHW = normal(pixels_1HWC, d)
        places = list(range(inputs.length(image_1CHW)))
        label = image_classify.number_of(row.label, number, d)
        samples.append(Sample(f"image {i + 1}: {row.label}", places, label=label, image_CHW=image_1CHW[0]))
    return Samples(samples, f"held-out data of {asked.run}", "images")


HELD_OUT = {
    "translate": held_out_pairs,
    "summarize": held_out_summaries,
    "lm": held_out_windows,
    "mlm": held_out_blanks,
    "classify": held_out_labels,
    "image-classify": held_out_images,
}
