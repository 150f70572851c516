"""A .pt2 archive, of which nothing is trusted: what torch gets of it is written anew from records that were checked.

torch.export.load unpickles sample inputs and some tensors, hands the sizes of dynamic axes to a function that evaluates
them as Python, writes names into code that it runs, and looks operators up by any path below `torch`: a file from
elsewhere could run anything. So no record that holds a pickle is passed on, and no text that is not of a known form.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mrt.errors import ModelFileError, MRTError, UnsupportedOperatorError
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.torch.advice import advice_on

_FORMAT = "archive_format"
_PROGRAM = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_WEIGHTS = "data/weights/"
_CONSTANTS = "data/constants/"
_CONFIGS = {_WEIGHTS: "model_weights_config.json", _CONSTANTS: "model_constants_config.json"}
"""The list of tensors in each folder of tensors."""

_SCHEMA = 8
"""The major version of torch's schema that torch 2.13 reads."""

_ITEM_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 12: 1, 13: 2}
"""Bytes of an element by torch's number of its dtype: integers of 8 to 64 bits, floats of 16 to 64, bool, bfloat16."""

_CPU = {"type": "cpu", "index": None}

_TEXT = re.compile(r"[\w .,:+\-/<>*]*", re.ASCII)
"""What a text may hold: no quote, bracket, line end or other letter by which code could follow it."""
_NAME = re.compile(r"(?:[A-Za-z_]\w*)?", re.ASCII)
_SYMBOL = r"s\d{1,9}"
_OPERATOR = re.compile(
    r"torch\.ops\.aten\.(?!from_file\b)(?:_?[A-Za-z]\w*|__(?:and|or|xor|lshift|rshift)__)\.[A-Za-z]\w*"
    r"|torch\.ops\.quantized_decomposed\.(?:de)?quantize_per_(?:tensor|channel)\.(?:default|tensor)"
    r"|torch\.ops\.torchao\.(?:de)?quantize_affine\.default",
    re.ASCII,
)
"""An operator of PyTorch's own library; all of them compute on tensors, but for from_file, which reads other files. And
those of its quantization and of torchao's."""
_PYTHON_OPERATORS = frozenset(
    f"_operator.{name}"
    for name in (
        *("add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "le", "lt", "mod", "mul", "ne", "neg", "or_", "sub"),
        "truediv",
    )
)
"""Python's operators on sizes."""
_WITHOUT_GRADIENTS = "torch.ops.higher_order.wrap_with_set_grad_enabled"
"""What a `with torch.no_grad():` within a model becomes."""
_SIZE = re.compile(
    rf"(?:Symbol\('{_SYMBOL}'(?:, [a-z]+=True)*\)|Integer\(-?\d{{1,19}}\)|-?\d{{1,19}}"
    r"|(?:Add|CleanDiv|Eq|FloorDiv|Ge|Gt|Le|Lt|Max|Min|Mod|Mul|Ne|PythonMod)\(|, |\))+",
    re.ASCII,
)
"""The size of a dynamic axis: calls of arithmetic on whole numbers and symbols. No power, which may not end."""
_MAX_SIZE_LENGTH = 2000
_CONTAINERS = {None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}
"""How inputs and outputs may be nested; other types are looked up by importing modules."""


def read_archive(path: Path) -> bytes:
    """The archive of one program in a .pt2 file, written anew for torch.export.load, without anything that could run.

    Weights are moved to the CPU. Raises ModelFileError where the file cannot be read, is no whole archive of
    torch.export.save, or holds what is never loaded, UnsupportedOperatorError listing operators that are not PyTorch's.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            records = _Records(archive, path)
            _check_kind(records)
            records.check_stored(path.stat().st_size)
            return _rewritten(records)
    except MRTError:
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, RuntimeError, ValueError) as error:
        # RecursionError is a RuntimeError, JSONDecodeError and UnicodeDecodeError are ValueErrors.
        raise _damaged(path, str(error).partition("\n")[0]) from None
    except (AttributeError, IndexError, KeyError, TypeError):
        raise _damaged(path, "its lists are not as torch.export.save writes them") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from None


def _damaged(path: Path, reason: str) -> ModelFileError:
    return ModelFileError(f"{path} is no whole archive of torch.export.save: {reason}; export or copy it again")


class _Records:
    """The records of an archive by name, without the folder that they all lie in."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.path = path
        self._archive = archive
        self._entries = {entry.filename.partition("/")[2] or entry.filename: entry for entry in archive.infolist()}

    def check_stored(self, size: int) -> None:
        """ModelFileError where records are compressed or overlap, so that more could be read than the file's size."""
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in self._entries.values()):
            raise _damaged(self.path, "its records are compressed, which torch never does")
        if sum(entry.file_size for entry in self._entries.values()) > size:
            raise _damaged(self.path, "its records are larger than the file")

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._entries)

    def length(self, name: str) -> int:
        return self._entries[name].file_size

    def read(self, name: str) -> bytes:
        """The bytes of a record, whose checksum is verified."""
        if name not in self._entries:
            raise _damaged(self.path, f"it has no {name}")
        return self._archive.read(self._entries[name])

    def json(self, name: str) -> dict[str, Any]:
        document = json.loads(self.read(name))
        if not isinstance(document, dict):
            raise _damaged(self.path, f"{name} is no object")
        return document


