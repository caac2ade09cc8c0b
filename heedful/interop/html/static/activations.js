// Activations, by the names of heedful/parts/layers.py.

const ROOT_HALF = Math.SQRT1_2;
const ROOT_2_OVER_PI = Math.sqrt(2 / Math.PI);
// 1 - erf(|x|) = t exp(-x^2 + p(t)) for t = 1 / (1 + |x| / 2), to 1.2e-7 (Press et al., Numerical Recipes, 6.2).
const ERFC = [
  -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
  0.17087277,
];

/** 1 minus the error function. */
export function erfc(x) {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  let p = 0;
  for (let i = ERFC.length - 1; i >= 0; i--) p = p * t + ERFC[i];
  const found = t * Math.exp(-x * x + p);
  return x >= 0 ? found : 2 - found;
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

export const ACTIVATIONS = {
  relu: (x) => (x > 0 ? x : 0),
  relu_squared: (x) => (x > 0 ? x * x : 0),
  gelu: (x) => 0.5 * x * erfc(-x * ROOT_HALF),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(ROOT_2_OVER_PI * (x + 0.044715 * x * x * x))),
  gelu_sigmoid: (x) => x * sigmoid(1.702 * x),
  silu: (x) => x * sigmoid(x),
  tanh: Math.tanh,
};
