"""Adds that share an encoder: what fails for one does not make the others wait."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support import HashEncoder

from zeromem.keys import Key
from zeromem.memories import Memories
from zeromem.server.access import Access
from zeromem.server.writing import Writer

A, B = Access(None, "a"), Access(None, "b")


class WaitingEncoder(HashEncoder):
    """Encodes when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may = threading.Event(), threading.Event()

    def encode_spans(self, texts, spans):
        self.began.set()
        assert self.may.wait(30)
        return super().encode_spans(texts, spans)


def test_features_that_cannot_be_stored_leave_the_others_their_turn(tmp_path: Path) -> None:
    path, encoder = tmp_path / "s.zm", WaitingEncoder()
    files = [f"{path}{suffix}" for suffix in ("", "-wal", "-shm")]

    async def run(memories: Memories) -> None:
        writer = Writer(memories)
        assert (await writer.add(A, [{"text": "Miso is a kitten."}]))[0].created
        await asyncio.to_thread(encoder.began.wait, 30)
        assert (await writer.add(B, [{"text": "Ben plays chess."}]))[0].created
        for name in files:
            os.rename(name, f"{name}.away")
        encoder.may.set()
        await asyncio.wait_for(writer.settled("a"), 30)
        for name in files:
            os.rename(f"{name}.away", name)
        await asyncio.wait_for(writer.settled("b"), 30)
        assert writer.n_pending == 0
        await asyncio.wait_for(writer.close(), 30)

    with Memories(path, encoder=encoder, annotator="rules", device="cpu") as memories:
        asyncio.run(run(memories))
        for scope in "ab":
            with memories.use(scope) as memory:
                assert len(memory.retrieve("Miso")) == 1


def test_a_long_text_holds_up_its_own_scope_alone() -> None:
    class Slow(HashEncoder):
        may = threading.Event()

        def encode_spans(self, texts, spans):
            if any("long" in text for text in texts):
                assert self.may.wait(30)
            return super().encode_spans(texts, spans)

    encoder = Slow()

    async def run(memories: Memories) -> None:
        writer = Writer(memories)
        await writer.add(A, [{"text": "A long story. " * 5000}])
        await writer.add(B, [{"text": "Ben plays chess."}])
        await asyncio.wait_for(writer.settled("b"), 20)
        waiting = asyncio.create_task(writer.settled("a"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        encoder.may.set()
        await asyncio.wait_for(waiting, 20)
        await writer.close()

    with Memories(encoder=encoder, annotator="rules", device="cpu") as memories:
        asyncio.run(run(memories))


def key(name: str | None) -> Key:
    return Key(f"of {name}", name, "", False, None, datetime.now(UTC), None)


def many(n: int, what: str) -> list[dict[str, str]]:
    return [{"text": f"{what} {i}"} for i in range(n)]


def test_one_scope_in_the_name_of_two_is_settled_when_both_are() -> None:
    encoder = WaitingEncoder()
    acme, operator, ben = key("acme"), key(None), key("beta")

    async def run(memories: Memories) -> None:
        writer = Writer(memories)
        await writer.add(Access(acme, "other"), many(200, "x"))
        await writer.add(Access(acme, "ana"), many(1, "ana"))  # behind it
        await writer.add(Access(operator, "acme/ana"), many(1, "op"))  # ends before
        await writer.add(Access(ben, "ben"), many(250, "ben"))
        assert not await ended(writer.settled("acme/ana"))
        encoder.may.set()
        for scope in ("acme/ana", "acme/other", "beta/ben"):
            while not await ended(writer.settled(scope)):
                pass
        assert writer.n_pending == 0
        assert not writer._settling
        assert not writer._sizes
        await writer.close()

    async def ended(settled: Any) -> bool:
        start = asyncio.get_running_loop().time()
        await settled
        return asyncio.get_running_loop().time() - start < 0.9

    with Memories(encoder=encoder, annotator="rules", device="cpu") as memories:
        asyncio.run(run(memories))
        with memories.use("acme/ana") as memory:
            assert len(memory.retrieve("ana op")) == 2


def test_what_waits_to_be_encoded_is_bounded_and_holds_up_no_end(monkeypatch: Any) -> None:
    monkeypatch.setattr("zeromem.server.writing._MOST_WAITING", 10_000)
    encoder = WaitingEncoder()
    acme, ben = key("acme"), key("beta")

    async def run(memories: Memories) -> None:
        writer = Writer(memories)
        for i in range(30):
            assert all(
                one.created for one in await writer.add(Access(acme, "a"), many(100, f"{i}"))
            )
        assert 500 < writer.n_pending < 2500  # a line has five to eight characters
        await writer.add(Access(ben, "b"), many(1, "ben"))
        assert "beta/b" in writer._settling
        closing = asyncio.create_task(writer.close())
        while writer.n_pending:
            await asyncio.sleep(0.01)
        encoder.may.set()
        await asyncio.wait_for(closing, 20)

    with Memories(encoder=encoder, annotator="rules", device="cpu") as memories:
        asyncio.run(run(memories))
        with memories.use("acme/a") as memory:
            assert memory.stats()["traces"] == 3000
            assert memory.retrieve("29 99")


def test_one_tenant_leaves_threads_to_the_others() -> None:
    may, begun = threading.Event(), []

    def work(memory: object) -> None:
        begun.append(memory)
        assert may.wait(30)

    async def run(memories: Memories) -> None:
        writer = Writer(memories, n_threads=4)
        greedy = [asyncio.create_task(writer.run(A, work)) for _ in range(20)]
        key = Key("1", "other", "", False, None, datetime.now(UTC), None)
        await asyncio.wait_for(writer.run(Access(key, "b"), lambda memory: None), 20)
        assert len(begun) <= 2
        may.set()
        await asyncio.gather(*greedy)
        assert len(begun) == 20
        await writer.close()

    with Memories(encoder=HashEncoder(), annotator="rules", device="cpu") as memories:
        asyncio.run(run(memories))


def test_a_memory_that_is_evicted_is_gone_at_once(tmp_path: Path) -> None:
    """Its arrays are mapped from a file: until a collection they would take a descriptor each."""
    known = []
    with Memories(
        tmp_path / "s.zm", encoder=HashEncoder(), annotator="rules", device="cpu", max_open=1
    ) as memories:
        gc.collect()
        gc.disable()
        try:
            for scope in "abcd":
                with memories.use(scope) as memory:
                    memory.add("Miso is Ana's kitten.")
                    memory.answer("Who is Miso?")
                    known.append(weakref.ref(memory))
                    del memory
            assert [one() is not None for one in known] == [False, False, False, True]
        finally:
            gc.enable()