def _rewritten(records: _Records) -> bytes:
    _check_version(records)
    program = records.json(_PROGRAM)
    version = program["schema_version"]["major"]
    if version != _SCHEMA:
        raise ModelFileError(
            f"{records.path} has schema version {version}; {_SCHEMA} is read: export it again with torch 2.13"
        )
    _check_operators(program, str(records.path))
    program = _checked_program(program, records.path)
    tensors: dict[str, dict[str, Any]] = {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:

        def write(name: str, content: str | bytes) -> None:
            # An entry of no time: the same program is the same bytes whenever it is written.
            archive.writestr(zipfile.ZipInfo(f"model/{name}"), content)

        for name, content in ((_FORMAT, b"pt2"), ("archive_version", b"0"), ("byteorder", b"little")):
            write(name, content)
        write(".data/version", b"3\n")
        write(_SAMPLES, b"")
        for folder, config in _CONFIGS.items():
            listed = _checked_tensors(records, folder, records.json(folder + config)["config"])
            write(f"{folder}{config}", json.dumps({"config": listed}))
            for record in sorted({entry["path_name"] for entry in listed.values()}):
                write(folder + record, records.read(folder + record))
            tensors |= listed
        _check_given(program, tensors, records.path)
        write(_PROGRAM, json.dumps(program))
    return buffer.getvalue()


def _check_kind(records: _Records) -> None:
    """ModelFileError saying what the archive is, where it holds no program of torch.export.save."""
    names, path = records.names, records.path
    advice = "give what torch.export.save writes of torch.export.export(model.eval(), inputs)"
    if "data.pkl" in names:
        kind = "a TorchScript module" if "constants.pkl" in names else "a pickle of torch.save, which is never loaded"
        raise ModelFileError(f"{path} holds {kind}; {advice}")
    if "serialized_exported_program.json" in names:
        raise ModelFileError(f"{path} was written by torch before 2.8; {advice} with torch 2.13")
    if _FORMAT not in names:
        raise ModelFileError(f"{path} is a zip archive, but none of torch.export.save: it has no {_FORMAT}; {advice}")
    if _PROGRAM not in names:
        found = ", ".join(sorted(name for name in names if name.startswith("models/"))) or "compiled code"
        raise ModelFileError(f"{path} holds {found}; {_PROGRAM} is needed: {advice}")


def _check_version(records: _Records) -> None:
    path = records.path
    if records.read(_FORMAT) != b"pt2" or records.read("archive_version") != b"0":
        raise ModelFileError(f"{path} is an archive of another version than torch 2.13 writes; export it again")
    if "byteorder" in records.names and records.read("byteorder") != b"little":
        raise ModelFileError(f"{path} was written on a machine of another byte order; export it on this one")


def _check_operators(program: Mapping[str, Any], title: str) -> None:
    """UnsupportedOperatorError listing the operators that are not PyTorch's own."""
    uncovered: dict[str, list[str]] = {}
    for node in _nodes(program):
        target = node["target"]
        known = isinstance(target, str) and (
            _OPERATOR.fullmatch(target) or target in _PYTHON_OPERATORS or target == _WITHOUT_GRADIENTS
        )
        if not known:
            operator = re.sub(r"[^\w.:]", "?", str(target))[:80].removeprefix("torch.ops.")
            uncovered.setdefault(operator, []).append(re.sub(r"\W", "?", str(node.get("name")))[:80])
    if uncovered:
        raise UnsupportedOperatorError(list_uncovered(title, uncovered, advice_on(uncovered)))


def _nodes(document: object) -> Iterator[Mapping[str, Any]]:
    """The nodes of a program and of the graphs within it."""
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "target" in item:
                yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _checked_program(program: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The program without metadata, sources and guards, all of its texts of a known form."""
    module = program["graph_module"]
    # The entry of the whole model is first; the others are of its parts.
    module = {**module, "module_call_graph": module["module_call_graph"][:1], "treespec_namedtuple_fields": {}}
    for symbol in program["range_constraints"]:
        if not re.fullmatch(_SYMBOL, symbol):
            raise _refused(path, "the size", symbol, "one that is known when the model is exported")
    checked: dict[str, Any] = _checked({**program, "graph_module": module, "guards_code": []}, "", path)
    return checked


def _checked(item: Any, key: str, path: Path) -> Any:
    """A copy of a part of the program that stands under `key`; ModelFileError where a text is of no known form."""
    if key == "metadata":
        return {}
    if key in ("device", "as_device") and isinstance(item, dict):
        return dict(_CPU)
    if key in ("custom_obj", "as_custom_obj", "as_operator"):
        raise _refused(path, "an input", key, "a tensor")
    if isinstance(item, dict):
        for name in item:
            _check_text(name, "name" if key.endswith("_values") else "", path)
        return {name: _checked(value, name, path) for name, value in item.items()}
    if isinstance(item, list):
        return [_checked(value, key, path) for value in item]
    if isinstance(item, str):
        _check_text(item, key, path)
    return item


def _check_text(text: str, key: str, path: Path) -> None:
    if key == "expr_str":
        if len(text) > _MAX_SIZE_LENGTH or not _SIZE.fullmatch(text):
            raise _refused(path, "a size", text, "arithmetic on sizes of inputs")
    elif key in ("in_spec", "out_spec"):
        _check_nesting(text, path)
    elif key in ("name", "as_name", "forward_arg_names"):
        if not _NAME.fullmatch(text):
            raise _refused(path, "a name", text, "letters, digits and _")
    elif not _TEXT.fullmatch(text):
        raise _refused(path, "a text", text, "letters, digits and plain signs")


def _check_nesting(text: str, path: Path) -> None:
    """Inputs and outputs are nested in tuples, lists and dictionaries by plain names."""
    version, *specs = json.loads(text)
    if version != 1:
        raise _refused(path, "the version of a tree of inputs", version, "1")
    while specs:
        spec = specs.pop()
        kind, context = spec["type"], spec["context"]
        if kind not in _CONTAINERS:
            raise _refused(path, "the type of an input or output", kind, "a tensor, or a tuple, list or dict of them")
        for name in (json.loads(context) if context else None) or []:
            _check_text(name, "name", path)
        specs.extend(spec["children_spec"])


def _refused(path: Path, what: str, found: object, needed: str) -> ModelFileError:
    return ModelFileError(f"{path}: {what} in the program is {str(found)[:80]!r}; {needed} is needed")


def _checked_tensors(records: _Records, folder: str, config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The list of the tensors of a folder, each within its record and none a pickle."""
    listed = {}
    for name, entry in config.items():
        _check_text(name, "", records.path)
        record, meta = entry["path_name"], entry["tensor_meta"]
        if entry["use_pickle"] or meta is None or not re.fullmatch(r"(weight|tensor)_\d+", record):
            raise ModelFileError(
                f"{records.path}: {name} is stored as a pickle, which is never loaded; "
                "make it a plain tensor before exporting"
            )
        sizes, strides = ([dimension["as_int"] for dimension in meta[part]] for part in ("sizes", "strides"))
        start = meta["storage_offset"]["as_int"]
        _check_extent(records, folder + record, name, meta["dtype"], sizes, strides, start)
        meta = {**meta, "device": dict(_CPU), "requires_grad": False}
        listed[name] = {**entry, "use_pickle": False, "tensor_meta": _checked(meta, "", records.path)}
    return listed


def _check_extent(
    records: _Records, record: str, name: str, dtype: Any, sizes: Sequence[Any], strides: Sequence[Any], start: Any
) -> None:
    """ModelFileError where a tensor reaches beyond its record, or is none of whole numbers."""
    if dtype not in _ITEM_SIZES:
        raise ModelFileError(
            f"{records.path}: {name} has dtype number {dtype}; an integer, a float of 16 to 64 bits or bool is needed"
        )
    numbers = (*sizes, *strides, start)
    if len(sizes) != len(strides) or not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise _damaged(records.path, f"{name} has sizes {sizes}, strides {strides}, offset {start}")
    if record not in records.names:
        raise _damaged(records.path, f"the values of {name} are missing")
    needed = start + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    held = records.length(record) // _ITEM_SIZES[dtype]
    if math.prod(sizes) and needed > held:
        raise _damaged(records.path, f"{name} of shape {tuple(sizes)} has {held} elements stored, {needed} are needed")


_STORED = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}
"""The inputs of a program that the archive holds, and where their names stand."""


def _check_given(program: Mapping[str, Any], tensors: Mapping[str, Any], path: Path) -> None:
    """ModelFileError where a parameter of the program is missing, or is of another shape or dtype than it says."""
    module = program["graph_module"]
    for spec in module["signature"]["input_specs"]:
        for kind in _STORED.keys() & spec.keys():
            name = spec[kind][_STORED[kind]]
            declared = module["graph"]["tensor_values"][spec[kind]["arg"]["name"]]
            if name not in tensors:
                raise _damaged(path, f"the {kind} {name} is missing")
            found = tensors[name]["tensor_meta"]
            if (found["sizes"], found["dtype"]) != (declared["sizes"], declared["dtype"]):
                shapes = [tuple(size.get("as_int") for size in meta["sizes"]) for meta in (found, declared)]
                raise _damaged(path, f"the {kind} {name} has shape {shapes[0]}, the program says {shapes[1]}")
