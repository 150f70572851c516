"""The computes: what each operator becomes in TE, one file per family as in `mrt.symbol.operators`.

Importing this registers all of them.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
