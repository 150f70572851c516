"""A decoder's step, measured: the network is PyTorch's, read and drawn, and the table says what was asked."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from loaded import load_benchmark

torch = pytest.importorskip("torch")
network = load_benchmark("decoder_network")

SIZES = network.Sizes(dim=16, hidden=24, layers=1, heads=4, key_heads=2, vocabulary=12, context=4)
OPTIONS = "--dim=16 --hidden=24 --layers=1 --heads=4 --key-heads=2 --vocabulary=12 --context=4 --steps=3 --bits=8"


def written(path: Path, decoder: torch.nn.Module) -> Path:
    """The decoder in the format of llama2.c."""
    layers = list(decoder.layers)
    kinds = ("attention_norm", "q", "k", "v", "o", "mlp_norm", "gate", "down", "up")
    arrays = [decoder.embedding.weight, *(getattr(layer, kind).weight for kind in kinds for layer in layers)]
    arrays += [decoder.norm.weight, decoder.cosines, decoder.sines]
    head = struct.pack("7i", *(getattr(SIZES, name) for name in SIZES.__dataclass_fields__))
    path.write_bytes(head + b"".join(array.detach().numpy().tobytes() for array in arrays))
    return path


def scores(decoder: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        steps = [decoder(torch.tensor([token]), torch.tensor([place])) for place, token in enumerate(tokens)]
    return torch.cat(steps).numpy()


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    decoder = network.drawn(SIZES)
    with torch.no_grad():
        decoder.classifier.weight.copy_(decoder.embedding.weight)
    read = network.read_llama2_c(written(tmp_path / "model.bin", decoder), context=3)
    np.testing.assert_array_equal(scores(read, [1, 5, 2]), scores(decoder, [1, 5, 2]))


def test_a_real_file_gives_the_scores_of_the_reference(data_folder: Path) -> None:
    stories = np.load(data_folder / "llm" / "stories.npz")
    decoder = network.read_llama2_c(data_folder / "llm" / "stories260K.bin", context=16)
    found = scores(decoder, stories["test"][0][:16].astype(int).tolist())
    np.testing.assert_allclose(found, stories["logits_of_test0"][:16], atol=1e-3)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_step_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["decode_step.py", *OPTIONS.split()])
    load_benchmark("decode_step").main()
    told = capsys.readouterr().out
    assert "weights of 8 bits: a step takes " in told
    assert "% of it in layers with weights" in told
    rows = [line for line in told.splitlines() if line.startswith("| ")]
    assert rows[0] == "| what | gives | calls | µs | of the time |"
    # Which functions take longest depends on the machine.
    assert len(rows) == 2 + 12


def test_what_belongs_together_is_given_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["decode_step.py", "--trained", "model.bin"])
    with pytest.raises(SystemExit, match="2"):
        load_benchmark("decode_step").main()
    assert capsys.readouterr().err == "decode_step.py: --trained and --tokens go together\n"
