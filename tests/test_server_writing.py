"""Adds that share an encoder: what fails for one does not make the others wait."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from pathlib import Path

from support import HashEncoder

from zeromem.memories import Memories
from zeromem.server.writing import Writer


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
        assert (await writer.add("a", [{"text": "Miso is a kitten."}]))[0].created
        await asyncio.to_thread(encoder.began.wait, 30)
        assert (await writer.add("b", [{"text": "Ben plays chess."}]))[0].created
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
