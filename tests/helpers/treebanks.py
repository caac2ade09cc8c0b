"""What several tests share with tests/data/test_conllu.py."""


def row(number, form="x", tag="NOUN", head="0", relation="root"):
    return "\t".join((str(number), form, "_", tag, "_", "_", str(head), relation, "_", "_"))


BUSH = [
    "# sent_id = 1",
    "# text = Bush held a talk with Sharon",
    row(1, "Bush", "PROPN", 2, "nsubj"),
    row(2, "held", "VERB", 0, "root"),
    row(3, "a", "DET", 4, "det"),
    row(4, "talk", "NOUN", 2, "obj"),
    row(5, "with", "ADP", 2, "obl"),
    row(6, "Sharon", "PROPN", 5, "pobj"),
]


# French and English at once: a surface form that its words make up, one that they do not, and two words left
# out.
RANGES = [
    row("0.1", "elided", "_", "_", "_"),
    row("1-2", "don't", "_", "_", "_"),
    row(1, "do", "AUX", 3, "aux"),
    row(2, "n't", "PART", 3, "advmod"),
    row(3, "parle", "VERB", 0, "root"),
    row("3.1", "again", "_", "_", "_"),
    row("3.2", "again", "_", "_", "_"),
    row("4-5", "du", "_", "_", "_"),
    row(4, "de", "ADP", 6, "case"),
    row(5, "le", "DET", 6, "det"),
    row(6, "roi", "NOUN", 3, "obl"),
]
