// The page: a text goes in, what the model does with it comes out, token by token.
import { headScores, labelScores, probed, tokenScores } from './answers.js';
import { attentionView } from './attention_map.js';
import { rowOf } from './model.js';
import { beam, likeliest, longestOf, sampler, shares, write } from './search.js';
import { bars, chips, choose, el, labeled, number, pause, percent, score, select, valueOf, visible } from './views.js';

const TOP = 6; // alternatives of a token
const MAPPED = 96; // tokens of a map
const CLOSE = 1e-4; // of the largest number, between two machines
const VERBS = { translate: 'Translate', generate: 'Continue', classify: 'Classify', fill: 'Fill in', look: 'Read' };
const SHELLS = {
  EncoderDecoder: 'encoder-decoder', Decoder: 'decoder', DecoderClassifier: 'decoder that classifies',
  WithHeads: 'encoder', Encoder: 'encoder',
};

/** Draw the page of an opened model. */
export function start(opened, story) {
  const page = new Page(opened, story);
  document.title = `${story.name ?? 'A model'}: ${VERBS[opened.spec.does].toLowerCase()}`;
  document.getElementById('main').replaceChildren(...page.parts());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => page.attention.redraw());
  return opened;
}

class Page {
  constructor({ spec, net }, story) {
    Object.assign(this, { spec, net, story, stopped: false, running: false });
    this.attention = attentionView(net, spec);
    this.text = el('textarea', { rows: '3', spellcheck: 'false', autocomplete: 'off', placeholder: this.hint() });
    this.go = el('button', { type: 'submit', class: 'primary' }, VERBS[spec.does]);
    this.stop = el('button', { type: 'button', disabled: true, onclick: () => { this.stopped = true; } }, 'Stop');
    this.note = el('p', { class: 'note', role: 'status' });
    this.output = el('div', { class: 'output', 'aria-live': 'polite' });
    this.tokens = el('div', { class: 'tokens' });
    this.writes = spec.does === 'translate' || spec.does === 'generate';
    this.options = this.writes ? this.searchOptions() : null;
  }

  hint() {
    if (this.story.example) return this.story.example;
    return { fill: 'The [MASK] sat on the mat.', generate: 'Once upon a time' }[this.spec.does] ?? 'A text';
  }

  /** A text to begin with, for whoever does not know what the model was trained on. */
  example() {
    if (!this.story.example) return null;
    const onclick = () => { this.text.value = this.story.example; this.text.focus(); };
    return el('button', { type: 'button', onclick }, 'Example');
  }

  /** How a model of conversations wants its text: the page does not know chat templates. */
  conversation() {
    const { question, whole } = this.story.conversations ?? {};
    if (!question) return null;
    const written = this.spec.does === 'classify' ? whole : question;
    const said = 'This model was trained on conversations. Write the text as in this example:';
    return el('div', { class: 'conversation' }, el('p', { class: 'hint' }, said), el('code', {}, written));
  }

