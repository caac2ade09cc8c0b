"""The numbers on the page are those that float64 gives for the model's own weights and inputs."""

import random
import re

import numpy as np
import pytest
from helpers.studio_browser import show

pytestmark = pytest.mark.browser
# The name of a table, its row and its column, as an element with a number says them.
FROM = re.compile(r"(?P<name>\w+), .*\brow (?P<row>\d+), column (?P<column>\d+)")
READ = (
    "[...document.querySelectorAll('.station [data-from]')].map((one) => [one.dataset.from, one.innerText])"
)
# The red of each cell of a map, at its middle.
PAINTED = """([rows, cols]) => {
  const canvas = document.querySelector('.map-cells');
  const { width, height } = canvas;
  const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
  const at = (i, n, size) => Math.floor(((i + 0.5) * size) / n);
  const red = (r, c) => data[4 * (at(r, rows, height) * width + at(c, cols, width))];
  return Array.from({ length: rows }, (_, r) => Array.from({ length: cols }, (_, c) => red(r, c)));
}"""
DERIVED = {"q", "k", "v", "scores", "scaled", "masked", "exp", "weights", "weighted", "output"}


def in_float64(studio, trace, which, layer, head, query):
    """{name: table} of one query of a head, from what enters the sublayer and from its weights."""

    def take(name):
        place = f"which={which}&layer={layer}&head={head}&dtype=f32"
        return studio.numbers(f"/api/trace/{trace['id']}/tensor?name={name}&{place}").astype(np.float64)

    inputs = take("normed")
    source = take("source") if which == "cross" else inputs
    q = take("W_q") @ inputs[query - 1] + take("bias_q")
    k, v = source @ take("W_k").T + take("bias_k"), source @ take("W_v").T + take("bias_v")
    scores = k @ q
    scaled = scores / np.sqrt(len(q))
    masked = np.where(take("allowed")[query - 1] > 0, scaled, -np.inf)
    powers = np.exp(masked - masked.max())
    weights = powers / powers.sum()
    weighted = weights[:, None] * v
    rows = {"q": q, "scores": scores, "scaled": scaled, "masked": masked, "exp": powers, "weights": weights}
    rows |= {"output": weighted.sum(0)}
    return {name: {query: row} for name, row in rows.items()} | {
        name: dict(enumerate(table, 1)) for name, table in {"k": k, "v": v, "weighted": weighted}.items()
    }


def number(text):
    """The number that a person reads, and half of its last digit."""
    text = text.split("\n")[-1].replace("\N{MINUS SIGN}", "-")
    if not re.fullmatch(r"-?\d+(\.\d+)?", text):
        return None
    return float(text), 0.5 * 10.0 ** -len(text.partition(".")[2])


@pytest.mark.parametrize("model", ["demo", "gpt2"])
def test_numbers_of_random_heads_are_those_of_float64(studio, open_page, model):
    rng = random.Random(model)
    text = "Their small cat was a fast animal."
    trace = studio.trace(model, text)
    page = open_page(studio)
    show(page, "step", studio, run=studio.id(model), text=text)
    for _ in range(2):
        which = rng.choice([which for which in trace["kinds"] if which in ("cross", "self")])
        kind = trace["kinds"][which]
        layer, head = rng.randint(1, kind["layers"]), rng.randint(1, kind["heads"])
        query = rng.randint(1, len(kind["down"]))
        derived = in_float64(studio, trace, which, layer, head, query)
        compared = dict.fromkeys(DERIVED, 0)
        for station in range(2, 9):
            at = {"head": f"{which}.{layer}.{head}", "query": str(query), "step": str(station), "all": "1"}
            show(page, "step", run=studio.id(model), text=text, **at)
            for origin, shown in page.evaluate(READ):
                found = FROM.match(origin)
                if found is None or found["name"] not in derived or (read := number(shown)) is None:
                    continue
                value = derived[found["name"]][int(found["row"])][int(found["column"]) - 1]
                assert abs(value - read[0]) <= read[1] + 1e-5 * max(1, abs(value)), (origin, shown, value)
                compared[found["name"]] += 1
        assert min(compared.values()) > 0, compared


def test_the_map_shows_the_bytes_that_came_and_they_are_the_models_weights(studio, open_page):
    trace = studio.trace("demo", "Their small cat was a fast animal.")
    page = open_page(studio)
    show(page, "heads", studio, run=studio.id("demo"), text=trace["text"], head="cross.1.2", scale="linear")
    address = f"/api/trace/{trace['id']}/tensor?name=weights&which=cross&layer=1&head=2&dtype="
    exact, half = (studio.numbers(address + kind).astype(float) for kind in ("f32", "f16"))
    assert np.abs(half - exact).max() <= 2.0**-11
    thumbs = studio.numbers(f"/api/trace/{trace['id']}/thumbs?which=cross")[0, 1]
    assert thumbs.shape == exact.shape  # a short text is not pooled
    assert np.abs(thumbs / 255 - exact).max() <= 0.5 / 255 + 1e-6
    light = np.array(page.evaluate(PAINTED, exact.shape)).ravel()[np.argsort(half.ravel(), kind="stable")]
    assert (np.diff(light) <= 0).all() and light[0] > light[-1] + 50  # larger weights are never lighter
