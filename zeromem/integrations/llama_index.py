"""LlamaIndex: a retriever, a chat memory and a memory block over a memory.

>>> import zeromem
>>> from zeromem.integrations.llama_index import ZeroMemMemory, ZeroMemRetriever
>>> memory = zeromem.open("agent.zm", scope="ana")  # doctest: +SKIP
>>> chat = ZeroMemMemory(memory=memory, session="s1", user="Ana")  # doctest: +SKIP
>>> chat.put(ChatMessage(role="user", content="Miso is my new kitten!"))  # doctest: +SKIP
>>> ZeroMemRetriever(memory, k=1).retrieve("Who is Ana's kitten?")[0].text  # doctest: +SKIP
'Miso is my new kitten!'
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from zeromem.aio import AsyncMemory
from zeromem.errors import InvalidInputError
from zeromem.integrations._shared import (
    SessionLog,
    Turn,
    check_arguments,
    check_options,
    fenced,
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
    from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
    from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.memory import BaseMemory, BaseMemoryBlock
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
    from pydantic_core import PydanticSerializationError
except ImportError as error:
    raise missing("llama-index-core", "llama-index") from error

_KEY = "llama_index"
_K = 5
_ROLES: Mapping[MessageRole, Role] = {
    MessageRole.SYSTEM: "document", MessageRole.DEVELOPER: "document", MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant", MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant", MessageRole.FUNCTION: "tool", MessageRole.TOOL: "tool",
}  # fmt: skip
# What a model and an embedding need not see of a node's metadata.
_HIDDEN = ["id", "role", "start", "end", "score", "why", "kind"]


class ZeroMemRetriever(BaseRetriever):
    """Evidence for a question as nodes with scores, best first.

    A node's ``text`` is the evidence word for word, its ``metadata`` has what is known of ``id``
    (of the trace), ``session``, ``speaker``, ``time`` (ISO 8601, to its precision), ``role``,
    ``source``, ``title``, ``start`` and ``end`` (the characters of the trace's text), ``score``,
    ``why`` and ``kind``; its source is the trace.

    Parameters
    ----------
    memory : Memory or AsyncMemory
        Safe to share between threads; asynchronous calls run in one.
    callback_manager : CallbackManager, optional
    verbose : bool
    **options
        Those of :meth:`zeromem.Memory.retrieve`: ``k``, ``token_budget``, ``speakers``, ….

    Raises
    ------
    InvalidInputError
        An option is unknown, or has a value that cannot be used.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        self._memory = memory_of(memory)
        check_options(self._memory, options)
        self._options = options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        (found,) = self._memory.retrieve_batch([query_bundle.query_str], **self._options)
        return [_node(item) for item in found]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _node(item: Evidence) -> NodeWithScore:
    node = TextNode(
        id_=span_id(item),
        text=item.text,
        metadata={name: v for name, v in provenance(item).items() if v is not None},
        start_char_idx=item.start,
        end_char_idx=item.end,
        excluded_llm_metadata_keys=_HIDDEN,
        excluded_embed_metadata_keys=_HIDDEN,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=item.id)},
    )
    return NodeWithScore(node=node, score=item.score)


class ZeroMemMemory(BaseMemory):
    """A chat that remembers all chats of a memory's scope.

    Messages are kept as one session, on disk when ``put`` returns, and come back as they went in,
    as far as the library writes them to JSON. ``get`` gives the end of the chat, after a system
    message with evidence from all that the scope remembers and the end of the chat does not show:
    numbered records whose every line is quoted, so that what was once said cannot give orders.

    Parameters
    ----------
    memory : Memory or AsyncMemory
    session : str
    window : int
        How many of the last messages ``get`` returns; more where the first of them would be torn
        from the user's turn that it answers.
    k : int
        Most records of evidence.
    options : dict
        Others of :meth:`zeromem.Memory.retrieve`: ``token_budget``, ``speakers``, ….
    user, assistant : str, optional
        The names of who speaks.
    clock : callable, optional
        Gives the event time of messages as they are put, by default the present; None leaves them
        undated.
    """

    memory: Any = Field(exclude=True)
    session: str
    window: int = Field(default=20, ge=1)
    k: int = Field(default=_K, ge=1)
    options: dict[str, Any] = Field(default_factory=dict)
    user: str | None = None
    assistant: str | None = None
    clock: Callable[[], datetime] | None = Field(default=now, exclude=True)
    _log: SessionLog = PrivateAttr()

    def __init__(self, **given: Any) -> None:
        check_arguments(type(self), given)
        super().__init__(**given)
        self._log = SessionLog(self.memory, self.session, _KEY, self.clock)
        check_options(self._log.memory, self.options)

    @classmethod
    def class_name(cls) -> str:
        """The name under which the library knows the class."""
        return "ZeroMemMemory"

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> ZeroMemMemory:
        """Make one; parameters as for the class."""
        return cls(**kwargs)

    def get(self, input: str | ChatMessage | None = None, **kwargs: Any) -> list[ChatMessage]:
        """Give the evidence and the end of the chat.

        Parameters
        ----------
        input : str or ChatMessage, optional
            What evidence is looked for; by default the last that the user said.
        **kwargs
            Whatever else the library tells its own memories.
        """
        recent = self._recent()
        if isinstance(input, ChatMessage):
            input = input.content
        if input is None:
            input = next((t.text for t in reversed(recent) if t.role == "user"), "")
        shown = {trace.id for trace in recent}
        # What the end of the chat shows is found too, and takes no other's place.
        found = _evidence(
            self.memory, input, {"k": self.k + len(recent), "echoes": False, **self.options}
        )
        items = [item for item in found if item.id not in shown][: self.k]
        evidence = [ChatMessage(role=MessageRole.SYSTEM, content=fenced(items))] if items else []
        return [*evidence, *_messages(recent)]

    def _recent(self) -> list[Trace]:
        n = self.window
        while True:
            last = self._log.last(n)
            starts = [i for i, t in enumerate(last) if t.role == "user"]
            fitting = [i for i in starts if i <= len(last) - self.window]
            if fitting or len(last) < n:
                return last[fitting[-1] if fitting else 0 :]
            n *= 2

    def get_all(self) -> list[ChatMessage]:
        """Give the whole chat."""
        return list(_messages(self._log.read()))

    def put(self, message: ChatMessage) -> None:
        """Remember a message; it is on disk when this returns."""
        self.put_messages([message])

    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Remember messages, all or none."""
        self._log.append(self._turns(messages))

    def set(self, messages: Sequence[ChatMessage]) -> None:
        """Put other messages in place of the chat's."""
        self._log.replace(self._turns(messages))

    def reset(self) -> None:
        """Forget the chat, for good."""
        self._log.clear()

    def _turns(self, messages: Sequence[ChatMessage]) -> list[Turn]:
        names = {"user": self.user, "assistant": self.assistant}
        return [_turn(message, names) for message in messages]


