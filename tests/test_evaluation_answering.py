"""Answering a set: what the reader sees and costs, what is kept, and the figures."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time

import pytest
from answering_support import (
    PETS,
    PETS_ASKED,
    WORK_ASKED,
    Whole,
    dataset,
    evidence,
    many,
    options,
    question,
)
from chat_server import USAGE, Server, drop, failing, good, send

from zeromem.answer.grounded import answer_from
from zeromem.answer.reader import Draft
from zeromem.errors import InvalidInputError, ModelNotFoundError, ReaderError
from zeromem.evaluation.answering import readers, run
from zeromem.evaluation.answering.cache import ReplyCache
from zeromem.evaluation.types import Answered, Budget, Found
from zeromem.types import QueryProfile, Retrieval, Route, TokenUsage

ANSWERS = {"dog": "Biscuit", "boat": "April 2021", "job": "a baker"}


class Told:
    """Answers by a word of the question; costs as it is told."""

    def __init__(self, answers=ANSWERS, confidence=None, usage=None):
        self.answers = answers
        self.usage = TokenUsage(100, 5, 1, 40) if usage is None else usage
        self.confidence = confidence or (lambda evidence: None)
        self.asked = []

    def read(self, question, evidence, *, profile):
        self.asked.append((question, [e.id for e in evidence]))
        text = next((a for word, a in self.answers.items() if word in question), "")
        if isinstance(text, Exception):
            raise text
        text = text(evidence) if callable(text) else text
        return Draft(text, self.usage, (0,), ((0, 1, 3),), self.confidence(evidence))


def told(reader, fingerprint="told", **options):
    return readers.local(reader, fingerprint, **options)


def answered(reader, methods=None, given=None, **options):
    methods = methods or [Whole()]
    given = given or dataset()
    found = run.answer(given, methods, reader, Budget(), **options)
    return given, found


# ---- what happens to a question


def test_rows_come_in_the_sets_order_with_evidence_and_tokens():
    reader = Told()
    _, found = answered(told(reader), [Whole("a"), Whole("b")])
    assert [row.question_id for row in found["a"].rows] == ["q1", "q2", "q3"]
    assert found["b"].rows == found["a"].rows
    first = found["a"].rows[0]
    assert dataclasses.replace(first, seconds=0) == Answered(
        "q1", "Biscuit", "Biscuit", ("keep",), ("a1", "a2", "a3"),
        {"evidence": 16, "prompt": 100, "cached": 40, "completion": 5, "calls": 1},
    )  # fmt: skip
    assert len(reader.asked) == 3  # the second method's evidence is the same: nothing is asked
    assert (found["a"].n_fresh, found["b"].n_fresh) == (3, 0)
    assert set(found["a"].seconds) == {"index", "find", "read", "calibrate"}


def test_methods_are_closed_also_where_the_run_breaks_off():
    class Stops(Whole):
        def find(self, queries, budget):
            raise KeyboardInterrupt

    methods = [Whole("a"), Stops("b")]
    with pytest.raises(KeyboardInterrupt):
        answered(told(Told()), methods)
    assert [m.closed for m in methods] == [1, 1]


def test_without_evidence_the_reader_is_not_asked():
    class Nothing(Whole):
        def find(self, queries, budget):
            return [Found(((),), QueryProfile(q.text)) for q in queries]

    reader = Told()
    _, found = answered(told(reader), [Nothing(calibrates=True)])
    assert reader.asked == []
    assert {(r.answer, r.error, r.tokens["calls"]) for r in found["whole"].rows} == {("", None, 0)}


@pytest.mark.parametrize("stage", ["index", "find", "few", "read"])
def test_a_failed_sample_scores_0_and_is_counted_with_its_reason(stage, capsys):
    class Broken(Whole):
        def index(self, history):
            super().index(history)
            if stage == "index" and history.name == "pets":
                raise RuntimeError("torn")

        def find(self, queries, budget):
            if stage == "find" and self.history.name == "pets":
                raise RuntimeError("torn")
            found = super().find(queries, budget)
            return found[:-1] if stage == "few" and self.history.name == "pets" else found

    failing = {"dog": ReaderError("torn"), "boat": ReaderError("torn"), "job": "baker"}
    reader = told(Told(failing if stage == "read" else ANSWERS))
    given, found = answered(reader, [Broken()])
    figures = run.score(given, found, resamples=10)["whole"]
    assert figures["n_failed"] == 2
    assert sum(figures["failures"].values()) == 2
    (reason,) = figures["failures"]
    assert ("torn" in reason) or stage == "few"
    assert figures["answers"]["gam_f1"] == pytest.approx(1 / 3)
    assert figures["by_category"]["multi-hop"]["answers"]["gam_f1"] == 1
    assert [row["error"] is None for row in figures["rows"]] == [False, False, True]


def test_an_error_is_asked_again_in_the_next_run(tmp_path):
    path = tmp_path / "r.db"
    reader = Told({**ANSWERS, "boat": ReaderError("busy")})
    _, found = answered(told(reader, replies=ReplyCache(path)))
    assert found["whole"].failures == {"busy": 1}
    reader = Told()
    _, found = answered(told(reader, replies=ReplyCache(path)))
    assert [q for q, _ in reader.asked] == ["When did Ben buy the boat?"]
    assert found["whole"].failures == {}


def test_other_evidence_another_profile_or_another_reader_is_asked_anew():
    reader = Told()
    replies = ReplyCache()
    one = told(reader, replies=replies)
    items = [evidence(t) for t in PETS.traces]
    profile = QueryProfile("dog?")

    def n_asked(r=one, question="dog?", shown=items, profile=profile):
        r.ask(question, shown, profile=profile)
        return len(reader.asked)

    assert n_asked() == n_asked() == 1
    assert n_asked(shown=items[:2]) == 2
    assert n_asked(shown=[dataclasses.replace(items[0], text="My dog"), *items[1:]]) == 3
    assert n_asked(profile=QueryProfile("dog?", answer_type="person")) == 4
    assert n_asked(told(reader, "told-2", replies=replies)) == 5
    again = one.ask("dog?", items, profile=profile)
    assert again.draft == Draft("Biscuit", TokenUsage(100, 5, 1, 40), (0,), ((0, 1, 3),))
    assert not again.fresh


# ---- failures that are said, and that end a run


def test_failures_are_said_in_one_line_with_the_first_reason(capsys):
    reader = told(Told({**ANSWERS, "boat": ReaderError("busy\nnow"), "job": ReaderError("late")}))
    answered(reader, [Whole("a"), Whole("b")])
    assert capsys.readouterr().err == "4 of 6 answers failed, the first: busy now\n"
    answered(told(Told()))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_that_never_passes_ends_the_run(status, jobs):
    method = Whole()
    with Server(failing(status)) as server, pytest.raises(ReaderError) as error:
        run.answer(many(100), [method], remote(server), Budget(), jobs=jobs)
    assert len(server.requests) <= jobs  # those under way when the first came back
    assert re.search(rf"HTTP {status}.*reader is asked no further", str(error.value))
    assert method.closed == 1


def test_one_question_that_a_filter_refuses_is_one_failed_sample():
    with Server(chat, failing(403), chat) as server:
        found = run.answer(many(4), [Whole()], remote(server), Budget())["whole"]
    assert [r.error is None for r in found.rows] == [True, False, True, True]


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_dead_port_is_given_up_after_a_few_questions(jobs, monkeypatch):
    with Server(chat) as server:
        pass
    asked = []
    reader = remote(server, "--retries", "0")
    whole = reader.ask
    monkeypatch.setattr(reader, "ask", lambda *a, **k: asked.append(a) or whole(*a, **k))
    with pytest.raises(ReaderError, match="server runs.*5 questions failed alike"):
        run.answer(many(100), [Whole()], reader, Budget(), jobs=jobs)
    assert 5 <= len(asked) < 5 + jobs


def test_a_server_that_was_there_and_goes_leaves_failed_samples():
    with Server(chat, drop) as server:
        found = run.answer(many(9), [Whole()], remote(server, "--retries", "0"), Budget())["whole"]
    assert [r.error is None for r in found.rows] == [True] + 8 * [False]


def test_a_length_spent_before_the_answer_is_a_failed_sample_and_its_tokens_count(capsys):
    def step(handler, body):
        _send(handler, "", "length", usage=USAGE)

    with Server(step) as server:
        given, found = answered(remote(server))
    figures = run.score(given, found, resamples=10)["whole"]
    assert (figures["n_failed"], figures["reader"]["total"]["completion"]) == (3, 21)
    assert "max_tokens" in capsys.readouterr().err


# ---- tokens that nobody reports


def _send(handler, text, finish="stop", usage=None):
    choice = {"index": 0, "message": {"role": "assistant", "content": text},
              "finish_reason": finish}  # fmt: skip
    send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                        "choices": [choice], "usage": usage})  # fmt: skip


def test_a_reply_without_usage_has_no_tokens_rather_than_none_spent(capsys, tmp_path):
    for _ in range(2):  # the second time from the cache
        with Server(lambda h, body: _send(h, "Answer: Biscuit")) as server:
            reader = remote(server, "--replies", str(tmp_path / "r.db"))
            given, found = answered(reader)
        assert found["whole"].rows[0].tokens == {"evidence": 16, "calls": 1}
        figures = run.score(given, found, resamples=10)["whole"]["reader"]
        assert figures["per_question"] == {
            "prompt": None, "cached": None, "completion": None, "calls": 1,
        }  # fmt: skip
        assert (figures["total"]["prompt"], figures["total"]["calls"]) == (None, 3)
        assert figures["n_unmetered"] == 3
        assert "no token usage was reported for 3 of 3 answers" in capsys.readouterr().err


def test_means_are_over_the_answers_whose_tokens_are_known():
    def step(handler, body):
        asked = body["messages"][1]["content"]
        _send(handler, "Answer: Biscuit", usage=USAGE if "Ben buy" in asked else None)

    with Server(step) as server:
        given, found = answered(remote(server))
    figures = run.score(given, found, resamples=10)["whole"]["reader"]
    assert figures["per_question"]["prompt"] == figures["total"]["prompt"] == 111
    assert figures["n_unmetered"] == 2


def test_one_block_without_usage_leaves_the_questions_tokens_unknown():
    texts = {"a1": "Biscuit"}
    reader = Told(dict.fromkeys(ANSWERS, lambda shown: texts.get(shown[0].id, "")))
    plain = reader.read

    def read(question, shown, *, profile):
        reader.usage = TokenUsage(0, 0, 1) if shown[0].id == "a2" else TokenUsage(9, 1, 1)
        return plain(question, shown, profile=profile)

    reader.read = read
    _, found = answered(told(reader), [Whole(blocks=True)])
    assert [r.tokens.get("prompt") for r in found["whole"].rows] == [None, None, 18]
    assert [r.tokens["calls"] for r in found["whole"].rows] == [3, 3, 2]


def test_without_usage_a_token_limit_keeps_to_its_estimate():
    reader_of = lambda server: remote(server, "--tokens-per-minute", "60000")  # noqa: E731
    times = []
    for usage in (None, USAGE):
        with Server(lambda h, body, u=usage: _send(h, "Answer: x", usage=u)) as server:
            start = time.monotonic()
            run.answer(many(3), [Whole()], reader_of(server), Budget())
            times.append(time.monotonic() - start)
    assert times[0] > 0.6  # about 370 tokens each, a thousand a second
    assert times[1] < times[0]


# ---- many blocks


def test_of_several_blocks_the_most_confident_answer_that_is_not_empty_holds():
    texts = {"a1": "Rex", "a2": "", "a3": "Biscuit", "b1": "", "b2": ""}
    sure = {"a1": -0.9, "a2": -0.0, "a3": -0.2, "b1": -0.1, "b2": -0.1}
    reader = Told(
        dict.fromkeys(ANSWERS, lambda shown: texts[shown[0].id]),
        confidence=lambda shown: sure[shown[0].id],
    )
    _, found = answered(told(reader), [Whole(blocks=True)])
    first, _, last = found["whole"].rows
    assert first.answer == "Biscuit"
    assert first.evidence == ("a1", "a2", "a3")
    assert (first.tokens["prompt"], first.tokens["calls"]) == (300, 3)
    assert (last.answer, last.error) == ("", None)


def test_blocks_and_a_reader_that_is_never_sure_fail_with_the_fix():
    _, found = answered(told(Told()), [Whole(blocks=True)])
    assert all("--logprobs" in row.error for row in found["whole"].rows)


def test_one_answer_among_the_blocks_needs_no_confidence():
    reader = Told(dict.fromkeys(ANSWERS, lambda shown: "x" if shown[0].id in ("a2", "b1") else ""))
    _, found = answered(told(reader), [Whole(blocks=True)])
    assert [row.answer for row in found["whole"].rows] == ["x", "x", "x"]


# ---- calibration


@pytest.mark.model
def test_answers_are_calibrated_as_memory_answers_them_and_only_where_the_method_does():
    wordy = {"dog": "According to the records, Biscuit.", "boat": "April 2021", "job": "a baker"}
    replies = ReplyCache()
    for _ in range(2):  # the second time from the cache
        _, found = answered(
            told(Told(wordy), replies=replies), [Whole("plain"), Whole("ours", calibrates=True)]
        )
        plain, ours = found["plain"].rows, found["ours"].rows
        assert [r.answer for r in plain] == [r.draft for r in plain] == [*wordy.values()]
        assert {r.actions for r in plain} == {("keep",)}
        for row, asked in zip(ours, [*PETS_ASKED, *WORK_ASKED], strict=True):
            history = PETS if asked in PETS_ASKED else dataset().tasks[1][0]
            items = tuple(evidence(t, i) for i, t in enumerate(history.traces, 1))
            profile = QueryProfile(asked.query.text)
            whole = answer_from(
                asked.query.text,
                Retrieval(items, profile, Route.LOCAL, ""),
                Told(wordy),
            )
            assert (row.draft, row.answer) == (whole.draft, whole.text)
            assert row.actions == tuple(s.action for s in whole.steps)
    assert ours[0].answer != ours[0].draft


@pytest.mark.model
def test_a_calibration_that_fails_is_a_failed_sample(monkeypatch, capsys):
    def fail(*args):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(run, "calibrated", fail)
    _, found = answered(told(Told()), [Whole(calibrates=True)])
    assert found["whole"].failures == {"calibration: ZeroDivisionError: oh": 3}
    assert found["whole"].rows[0].tokens["prompt"] == 100  # spent all the same


# ---- figures


def test_figures_by_category_in_the_papers_order_and_the_question_weighted_average():
    asked = [
        question("o", "dog o", ["x"], [], "open-domain"),
        question("t", "dog t", ["Biscuit"], ["a1"], "temporal"),
        question("m", "dog m", ["Biscuit, Rex"], ["a1", "b1"], "multi-hop"),
        question("s1", "dog s", ["Biscuit"], ["a1"], "single-hop"),
        question("s2", "dog s again", ["Rex", "biscuit!"], ["a2"], "single-hop"),
    ]
    given = dataset(tasks=[(PETS, asked)])
    given, found = answered(told(Told()), given=given)
    figures = run.score(given, found, resamples=50)["whole"]
    assert [*figures["by_category"]] == ["single-hop", "multi-hop", "temporal", "open-domain"]
    f1 = {c: v["answers"]["gam_f1"] for c, v in figures["by_category"].items()}
    assert f1 == {"single-hop": 1, "multi-hop": 2 / 3, "temporal": 1, "open-domain": 0}
    assert figures["answers"]["gam_f1"] == pytest.approx((1 + 1 + 2 / 3 + 1 + 0) / 5)
    # LoCoMo's own: a multi-hop gold is split on commas and each part is looked for.
    assert figures["by_category"]["multi-hop"]["answers"]["locomo_f1"] == 0.5
    assert "hotpot_f1" not in figures["answers"]
    assert figures["n_unresolved"] == 1
    assert figures["evidence"]["recall"] == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert (figures["evidence"]["items"], figures["evidence"]["tokens"]) == (3, 16)
    assert figures["reader"]["per_question"] == {
        "prompt": 100, "cached": 40, "completion": 5, "calls": 1,
    }  # fmt: skip
    row = figures["rows"][2]
    assert (row["id"], row["history"], row["gam_f1"]) == ("m", "pets", pytest.approx(2 / 3))
    assert figures["interval"] == {}  # one conversation says nothing about others
    json.dumps(figures)


def test_intervals_resample_what_the_set_says():
    for cluster, n_clusters in (("history", 2), ("question", 3)):
        given, found = answered(told(Told()), given=dataset(cluster=cluster))
        interval = run.score(given, found, resamples=50)["whole"]["interval"]
        assert (interval["gam_f1"]["n"], interval["gam_f1"]["n_clusters"]) == (3, n_clusters)
        assert (interval["cluster"], interval["resamples"], interval["seed"]) == (cluster, 50, 0)


def test_locomos_category_decides_only_in_locomo():
    asked = [question("m", "dog", ["Biscuit, Rex"], [], "multi-hop")]
    for name, expected in (("locomo", 0.5), ("hotpotqa", 2 / 3)):
        given, found = answered(told(Told()), given=dataset(name, tasks=[(PETS, asked)]))
        scores = run.score(given, found, resamples=10)["whole"]["answers"]
        assert scores["locomo_f1"] == pytest.approx(expected)
    assert scores["hotpot_f1"] == pytest.approx(2 / 3)
    assert scores["hotpot_em"] == 0


def test_corrected_labels_stand_beside_the_files_own():
    given, found = answered(told(Told()))
    figures = run.score(given, found, resamples=10)["whole"]
    assert figures["answers"]["gam_f1"] == 1
    assert figures["corrected"]["answers"]["gam_f1"] == pytest.approx(2 / 3)
    assert figures["corrected"]["n_corrected"] == 1
    assert (
        "corrected" not in run.score(*answered(told(Told()), given=dataset(corrected={})))["whole"]
    )


def test_questions_without_an_answer_are_counted_and_score_nothing():
    asked = [question("a", "dog", [], ["a1"]), question("b", "dog", ["Biscuit"], ["a1"])]
    given, found = answered(told(Told()), given=dataset(tasks=[(PETS, asked)], corrected={}))
    figures = run.score(given, found, resamples=10)["whole"]
    assert figures["n_without_answer"] == 1
    assert figures["answers"]["gam_f1"] == 1
    assert figures["n_questions"] == 2


def test_an_adversarial_question_is_right_where_the_reader_says_so():
    asked = [question("a", "dog", [], [], "adversarial")]
    reader = told(Told({"dog": "not mentioned"}))
    given, found = answered(reader, given=dataset(tasks=[(PETS, asked)]))
    assert run.score(given, found, resamples=10)["whole"]["answers"]["locomo_f1"] == 1


def test_rows_in_another_order_are_refused():
    given, found = answered(told(Told()))
    found["whole"].rows.reverse()
    with pytest.raises(ValueError, match="order"):
        run.score(given, found)


def test_calibration_is_counted_by_gam_f1():
    given, found = answered(told(Told()))
    mine = found["whole"]
    mine.calibrates = True
    rows = [
        dataclasses.replace(mine.rows[0], draft="it is Biscuit", answer="Biscuit"),
        dataclasses.replace(mine.rows[1], draft="April 2021", answer="2021"),
        dataclasses.replace(mine.rows[2], draft="a baker", answer="baker"),
    ]
    mine.rows = rows
    counts = run.score(given, found, resamples=10)["whole"]["calibration"]
    assert counts == {
        "drafts": 3, "changed": 3, "improved": 1, "harmed": 1, "correct_lowered": 1,
        "actions": {"keep": 3},
    }  # fmt: skip


# ---- readers from options


def chat(handler, body):
    """Answer "number N" for "What is number N?"."""
    n = re.search(r"number (\d+)", body["messages"][1]["content"]).group(1)
    good(handler, body, f"Answer: {n}\nSources: 1")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-reader")


def remote(server, *more):
    return readers.from_options(options("--reader", "openai:m", "--base-url", server.url, *more))


def test_jobs_ask_at_once_and_rows_stay_in_order():
    running, peak, lock = [0], [0], threading.Lock()

    def step(handler, body):
        with lock:
            running[0] += 1
            peak[0] = max(peak[0], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        chat(handler, body)

    given = many(16)
    with Server(step) as server:
        found = run.answer(given, [Whole()], remote(server), Budget(), jobs=4)
    rows = found["whole"].rows
    assert [r.answer for r in rows] == [str(i) for i in range(16)]
    assert peak[0] == 4
    assert rows[0].tokens["prompt"] == 111
    assert rows[0].seconds >= 0.05


def test_one_job_asks_one_at_a_time():
    with Server(chat) as server:
        found = run.answer(many(3), [Whole()], remote(server), Budget())
    assert [r.answer for r in found["whole"].rows] == ["0", "1", "2"]


def test_an_answer_is_known_wherever_the_model_runs_but_not_with_other_sampling(tmp_path):
    replies = ("--replies", str(tmp_path / "r.db"))

    def n_asked(*more):
        with Server(chat) as server:
            run.answer(many(2), [Whole()], remote(server, *replies, *more), Budget())
            return len(server.requests)

    assert n_asked() == 2
    assert n_asked("--timeout", "7", "--retries", "1") == 0  # and on another port
    assert n_asked("--temperature", "0.5") == 2
    assert n_asked("--reader-seed", "3") == 2
    assert n_asked("--max-tokens", "9") == 2
    assert n_asked("--logprobs") == 2


def test_the_options_reach_the_endpoint(monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    with Server(chat) as server:
        reader = remote(
            server, "--temperature", "0.5", "--reader-seed", "3", "--max-tokens", "9",
            "--logprobs", "--api-key-env", "OTHER_KEY",
        )  # fmt: skip
        run.answer(many(1), [Whole()], reader, Budget())
    (request,) = server.requests
    assert {k: v for k, v in request.items() if k != "messages"} == {
        "model": "m", "temperature": 0.5, "seed": 3, "max_tokens": 9, "logprobs": True,
    }  # fmt: skip
    assert server.headers[0]["authorization"] == "Bearer sk-other"


def test_a_rate_limit_holds_over_all_jobs():
    with Server(chat) as server:
        start = time.monotonic()
        reader = remote(server, "--requests-per-minute", "600")
        run.answer(many(5), [Whole()], reader, Budget(), jobs=4)
        assert time.monotonic() - start >= 0.39


def test_confidence_from_log_probabilities_chooses_among_blocks():
    def step(handler, body):
        held = "Biscuit" in body["messages"][1]["content"]
        token, logprob = ("Biscuit", -0.1) if held else ("Rex", -3.0)
        choice = {
            "index": 0, "message": {"role": "assistant", "content": token},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": token, "logprob": logprob, "bytes": None,
                                      "top_logprobs": []}]},
        }  # fmt: skip
        send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                            "choices": [choice], "usage": None})  # fmt: skip

    with Server(step) as server:
        _, found = answered(remote(server, "--logprobs"), [Whole(blocks=True)])
    assert found["whole"].rows[0].answer == "Biscuit"
    assert len(server.requests) == 3 + 3 + 2


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        (["--reader", "openai"], InvalidInputError, "--reader must be"),
        (["--reader", "gpt"], InvalidInputError, "--reader must be"),
        (["--reader", "opnai:gpt"], InvalidInputError, "'opnai:gpt' cannot be loaded"),
        (["--reader", "json:no_such"], InvalidInputError, "cannot be loaded: AttributeError"),
        (["--reader", "json:__name__"], InvalidInputError, "is no class"),
        (["--reader", "json:loads"], InvalidInputError, "cannot be made: TypeError"),
        (["--reader", "json:JSONDecoder"], InvalidInputError, "has no read: .*Draft"),
        (["--reader", "no_such.py:Mine"], InvalidInputError, "cannot be loaded: FileNotFound"),
        (["--jobs", "0"], InvalidInputError, "--jobs"),
        (["--reader", "openai:m", "--api-key-env", "NO_SUCH_KEY"], InvalidInputError, "NO_SUCH"),
        (["--reader", "llama:/no/such.gguf"], ModelNotFoundError, r"gguf|pip install"),
        (["--reader", "openai:m", "--requests-per-minute", "0"], InvalidInputError, "requests"),
    ],
)
def test_bad_options_are_named(given, error, named):
    with pytest.raises(error, match=named):
        readers.from_options(options(*given))


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from zeromem.answer.reader import Draft

@dataclass
class Mine:
    n: int = 0

    def read(self, question, evidence, *, profile):
        return Draft("Biscuit" if "dog" in question else "")

class Named(Mine):
    fingerprint = "v1"

class Wrong(Mine):
    def read(self, question, evidence, *, profile):
        return "Biscuit"

class Nameless(Mine):
    fingerprint = 1
"""


