"""Pages of other sites, in the browser that is logged in, neither read from the studio nor write to it."""

import http.server
import json
import threading

import pytest
from helpers.studio_browser import EVIL, PATIENCE, log_in, without_own_guard
from helpers.studio_cases import local_studio

from heedful.studio import server

pytestmark = pytest.mark.browser
# What a hostile page tries. Each answers what it could read: a text, or null where it was kept out.
ATTACKS = {
    "reads": """async (studio) => {
      const answer = await fetch(`${studio}/api/runs`, { credentials: 'include' });
      return answer.text();
    }""",
    "reads without cors": """async (studio) => {
      const answer = await fetch(`${studio}/api/runs`, { mode: 'no-cors', credentials: 'include' });
      return (await answer.text()) || null;
    }""",
    "reads a file of the page": """async (studio) => (await fetch(`${studio}/static/main.js`)).text()""",
    "writes": """async (studio, body) => {
      const headers = { 'content-type': 'application/json' };
      const options = { method: 'POST', credentials: 'include', headers, body };
      return (await fetch(`${studio}/api/jobs`, options)).text();
    }""",
    "writes without cors": """async (studio, body) => {
      const options = { method: 'POST', mode: 'no-cors', credentials: 'include', body };
      return (await (await fetch(`${studio}/api/jobs`, options)).text()) || null;
    }""",
    "sends a beacon": """async (studio, body) => {
      navigator.sendBeacon(`${studio}/api/jobs`, new Blob([body], { type: 'text/plain' }));
      return null;
    }""",
    "sends a form": """async (studio, body) => {
      const frame = Object.assign(document.createElement('iframe'), { name: 'target' });
      const form = Object.assign(document.createElement('form'), {
        action: `${studio}/api/jobs`, method: 'POST', enctype: 'text/plain', target: 'target' });
      form.append(Object.assign(document.createElement('input'), { name: body, value: '' }));
      const loaded = new Promise((done) => { frame.onload = done; });
      document.body.append(frame, form);
      form.submit();
      await loaded;
      return frame.contentDocument?.body?.textContent || null;
    }""",
    "shows an image": """(studio) => new Promise((done) => {
      const image = new Image();
      image.onload = () => done(`${image.width}`);
      image.onerror = () => done(null);
      image.src = `${studio}/api/runs`;
    })""",
    "runs a script": """(studio) => new Promise((done) => {
      const script = document.createElement('script');
      script.onload = () => done('ran');
      script.onerror = () => done(null);
      script.src = `${studio}/static/registry.js`;
      script.type = 'module';
      document.body.append(script);
    })""",
    "frames the page": """(studio) => new Promise((done) => {
      const frame = document.createElement('iframe');
      frame.onload = () => {
        try {
          done(frame.contentDocument.querySelector('#studio') && 'framed');
        } catch {
          done(null);
        }
      };
      frame.src = `${studio}/`;
      document.body.append(frame);
    })""",
    "listens to events": """(studio) => new Promise((done) => {
      const source = new EventSource(`${studio}/api/events`, { withCredentials: true });
      source.onmessage = ({ data }) => done(data);
      source.onerror = () => { source.close(); done(null); };
    })""",
    "opens a socket": """(studio) => new Promise((done) => {
      const socket = new WebSocket(`${studio.replace('http', 'ws')}/api/events`);
      socket.onopen = () => done('open');
      socket.onerror = () => done(null);
    })""",
}
TRY = """async ([attack, studio, body]) => {
  try {
    return await (0, eval)(attack)(studio, body);
  } catch (error) {
    return null;
  }
}"""
ORIGINS = ["http://127.0.0.1:{}", "http://localhost:{}", f"http://{EVIL}:{{}}", "null"]


ASK = """async ([path, options]) => {
  const answer = await fetch(path, options);
  return [answer.status, await answer.text()];
}"""
HOSTILE = {"status": 200, "content_type": "text/html", "body": "<!doctype html><title>elsewhere</title>"}


class Page(http.server.BaseHTTPRequestHandler):
    """A page of another site."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><link rel=icon href=data:,><p>hello")

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def elsewhere():
    """The port of another site on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def heard():
    """(method, status) of every request that the studio answered."""
    return []


