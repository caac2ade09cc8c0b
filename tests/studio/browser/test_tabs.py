"""Two tabs on one studio: what one of them ends, the other does not notice."""

import pytest
from helpers.studio_browser import differences, show, snapshot, studio_process

pytestmark = pytest.mark.browser
# Ask for a stream, and read it to its end or, with `most`, up to some pieces.
READ = """async ([path, body, most]) => {
  const control = new AbortController();
  const options = { method: 'POST', headers: { 'content-type': 'application/json' }, signal: control.signal };
  const answer = await fetch(path, { ...options, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (let n = 0; ; n += 1) {
    const { value, done } = await reader.read();
    if (done) return text.split('\\n').filter((line) => line.startsWith('data: '));
    text += value;
    if (most && n + 1 >= most) {
      control.abort();
      return 'cancelled';
    }
  }
}"""
START = f"(given) => {{ window.result = ({READ})(given); }}"
JOB = """async (body) => {
  const headers = { 'content-type': 'application/json' };
  const started = await fetch('/api/jobs', { method: 'POST', headers, body: JSON.stringify(body) });
  const { id } = await started.json();
  const ended = await fetch(`/api/jobs/${id}`, { method: 'DELETE', headers, body: '{}' });
  return [ended.status, (await (await fetch('/api/jobs')).json()).jobs.at(-1).state];
}"""


def test_what_one_tab_cancels_leaves_the_other_alone(stored, open_page, tmp_path):
    with studio_process(str(stored / "demo"), "--runs", str(tmp_path), log=tmp_path / "log") as (studio, _):
        run = studio.id("demo")
        text = "Their small cat was a fast animal."
        one, other = open_page(studio), open_page(studio)
        show(one, "heads", studio, run=run, text=text, head="cross.2.1")
        seen = snapshot(one)
        write = {"run": run, "text": text, "top": 3}
        alone = one.evaluate(READ, ["/api/write", write, 0])
        assert len(alone) > 5

        show(other, "heads", studio, run=run, text="My aunts are curious.")
        one.evaluate(START, ["/api/write", write, 0])
        cancelled = {**write, "text": "My aunts are curious and my small cat was a fast animal."}
        assert other.evaluate(READ, ["/api/write", cancelled, 1]) == "cancelled"
        assert other.evaluate(JOB, {"kind": "ablate", "run": run, "count": 64}) == [200, "cancelled"]
        assert one.evaluate("result") == alone

        show(one, "heads", run=run, text=text, head="cross.1.1")
        one.evaluate(START, ["/api/write", write, 0])
        other.evaluate(START, ["/api/write", cancelled, 0])
        other.close()  # in the midst of it
        assert one.evaluate("result") == alone
        show(one, "heads", run=run, text=text, head="cross.2.1")
        assert differences(seen, snapshot(one)) == {}
        assert studio.get("/api/runs").json["runs"][0]["worker"]["state"] == "ready"
