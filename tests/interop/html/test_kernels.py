"""The kernels: the assembled file is that of its text, and plain JavaScript computes the same."""

import json
import subprocess

import pytest
from helpers.html_cases import need

from heedful.interop.html.page import STATIC, code

SIZES = [(1, 1, 1), (3, 5, 2), (4, 4, 1), (7, 19, 3), (8, 16, 4), (5, 64, 5), (13, 33, 7)]
DRIVER = """
const { readFileSync } = await import('node:fs');
const wasm = new Uint8Array(readFileSync(%r));
const both = [await openKernels(wasm), await openKernels(null)];
if (both[0].name !== 'WebAssembly' || both[1].name !== 'JavaScript') throw new Error('kernels are not both');
const roll = rolls(7);
const random = (n) => Float32Array.from({ length: n }, () => 2 * roll() - 1);
const whole = (n) => Int8Array.from({ length: n }, () => Math.round(254 * roll() - 127));
const put = (k, numbers) => {
  const at = k.take(numbers.byteLength + 16);
  (numbers instanceof Int8Array ? k.i8.set(numbers, at) : k.f32.set(numbers, at / 4));
  return at;
};
const apart = (a, b) => Math.max(...a.map((x, i) => Math.abs(x - b[i])));
const worst = {};
const note = (name, found) => { worst[name] = Math.max(worst[name] ?? 0, apart(...found)); };
for (const [R, C, T] of %s) {
  const [w, x, i, s, bias] = [random(R * C), random(T * C), whole(R * C), random(R), random(R)];
  bias[R - 1] = R > 1 ? -Infinity : 0;
  const out = (k, size, run) => {
    const at = k.take(4 * size + 16);
    run(at);
    return k.f32.slice(at / 4, at / 4 + size);
  };
  note('product', both.map((k) => {
    const [W, X] = [put(k, w), put(k, x)];
    return out(k, R * T, (y) => k.product(W, X, y, R, C, T));
  }));
  note('product8', both.map((k) => {
    const [W, S, X] = [put(k, i), put(k, s), put(k, x)];
    return out(k, R * T, (y) => k.product8(W, S, X, y, R, C, T));
  }));
  note('softmax', both.map((k) => {
    const [X, B] = [put(k, s), put(k, bias)];
    k.softmax(X, B, R, 3);
    return k.f32.slice(X / 4, X / 4 + R);
  }));
  note('nothing', both.map((k) => {
    const [X, B] = [put(k, s), put(k, s.map(() => -Infinity))];
    k.softmax(X, B, R, 1);
    return k.f32.slice(X / 4, X / 4 + R).map((share) => (share === 0 ? 0 : NaN));
  }));
  note('mix', both.map((k) => {
    const [S, W] = [put(k, s), put(k, w)];
    return out(k, C, (y) => k.mix(S, W, y, R, C));
  }));
  note('attend', both.map((k) => {
    const [Q, K, B] = [put(k, x), put(k, w), put(k, bias)];
    const V = put(k, w);
    const shares = k.take(4 * R + 16);
    return out(k, C, (y) => k.attend(Q, K, V, B, shares, y, R, C, C, 0.5));
  }));
}
console.log(JSON.stringify(worst));
"""


def test_the_assembled_kernels_are_those_of_the_text(tmp_path):
    program = need("wat2wasm")
    subprocess.run([program, str(STATIC / "kernels.wat"), "-o", str(tmp_path / "kernels.wasm")], check=True)
    assert (tmp_path / "kernels.wasm").read_bytes() == (STATIC / "kernels.wasm").read_bytes()


@pytest.fixture(scope="module")
def worst(tmp_path_factory):
    """{kernel: the largest difference between WebAssembly and plain JavaScript over all sizes}."""
    script = tmp_path_factory.mktemp("kernels") / "both.mjs"
    script.write_text(code() + DRIVER % (str(STATIC / "kernels.wasm"), json.dumps(SIZES)))
    done = subprocess.run([need("node"), str(script)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("kernel", ["product", "product8", "softmax", "mix", "attend", "nothing"])
def test_both_kernels_compute_the_same(worst, kernel):
    limit = 2e-3 if kernel == "product8" else 5e-6  # int8 products are up to 127 x 33
    assert worst[kernel] is not None and worst[kernel] <= limit


def test_all_scripts_share_one_place():
    """They are put together without imports; Node refuses a name that is declared twice."""
    text = code()
    assert "import " not in text.replace("await import(", "") and "\nexport " not in text


def test_scripts_are_short():
    for path in STATIC.glob("*.js"):
        lines = path.read_text().splitlines()
        assert len(lines) <= 400 and max(map(len, lines)) <= 120, path.name
