from dataclasses import replace

import numpy as np
import pytest

from zeromem.errors import CorruptStoreError, InvalidInputError
from zeromem.index.features import TraceFeatures, feature_key
from zeromem.times import EventTime
from zeromem.types import Trace

FIELDS = TraceFeatures.__dataclass_fields__


def make(n_turns=2, n_sentences=3, n_entities=4, n_mentions=5, dim=8, seed=0):
    rng = np.random.default_rng(seed)

    def ints(limit, *shape):
        return rng.integers(0, max(limit, 1), shape).astype(np.int32)

    def halves(rows):
        return rng.normal(size=(rows, dim)).astype(np.float16)

    mentions = ints(50, n_mentions, 5)
    for column, limit in enumerate((n_turns, n_sentences, n_entities)):
        mentions[:, column] = ints(limit, n_mentions)
    return TraceFeatures(
        turns=ints(100, n_turns, 2),
        turn_terms=tuple(["cat mat cat", "", "東京 é"][i % 3] for i in range(n_turns)),
        turn_tokens=ints(90, n_turns),
        turn_flags=ints(8, n_turns),
        sentences=ints(100, n_sentences, 2),
        sentence_turn=ints(n_turns, n_sentences),
        entities=tuple(f"ana {i} é" for i in range(n_entities)),
        entity_labels=("PERSON",) * n_entities,
        mentions=mentions,
        turn_vectors=halves(n_turns),
        sentence_vectors=halves(n_sentences),
        entity_vectors=halves(n_entities),
        encoded=dim > 0,
    )


def assert_equal(a, b):
    for name in FIELDS:
        x, y = getattr(a, name), getattr(b, name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype, name
            assert x.shape == y.shape, name
            assert x.tobytes() == y.tobytes(), name
        else:
            assert x == y, name


@pytest.mark.parametrize(
    "sizes",
    [
        (2, 3, 4, 5, 8),
        (1, 1, 0, 0, 384),
        (0, 0, 0, 0, 8),
        (0, 0, 0, 0, 0),
        (3, 5, 1, 2, 0),
        (1, 1, 1, 1, 1),
        (2, 2, 0, 0, 3),
    ],
)
def test_round_trip(sizes):
    features = make(*sizes)
    assert_equal(TraceFeatures.from_bytes(features.to_bytes()), features)
    assert features.dim == sizes[-1]


def test_bytes_are_a_function_of_the_features():
    assert make(seed=1).to_bytes() == make(seed=1).to_bytes()
    assert make(seed=1).to_bytes() != make(seed=2).to_bytes()


def test_arrays_read_back_cannot_be_written():
    back = TraceFeatures.from_bytes(make().to_bytes())
    with pytest.raises(ValueError, match="read-only"):
        back.turn_vectors[0, 0] = 1


def test_every_flipped_byte_is_noticed():
    data = make().to_bytes()
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x41
        with pytest.raises(CorruptStoreError):
            TraceFeatures.from_bytes(bytes(broken))


def test_every_truncation_and_extension_is_noticed():
    data = make().to_bytes()
    for n in range(len(data)):
        with pytest.raises(CorruptStoreError):
            TraceFeatures.from_bytes(data[:n])
    with pytest.raises(CorruptStoreError):
        TraceFeatures.from_bytes(data + b"\0")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"turns": np.zeros((2, 3), np.int32)}, "turns"),
        ({"turn_tokens": np.zeros(2, np.int64)}, "turn_tokens"),
        ({"turn_flags": np.zeros(3, np.int32)}, "turn_flags"),
        ({"sentence_turn": np.array([0, 1, 2], np.int32)}, "sentence_turn"),
        ({"turn_vectors": np.zeros((2, 8), np.float32)}, "turn_vectors"),
        ({"sentence_vectors": np.zeros((3, 7), np.float16)}, "sentence_vectors"),
        ({"mentions": np.array([[0, 3, 0, 0, 1]], np.int32)}, "sentence"),
        ({"mentions": np.array([[0, -2, 0, 0, 1]], np.int32)}, "sentence"),
        ({"mentions": np.array([[2, 0, 0, 0, 1]], np.int32)}, "turn"),
        ({"mentions": np.array([[0, 0, 4, 0, 1]], np.int32)}, "entity"),
        ({"entities": ("a", "b", "c", "d\ne")}, "entities"),
        ({"entity_labels": ("A",)}, "entity_labels"),
        ({"turn_terms": ("a",)}, "turn_terms"),
    ],
)
def test_what_is_malformed_is_not_written(change, named):
    with pytest.raises(InvalidInputError, match=named):
        replace(make(), **change).to_bytes()


def test_feature_key_depends_on_what_features_depend_on():
    base = Trace("text", speaker="Ana", title="T")
    same = replace(base, id="x", session="s", source="f", metadata={"a": 1},
                   time=EventTime.parse("2026"))  # fmt: skip
    assert feature_key(base) == feature_key(same)
    assert len(feature_key(base)) == 32
    changes = [
        {"text": "texts"},
        {"speaker": None},
        {"speaker": ""},
        {"title": None},
        {"role": "assistant"},
        {"speaker": "T", "title": "Ana"},
        {"text": "tex", "speaker": "tAna"},
        {"text": "text\ud800"},
    ]
    keys = {feature_key(replace(base, **change)) for change in changes}
    assert len(keys) == len(changes)
    assert feature_key(base) not in keys