def test_a_reader_of_ones_own_is_known_by_its_file_or_by_what_it_says(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    replies = ("--replies", str(tmp_path / "r.db"))

    def n_fresh(name):
        reader = readers.from_options(options("--reader", f"{path}:{name}", *replies))
        found = answered(reader)[1]["whole"]
        assert [r.answer for r in found.rows] == ["Biscuit", "", ""]
        assert str(tmp_path) not in reader.fingerprint
        return found.n_fresh

    assert [n_fresh("Mine"), n_fresh("Mine"), n_fresh("Named"), n_fresh("Named")] == [3, 0, 3, 0]
    path.write_text(OWN + "# changed")
    assert [n_fresh("Mine"), n_fresh("Named")] == [3, 0]
    reader = readers.from_options(options("--reader", f"{path}:Wrong"))
    assert "Draft, got 'Biscuit'" in answered(reader)[1]["whole"].rows[0].error
    with pytest.raises(InvalidInputError, match="fingerprint.*got 1"):
        readers.from_options(options("--reader", f"{path}:Nameless"))


def test_a_reader_of_ones_own_in_a_module(tmp_path, monkeypatch):
    (tmp_path / "my_readers_of_this_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    reader = readers.from_options(options("--reader", "my_readers_of_this_test:Named"))
    assert reader.fingerprint == "my_readers_of_this_test.py:Named v1"
    assert answered(reader)[1]["whole"].rows[0].answer == "Biscuit"


@pytest.mark.model
def test_the_extractive_reader_answers_and_is_known_by_its_code(tmp_path, monkeypatch):
    given = dataset()
    arguments = options("--replies", str(tmp_path / "r.db"))
    _, found = answered(readers.from_options(arguments), given=given)
    assert found["whole"].rows[0].answer == "Biscuit"
    assert found["whole"].n_fresh == 3
    assert answered(readers.from_options(arguments))[1]["whole"].n_fresh == 0
    monkeypatch.setattr(readers, "code_digest", lambda: "changed")
    assert answered(readers.from_options(arguments))[1]["whole"].n_fresh == 3
