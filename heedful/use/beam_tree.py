"""Beam tree: a beam search with every candidate and its fate, and a reference forced beside it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.pieces import labels
from ..decode.beam import beam_search
from ..decode.beam_fates import Candidate, Fates, way_to
from ..decode.filters import Context, Filter
from ..decode.options import BEAM, NOT_IN_TREES, DecodingOptions, takes_options
from ..decode.scores import NEVER
from ..decode.turns import Turns, finish
from ..errors import BadInput
from ..inside.beam_tree import BeamTree, Reference, TreeNode
from ..interop.loaded import IN_WORDS
from . import generate, summarize, translate
from .languages import speaking
from .search import Request, Search, answer_of
from .texts import Tokenized, listed, usable

if TYPE_CHECKING:
    from ..decode.streaming import Hypothesis
    from .model import Model

WRITE: dict[str, Any] = {"translate": translate, "summarize": summarize, "generate": generate}


@takes_options(without=NOT_IN_TREES)
def beam_tree(
    model: Model,
    text: str,
    *,
    reference: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    **options: Any,
) -> BeamTree:
    """Search for one text by a beam, and keep every candidate with its fate.

    Args:
        text: One string.
        reference: A text that is scored beside the one that was found. It shows whether the search or the
            model is to blame.
        source_lang: As in `translate`.
        target_lang: As in `translate`.

    Keyword Args:
        beam (int): Hypotheses kept at each step. 1 is greedy search. More are slower and often better. From 1
            to 1,000. Default: 4; generate, `sample` and `draft`: 1.
        n_best (int): Answers to return for each text, best first; at most the width of the beam. From 1 to
            1,000. Default: 1.
        length_penalty ("gnmt" or "power"): Divisor of a hypothesis' log-probability: gnmt is ((5 + length) /
            6)^alpha, power is length^alpha. Default: "gnmt".
        length_alpha (float): Exponent alpha of the length penalty. 0 means no penalty; larger values favor
            longer answers. From -5 to 5. Default: 0.6.
        stopping ("heuristic" or "first_B" or "exact"): When beam search stops. heuristic: no live hypothesis
            currently beats the finished ones. first_B: as many have finished as the beam is wide. exact: none
            can still win. Default: "heuristic".
        coverage_penalty (float): Weight of the penalty on source words that receive little attention;
            encoder-decoders only. From 0 to 1,000. Default: 0.0.
        beam_groups (int): Groups of beams for diverse beam search. Each group has `beam` hypotheses. From 1
            to 100. Default: 1.
        diversity_penalty (float): Cost of a token that an earlier group has written at the same position.
            From 0 to 1,000. Default: 0.0.
        logit_bias (Mapping[int, float] or tuple[str]): Added to the logits of tokens, by their numbers. -100
            means never, 100 means nothing else. Default: none.
        repetition_penalty (float): Penalty on tokens that occur in the text so far. 1 means none; above 1
            discourages repetition. From 0.001 to 1,000. Default: 1.0.
        presence_penalty (float): Subtracted from the logits of tokens that the answer has already. Below 0
            encourages them. From -2 to 2. Default: 0.0.
        frequency_penalty (float): Subtracted from the logits of tokens as often as the answer has them
            already. From -2 to 2. Default: 0.0.
        no_repeat_ngram_size (int): No sequence of this many tokens occurs twice. 0 means no limit. At least
            0. Default: 0.
        encoder_no_repeat_ngram_size (int): No sequence of this many tokens of the source, or of the prompt,
            is written. 0 means no limit. At least 0. Default: 0. For models that can translate or summarize
            or generate.
        bad_words (tuple[str] or list[str]): Words that are never written. Default: none.
        min_new_tokens (int): Minimum number of tokens to write before the end of the answer. At least 0.
            Default: 0.
        max_new_tokens (int): Maximum number of tokens to write. At least 1. Default: translate: 2 x source +
            20; generate: 100; others: as in training.
        prefix (str): Text that every answer begins with. Default: none. For models that can translate or
            summarize or caption.
        folder_settings ("use" or "ignore"): Whether the generation settings of a Hugging Face folder are the
            defaults of these options. Default: "use".

    Returns:
        A `BeamTree`: a picture in a notebook, `.text()` in a terminal, `.as_json()` for a program.

    Raises:
        BadInput: The model writes no text, or an option does not fit.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> tree = model.beam_tree("My aunts are curious.", beam=2, reference="Mes tantes sont rouges.")
        >>> tree.answers, [node.text for node in tree.way(tree.best[0])]
        (['Mes tantes sont curieuses.'], ['Mes', 'tantes', 'sont', 'curieuses', '.', '[EOS]'])
        >>> tree.reference.margin > 0
        True
    """
    if not isinstance(text, str):
        raise BadInput(f"a tree belongs to one text, which is a string, not {type(text).__name__}")
    command = command_of(model)
    model = speaking(model, source_lang, target_lang)
    how = options_of(model, command, options)
    (row,) = usable(WRITE[command].encode(model, [text]))
    return finish(tree_in_turns(model, command, row, how, reference))


def command_of(model: Model) -> str:
    """What a model does: "translate", "summarize" or "generate". One that writes no text is refused."""
    found = next((name for name in WRITE if name in model.can), None)
    if found is None:
        raise BadInput(
            f"{model.folder} is {IN_WORDS[model.kind]}, which searches for no text; "
            f"it can {listed(model.can) or 'nothing'}"
        )
    return found


def options_of(model: Model, command: str, given: dict[str, Any]) -> DecodingOptions:
    """The options of the search: a beam, even where the command is greedy otherwise."""
    for name in ("sample", "draft"):
        if given.get(name):
            raise BadInput(f"`{name}` is no beam search, which a tree belongs to: leave it out")
    said = (model.loaded.generation or {}).get("num_beams") or 1
    width = said if isinstance(said, int) and said > 1 else BEAM
    return model.decoding(command, {"beam": width} | given)


def tree_in_turns(
    model: Model, command: str, row: Tokenized, how: DecodingOptions, reference: str | None = None
) -> Turns[BeamTree]:
    """The tree of one text, in turns: after each step of the search, others may take a turn."""
    file = WRITE[command]
    (request,) = file.requests(model, [row], how, [0])
    if request is None:
        raise BadInput("the text says nothing, so there is nothing to search for")
    fates = Fates()
    search: Search = replace(file.search_for(model, how), heard=fates)
    (found,) = yield from search.write_in_turns([request])
    candidates = fates.of_sentence()
    answers = [str(one) for one in answer_of(model, request, found, search.stops).n_best]
    tree = BeamTree(
        row.text,
        nodes_of(model, request, candidates),
        [end_of(candidates, one.tokens) for one in found],
        answers,
        how.in_use(BEAM),
        groups=how.beam_groups,
    )
    if reference is None:
        return tree
    yield
    return replace(tree, reference=forced(model, search, request, reference, found, candidates))


def nodes_of(model: Model, request: Request, candidates: list[Candidate]) -> list[TreeNode]:
    """Candidates with their tokens as people read them, each after those before it."""
    before = request.prompt[-2:] if request.continues else []
    nodes = []
    for one in candidates:
        way = [each.token for each in way_to(candidates, one.id)]
        nodes.append(TreeNode(**asdict(one), text=labels(model.wording.writes, [*before, *way])[-1]))
    return nodes


def end_of(candidates: list[Candidate], tokens: list[int]) -> int:
    """The node where a hypothesis ends."""
    for one in candidates:
        way = way_to(candidates, one.id) if one.fate == "ended" else []
        if way and [each.token for each in way] == tokens:
            return one.id
    raise AssertionError("every hypothesis that a search returns is one of its candidates")


def lost_at(candidates: list[Candidate], tokens: list[int]) -> int | None:
    """The token, from 1, at which some tokens left the beam; None if they are kept to their end."""
    living = {-1}
    for step, token in enumerate(tokens, 1):
        living = {
            one.id
            for one in candidates
            if one.before in living and one.token == token and one.fate in ("lives", "ended")
        }
        if not living:
            return step
    return None


# The reference.


def forced(
    model: Model,
    search: Search,
    request: Request,
    reference: str,
    found: list[Hypothesis],
    candidates: list[Candidate],
) -> Reference:
    """What a given text scores in the same search, if it is the only one that may be written."""
    tokens = reference_tokens(model, search, request, reference)
    settings = replace(search.settings, width=1, n_best=1, beam_groups=1, diversity_penalty=0.0)
    fed = search.within(replace(request, longest=len(tokens)))
    step = search.step([fed], watched=bool(settings.coverage_penalty))
    given = search.fed([fed]) | {"filters": [nothing_but(tokens)]}
    ((one,),) = beam_search(step, **given, settings=settings)
    lost, best = lost_at(candidates, tokens), found[0]
    margin = best.score - one.score
    names = labels(model.wording.writes, tokens)
    total = sum(one.log_probabilities)
    verdict = verdict_on(margin, best.tokens == tokens, lost, names)
    return Reference(reference, names, one.log_probabilities, total, one.score, margin, lost, verdict)


def nothing_but(tokens: list[int]) -> Filter:
    """Forbid all other tokens; these keep their log-probabilities."""

    def forbid(scores_BV: Tensor, context: Context) -> Tensor:
        token = tokens[int(context.counts_B[0])]
        found_BV = torch.full_like(scores_BV, NEVER)
        found_BV[:, token] = scores_BV[:, token]
        return found_BV

    return forbid


def reference_tokens(model: Model, search: Search, request: Request, reference: str) -> list[int]:
    """What would have to be written: for an encoder-decoder with its end, else what goes on in the text."""
    words = model.wording
    if not request.continues:
        tokens = [*words.target([reference])[0], *words.ends[:1]]
    else:
        whole = words.prompt([words.decoded(request.prompt) + reference])[0].ids
        tokens = whole[len(request.prompt) :]
        if not tokens or whole[: len(request.prompt)] != request.prompt:
            tokens = words.target([reference])[0]
    if not reference.strip() or not tokens:
        raise BadInput("the reference says nothing: give a text, or leave out `reference`")
    table = search.table
    if table is not None and len(request.prompt) + len(tokens) - 1 > table:
        raise BadInput(
            f"the reference has {len(tokens):,} tokens, and the model has {table:,} positions: cut it"
        )
    return tokens


def verdict_on(margin: float, same: bool, lost: int | None, tokens: list[str]) -> str:
    """Whether the model or the search is the reason that the reference was not found."""
    if same:
        return "the search finds the reference"
    if margin >= 0:
        return f"the model prefers its own text to the reference by {margin:.2f}"
    where = "" if lost is None else f", and the beam lost it at token {lost} ({tokens[lost - 1]})"
    return f"search error: the model scores the reference {-margin:.2f} higher{where}"
