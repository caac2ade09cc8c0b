// Main: opens the model of the page. `heedful.ask` answers questions by numbers; `start` draws the page.
import { answer } from './answers.js';
import { openNet } from './model.js';
import { start } from './page.js';
import { Tokenizer } from './tokens.js';
import { fromBase64 } from './weights.js';

/** The model of the blocks of a page. block: the text of one by its name; plain: without WebAssembly. */
export async function openPage(block, plain = false) {
  const spec = JSON.parse(block('spec'));
  const net = await openNet(spec, block('weights'), fromBase64(block('kernels')), plain);
  spec.readers = spec.tokenizers.map((one) => new Tokenizer(one));
  return { spec, net, ask: (question) => JSON.stringify(answer(net, spec, JSON.parse(question))) };
}

globalThis.openHeedful = openPage;
if (globalThis.document) {
  const block = (name) => document.getElementById(name).textContent;
  globalThis.heedful = openPage(block).then((opened) => start(opened, JSON.parse(block('story'))));
}
