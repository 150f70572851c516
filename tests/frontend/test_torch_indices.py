"""Positions and masks that programs compute of constants, and elements by several indices, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from torch_programs import Each, evaluated, export

import mrt
from mrt.errors import UnsupportedOperatorError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Positions(torch.nn.Module):
    """As a transformer makes its positions, kinds of token and masks: of buffers, ranges and comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.kinds = (torch.nn.Embedding(n, 8) for n in (30, 12, 2))
        self.register_buffer("ids", torch.arange(12)[None])
        self.register_buffer("zeros", torch.zeros(1, 12, dtype=torch.int64))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length = tokens.shape
        ids = self.ids[:, :length]
        kinds = torch.gather(self.zeros.expand(1, -1), 1, ids).expand(batch, length)
        x = self.words(tokens) + self.places(ids) + self.kinds(kinds)
        rows, columns = torch.arange(batch)[:, None, None, None], torch.arange(length)
        # The packed sequences that a range of positions has are one: a cumulated sum of no steps.
        part = torch.cumsum(torch.diff(ids, dim=-1, prepend=ids[:, :1] - 1) != 1, -1).expand(batch, -1)
        alike = part[rows, columns[None, None, :, None]] == part[rows, columns[None, None, None, :]]
        causal = columns[None, None, None, :] <= columns[None, None, :, None]
        allowed = causal & alike & mask.to(torch.bool)[rows, columns[None, None, None, :]]
        heads = x[:, None]
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=allowed)


def tokens(batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(batch, 6, dtype=torch.int64)
    mask[-1, 4:] = 0
    return torch.randint(0, 30, (batch, 6), generator=generator), mask


def test_positions_and_masks_of_constants_are_computed() -> None:
    module = Positions().eval()
    given = tokens()
    program = torch.export.export(module, given)
    graph = mrt.from_torch(program)
    (found,) = graph.evaluate({s.name: x.numpy() for s, x in zip(graph.inputs, given, strict=True)})
    np.testing.assert_allclose(found, module(*given).detach().numpy(), atol=1e-5)
    assert {type(symbol.operator).__name__ for symbol in graph.operators}.isdisjoint({"CumSum", "Sign"})


def test_the_batch_is_not_baked_into_what_rows_are_taken_by() -> None:
    """The graph of two samples, rebatched to one, gives what PyTorch gives for one."""
    from mrt.symbol.rebatch import Rebatch

    module = Positions().eval()
    graph = Rebatch(1)(mrt.from_torch(torch.export.export(module, tokens())))
    given = [x[1:] for x in tokens()]
    (found,) = graph.evaluate({s.name: x.numpy() for s, x in zip(graph.inputs, given, strict=True)})
    np.testing.assert_allclose(found, module(*given).detach().numpy(), atol=1e-5)


def _module(function: object) -> torch.nn.Module:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)  # type: ignore[operator]

    return Module().eval()


INDEXED = {
    "outer": lambda x: x[torch.tensor([[2], [0]]), torch.tensor([1, -1, 0])],
    "pairs": lambda x: x[torch.tensor([2, 0, 1]), torch.tensor([1, -1, 0])],
    "inner": lambda x: x[:, torch.tensor([[0, 2], [3, -4]]), torch.tensor([0, 1])],
    "turned": lambda x: x[torch.tensor([0, 1]), torch.tensor([[2], [0]])],
    "gather": lambda x: torch.gather(x, 1, torch.tensor([[[0, 1], [3, 2]]]).expand(3, 2, 2)),
    "scatter": lambda x: x.scatter(2, torch.tensor([[[0, 4], [3, 2]]]).expand(2, 2, 2), 2 * x[:, :3]),
    "put": lambda x: x.scatter(1, torch.tensor([[[0, 1, 3]], [[2, 1, 0]]]), 7.0),
    "all": lambda x: x[torch.arange(3)[:, None], torch.arange(4), :],
}


def test_elements_by_constant_indices_of_several_axes() -> None:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(2))
    found = evaluated(mrt.from_torch(export(Each(INDEXED), x)), x)
    for name, got in zip(INDEXED, found, strict=True):
        np.testing.assert_array_equal(got, INDEXED[name](x).numpy(), name)


def test_random_numbers_are_no_constants() -> None:
    with pytest.raises(UnsupportedOperatorError, match="randint"):
        mrt.from_torch(torch.export.export(_module(lambda x: x + torch.randint(0, 9, (3,))), (torch.zeros(2, 3),)))


def test_what_is_taken_apart_into_elements_by_constant_indices_is_read() -> None:
    module = _module(lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bicubic"))
    x = torch.randn(1, 2, 4, 5, generator=torch.Generator().manual_seed(2))
    graph = mrt.from_torch(torch.export.export(module, (x,)))
    (found,) = graph.evaluate({graph.inputs[0].name: x.numpy()})
    np.testing.assert_allclose(found, module(x).numpy(), atol=1e-5)


def _pooled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What transformers do with ids: positions behind padding, the place of the end, the last of a length."""
    ids = x.to(torch.int64)
    real = ids.ne(1)
    positions = (torch.cumsum(real.int(), 1).type_as(real.int()) * real.int()).long() + 1
    lengths = torch.div(real.sum(1) - 1, 2, rounding_mode="floor") + 1
    rows = torch.arange(x.shape[0])
    marked = torch.zeros_like(x)
    marked[rows, lengths - 1] = 1
    allowed = marked.flip(-1).cumsum(-1).flip(-1).bool() & (ids % 3 != 0)
    blank = x.clone()
    blank[~allowed] = 0
    return (
        positions,
        x[rows, ids.argmax(-1)],
        x[rows, (ids == 7).int().argmax(-1)],
        blank,
        torch.gather(x, 1, ids[:, :2] % 6),
    )


def test_arithmetic_of_ids_is_that_of_integers() -> None:
    x = torch.tensor([[1, 4, 7, 9, 1, 1], [5, 7, 0, 8, 2, 6]])

    class Ids(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return _pooled(ids)

    graph = mrt.from_torch(torch.export.export(Ids().eval(), (x,)))
    found = graph.evaluate({graph.inputs[0].name: x.numpy()})
    for got, wanted in zip(found, _pooled(x), strict=True):
        np.testing.assert_array_equal(got, wanted.numpy())


ORDERS = {
    "topk": lambda x: torch.topk(x, 2, dim=-1),
    "the smallest": lambda x: torch.topk(x, 3, dim=0, largest=False),
    "sort": lambda x: torch.sort(x, stable=True),
    "descending": lambda x: torch.sort(x, dim=0, descending=True),
    "argsort": lambda x: (torch.argsort(x), torch.argsort(x, dim=0, descending=True, stable=True)),
}


def test_elements_in_their_order() -> None:
    """PyTorch leaves the order of equal ones open, so that all differ."""
    x = torch.randperm(20, generator=torch.Generator().manual_seed(3)).reshape(4, 5).float()
    found = iter(evaluated(mrt.from_torch(export(Each(ORDERS), x)), x))
    for name, order in ORDERS.items():
        for wanted in order(x):
            np.testing.assert_array_equal(next(found), wanted.numpy(), name)
    assert next(found, None) is None


CHOICES = {
    "kthvalue": lambda x: torch.kthvalue(x, 2),
    "nonzero": lambda x: torch.nonzero(x),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_among_the_results_is_left_to_the_caller(name: str) -> None:
    graph = mrt.from_torch(torch.export.export(_module(lambda x: CHOICES[name](torch.relu(x))), (torch.ones(1, 5),)))
    assert [output.name for output in graph.outputs] == ["relu"] and graph.left_out
