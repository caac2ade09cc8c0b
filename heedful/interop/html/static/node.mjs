// Runs a page without a browser: node node.mjs PAGE [plain]. Questions come as lines of JSON, and answers leave.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [, , page, script, how] = process.argv;
const html = readFileSync(page, 'utf8');
const blocks = new Map();
for (const [, attributes, content] of html.matchAll(/<script ([^>]*)>([^]*?)<\/script>/g)) {
  const id = /id="([a-z]+)"/.exec(attributes);
  if (id) blocks.set(id[1], content);
}
writeFileSync(script, blocks.get('code'));
try {
  await import(pathToFileURL(script));
} finally {
  rmSync(script);
}
const opened = await globalThis.openHeedful((name) => blocks.get(name), how === 'plain');
for await (const line of createInterface({ input: process.stdin })) {
  let reply;
  try {
    reply = { answer: JSON.parse(opened.ask(line)) };
  } catch (error) {
    reply = { fault: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
