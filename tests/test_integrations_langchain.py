"""LangChain's own classes over a memory: documents, and messages that come back as they went."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
from support import STORY, open_memory

import zeromem
from zeromem.errors import InvalidInputError

pytest.importorskip("langchain_core", reason="needs the extra langchain")

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory

from zeromem.integrations.langchain import ZeroMemChatMessageHistory, ZeroMemRetriever

pytestmark = pytest.mark.filterwarnings(
    "ignore::langchain_core._api.deprecation.LangChainDeprecationWarning"
)
CALL = {"name": "weather", "args": {"city": "Évora", "days": [1, 2]}, "id": "c1"}
MESSAGES = [
    SystemMessage("You are helpful.", id="m0"),
    HumanMessage("Miso is my new kitten!", id="m1", name="Ana"),
    AIMessage("", tool_calls=[CALL], id="m2", response_metadata={"model": "m"},
              usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}),
    ToolMessage("sunny", tool_call_id="c1", artifact={"raw": [1.5, None]}, status="error"),
    AIMessage("  \n", additional_kwargs={"refusal": None, "nested": {"a": [True]}}),
    HumanMessage([{"type": "text", "text": "What is this?"},
                  {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
    HumanMessage([{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]),
    AIMessage("Yes", invalid_tool_calls=[{"name": "f", "args": "{", "id": "x", "error": "bad",
                                          "type": "invalid_tool_call"}]),
    ChatMessage("Once more unto the breach", role="Henry"),
    FunctionMessage("42", name="f"),
    AIMessageChunk("part", id="run-1"),
    HumanMessage("[empty message]"),
    HumanMessage("Miso is my new kitten!", id="m1", name="Ana"),
    HumanMessage(""),
    HumanMessage("a\x00b \udc80 \u2028 東京"),
]  # fmt: skip


@pytest.fixture
def memory(tmp_path):
    with open_memory(tmp_path / "m.zm") as memory:
        yield memory


# ---- retriever


def test_documents_are_the_evidence_with_its_provenance(memory):
    memory.add_many(STORY)
    memory.add(
        "Ana flew to Oslo.",
        speaker="Ben",
        session="s9",
        title="Trip",
        time="2026-05",
        source="mail",
    )
    found = ZeroMemRetriever(memory=memory, k=4).invoke("Who flew to Oslo?")
    evidence = memory.retrieve("Who flew to Oslo?", k=4)
    assert [d.page_content for d in found] == [e.text for e in evidence]
    assert len({d.id for d in found}) == len(found) >= 4
    for document, item in zip(found, evidence, strict=True):
        assert isinstance(document, Document)
        assert set(document.metadata) == {
            "id", "session", "speaker", "time", "role", "source", "title", "start", "end",
            "score", "why", "kind",
        }  # fmt: skip
        text = memory.get([document.metadata["id"]])[document.metadata["id"]].text
        assert text[document.metadata["start"] : document.metadata["end"]] == document.page_content
        assert document.metadata["score"] == item.score
    flight = next(d.metadata for d in found if "Oslo" in d.page_content)
    known = {"speaker": "Ben", "session": "s9", "time": "2026-05", "source": "mail",
             "title": "Trip", "role": "user"}  # fmt: skip
    assert known.items() <= flight.items()
    json.dumps([d.metadata for d in found])


def test_options_bound_the_search_and_a_call_overrides_them(memory):
    memory.add_many(STORY)
    retriever = ZeroMemRetriever(memory=memory, k=1, options={"speakers": "Ben"})
    found = retriever.invoke("What does Miso eat?")
    assert {d.metadata["speaker"] for d in found} == {"Ben"}
    found = retriever.invoke("What does Miso eat?", k=3, speakers="Ana", closure=False)
    assert len(found) == 3
    assert {d.metadata["speaker"] for d in found} == {"Ana"}
    with pytest.raises(InvalidInputError, match="k must be"):
        retriever.invoke("What?", k=0)
    with pytest.raises(InvalidInputError, match="unknown option 'colour'"):
        retriever.invoke("What?", colour=1)
    with pytest.raises(ValueError, match="memory"):
        ZeroMemRetriever(memory="agent.zm")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"speakers": "Ben"}, "unknown argument 'speakers'; ZeroMemRetriever takes .*options="),
        ({"options": {"colour": 1}}, "unknown option 'colour'; retrieve takes k"),
        ({"options": {"after": "soon"}}, "soon"),
        ({"options": {"after": "2026-05-03T10:00"}}, "zone"),
        ({"options": {"roles": "king"}}, "roles must be among"),
        ({"k": 0}, "k must be an integer from 1"),
        ({"token_budget": -1}, "token_budget must be an integer from 1"),
    ],
)
def test_what_cannot_be_used_is_refused_when_a_retriever_is_made(memory, given, message):
    with pytest.raises(InvalidInputError, match=message):
        ZeroMemRetriever(memory=memory, **given)


def test_options_are_read_in_the_memorys_zone():
    with open_memory(zone="Europe/Berlin") as memory:
        memory.add("Miso is a kitten.", time="2026-05-03T12:00")
        for after, n in (("2026-05-03T11:00", 1), ("2026-05-03T13:00", 0)):
            retriever = ZeroMemRetriever(memory=memory, options={"after": after})
            assert len(retriever.invoke("Which kitten?")) == n


def test_a_class_made_of_it_may_have_fields_of_its_own(memory):
    class Titled(ZeroMemRetriever):
        title: str

    assert Titled(memory=memory, title="t", name="n", tags=["a"]).title == "t"
    with pytest.raises(InvalidInputError, match="Titled takes .*title"):
        Titled(memory=memory, title="t", colour=1)


def test_asynchronous_and_batched_calls_find_the_same(memory):
    memory.add_many(STORY)
    questions = ["What does Miso eat?", "Who founded Acme?", "Where does Ana live?"]
    retriever = ZeroMemRetriever(memory=memory, k=2)
    alone = [retriever.invoke(q) for q in questions]
    assert retriever.batch(questions) == alone

    async def ask():
        own = zeromem.AsyncMemory(memory)
        again = ZeroMemRetriever(memory=own, k=2)
        return await again.abatch(questions), await again.ainvoke(questions[0], k=1)

    together, one = asyncio.run(ask())
    assert together == alone
    assert len(one) < len(alone[0])


def test_a_retriever_is_a_part_of_a_chain(memory):
    memory.add_many(STORY)
    chain = (
        {
            "context": ZeroMemRetriever(memory=memory, k=1) | (lambda docs: docs[0].page_content),
            "question": RunnablePassthrough(),
        }
        | ChatPromptTemplate.from_template("{context} {question}")
        | RunnableLambda(lambda prompt: prompt.to_messages()[0])
        | StrOutputParser()
    )
    said = chain.invoke("Who founded Acme?")
    assert said == "Acme was founded by Carla Reis, who plays chess. Who founded Acme?"


# ---- history


def test_messages_come_back_as_they_went_in(memory, tmp_path):
    history = ZeroMemChatMessageHistory(memory, "s1")
    history.add_messages(MESSAGES)
    assert history.messages == MESSAGES
    assert [type(m) for m in history.messages] == [type(m) for m in MESSAGES]
    memory.close()
    with open_memory(tmp_path / "m.zm") as again:
        assert ZeroMemChatMessageHistory(again, "s1").messages == MESSAGES


def test_what_was_said_is_evidence(memory):
    at = datetime(2026, 5, 3, 10, 0, tzinfo=UTC)
    history = ZeroMemChatMessageHistory(memory, "s1", user="Ana", assistant="Bot", clock=lambda: at)
    history.add_user_message("My sister plays the harp.")
    history.add_ai_message("How lovely!")
    history.add_messages([AIMessage("", tool_calls=[CALL]), SystemMessage("Be brief."),
                          HumanMessage("I paint.", name="Ben"), HumanMessage([])])  # fmt: skip
    traces = [s.trace for s in memory.traces().items]
    assert [(t.text, t.role, t.speaker) for t in traces] == [
        ("My sister plays the harp.", "user", "Ana"),
        ("How lovely!", "assistant", "Bot"),
        ('weather({"city": "Évora", "days": [1, 2]})', "assistant", "Bot"),
        ("Be brief.", "document", None),
        ("I paint.", "user", "Ben"),
        ("[empty message]", "user", "Ana"),
    ]
    assert {t.session for t in traces} == {"s1"}
    assert {t.time.start for t in traces} == {at}
    found = ZeroMemRetriever(memory=memory, k=1).invoke("Who plays the harp?")
    assert found[0].page_content == "My sister plays the harp."
    undated = ZeroMemChatMessageHistory(memory, "s2", clock=None)
    undated.add_user_message("Long ago")
    assert memory.traces(sessions="s2").items[0].trace.time is None


def test_sessions_are_apart_and_clear_forgets_one(memory):
    chats = {name: ZeroMemChatMessageHistory(memory, name) for name in ("s1", "S1", "s 1", "ß")}
    for name, history in chats.items():
        history.add_messages([HumanMessage(f"I am {name}"), AIMessage("Hello")])
    assert {n: h.messages[0].content for n, h in chats.items()} == {n: f"I am {n}" for n in chats}
    assert {len(h.messages) for h in chats.values()} == {2}
    chats["s1"].clear()
    assert chats["s1"].messages == []
    assert len(chats["S1"].messages) == 2
    assert not any(t.metadata["session"] == "s1"
                   for t in ZeroMemRetriever(memory=memory, k=9).invoke("Who am I?"))  # fmt: skip
    chats["s1"].add_user_message("back")
    assert [m.content for m in chats["s1"].messages] == ["back"]
    with pytest.raises(InvalidInputError, match="session must be"):
        ZeroMemChatMessageHistory(memory, "")
    with pytest.raises(InvalidInputError, match="memory must be"):
        ZeroMemChatMessageHistory(None, "s1")


def test_a_message_that_json_cannot_hold_is_refused_and_none_is_kept(memory):
    history = ZeroMemChatMessageHistory(memory, "s1")
    fine = [HumanMessage(f"turn {i}") for i in range(600)]  # more than a batch
    with pytest.raises(InvalidInputError, match="JSON cannot hold"):
        history.add_messages([*fine, HumanMessage("b", additional_kwargs={"x": b""})])
    assert history.messages == []
    history.add_messages([])
    assert memory.traces().items == ()


def test_long_histories_are_read_whole_and_others_turns_are_shown(memory):
    history = ZeroMemChatMessageHistory(memory, "s1")
    many = [HumanMessage(f"turn {i}") for i in range(1300)]
    history.add_messages(many)
    memory.add("By hand", session="s1", speaker="Ben")
    memory.add("Of course", session="s1", role="assistant")
    memory.add("A page", session="s1", role="document")
    *first, by_hand, reply = history.messages
    assert first == many
    assert isinstance(by_hand, HumanMessage)
    assert (by_hand.content, by_hand.name) == ("By hand", "Ben")
    assert isinstance(reply, AIMessage)


def test_a_chain_with_history_remembers(memory):
    replies = iter([AIMessage("Nice to meet you"), AIMessage("Miso"), AIMessage("async")])
    seen = []
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be kind."), MessagesPlaceholder("history"), ("human", "{question}")]
    )

    def noted(value):
        seen.append([m.content for m in value.to_messages()])
        return value

    chain = RunnableWithMessageHistory(
        prompt | RunnableLambda(noted) | GenericFakeChatModel(messages=replies),
        lambda session: ZeroMemChatMessageHistory(memory, session),
        input_messages_key="question",
        history_messages_key="history",
    )
    one = {"configurable": {"session_id": "one"}}
    chain.invoke({"question": "My kitten is Miso"}, one)
    assert chain.invoke({"question": "Who is my kitten?"}, one).content == "Miso"
    asyncio.run(chain.ainvoke({"question": "Who?"}, {"configurable": {"session_id": "two"}}))
    assert seen == [
        ["Be kind.", "My kitten is Miso"],
        ["Be kind.", "My kitten is Miso", "Nice to meet you", "Who is my kitten?"],
        ["Be kind.", "Who?"],
    ]
    one_again = ZeroMemChatMessageHistory(memory, "one").messages
    assert [m.content for m in one_again] == [*seen[1][1:], "Miso"]
    two = asyncio.run(ZeroMemChatMessageHistory(memory, "two").aget_messages())
    assert [m.content for m in two] == ["Who?", "async"]