class ZeroMemMemoryBlock(BaseMemoryBlock[str]):
    """Long-term memory of the library's own ``Memory``: what falls out of its short-term memory.

    Messages are kept in the session that the ``Memory`` names, else in one of the block's name.
    The block's content is evidence for the last that the user said, from all sessions, as quoted
    records.

    Parameters
    ----------
    memory : Memory or AsyncMemory
    k : int
    options : dict
        Others of :meth:`zeromem.Memory.retrieve`.
    user, assistant, clock
        As for :class:`ZeroMemMemory`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = "zeromem"
    memory: Any = Field(exclude=True)
    k: int = Field(default=_K, ge=1)
    options: dict[str, Any] = Field(default_factory=dict)
    user: str | None = None
    assistant: str | None = None
    clock: Callable[[], datetime] | None = Field(default=now, exclude=True)

    def __init__(self, **given: Any) -> None:
        check_arguments(type(self), given)
        super().__init__(**given)
        check_options(memory_of(self.memory), self.options)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        said_last = (m.content for m in reversed(messages or ()) if m.role == MessageRole.USER)
        question = next(said_last, None) or ""
        options = {"k": self.k, "echoes": False, **self.options}
        found = await asyncio.to_thread(_evidence, self.memory, question, options)
        return fenced(found) if found else ""

    async def _aput(self, messages: list[ChatMessage]) -> None:
        names = {"user": self.user, "assistant": self.assistant}
        by_session: dict[str, list[Turn]] = {}
        for message in messages:
            # The Memory writes its session into messages, on their way to its blocks.
            extra = dict(message.additional_kwargs)
            session = str(extra.pop("session_id", None) or self.name)
            own = message.model_copy(update={"additional_kwargs": extra})
            by_session.setdefault(session, []).append(_turn(own, names))
        for session, turns in by_session.items():
            log = SessionLog(self.memory, session, _KEY, self.clock)
            await asyncio.to_thread(log.append, turns)


def _evidence(memory: Any, question: str | None, options: Mapping[str, Any]) -> Sequence[Evidence]:
    if not (question or "").strip():
        return ()
    (found,) = memory_of(memory).retrieve_batch([str(question)], **options)
    return found


def _turn(message: ChatMessage, names: Mapping[str, str | None]) -> Turn:
    if not isinstance(message, ChatMessage):
        raise InvalidInputError(f"messages must be ChatMessage, got {message!r:.80}")
    try:
        form = message.model_dump(mode="json")
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"a message must be of JSON's types: {error}") from None
    kinds = [block.block_type for block in message.blocks if not isinstance(block, TextBlock)]
    text = said(message.content or "", _calls(message, form), kinds)
    if form["blocks"] == [TextBlock(text=text).model_dump(mode="json")]:
        del form["blocks"]
    role = _ROLES[message.role]
    return Turn(text, role, names.get(role), form)


def _calls(message: ChatMessage, form: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tool calls, in blocks or as clients of OpenAI's interface leave them."""
    for block in message.blocks:
        if isinstance(block, ToolCallBlock):
            yield block.tool_name, block.tool_kwargs
    for call in form["additional_kwargs"].get("tool_calls") or ():
        if isinstance(call, dict) and isinstance(called := call.get("function"), dict):
            yield str(called.get("name")), called.get("arguments")


def _messages(traces: Iterable[Trace]) -> Iterator[ChatMessage]:
    for trace in traces:
        form = trace.metadata.get(_KEY)
        if form is not None:
            blocks = {"blocks": [{"block_type": "text", "text": trace.text}]}
            yield ChatMessage.model_validate({**blocks, **form})
        elif trace.role in ("user", "assistant"):  # by others
            yield ChatMessage(role=trace.role, content=trace.text)
