"""Results: strings and numbers that know more about themselves. An `Answer` has its score, a `Label` its
probability, `Filled` what else would fit; so the plain use stays plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple, Self


class Alternative(NamedTuple):
    """A token that a model might have written.

    Attributes:
        token: As the vocabulary spells it.
        log_probability: Its log-probability before any filter or temperature.

    Example:
        >>> answer = heedful.load("runs/lm").generate("The old king", max_new_tokens=1, top=3)
        >>> [one.token for one in answer.top[0]][:1]
        [' is']
    """

    token: str
    log_probability: float


class Answer(str):
    """A text that a model wrote. It is a string; what else is known of it are its attributes.

    Args:
        text: The text itself.

    Attributes:
        score: What it was chosen by: log-probability, and with a beam that over the length penalty.
        tokens: As the vocabulary spells them, with the end of the sentence.
        log_probabilities: Of each token, before any filter or temperature.
        ended: False if it was cut off at the greatest length.
        n_best: This answer and the next best: `n_best` of them.
        top: With the option `top`, the most likely tokens at each token, best first.
        alignment: With the option `align`, pairs (source word, target word), counted from 0.

    Example:
        >>> answer = heedful.load("runs/demo").translate("My aunts are curious.")
        >>> answer.split()[0], answer.ended, round(answer.log_probability, 2)
        ('Mes', True, -0.03)
    """

    score: float
    tokens: list[str]
    log_probabilities: list[float]
    ended: bool
    n_best: list[Answer]
    top: list[list[Alternative]]
    alignment: list[tuple[int, int]] | None

    def __new__(
        cls,
        text: str,
        score: float = 0.0,
        tokens: Sequence[str] = (),
        log_probabilities: Sequence[float] = (),
        ended: bool = True,
        top: Sequence[list[Alternative]] = (),
    ) -> Self:
        self = super().__new__(cls, text)
        self.score, self.ended = score, ended
        self.tokens, self.log_probabilities = list(tokens), list(log_probabilities)
        self.n_best, self.top = [self], list(top)
        self.alignment = None
        return self

    @property
    def log_probability(self) -> float:
        """The log-probability of the whole text."""
        return sum(self.log_probabilities)


class Guess(NamedTuple):
    """A word for a blank.

    Attributes:
        word: The word.
        probability: Its probability.

    Example:
        >>> Guess("cat", 0.5).word
        'cat'
    """

    word: str
    probability: float


class Filled(str):
    """A text with its blanks filled in by the most likely words.

    Args:
        text: The text itself.

    Attributes:
        blanks: For each blank, the most likely words as `Guess`, best first.

    Example:
        >>> filled = heedful.load("runs/mlm").fill("The old king is [MASK] to eat.")
        >>> len(filled.blanks), len(filled.blanks[0])
        (1, 5)
    """

    blanks: list[list[Guess]]

    def __new__(cls, text: str, blanks: Sequence[list[Guess]] = ()) -> Self:
        self = super().__new__(cls, text)
        self.blanks = list(blanks)
        return self


class Label(str):
    """The label of a text or a picture. It is a string.

    Args:
        text: The label itself.

    Attributes:
        probabilities: The probability of every label, most likely first.

    Example:
        >>> label = Label("good", {"good": 0.75, "bad": 0.25})
        >>> label, label.probability
        ('good', 0.75)
    """

    probabilities: dict[str, float]

    def __new__(cls, text: str, probabilities: dict[str, float] | None = None) -> Self:
        self = super().__new__(cls, text)
        self.probabilities = dict(probabilities or {text: 1.0})
        return self

    @property
    def probability(self) -> float:
        """The probability of this label."""
        return self.probabilities[str(self)]


class SingleScore(float):
    """The one number that a model gives a text or a pair of texts: a cross-encoder's, a reward model's.

    It is between 0 and 1, unless the folder says that the model's output is to be taken as it is.

    Args:
        value: The number itself.

    Attributes:
        label: What it is a score of, as the folder names it.

    Example:
        >>> SingleScore(0.5, "relevance").label
        'relevance'
    """

    label: str

    def __new__(cls, value: float, label: str = "") -> Self:
        self = super().__new__(cls, value)
        self.label = label
        return self


class ScoredLabels(dict[str, float]):
    """A number for every label, highest first: its own probability, or the output of a regression.

    Args:
        scores: {label: number}.

    Attributes:
        probabilities: False if the numbers are outputs of a regression.

    Example:
        >>> scores = ScoredLabels({"sport": 0.2, "politics": 0.9})
        >>> list(scores), scores.labels
        (['politics', 'sport'], ['politics'])
    """

    probabilities: bool

    def __init__(self, scores: dict[str, float], probabilities: bool = True) -> None:
        super().__init__(sorted(scores.items(), key=lambda pair: -pair[1]))
        self.probabilities = probabilities

    @property
    def labels(self) -> list[str]:
        """The labels whose probability is at least one half."""
        return [label for label, score in self.items() if self.probabilities and score >= 0.5]

    def __str__(self) -> str:
        return ", ".join(f"{label} {score:.4f}" for label, score in self.items())


class Tagged(str):
    """A sentence with the part of speech of each word: "The/DET cat/NOUN".

    Attributes:
        words: The words.
        tags: The tag of each word.
        probabilities: The probability of each tag.

    Example:
        >>> Tagged(["The", "cat"], ["DET", "NOUN"], [0.9, 0.8])
        'The/DET cat/NOUN'
    """

    words: list[str]
    tags: list[str]
    probabilities: list[float]

    def __new__(cls, words: Sequence[str], tags: Sequence[str], probabilities: Sequence[float]) -> Self:
        self = super().__new__(cls, " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True)))
        self.words, self.tags, self.probabilities = list(words), list(tags), list(probabilities)
        return self


class Entity(NamedTuple):
    """A name in a text, and what it is the name of.

    Attributes:
        text: The name.
        label: Its kind, such as "PER".
        probability: The mean over its tokens.
        start: Its first character in the text.
        end: The character after its last.

    Example:
        >>> Entity("Paris", "LOC", 0.9, 10, 15).label
        'LOC'
    """

    text: str
    label: str
    probability: float
    start: int
    end: int


class Entities(list[Entity]):
    """The entities of a text as a list of `Entity`, in their order.

    Args:
        iterable: The entities.

    Example:
        >>> print(Entities([Entity("Ada", "PER", 0.9, 0, 3), Entity("Paris", "LOC", 0.9, 10, 15)]))
        Ada/PER	Paris/LOC
    """

    def __str__(self) -> str:
        return "\t".join(f"{one.text}/{one.label}" for one in self)


class AnswerSpan(str):
    """The answer to a question, as a text has it. It is a string.

    Args:
        text: The answer itself.

    Attributes:
        start: Its first character in the text.
        end: The character after its last.
        score: S . h_start + E . h_end.
        probability: Of its start times that of its end, in the window of the text that holds it.

    Example:
        >>> AnswerSpan("cat", 4, 7, 9.5, 0.8).start
        4
    """

    start: int
    end: int
    score: float
    probability: float

    def __new__(cls, text: str, start: int, end: int, score: float, probability: float) -> Self:
        self = super().__new__(cls, text)
        self.start, self.end, self.score, self.probability = start, end, score, probability
        return self


class Chosen(str):
    """The choice that fits a text best. It is a string.

    Args:
        text: The choice itself.

    Attributes:
        number: Its place among the choices, from 0.
        probabilities: The probability of every choice, in their order.

    Example:
        >>> Chosen("it is a cat", 0, [0.9, 0.1]).number
        0
    """

    number: int
    probabilities: list[float]

    def __new__(cls, text: str, number: int, probabilities: Sequence[float]) -> Self:
        self = super().__new__(cls, text)
        self.number, self.probabilities = number, list(probabilities)
        return self


@dataclass(frozen=True)
class Scored:
    """How likely a model finds a text, token by token.

    Attributes:
        tokens: The tokens that were scored.
        log_probabilities: The log-probability of each.
        given: What stands before the first of them, and is not itself scored.

    Example:
        >>> scored = Scored(["a", "b"], [-1.0, -3.0], given=["[BOS]"])
        >>> scored.total, round(scored.perplexity, 2)
        (-4.0, 7.39)
    """

    tokens: list[str]
    log_probabilities: list[float]
    given: list[str]

    @property
    def total(self) -> float:
        """log P of all tokens together."""
        return sum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood of a token."""
        return exp(min(700.0, -self.total / len(self.tokens)))