@pytest.fixture(scope="module")
def studio(browser, stored, heard):
    """A studio that notes what it answers: a browser does not tell of answers that it keeps from a page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            server, "note_refusals", lambda **facts: heard.append((facts["method"], facts["status"]))
        )
        with local_studio(stored) as client:
            yield client


@pytest.fixture(scope="module")
def body(studio):
    """What an attacker would like to have done."""
    return json.dumps({"kind": "doctor", "run": studio.id("demo")})


@pytest.fixture
def logged_in(browser, studio, heard):
    """A context with the studio's cookie."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    log_in(context, studio)
    heard.clear()
    yield context
    context.close()


def state(studio):
    """What a request could have changed."""
    kept = studio.studio
    jobs = [(job.id, job.state) for job in kept.jobs.found.values()]
    return jobs, list(kept.traces), sorted(kept.service.workers)


@pytest.mark.parametrize("origin", ORIGINS)
def test_other_sites_read_and_write_nothing(studio, elsewhere, body, logged_in, heard, tmp_path, origin):
    page = logged_in.new_page()
    if origin == "null":  # a file on the disk
        (tmp_path / "page.html").write_text("<!doctype html><title>elsewhere</title><p>hello")
        page.goto((tmp_path / "page.html").as_uri())
    else:
        page.goto(origin.format(elsewhere))
    before = state(studio)
    heard.clear()
    reads = {name: page.evaluate(TRY, [attack, studio.address, body]) for name, attack in ATTACKS.items()}
    assert reads == dict.fromkeys(ATTACKS)
    assert state(studio) == before
    assert len(heard) >= len(ATTACKS) - 1, heard  # no page on the disk opens a socket
    assert {status for _, status in heard} == {403}, heard


def test_the_same_attacks_succeed_on_the_studios_own_page(studio, logged_in):
    """The attacks are real: what keeps them out is where they come from."""
    page = logged_in.new_page()
    page.goto(studio.address)
    body = '{"kind": "doctor", "run": "000000000000"}'
    for name in ("reads", "reads a file of the page", "writes", "listens to events"):
        attack = ATTACKS[name]
        told = page.evaluate(f"async ([studio, body]) => ({attack})(studio, body)", [studio.address, body])
        assert told, name


def test_a_name_that_is_rebound_to_this_machine_is_refused(studio, browser, heard):
    """The page came from the attacker's server; then its name leads here, and the browser sees one origin."""
    with without_own_guard(browser) as other:
        context = other.new_context()
        log_in(context, studio)
        page = context.new_page()
        assert page.goto(f"http://{EVIL}:{studio.port}/").status == 403
        page.route(f"http://{EVIL}:{studio.port}/start", lambda route: route.fulfill(**HOSTILE))
        page.goto(f"http://{EVIL}:{studio.port}/start")
        heard.clear()
        key = studio.studio.key
        post = {"method": "POST", "headers": {"content-type": "application/json"}, "body": '{"kind": "demo"}'}
        bearer = {"headers": {"authorization": f"Bearer {key}"}}
        asked = [("/api/runs", {}), ("/api/runs", bearer), ("/static/main.js", {}), ("/api/events", {})]
        asked += [(f"/?token={key}", {}), ("/api/jobs", post)]
        for path, options in asked:
            status, told = page.evaluate(ASK, [path, options])
            assert status == 403 and "--allow-host" in told, path
    assert {status for _, status in heard} == {403} and len(heard) == len(asked)


def test_a_link_on_another_page_opens_the_studio_and_the_other_page_sees_nothing_of_it(
    studio, elsewhere, logged_in
):
    page = logged_in.new_page()
    page.goto(f"http://{EVIL}:{elsewhere}/")
    with logged_in.expect_page() as opened:
        page.evaluate("(studio) => { window.other = window.open(studio); }", studio.address)
    studio_page = opened.value
    studio_page.locator("main h1").wait_for()  # the page's own requests carry the cookie
    seen = page.evaluate("(() => { try { return other.document.title; } catch { return null; } })()")
    assert seen is None
    assert studio_page.evaluate("window.opener") is None  # Cross-Origin-Opener-Policy
