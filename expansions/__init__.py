"""How each float operator becomes integers: one file per family, the docstring is the formula and its source."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