  parts() {
    const onsubmit = (event) => { event.preventDefault(); this.run(); };
    const form = el('form', { class: 'card', novalidate: true, onsubmit },
      labeled('Text', this.text), this.conversation(), this.options,
      el('div', { class: 'row' }, this.go, this.stop, this.example(),
        el('span', { class: 'hint' }, 'Ctrl + Enter')), this.note);
    this.text.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) this.run();
      if (event.key === 'Escape') this.stopped = true;
    });
    this.result = el('section', { class: 'card', 'aria-labelledby': 'output-title' },
      el('h2', { id: 'output-title' }, 'Output'), this.output, this.tokens);
    this.result.hidden = true;
    this.attention.view.classList.add('card');
    this.stop.hidden = !this.writes;
    return [this.header(), form, this.result, this.attention.view, this.footer()];
  }

  // What the model is.

  header() {
    const { story, spec } = this;
    const size = spec.tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    const said = [
      `${story.architecture ?? 'A model'}, ${SHELLS[spec.model.shell]} of ${size.toLocaleString('en')} weights`,
      story.weights ? `stored as ${story.weights}` : '',
      story.trained ? `trained: ${story.trained}` : '',
    ];
    return el('header', {}, el('h1', {}, story.name ?? 'A model'),
      el('p', { class: 'about' }, said.filter(Boolean).join('; ')), this.certificate());
  }

  certificate() {
    const { verdict, checks = [], compared_in: engine = '', faults = [] } = this.story;
    if (!verdict) return null;
    const good = verdict !== 'different' && verdict !== 'not checked';
    const line = {
      different: 'Differs from the model in Python', 'not checked': 'Not compared with the model in Python',
    };
    const text = line[verdict] ?? `Compared with the model in Python: ${verdict}`;
    return el('details', { class: good ? 'certificate good' : 'certificate' }, el('summary', {}, text),
      el('ul', {}, ...[...faults, ...checks].map((one) => el('li', {}, one))),
      engine ? el('p', { class: 'hint' }, `Compared by running this page in ${engine}.`) : null,
      this.selfCheck());
  }

  /** A button that compares this browser with Python, by the inputs that the page brings. */
  selfCheck() {
    const { probe = [] } = this.story;
    if (!probe.length) return null;
    const result = el('span', { role: 'status' });
    const check = () => {
      const apart = probed(this.net, this.spec, probe);
      const said = apart <= CLOSE ? 'This browser computes the same' : 'This browser computes something else';
      const most = apart.toExponential(1);
      result.textContent = `${said}: ${probe.length} inputs differ by at most ${most} of their scale.`;
    };
    const button = el('button', { type: 'button', onclick: check }, 'Check in this browser');
    return el('div', { class: 'row' }, button, result);
  }

  footer() {
    const made = this.story.made ? `Made by ${this.story.made}. ` : '';
    return el('footer', {}, `${made}This page computes with ${this.net.kernels.name} and sends nothing anywhere.`);
  }

  // Options.

  searchOptions() {
    const first = this.spec.does === 'translate' ? 'beam' : 'greedy';
    const methods = [['greedy', 'Greedy'], ['sample', 'Sampling'], ['beam', 'Beam search']];
    this.how = {
      method: select(methods, first, () => this.showFields()),
      longest: number(this.spec.does === 'translate' ? 60 : 100, { min: 1, max: 1000 }),
      temperature: number(1, { min: 0.05, max: 5, step: 0.05 }),
      top_k: number(0, { min: 0, max: 100000 }),
      top_p: number(1, { min: 0.05, max: 1, step: 0.05 }),
      seed: number(0, { min: 0, max: 4294967295 }),
      width: number(4, { min: 1, max: 16 }),
      length_alpha: number(0.6, { min: 0, max: 5, step: 0.1 }),
    };
    const { how } = this;
    this.fields = {
      sample: el('div', { class: 'row' }, labeled('Temperature', how.temperature, 'Below 1 favors likely tokens'),
        labeled('Top-k', how.top_k, '0 means all'), labeled('Top-p', how.top_p), labeled('Seed', how.seed)),
      beam: el('div', { class: 'row' }, labeled('Beams', how.width),
        labeled('Length penalty', how.length_alpha, 'alpha')),
    };
    this.showFields();
    return el('div', { class: 'options' },
      el('div', { class: 'row' }, labeled('Method', how.method), labeled('Tokens at most', how.longest)),
      this.fields.sample, this.fields.beam);
  }

  showFields() {
    for (const [name, row] of Object.entries(this.fields)) row.hidden = name !== this.how.method.value;
  }

  /** The options. A value that a field cannot have is changed, and a note says so. */
  values() {
    const found = Object.entries(this.how).filter(([name]) => name !== 'method');
    return Object.fromEntries(found.map(([name, input]) => {
      const [typed, taken] = [input.value, valueOf(input)];
      if (input.value !== typed && !input.closest('[hidden]')) {
        const range = `${input.step === '1' ? 'a whole number ' : ''}from ${input.min} to ${input.max}`;
        this.note.append(`${input.labels[0].textContent} is ${range}: ${taken} was taken. `);
      }
      return [name, taken];
    }));
  }

  // A run.

  async run() {
    if (this.running) return;
    this.running = true;
    this.stopped = false;
    this.stop.disabled = false;
    this.go.disabled = true;
    this.note.textContent = '';
    try {
      const ids = this.read();
      if (ids) await this[this.spec.does](ids);
    } catch (error) {
      this.note.textContent = `This did not work: ${error.message}`;
    }
    this.running = false;
    this.stop.disabled = true;
    this.go.disabled = false;
  }

  /** The numbers of the text, or nothing and a note that says why. */
  read() {
    const reader = this.spec.readers[0];
    const open = this.spec.does === 'generate';
    let ids = this.spec.does === 'fill' ? this.blanked(reader) : reader.encodeWhole(this.text.value, open);
    if (open && !ids.length) ids = this.spec.begin;
    const unknown = reader.numbers.get(reader.spec.model.unk_token);
    const odd = ids.filter((id) => id === unknown).length;
    const limit = longestOf(this.net.model.encoder ?? this.net.model.decoder);
    if (!ids.length || (!this.text.value.trim() && !open)) this.note.textContent = 'Write a text first.';
    else if (limit !== null && ids.length > limit && !open) {
      this.note.textContent = `The text has ${ids.length} tokens, and the model reads at most ${limit}: shorten it.`;
    } else {
      if (odd) this.note.textContent = `${odd} of ${ids.length} tokens are unknown to the model. `;
      return ids;
    }
    this.show(null);
    return null;
  }

  /** Show a result with the tokens that were read and written, or hide all of it. */
  show(run) {
    this.result.hidden = !run;
    this.attention.show(run && this.mapped(run));
  }

  words(ids, side = 0) {
    const reader = this.spec.readers[Math.min(side, this.spec.readers.length - 1)];
    return ids.map((id) => reader.word(id));
  }

  /** What a map shows: numbers to compute it, and words beside it. */
  mapped({ ids, target, whole = Math.max(ids.length, target?.length ?? 0) }) {
    const { encoder } = this.net.model;
    const written = (target ?? ids).slice(0, MAPPED);
    const source = encoder ? ids.slice(0, MAPPED) : [];
    const kept = Math.max(source.length, written.length);
    const end = this.spec.does === 'generate' ? 'last' : 'first';
    return {
      cut: kept < whole ? `For the map, the model reads the ${end} ${kept} of ${whole} tokens only.` : '',
      ids: encoder ? source : written, target: encoder && target ? written : null,
      source: this.words(source), written: this.words(written, 1),
    };
  }

  async translate(ids) {
    const { method } = this.how;
    const found = method.value === 'beam' ? await this.search(ids) : await this.stream(ids);
    const start = this.spec.start;
    this.show({ ids, target: [start, ...found.filter((token) => !this.spec.ends.includes(token))] });
  }

  async generate(ids) {
    const found = this.how.method.value === 'beam' ? await this.search(ids) : await this.stream(ids);
    const limit = longestOf(this.net.model.decoder) ?? Infinity;
    const all = [...ids, ...found];
    this.show({ ids: all.slice(-Math.min(MAPPED, limit)), whole: all.length });
  }

  /** Token by token. */
  async stream(ids) {
    const values = this.values();
    const pick = this.how.method.value === 'sample' ? sampler(values) : likeliest;
    const pieces = [];
    this.result.hidden = false;
    this.tokens.replaceChildren();
    this.attention.show(null);
    let last = performance.now();
    const began = last;
    for (const piece of write(this.net, this.spec, ids, { longest: values.longest, choose: pick, top: TOP })) {
      pieces.push(piece);
      if (performance.now() - last > 12) {
        this.say(ids, pieces.map((one) => one.token));
        await pause();
        last = performance.now();
        if (this.stopped) break;
      }
    }
    this.say(ids, pieces.map((one) => one.token));
    const speed = (1000 * pieces.length) / (performance.now() - began);
    this.showTokens(pieces, `${pieces.length} token${pieces.length === 1 ? '' : 's'}, ${Math.round(speed)} a second`);
    return pieces.map((one) => one.token);
  }

  /** The text so far; a continuation stands after its prompt. */
  say(ids, tokens) {
    const reader = this.spec.readers[this.spec.readers.length - 1];
    if (this.spec.does !== 'generate') this.output.replaceChildren(reader.decode(tokens));
    else {
      const before = reader.decode(ids);
      const whole = reader.decode([...ids, ...tokens]);
      const added = el('span', {}, whole.slice(before.length));
      this.output.replaceChildren(el('span', { class: 'prompt' }, before), added);
    }
  }

  /** Beam search, with its hypotheses below the best one. */
  async search(ids) {
    const values = this.values();
    const how = { ...values, length_penalty: 'gnmt', stopping: 'heuristic' };
    const search = beam(this.net, this.spec, ids, how);
    this.result.hidden = false;
    this.tokens.replaceChildren();
    let step = search.next();
    while (!step.done && !this.stopped) {
      this.say(ids, step.value.filter((token) => !this.spec.ends.includes(token)));
      await pause();
      step = search.next();
    }
    if (!step.done) return step.value;
    const [best] = step.value;
    this.say(ids, best.tokens);
    this.showTokens(this.measured(ids, best.tokens), `${step.value.length} hypotheses`);
    const reader = this.spec.readers[this.spec.readers.length - 1];
    const rows = step.value.map((one) =>
      el('li', {}, reader.decode(one.tokens), el('span', { class: 'share' }, score(one.score))));
    this.tokens.append(el('h3', {}, 'Hypotheses and their scores'), el('ol', { class: 'hypotheses' }, ...rows));
    return best.tokens;
  }

  /** The shares of tokens that are known already. */
  measured(ids, tokens) {
    const { encoder } = this.net.model;
    const before = encoder ? [this.spec.start] : ids;
    const scores = tokenScores(this.net, this.spec, ids, [...before, ...tokens].slice(0, -1));
    return tokens.map((token, i) => ({ token, ...shares(scores[before.length - 1 + i], token, TOP) }));
  }

  showTokens(pieces, said) {
    const panel = el('div', { class: 'alternatives', 'aria-live': 'polite' });
    const words = this.words(pieces.map((one) => one.token), 1);
    const pick = (i) => {
      choose(row, i);
      const rows = pieces[i].top.map(([token, share]) => [visible(this.words([token], 1)[0]), share]);
      const title = el('h3', {}, `In the place of “${visible(words[i])}”`);
      panel.replaceChildren(title, bars('Most likely tokens', rows));
    };
    const row = chips(words, pieces.map((one) => one.share), pick);
    const hint = `${said}. Choose a token to see what else could stand there.`;
    this.tokens.replaceChildren(el('p', { class: 'hint' }, hint), row, panel);
    if (pieces.length) pick(0);
  }

  // Models that read only.

  async classify(ids) {
    const { model } = this.net;
    const { net } = this;
    const scores = model.linear ? labelScores(net, ids) : rowOf(net, headScores(net, ids).classify, 0);
    const names = Array.from(scores, (_, i) => this.spec.labels[i] ?? String(i));
    const rows = names.map((name, i) => [name, probability(this.spec.scores, scores, i)]);
    rows.sort((a, b) => b[1] - a[1]);
    const plain = this.spec.scores === 'none';
    const listed = rows.map(([name, score]) => `${name}: ${score.toFixed(3)}`).join(', ');
    this.output.replaceChildren(plain ? listed : rows[0][0]);
    this.tokens.replaceChildren(...(plain ? [] : [bars('Labels', rows)]));
    this.show({ ids });
  }

  /** Numbers of a text with blanks: the tokenizer's mask stands for each. */
  blanked(reader) {
    const pieces = this.text.value.split('[MASK]');
    const carries = reader.spec.decoder?.type === 'ByteLevel';
    const ids = pieces.flatMap((piece, i) => {
      const text = carries && i + 1 < pieces.length ? piece.replace(/ $/, '') : piece;
      const found = i && reader.spec.spaced_words ? reader.encode(`,${text}`).slice(1) : reader.encode(text);
      return i ? [this.spec.mask, ...found] : found;
    });
    return [...reader.spec.before, ...ids, ...reader.spec.after];
  }

  async fill(ids) {
    const places = [...ids.keys()].filter((i) => ids[i] === this.spec.mask);
    if (!places.length) {
      this.note.textContent = 'Write [MASK] where a word is missing.';
      return this.show(null);
    }
    const { masked_lm: found } = headScores(this.net, ids);
    const rows = places.map((place) => {
      const scores = rowOf(this.net, found, place);
      return shares(scores, likeliest(scores), TOP).top;
    });
    const words = rows.map((row) => visible(this.words([row[0][0]])[0]).replace(/^##/, ''));
    const whole = this.text.value.split('[MASK]').map((piece, i) => (i ? words[i - 1] + piece : piece)).join('');
    this.output.replaceChildren(whole);
    this.tokens.replaceChildren(...rows.map((row, i) => el('div', {},
      el('h3', {}, `Blank ${i + 1}: ${percent(row[0][1])}`),
      bars(`Words of blank ${i + 1}`, row.map(([token, share]) => [visible(this.words([token])[0]), share])))));
    return this.show({ ids });
  }

  async look(ids) {
    this.output.replaceChildren(`${ids.length} tokens`);
    this.tokens.replaceChildren();
    this.show({ ids });
  }
}

/** What a score of a label means. */
function probability(kind, scores, i) {
  if (kind === 'softmax') return shares(scores, i, 1).share;
  return kind === 'sigmoid' ? 1 / (1 + Math.exp(-scores[i])) : scores[i];
}
