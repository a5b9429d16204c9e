"""No request reaches another tenant's data, by whatever it names."""

from __future__ import annotations

import json
import random
import threading
from contextlib import ExitStack

import pytest
from server_support import check_problem, json_lines, open_memories, routes_of, running
from support import STORY

from zeromem.keys import Keys
from zeromem.records import plain

# In all that is B's, and in nothing that anybody else sends.
SECRET = "quokka"
B_SCOPE, B_ID, B_SESSION, B_SPEAKER = "diary", "id-1", "holiday", "Bella"
FORMS = [
    b"default", b"diary", b"b/default", b"b/diary", b"b%2Fdefault", b"b%2fdiary", b"/b/diary",
    b"../b/diary", b"..%2Fb%2Fdiary", b"%2e%2e%2fb%2fdiary", b"..", b"%2F..%2Fb%2Fdiary",
    b"a/../b/diary", b"%252e%252e%252fb", b"b%00/diary", b"b\\diary", b"%EF%BD%82/diary",
    b"b%E2%88%95diary", b"%D0%B2/diary", b"B/diary", b"b//diary", b"b/diary%00", b"*", b"%25",
    b"b/%", b"_/diary", b"' OR 1=1 --", b"%20b/diary", b"b/diary%20",
]  # fmt: skip
VOLATILE = ("seconds", "ingested_at", "store_bytes")


class World:
    """A server with keys of tenants; B is there, or never was."""

    def __init__(self, folder, stack, *, with_b):
        store = folder / "m.zm"
        self.keys = stack.enter_context(Keys(store))
        made = {
            "a": ("a", {}), "c": ("c", {}), "op": (None, {}), "reader": ("a", {"read_only": True}),
            "revoked": ("a", {}), "b": ("b", {}),
        }  # fmt: skip
        found = {name: self.keys.create(t, **more) for name, (t, more) in made.items()}
        self.key = {name: text for name, (_, text) in found.items()}
        self.keys.revoke(found["revoked"][0].id)
        self.server = stack.enter_context(running(open_memories(store), keys=self.keys))
        self.anybody = stack.enter_context(self.server.client())
        with self.client("a") as a:
            a.post("/v1/traces/batch", json={"traces": story("a")}).raise_for_status()
        if with_b:
            for scope in (B_SCOPE, "default", f"{SECRET} scope"):
                with self.client("b", scope) as b:
                    b.post("/v1/traces/batch", json={"traces": story("b")}).raise_for_status()

    def client(self, who, scope=None):
        return self.server.client(scope, self.key[who])

    def exported(self, who, scope):
        with self.client(who, scope) as client:
            return client.get("/v1/export").content


def story(tenant):
    """The same ids, sessions and speakers in each tenant, and other texts."""
    mark = SECRET if tenant == "b" else "ordinary"
    return [
        {"text": f"{trace.text} {mark} {i}.", "id": f"id-{i}", "session": B_SESSION,
         "speaker": B_SPEAKER, "title": mark, "source": mark, "metadata": {mark: mark}}
        for i, trace in enumerate(STORY)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    with ExitStack() as stack:
        yield [
            World(tmp_path_factory.mktemp("w"), stack, with_b=with_b) for with_b in (True, False)
        ]


def stable(reply):
    """All of a reply that does not differ between two runs of the same."""

    def clean(value):
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items() if k not in VOLATILE}
        return [clean(v) for v in value] if isinstance(value, list) else value

    headers = {
        k: v for k, v in reply.headers.items()
        if k not in ("date", "x-request-id", "content-length")
    }  # fmt: skip
    try:
        body = clean(reply.json())
    except ValueError:
        lines = reply.text.replace("event: ", "").replace("data: ", "").splitlines()
        body = [clean(json.loads(x)) if x.startswith("{") else x for x in lines]
    return reply.status_code, headers, body


