"""Who may speak to the studio: only its own page, with the token, under its own name."""

import socket

import pytest
from helpers.studio_cases import StudioClient

HOSTS = [  # {} is the port
    "", "evil.test", "evil.test:{}", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.test:{}", "localhost.:{}",
    "127.0.0.1:{}, evil.test", "[::1]", "127.1:{}", "2130706433:{}", "user@127.0.0.1:{}", "127.0.0.1:{}/",
    "0.0.0.0:{}", "127.0.0.1:{}.evil.test",
]  # fmt: skip
FOREIGN = [
    {"origin": "http://evil.test"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1"},
    {"origin": "http://127.0.0.1:1.evil.test"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"},
]
OPEN = ("/", "/static/{path:path}")


@pytest.fixture(scope="module")
def routes(studio):
    """(method, path) of every route."""
    found = [
        (method.upper(), path.replace("{id}", "0123456789ab").replace("{path}", "main.js"))
        for path, methods in studio.get("/openapi.json").json["paths"].items()
        for method in methods
    ]
    assert len(found) > 30 and ("DELETE", "/api/jobs/0123456789ab") in found
    return found


def send(studio: StudioClient, method: str, path: str, **headers: str) -> int:
    body = None if method == "GET" else b"{}"
    kind = {} if method == "GET" else {"content-type": "application/json"}
    return studio.send(method, path, body, kind | headers).status


@pytest.mark.parametrize("host", HOSTS)
def test_other_hosts_are_refused_on_every_route(studio, routes, host):
    named = host.format(studio.port)
    assert {send(studio, method, path, host=named) for method, path in routes} == {403}


def raw(port: int, *lines: str) -> int:
    """The status of an answer to lines as they are: a client would put them in order. 0: none came."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall("\r\n".join((*lines, "connection: close", "", "")).encode("latin-1"))
        answer = connection.makefile("rb").readline().split()
    return int(answer[1]) if len(answer) > 1 else 0


@pytest.mark.parametrize(
    ("form", "hosts"),
    [
        ("{} {} HTTP/1.0", ()),  # HTTP/1.0 needs none
        ("{} {} HTTP/1.1", ()),
        ("{} {} HTTP/1.1", ("127.0.0.1:{}", "evil.test")),
        ("{} {} HTTP/1.1", ("evil.test", "127.0.0.1:{}")),
        ("{} {} HTTP/1.1", ("127.0.0.1:{}", "127.0.0.1:{}")),
        ("{} http://evil.test{} HTTP/1.1", ("evil.test",)),
        ("{} http://127.0.0.1{} HTTP/1.1", ("evil.test",)),
    ],
)
def test_no_host_two_hosts_and_whole_addresses_are_refused_on_every_route(studio, routes, form, hosts):
    named = [f"host: {host.format(studio.port)}" for host in hosts]
    key = f"authorization: Bearer {studio.studio.key}"
    for method, path in routes:
        body = ("content-type: application/json", "content-length: 0") if method != "GET" else ()
        assert raw(studio.port, form.format(method, path), *named, key, *body) in (400, 403), (method, path)


def test_a_forwarded_name_is_not_believed(studio, routes):
    forwarded = {"x_forwarded_host": f"127.0.0.1:{studio.port}", "forwarded": f"host=127.0.0.1:{studio.port}"}
    for method, path in routes:
        assert send(studio, method, path, host="evil.test", **forwarded) == 403, path


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LocalHost:{}", "[::1]:{}"])
def test_the_studio_goes_by_the_names_of_this_machine(studio, host):
    assert studio.get("/api/runs", host=host.format(studio.port)).status == 200
    assert studio.get("/", host=host.format(studio.port)).status == 200


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_of_other_sites_reach_no_route(studio, routes, headers):
    before = state(studio)
    assert {send(studio, method, path, **headers) for method, path in routes} == {403}
    assert state(studio) == before


def state(studio: StudioClient) -> tuple:
    """What a request may change."""
    kept = studio.studio
    jobs = [(job.id, job.state) for job in kept.jobs.found.values()]
    return jobs, list(kept.traces), sorted(kept.service.workers)


@pytest.mark.parametrize("origin", ["http://evil.test", "http://127.0.0.1:{}", ""])
def test_nothing_speaks_websocket(studio, routes, origin):
    upgrade = (
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    named = (f"origin: {origin.format(studio.port)}",) if origin else ()
    host, key = f"host: 127.0.0.1:{studio.port}", f"authorization: Bearer {studio.studio.key}"
    before = state(studio)
    for path in sorted({path for _, path in routes}):
        for more in ((), (key,)):
            lines = (f"GET {path} HTTP/1.1", host, "connection: upgrade", *upgrade, *named, *more)
            assert raw(studio.port, *lines) != 101, path
    assert state(studio) == before


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH", "TRACE", "HEAD"])
def test_other_methods_change_nothing_and_allow_nothing(studio, routes, method):
    before = state(studio)
    asks = {"access_control_request_method": "POST", "access_control_request_headers": "content-type"}
    for _, path in routes:
        for more in ({}, {"origin": "http://evil.test", **asks}):
            reply = studio.send(method, path, None, more)
            assert not any(name.startswith("access-control") for name in reply.headers), path
            assert not more or reply.status == 403, path
    assert state(studio) == before


def test_a_simple_request_of_another_page_writes_nothing(studio, routes):
    """Forms and no-cors requests need no leave of the browser: their types are refused."""
    for method, path in routes:
        if method != "GET":
            for kind in (
                "text/plain",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
                "",
            ):
                assert studio.send(method, path, b"{}", {"content-type": kind}).status == 415, path


@pytest.mark.parametrize("token", ["", "Bearer ", "Bearer stale-token-of-the-last-start-x", "Basic {}", "{}"])
def test_without_the_token_nothing_but_the_page_is_shown(studio, routes, token):
    stranger = StudioClient(studio.port, studio.studio)
    sent = {"authorization": token.format(studio.studio.key)} if token else {}
    for method, path in routes:
        is_open = path in ("/", "/static/main.js")
        assert (send(stranger, method, path, **sent) == 401) is not is_open, path


def test_a_token_in_the_address_opens_the_page_only(studio, routes):
    stranger, key = StudioClient(studio.port, studio.studio), studio.studio.key
    for method, path in routes:
        if path.startswith("/api"):
            assert send(stranger, method, f"{path}?token={key}") == 401
    assert stranger.get("/?token=stale").status == 401
    assert stranger.get("/?token=").status == 200


def test_the_link_leaves_a_cookie_that_scripts_and_other_sites_do_not_see(studio):
    stranger = StudioClient(studio.port, studio.studio)
    reply = stranger.get(f"/?token={studio.studio.key}")
    assert reply.status == 303 and reply.headers["location"] == "/"
    value, *flags = reply.headers["set-cookie"].split("; ")
    assert value == f"heedful_{studio.port}={studio.studio.key}"
    assert sorted(flag.lower() for flag in flags) == ["httponly", "path=/", "samesite=strict"]
    assert stranger.get("/api/runs", cookie=value).status == 200
    name = f"heedful_{studio.port}"
    for wrong in (
        value.replace(str(studio.port), "1"),  # of a studio on another port
        f"{name}=stale-token-of-the-last-start-x",
        f"{name}=; {value}",  # a second one, planted by another site
        f"{value}; {value}",
        value.upper(),
    ):
        assert stranger.get("/api/runs", cookie=wrong).status == 401, wrong


def test_a_ticket_works_once(studio):
    stranger = StudioClient(studio.port, studio.studio)
    studio.studio.tickets.add("ticket-for-the-browser")
    assert [stranger.get("/?ticket=ticket-for-the-browser").status for _ in range(2)] == [303, 401]


def test_every_answer_closes_the_browser(studio):
    for path in ("/", "/static/main.js", "/api/runs", "/nowhere"):
        headers = studio.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not any(name.startswith("access-control") for name in headers)
    policy = studio.get("/").headers["content-security-policy"]
    assert "script-src 'self';" in policy and "trusted-types 'none'" in policy and "unsafe" not in policy


PATHS = [
    "..", "../..", "../runs.py", "../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/runs.py",
    "....//runs.py", "/etc/passwd", "%2fetc%2fpasswd", "..\\..\\runs.py", "..%5c..%5cruns.py",
    "main.js%00.png",
    "main.js/", "./main.js", "vendor/../../runs.py", "MAIN.JS", "~", "file:///etc/passwd", "%00", ".", "",
    "__pycache__/runs.pyc", "con", "main.js::$DATA", "index.html?x", "index.html%3fx",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_of_the_lists(studio, path):
    for start in ("/static/", "/api/runs/", "/api/trace/", "/api/export?view=", "/api/jobs/", "/"):
        reply = studio.get(start + path)
        assert reply.status in (200, 404, 405), (start, reply.status)
        assert b"root:" not in reply.body and b"ModelFolders" not in reply.body
        if reply.status == 200:  # the page itself, or the list of jobs or runs
            assert start + path in ("/", "/static/index.html?x", "/api/jobs/", "/index.html?x"), start


def test_only_folders_below_the_root_or_named_are_listed(tmp_path, stored):
    from heedful.studio.runs import ModelFolders

    root, outside = tmp_path / "runs", tmp_path / "outside"
    for folder in (root / "a", root / "deep" / "b", outside, root / ".hidden"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    folders = ModelFolders(root)
    assert {one.path.name for one in folders.scan()} == {"a", "b"}
    assert {one.path.name for one in ModelFolders(root, (outside,)).scan()} == {"a", "b", "outside"}
    assert folders.get("a") is None and folders.get("../outside") is None
