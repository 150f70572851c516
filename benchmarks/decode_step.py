"""What a step of a decoder takes, one token in and scores of the next out, and where its time goes.

    python benchmarks/decode_step.py
    python benchmarks/decode_step.py --bits 8 --layers 8 --threads 1,2
    python benchmarks/decode_step.py --trained stories260K.bin --tokens stories.npz

Without --trained weights are drawn by a seed, for their time does not depend on what they are. Activations have
--activation-bits; weights of 8 bits have a scale for each row, those of fewer one for each 32 inputs. With --trained, a
file of llama2.c, and --tokens, which holds `calibration` and `test`, it also says how near the integers' scores are to
those of the float network.

A step is timed as `module.stream()` runs it, from the token to scores in float, caches included; functions are timed
by themselves, the least of each call's times.
"""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

import numpy as np
from command_line import Parser, listed, whole
from decoder_network import Decoder, Sizes, drawn, read_llama2_c
from in_turns import machine, row
from kernel_shares import Measured, measure, together

import mrt
from mrt.backend.rewrites.known_bounds import bounds_of_inputs
from mrt.symbol import Array

# Behind `mrt`, which loads TVM without PyTorch.
import torch  # isort: skip

GROUP = 32
PRODUCTS = ("FullyConnected", "sliced_fully_connected")


def main() -> None:
    parser = Parser(__doc__)
    for name, default in (("dim", 576), ("hidden", 1536), ("layers", 4), ("heads", 9), ("key-heads", 3)):
        parser.add_argument(f"--{name}", type=whole(1), default=default, help=f"{default}")
    parser.add_argument("--vocabulary", type=whole(2), default=8192, help="8192")
    parser.add_argument("--context", type=whole(2), default=128, help="places of the caches: 128")
    parser.add_argument("--bits", type=listed(whole(2)), default=[8, 4], help="of weights, by commas: 8,4")
    parser.add_argument("--activation-bits", type=whole(2), default=14, help="14")
    parser.add_argument("--threads", type=listed(whole(1)), default=[1], help="by commas: 1")
    parser.add_argument("--sequences", type=whole(1), default=2, help="that calibrate: 2")
    parser.add_argument("--steps", type=whole(1), default=200, help="that are timed: 200")
    parser.add_argument("--trained", type=Path, help="a file of llama2.c")
    parser.add_argument("--tokens", type=Path, help="an archive of token ids, `calibration` and `test`")
    arguments = parser.parse_args()
    if (arguments.trained is None) != (arguments.tokens is None):
        parser.error("--trained and --tokens go together")
    print(f"{machine()}\n")
    for bits in arguments.bits:
        report(arguments, bits)


def report(arguments: Namespace, bits: int) -> None:
    """Prints what a step takes with weights of so many bits, and the functions that take most of it."""
    decoder, calibration, test = network(arguments)
    model = quantized(decoder, calibration, arguments, bits)
    places = np.arange(arguments.context)
    found = []
    for threads in arguments.threads:
        module = model.compile({"threads": threads})
        stream, times = module.stream(), []
        scores = stream.along({"token": test, "place": places})[0]
        for step in range(arguments.steps):
            at = step % arguments.context
            fed = {"token": test[at : at + 1], "place": places[at : at + 1]}
            began = time.perf_counter()
            stream(fed)
            times.append(time.perf_counter() - began)
        found.append(f"{np.median(times) * 1e6:.0f} µs by {threads} thread{'s' if threads > 1 else ''}")
    print(f"weights of {bits} bits: a step takes {', '.join(found)}; {noise(decoder, test, scores)}\n")
    print_functions(together(measure(model.graph, bounds_of_inputs(model.inputs), {"threads": 1}, 20, None)))


def network(arguments: Namespace) -> tuple[Decoder, Array, Array]:
    """The decoder, sequences of tokens (N, context) to calibrate with, and one (context,) to test with."""
    context = arguments.context
    if arguments.trained is not None:
        with np.load(arguments.tokens) as tokens:
            calibration, test = (tokens[name][:, :context].astype(np.int64) for name in ("calibration", "test"))
        return read_llama2_c(arguments.trained, context), calibration[: arguments.sequences], test[0]
    names = ("dim", "hidden", "layers", "heads", "key_heads", "vocabulary", "context")
    sizes = Sizes(*(getattr(arguments, name) for name in names))
    tokens = np.random.default_rng(0).integers(0, sizes.vocabulary, (arguments.sequences + 1, context))
    return drawn(sizes), tokens[1:], tokens[0]


def quantized(decoder: Decoder, calibration: Array, arguments: Namespace, bits: int) -> mrt.QuantizedModel:
    """The decoder in integers. Its caches are empty at the beginning of each sequence."""
    graph = mrt.from_torch(torch.export.export(decoder, (torch.tensor([0]), torch.tensor([0]))))
    feeds = {"token": calibration.reshape(-1), "place": np.tile(np.arange(arguments.context), len(calibration))}
    options = {
        "preset": "fast",
        "activation": {"bits": arguments.activation_bits},
        "weight": {"bits": bits, "granularity": "layer" if bits == 8 else {"channel": GROUP}},
    }
    config = mrt.QuantizationConfig.model_validate(options)
    return mrt.quantize(graph, feeds, quantization=config)


def noise(decoder: Decoder, tokens: Array, scores: Array) -> str:
    """How near scores of steps (context, vocabulary) are to those of the float network."""
    with torch.no_grad():
        steps = enumerate(torch.tensor(tokens))
        wanted = np.concatenate([decoder(token[None], torch.tensor([place])).numpy() for place, token in steps])
    found = 10 * np.log10(np.square(wanted).sum() / np.square(wanted - scores).sum())
    same = (wanted.argmax(-1) == scores.argmax(-1)).mean()
    return f"scores are at {found:.1f} dB, the best token is the same in {same:.0%} of {len(tokens)} steps"


def print_functions(calls: list[Measured], shown: int = 12) -> None:
    """The table of what takes most time; products of weights are told apart from the rest."""
    total = sum(call.seconds for call in calls)
    of_weights = [call for call in calls if call.operators.startswith(PRODUCTS)]
    share = sum(call.seconds for call in of_weights) / total
    rate = sum(call.products for call in of_weights) / sum(call.seconds for call in of_weights)
    count = sum(call.calls for call in calls)
    taken = f"{total * 1e6:.0f} µs one after the other"
    print(f"{count} functions, {taken}; {share:.0%} of it in layers with weights, {rate / 1e9:.1f} GMAC/s.\n")
    print(row(["what", "gives", "calls", "µs", "of the time"]))
    print(row(["---"] * 5))
    for call in sorted(calls, key=lambda call: -call.seconds)[:shown]:
        facts = [str(call.calls), f"{call.seconds * 1e6:.1f}", f"{call.seconds / total:.1%}"]
        print(row([call.operators, "x".join(map(str, call.shape)), *facts]), flush=True)
    print()


if __name__ == "__main__":
    main()