# What each route is asked with: all that can name anything, by what is B's and by what is not.
def _of(path):
    names = {"sessions": [B_SESSION], "speakers": [B_SPEAKER]}
    asked = {"question": f"What did {B_SPEAKER} say of the river and {B_ID}?", "k": 50}
    cursor = "bG9nKzowOjE"  # log+:0:1
    line = json.dumps({"text": "new", "id": B_ID + "/new"}).encode() + b"\n"
    return {
        "POST /v1/traces": [{"json": {"text": "new", "id": "new"}},
                            {"json": {"text": "clash", "id": B_ID}}],
        "POST /v1/traces/batch": [{"json": {"traces": [{"text": "x"}, {"text": "y", "id": B_ID}]}}],
        "POST /v1/traces/stream": [{"content": line}],
        "GET /v1/traces": [
            {"params": p} for p in ({}, {"sessions": B_SESSION}, {"speakers": B_SPEAKER},
            {"sources": "x"}, {"cursor": cursor}, {"order": "time"}, {"roles": "user"},
            {"sessions": "../b/" + B_SESSION})
        ],
        "GET /v1/trace": [
            {"params": {"id": i, "before": 9, "after": 9}}
            for i in (B_ID, "b/" + B_ID, "../b/" + B_ID, "1", "%", "b/diary/" + B_ID)
        ],
        "GET /v1/sessions": [{}],
        "POST /v1/forget": [{"json": {"ids": ["b/" + B_ID, "%"]}},
                            {"json": {"session": "b/" + B_SESSION}}, {"json": {"source": "b"}},
                            {"json": {"ids": [B_ID]}}, {"json": {"everything": True}}],
        "GET /v1/export": [{}],
        "POST /v1/import": [{"content": line}, {"content": line, "params": {"conversation": "b"}}],
        "POST /v1/retrieve": [{"json": asked}, {"json": asked | names},
                              {"json": asked | {"as_of": 3}}],
        "POST /v1/retrieve/batch": [{"json": {"questions": [asked["question"], "river"]}}],
        "POST /v1/explain": [{"json": asked}, {"json": asked | names}],
        "POST /v1/answer": [{"json": asked}, {"json": asked | {"stream": True}}],
        "GET /v1/scopes": [{}],
        "GET /v1/stats": [{}],
        # Without a model behind it; with one, see test_server_proxy.
        "POST /v1/chat/completions": [
            {"json": {"model": "m", "messages": [{"role": "user", "content": asked["question"]}]}}
        ],
        "GET /v1/models": [{}],
        "GET /healthz": [{}],
        "GET /readyz": [{}],
    }.get(path)  # fmt: skip


OPENAI = ("/v1/chat/completions", "/v1/models")
UNSCOPED = {"/openapi.json", "/docs", "/docs/oauth2-redirect"}


def walked(app):
    """List (method, path, requests) of every route but documentation; unknown ones fail."""
    found = []
    for method, path in routes_of(app):
        if path in UNSCOPED or path == "/metrics":
            continue
        asked = _of(f"{method} {path}")
        assert asked is not None, f"{method} {path} is new: say here how it could be abused"
        found.append((method, path, asked))
    return found


@pytest.mark.parametrize("who", ["a", "c", "reader"])
def test_a_walk_of_every_route_is_the_same_where_the_other_never_was(worlds, who):
    """Status, headers, body and error text cannot tell whether B is there; nothing of B changes."""
    there, _never = worlds
    scopes = (B_SCOPE, "default", f"{SECRET} scope")
    before = [there.exported("b", scope) for scope in scopes]
    assert all(SECRET.encode() in one for one in before)
    n = 0
    for method, path, requests in walked(there.server.app):
        for form in [None, *FORMS]:
            # Every form with the first request of a route, every request with two forms.
            for request in requests if form in (None, b"b/diary", b"b%2Fdefault") else requests[:1]:
                got = []
                for world in worlds:
                    headers = {"Authorization": f"Bearer {world.key[who]}"}
                    if form is not None:
                        headers["Zeromem-Scope"] = form
                    got.append(world.anybody.request(method, path, headers=headers, **request))
                assert stable(got[0]) == stable(got[1]), (method, path, form, request)
                assert SECRET not in got[0].text + str(got[0].headers)
                assert got[0].status_code < 500 or path in OPENAI
                n += 1
    assert n > 400
    assert [there.exported("b", scope) for scope in scopes] == before
    with there.client("b") as b:
        assert set(b.get("/v1/scopes").json()["scopes"]) == set(scopes)


