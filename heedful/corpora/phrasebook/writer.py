"""The writer: sentences of one clause or of several, statements and questions."""

from __future__ import annotations

from . import function_words
from .agreement import finished
from .lexicon import PAST, PRESENT
from .pair import Pair
from .questions import Questions
from .selection import AT_ONCE, FIRST_DONE, PEOPLE, SIMPLY_DONE, TENSES, THEN_DONE, nouns_of, verbs_for
from .sentence import Clause, Manner, Mot, Nominal, Phrase, Unsayable, Word, join, set_phrase, turned


class SentenceWriter(Questions):
    """Writes sentences; the seed decides them all."""

    def __init__(self, seed: int, wordy: bool = False) -> None:
        super().__init__(seed, wordy)
        common = (self.doing,) * 10 + (self.acting,) * 5 + (self.being,) * 4
        rare = (self.done, self.moving, self.being_there, self.existing, self.being_old, self.being_one)
        self.frames = common + rare + (self.giving, self.giving, self.saying, self.saying)

    def write(self) -> Pair:
        """The next sentence."""
        while True:
            self.start()
            try:
                sentence, mark = self.sentence()
            except Unsayable:
                continue
            main = next(clause for clause in self.clauses if clause.root is sentence.head)
            return finished(sentence, mark, main)

    def sentence(self) -> tuple[Phrase, str]:
        roll = self.random()
        if self.wordy:
            return self.joined(3 if roll < 0.5 else 2), "."
        if roll < 0.5:
            return self.clause(), "."
        if roll < 0.68:
            return self.joined(2), "."
        if roll < 0.73:
            return self.doing_twice(), "."
        if roll < 0.77:
            return self.timed(), "."
        if roll < 0.87:
            return self.pick(self.frames)(None, True).question(), "?"
        return self.asked(), "?"

    def clause(self, subject: Nominal | None = None, plain: bool = False) -> Phrase:
        return self.pick(self.frames)(subject, plain=plain).statement()

    def timed(self) -> Phrase:
        """`Yesterday, the girl slept`."""
        tense = self.pick(TENSES)
        self.tenses, self.adjuncts = (tense,), False
        time = set_phrase(*self.pick(function_words.TIMES[tense]))
        clause = self.pick((self.doing, self.acting, self.giving))()
        if clause.manner.often or clause.manner.denial in ("never", "no longer"):
            raise Unsayable
        en, fr, root = clause.statement()
        time.head.head = root
        comma = Word(",", "PUNCT", root)
        return Phrase([*time.en, comma, *en], [*time.fr, Mot(",", (comma,)), *fr], root)

    def joined(self, clauses: int) -> Phrase:
        """Clauses held together by `and`, `because`, `when` and their like."""
        conjunction = self.pick(tuple(function_words.CONJUNCTIONS))
        whole = self.at_once(conjunction) if conjunction in AT_ONCE else self.in_turn(conjunction)
        if clauses == 2:
            return whole
        self.tenses = TENSES
        return join(whole, "and" if conjunction == "but" else "but", self.clause())

    def in_turn(self, conjunction: str) -> Phrase:
        """`And`, `but` or `because`."""
        self.tenses = (self.pick(TENSES),)
        first = self.pick(self.frames)(None)
        known = None if first.manner.denial else first.object
        if conjunction == "and" and known and self.is_clear(known) and self.chance(0.5):
            return join(first.statement(), conjunction, self.doing_it(known))
        if conjunction == "because" and self.tenses == (PRESENT,) and self.chance(0.1):
            return join(first.statement(), conjunction, self.weather())
        # A reason in the past is a state, so that French always has an imparfait.
        state = conjunction == "because" and PAST in self.tenses
        frame = self.pick((self.being, self.being_there)) if state else self.pick(self.frames)
        return join(first.statement(), conjunction, frame(self.taken_up_or_new(first)).statement())

    def taken_up_or_new(self, first: Clause) -> Nominal | None:
        """The subject of a second clause: often the first one's, as a pronoun."""
        return self.taken_up(first.subject) if self.is_clear(first.subject) and self.chance(0.6) else None

    def at_once(self, conjunction: str) -> Phrase:
        """`When`, `while` or `if`, in the present, where the two languages use their tenses alike."""
        self.tenses = (PRESENT,)
        first = self.pick((self.doing, self.acting))()
        if conjunction != "while" and self.chance(0.1):
            return join(first.statement(), conjunction, self.weather())
        second = self.pick((self.doing, self.acting, self.giving))(self.taken_up_or_new(first)).statement()
        return (turned if self.chance(0.3) else join)(first.statement(), conjunction, second)

    def doing_it(self, object: Nominal) -> Phrase:
        """A clause whose object pronoun takes up an object mentioned before."""
        verb = self.pick(verbs_for(SIMPLY_DONE, PEOPLE, object.kinds))
        subject = self.name() if self.chance(0.5) else self.someone(PEOPLE, plain=True)
        if not self.is_clear(object):
            raise Unsayable
        return self.to_it(subject, verb, self.pick(self.tenses), object).statement()

    def doing_twice(self) -> Phrase:
        """`The girl buys the apple and eats it`."""
        first = self.pick(FIRST_DONE)
        subject = self.someone(first.subjects)
        tense = self.pick((PRESENT, PAST))
        object = self.simple(self.pick(nouns_of(first.objects)))
        second = self.pick(verbs_for(THEN_DONE, subject.kinds, object.kinds))
        if not self.is_clear(object):
            raise Unsayable
        self.note(first.name, object)
        clause = self.predicate(subject, first, Manner(tense))
        self.place_object(clause, first, object)
        again = self.to_it(subject, second, tense, object)
        main = clause.statement()
        rest = Phrase([*again.rest, *again.after], [*again.verbs, *again.apres], again.root)
        return join(main, "and", rest)
