"""LangChain: a retriever, and a chat's history, over a memory.

>>> import zeromem
>>> from zeromem.integrations.langchain import ZeroMemChatMessageHistory, ZeroMemRetriever
>>> memory = zeromem.open("agent.zm", scope="ana")  # doctest: +SKIP
>>> history = ZeroMemChatMessageHistory(memory, "s1", user="Ana")  # doctest: +SKIP
>>> history.add_user_message("Miso is my new kitten!")  # doctest: +SKIP
>>> ZeroMemRetriever(memory=memory, k=1).invoke("Ana's kitten?")[0].page_content  # doctest: +SKIP
'Miso is my new kitten!'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zeromem.aio import AsyncMemory
from zeromem.integrations._shared import (
    Clock,
    SessionLog,
    Turn,
    check_arguments,
    check_options,
    memory_of,
    missing,
    now,
    provenance,
    said,
    span_id,
)
from zeromem.memory import Memory
from zeromem.types import Evidence, Role, Trace

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.documents import Document
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ChatMessage,
        HumanMessage,
        message_to_dict,
        messages_from_dict,
    )
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
    from pydantic import Field
except ImportError as error:
    raise missing("langchain-core", "langchain") from error

_KEY = "langchain"
_ROLES: Mapping[str, Role] = {
    "human": "user", "user": "user", "ai": "assistant", "assistant": "assistant",
    "tool": "tool", "function": "tool", "system": "document", "developer": "document",
}  # fmt: skip


class ZeroMemRetriever(BaseRetriever):
    """Evidence for a question as documents, best first.

    ``page_content`` is the evidence word for word; ``metadata`` has ``id`` (of the trace),
    ``session``, ``speaker``, ``time`` (ISO 8601, to its precision), ``role``, ``source``,
    ``title``, ``start`` and ``end`` (the characters of the trace's text), ``score``, ``why`` and
    ``kind``. A call may override options: ``retriever.invoke(question, k=3)``.

    Parameters
    ----------
    memory : Memory or AsyncMemory
        Safe to share between threads; asynchronous calls run in one.
    k : int, optional
    token_budget : int, optional
    options : dict
        Any others of :meth:`zeromem.Memory.retrieve`: ``speakers``, ``after``, ….

    Raises
    ------
    InvalidInputError
        An argument or an option is unknown, or has a value that cannot be used.
    """

    memory: Memory | AsyncMemory
    k: int | None = None
    token_budget: int | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    def __init__(self, **given: Any) -> None:
        check_arguments(type(self), given)
        super().__init__(**given)
        check_options(memory_of(self.memory), self._given({}))

    def _given(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "token_budget": self.token_budget, **self.options, **options}

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        (found,) = memory_of(self.memory).retrieve_batch([query], **self._given(options))
        return [_document(item) for item in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        sync = run_manager.get_sync()
        return await run_in_executor(
            None, lambda: self._get_relevant_documents(query, run_manager=sync, **options)
        )


def _document(item: Evidence) -> Document:
    return Document(id=span_id(item), page_content=item.text, metadata=provenance(item))


class ZeroMemChatMessageHistory(BaseChatMessageHistory):
    """The messages of one chat, kept as one session of a memory, in the order they were added.

    Messages come back as they went in: ids, tool calls, content in parts and additional fields
    included, as far as JSON can hold them; what it cannot is refused. Traces that others wrote into
    the session appear as messages where their role is user or assistant.

    Parameters
    ----------
    memory : Memory or AsyncMemory
    session : str
    user, assistant : str, optional
        The names of who speaks, where a message has no ``name`` of its own.
    clock : callable, optional
        Gives the event time of messages as they are added, by default the present; None leaves
        them undated, which is right for chats of the past.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        session: str,
        *,
        user: str | None = None,
        assistant: str | None = None,
        clock: Clock | None = now,
    ) -> None:
        super().__init__()
        self._log = SessionLog(memory, session, _KEY, clock)
        self._names = {"user": user, "assistant": assistant}

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """All messages, in the order they were added."""
        found = (self._message(trace) for trace in self._log.read())
        return [message for message in found if message is not None]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Remember messages, all or none; they are on disk when this returns."""
        self._log.append([self._turn(message) for message in messages])

    def clear(self) -> None:
        """Forget the whole session, for good."""
        self._log.clear()

    def _turn(self, message: BaseMessage) -> Turn:
        role = _ROLES.get(message.role if isinstance(message, ChatMessage) else message.type)
        if role is None:  # a part in a play, or a chunk of a reply
            role = "assistant" if isinstance(message, AIMessage) else "user"
        speaker = message.name or self._names.get(role)
        if isinstance(message, ChatMessage) and message.role not in _ROLES:
            speaker = message.name or message.role or None
        calls = [(c["name"], c["args"]) for c in getattr(message, "tool_calls", ())]
        parts = [message.content] if isinstance(message.content, str) else message.content
        kinds = [str(part.get("type", "part")) for part in parts if isinstance(part, dict)]
        text = said(str(message.text), calls, kinds)
        form = message_to_dict(message)
        if form["data"]["content"] == text:  # the trace's text is where it is kept
            del form["data"]["content"]
        return Turn(text, role, speaker, form)

    def _message(self, trace: Trace) -> BaseMessage | None:
        form = trace.metadata.get(_KEY)
        if form is None:
            if trace.role not in ("user", "assistant"):
                return None
            plain = HumanMessage if trace.role == "user" else AIMessage
            return plain(trace.text, id=trace.id, name=trace.speaker)
        data = {"content": trace.text, **form["data"]}
        return messages_from_dict([{"type": form["type"], "data": data}])[0]