def test_a_scope_that_is_named_twice_reaches_nothing(worlds):
    world = worlds[0]
    for pair in ((b"default", b"b/diary"), (b"b/diary", b"default"), (b"x", b"x")):
        headers = [(b"Zeromem-Scope", one) for one in pair]
        headers.append((b"Authorization", f"Bearer {world.key['a']}".encode()))
        reply = world.anybody.get("/v1/traces", headers=headers)
        check_problem(reply, 422, "invalid-input")


def test_keys_that_are_none_or_were(worlds):
    world = worlds[0]
    good = world.key["a"]
    other = good[:-1] + ("0" if good[-1] != "0" else "1")
    wrong = [
        None,
        "",
        "Bearer",
        f"Basic {good}",
        good,
        f"Bearer {good}x",
        f"Bearer {other}",
        f"Bearer {world.key['revoked']}",
        f"Bearer {good.upper()}",
        "Bearer zm_x_y",
        "Bearer é",
        f"Bearer {good} {good}",
        "Bearer " + "x" * 3000,
        f"Bearer {good[:19]}",
        "Bearer zm_' OR 1=1",
        f"Bearer {world.key['a'][:20]}{world.key['b'][20:]}",
    ]
    for method, path, requests in walked(world.server.app):
        for text in wrong:
            headers = {} if text is None else {"Authorization": text.encode()}
            reply = world.anybody.request(method, path, headers=headers, **requests[0])
            if path in ("/healthz", "/readyz"):
                assert reply.status_code == 200
                continue
            assert reply.status_code == 401
            if path not in OPENAI:  # whose errors have another form
                check_problem(reply, 401, "unauthorized")
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert not any(key in reply.text for key in world.key.values())


def test_a_key_that_may_only_read_writes_nothing(worlds):
    world = worlds[0]
    before = world.exported("a", "default")
    writes = 0
    for method, path, requests in walked(world.server.app):
        for request in requests:
            with world.client("reader", "default") as client:
                reply = client.request(method, path, **request)
            if path in ("/v1/traces", "/v1/traces/batch", "/v1/traces/stream", "/v1/forget",
                        "/v1/import") and method == "POST":  # fmt: skip
                check_problem(reply, 403, "forbidden")
                writes += 1
            elif path in OPENAI:
                assert reply.status_code in (403, 501)
            else:
                assert reply.status_code in (200, 404), reply.text
    assert writes >= 9
    assert world.exported("a", "default") == before


def test_a_key_that_is_revoked_now_is_no_key_at_once(worlds):
    world = worlds[0]
    key, text = world.keys.create("c")
    with world.server.client(key=text) as client:
        assert client.get("/v1/stats").status_code == 200
        world.keys.revoke(key.id)
        check_problem(client.get("/v1/stats"), 401, "unauthorized")


def test_an_operator_names_tenants_scopes_and_others_cannot(worlds):
    world = worlds[0]
    with world.client("op", f"b/{B_SCOPE}") as op:
        assert SECRET in op.get("/v1/export").text
        assert f"b/{B_SCOPE}" in op.get("/v1/scopes").json()["scopes"]
    with world.client("c", f"b/{B_SCOPE}") as c:
        assert SECRET not in c.get("/v1/export").text  # a scope of its own, by that name


def test_metrics_and_documents_name_nobody(worlds):
    world = worlds[0]
    for path in ("/metrics", "/openapi.json", "/docs", "/healthz", "/readyz"):
        text = world.anybody.get(path).text
        assert SECRET not in text
        assert B_SCOPE not in text
        assert B_SPEAKER not in text
        assert not any(key in text for key in world.key.values())


# ---- random interleavings against a model


