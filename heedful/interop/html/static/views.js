// Views: small elements. Text only ever goes in as text, never as markup.

/** An element with attributes, listeners (`onclick`) and children, which are elements or texts. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, '');
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A control with its label. */
export function labeled(text, control, hint = '') {
  control.id ||= `control-${labeled.count++}`;
  return el('div', { class: 'field' }, el('label', { for: control.id, title: hint }, text), control);
}
labeled.count = 0;

export function select(options, value, onchange) {
  const made = el('select', { onchange: () => onchange(made.value) });
  for (const [key, text] of options) made.append(el('option', { value: key, selected: key === value }, text));
  return made;
}

export function number(value, { min, max, step = 1 }) {
  return el('input', { type: 'number', inputmode: step < 1 ? 'decimal' : 'numeric', value, min, max, step });
}

/** A number field's value within its range; its first value where it holds none. The field shows what is taken. */
export function valueOf(input) {
  const found = input.value === '' ? Number.NaN : Number(input.value);
  const safe = Number.isFinite(found) ? found : Number(input.defaultValue);
  const whole = input.step === '1' ? Math.round(safe) : safe;
  const taken = Math.min(Number(input.max), Math.max(Number(input.min), whole));
  if (taken !== found) input.value = String(taken);
  return taken;
}

/** A score with two digits, and zero without a sign. */
export const score = (number) => number.toFixed(2).replace(/^-(0\.00)$/, '$1');

export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

/** A token as it can be seen: spaces and line ends have signs. */
export const visible = (word) => word.replace(/\n/g, '↵').replace(/^ (?=.)/, '').replace(/^\s+$/, '␣') || '∅';

/** Rows of a name and a share, each with a bar. */
export function bars(title, rows) {
  const list = el('ol', { class: 'bars', 'aria-label': title });
  for (const [name, share] of rows) {
    const bar = el('span', { class: 'bar', 'aria-hidden': 'true' });
    bar.style.setProperty('--share', String(Math.max(0, Math.min(1, share))));
    const said = el('span', { class: 'share' }, percent(share));
    list.append(el('li', {}, bar, el('span', { class: 'name' }, name), said));
  }
  return list;
}

/** Tokens as buttons, shaded by their probability. onpick: given the place of a token. */
export function chips(words, shares, onpick) {
  const row = el('div', { class: 'chips', role: 'group', 'aria-label': 'Tokens of the output' });
  words.forEach((word, i) => {
    const said = `${visible(word)}: ${percent(shares[i])}`;
    const chip = el('button', { type: 'button', class: 'chip', 'aria-label': said, title: said }, visible(word));
    chip.style.setProperty('--share', String(shares[i]));
    chip.addEventListener('click', () => onpick(i));
    row.append(chip);
  });
  return row;
}

/** Mark one of several buttons as the chosen one. */
export function choose(group, index) {
  [...group.children].forEach((one, i) => one.setAttribute('aria-pressed', String(i === index)));
}

/** Let the browser draw and listen. */
export function pause() {
  return new Promise((resume) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resume();
    };
    port2.postMessage(null);
  });
}
