"""Results as JSON: the same objects from the command line (--json) and from the service. Needs no torch."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from ..data.trees import Parsed
from .results import AnswerSpan, Chosen, Entities, Filled, Label, Scored, ScoredLabels, SingleScore, Tagged

Shape = dict[str, Any]


@singledispatch
def as_json(result: object) -> Shape:
    """Everything that is known of a result."""
    raise TypeError(f"{type(result).__name__} has no form in JSON")


@as_json.register
def of_filled(result: Filled) -> Shape:
    return {"text": str(result), "blanks": [[one._asdict() for one in some] for some in result.blanks]}


@as_json.register
def of_label(result: Label) -> Shape:
    return {"label": str(result), "probabilities": result.probabilities}


@as_json.register
def of_scored_labels(result: ScoredLabels) -> Shape:
    if result.probabilities:
        return {"labels": result.labels, "probabilities": dict(result)}
    return {"scores": dict(result)}


@as_json.register
def of_single_score(result: SingleScore) -> Shape:
    return {"score": float(result)} | ({"label": result.label} if result.label else {})


@as_json.register
def of_scored(result: Scored) -> Shape:
    return {
        "log_probability": result.total,
        "perplexity": result.perplexity,
        "tokens": result.tokens,
        "log_probabilities": result.log_probabilities,
        "given": result.given,
    }


@as_json.register
def of_answer_span(result: AnswerSpan) -> Shape:
    span = {"start": result.start, "end": result.end, "probability": result.probability}
    return {"answer": str(result), **span}


@as_json.register
def of_chosen(result: Chosen) -> Shape:
    return {"choice": str(result), "number": result.number, "probabilities": result.probabilities}


@as_json.register
def of_tagged(result: Tagged) -> Shape:
    return {"words": result.words, "tags": result.tags, "probabilities": result.probabilities}


@as_json.register
def of_entities(result: Entities) -> Shape:
    return {"entities": [one._asdict() for one in result]}


@as_json.register
def of_parsed(result: Parsed) -> Shape:
    """Heads count from 1, and 0 is the root: as CoNLL-U has them."""
    heads = [head + 1 for head in result.heads]
    return {"words": result.words, "heads": heads, "relations": result.relations, "tags": result.tags}