class Tenant:
    """One tenant's scope, a model of it, and requests that are checked against the model."""

    def __init__(self, name, client, twin, seed):
        self.name = name
        self.client = client
        self.twin = twin  # another scope of the same tenant, which imports write to
        self.rng = random.Random(seed)
        self.held = {}
        self.gone = set()
        self.count = 0
        self.copied = set()

    def fields(self):
        self.count += 1
        rng = self.rng
        return {
            "id": f"t{rng.randrange(25)}",
            "text": f"Ana of {self.name} saw {rng.choice(['a cat', 'the river', 'Porto'])} "
            f"at {self.count}.",
            "session": f"s{rng.randrange(3)}",
            "speaker": rng.choice(["Ana", "Ben"]),
        }

    def post(self, path, body):
        return self.client.post(f"/v1/{path}", json=body)

    def step(self):
        verbs = [self.add, self.add, self.add, self.add_batch, self.retrieve, self.retrieve,
                 self.answer, self.explain, self.list, self.around, self.forget, self.export,
                 self.sessions, self.copy]  # fmt: skip
        self.rng.choice(verbs)()

    def add(self):
        given = self.fields()
        reply = self.post("traces", given)
        if given["id"] in self.held:
            assert reply.status_code == 409, reply.text
            others = {"alpha", "beta", "gamma"} - {self.name}
            assert not any(other in reply.text for other in others)
        else:
            assert reply.status_code == 201, reply.text
            assert reply.json()["created"], reply.text
            self.held[given["id"]] = given

    def add_batch(self):
        given = {one["id"]: one for one in (self.fields() for _ in range(3))}
        reply = self.post("traces/batch", {"traces": list(given.values())})
        if set(given) & set(self.held):
            assert reply.status_code == 409
        else:
            assert [one["id"] for one in reply.json()["added"]] == list(given)
            self.held |= given

    def evidence(self, items):
        for item in items:
            assert item["id"] in self.held, (self.name, item, "is no live trace of this tenant")
            whole = self.held[item["id"]]
            assert item["text"] == whole["text"][item["start"] : item["end"]]
            assert (item["speaker"], item["session"]) == (whole["speaker"], whole["session"])

    def question(self):
        session = self.rng.choice([None, "s0", "s1"])
        return {"question": self.rng.choice(["Who saw a cat?", "Where was Ana?", "Porto"]),
                "k": self.rng.choice([1, 5, 30]), "sessions": session and [session]}  # fmt: skip

    def retrieve(self):
        asked = self.question()
        reply = self.post("retrieve", asked)
        assert reply.status_code == 200, reply.text
        found = reply.json()["evidence"]
        self.evidence(found)
        allowed = [t for t in self.held.values() if asked["sessions"] in (None, [t["session"]])]
        main = [e for e in found if e["kind"] == "main"]
        assert len(main) <= asked["k"]
        assert bool(found) == bool(allowed)
        assert all(asked["sessions"] in (None, [e["session"]]) for e in found)

    def answer(self):
        reply = self.post("answer", self.question())
        assert reply.status_code == 200, reply.text
        body = reply.json()
        self.evidence(body["evidence"])
        for cited in body["citations"]:
            whole = self.held[cited["id"]]["text"]
            assert cited["text"] == whole[cited["start"] : cited["end"]]

    def explain(self):
        body = self.post("explain", self.question()).json()
        self.evidence(body["evidence"])
        assert all(one["id"] in self.held for one in body["left_out"])

    def list(self):
        found, cursor = [], None
        while True:
            page = self.client.get("/v1/traces", params={"limit": 7, "cursor": cursor} if cursor
                                   else {"limit": 7}).json()  # fmt: skip
            found += [(t["id"], t["text"]) for t in page["traces"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert found == [(t["id"], t["text"]) for t in self.held.values()]
        assert self.client.get("/v1/stats").json()["traces"] == len(self.held)

    def around(self):
        wanted = f"t{self.rng.randrange(25)}"
        reply = self.client.get("/v1/trace", params={"id": wanted, "before": 1, "after": 1})
        if wanted not in self.held:
            assert reply.status_code == 404
            return
        session = [t["id"] for t in self.held.values()
                   if t["session"] == self.held[wanted]["session"]]  # fmt: skip
        at = session.index(wanted)
        assert [t["id"] for t in reply.json()["traces"]] == session[max(0, at - 1) : at + 2]

    def forget(self):
        kind = self.rng.choice(["ids", "session", "speaker"])
        value = {"ids": [f"t{self.rng.randrange(25)}" for _ in range(3)],
                 "session": f"s{self.rng.randrange(3)}", "speaker": "Ben"}[kind]  # fmt: skip
        if kind == "ids":
            going = set(value) & set(self.held)
        else:
            going = {i for i, t in self.held.items() if t[kind] == value}
        assert self.post("forget", {kind: value}).json() == {"forgotten": len(going)}
        for name in going:
            self.gone.add(self.held.pop(name)["text"])

    def export(self):
        reply = self.client.get("/v1/export")
        found = json_lines(reply.content)
        assert [{k: t[k] for k in ("id", "text", "session", "speaker")} for t in found] == list(
            self.held.values()
        )
        assert not any(text in reply.text for text in self.gone)

    def sessions(self):
        counts = {}
        for one in self.held.values():
            counts[one["session"]] = counts.get(one["session"], 0) + 1
        found = self.client.get("/v1/sessions").json()["sessions"]
        assert {s["name"]: s["n_traces"] for s in found} == counts

    def copy(self):
        """Import all into a second scope, and empty that again."""
        exported = self.client.get("/v1/export").content
        done = self.twin.post("/v1/import", content=exported).json()
        assert done == {"traces": len(self.held), "created": len(self.held)}
        found = json_lines(self.twin.get("/v1/export").content)
        assert [t["text"] for t in found] == [t["text"] for t in self.held.values()]
        forgotten = self.twin.post("/v1/forget", json={"everything": True}).json()["forgotten"]
        assert forgotten == len(self.held)


@pytest.mark.parametrize("max_open", [1000, 2])
def test_random_interleavings_of_tenants_agree_with_their_models(tmp_path, max_open):
    """Three tenants with two scopes of the same names each, at once, by the same ids."""
    failures = []
    with ExitStack() as stack:
        keys = stack.enter_context(Keys(tmp_path / "m.zm"))
        memories = open_memories(tmp_path / "m.zm", max_open=max_open)
        server = stack.enter_context(running(memories, keys=keys))
        tenants = []
        for i, name in enumerate(("alpha", "beta", "gamma")):
            text = keys.create(name)[1]
            for scope in ("default", "other"):
                client = stack.enter_context(server.client(scope, text))
                twin = stack.enter_context(server.client(f"{scope}'s twin", text))
                tenants.append(Tenant(name, client, twin, 10 * i + len(scope)))

        def work(tenant):
            try:
                for _ in range(45):
                    tenant.step()
                tenant.list()
                tenant.export()
            except BaseException as error:
                failures.append((tenant.name, error))
                raise

        threads = [threading.Thread(target=work, args=(tenant,)) for tenant in tenants]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert not failures, failures[0]
        assert sum(len(tenant.gone) for tenant in tenants) > 20


def test_a_tenants_ranking_is_bit_for_bit_what_it_is_alone(tmp_path):
    """Neither statistics nor neighbours of others move a score or a place."""
    questions = ["What is Ana's kitten called?", "Where does Ana live?", "Who founded Acme?"]
    replies = []
    for crowded in (False, True):
        folder = tmp_path / str(crowded)
        folder.mkdir()
        with ExitStack() as stack:
            keys = stack.enter_context(Keys(folder / "m.zm"))
            server = stack.enter_context(running(open_memories(folder / "m.zm"), keys=keys))
            own = stack.enter_context(server.client("x", keys.create("a")[1]))
            other = stack.enter_context(server.client("x", keys.create("b")[1]))
            more = [{"text": f"Ana's kitten in Acme saw Lisbon {i} times.", "speaker": "Ana"}
                    for i in range(200)]  # fmt: skip
            if crowded:
                other.post("/v1/traces/batch", json={"traces": more}).raise_for_status()
            told = [{k: v for k, v in plain(t).items() if v is not None} for t in STORY]
            own.post("/v1/traces/batch", json={"traces": told}).raise_for_status()
            if crowded:
                other.post("/v1/retrieve", json={"question": questions[0]}).raise_for_status()
            got = []
            for path in ("retrieve", "explain", "answer"):
                for question in questions:
                    body = own.post(f"/v1/{path}", json={"question": question}).json()
                    got.append({k: v for k, v in body.items() if k != "seconds"})
            got.append(own.get("/v1/stats").json())
            replies.append(got)
    assert replies[0] == replies[1]
    assert len(replies[0]) == 10
