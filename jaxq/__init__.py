"""A second import name of the package `jq`: `import jaxq` gives the same modules.

The PyPI package `jq` (a JSON tool) installs a module of that name too. Where both are installed,
`import jaxq as jq` is always this one: the package that lies beside this folder.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent.parent / "jq" / "__init__.py"


def _package() -> ModuleType:
    """Our `jq`; another module of that name gives way, and those who hold it keep it."""
    known = sys.modules.get("jq")
    if known is not None and Path(known.__file__ or "").resolve() == _HERE:
        return known
    spec = spec_from_file_location("jq", _HERE, submodule_search_locations=[str(_HERE.parent)])
    assert spec is not None and spec.loader is not None
    module = sys.modules["jq"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Alias(MetaPathFinder, Loader):
    """Finds `jaxq.a.b` as the module `jq.a.b`, which is not loaded a second time."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname.startswith("jaxq.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module("jq" + spec.name.removeprefix("jaxq"))
        spec.loader_state = module.__spec__
        return module

    def get_code(self, fullname: str) -> Any:
        """For `python -m jaxq`, which runs `jq.__main__`."""
        found = find_spec("jq" + fullname.removeprefix("jaxq"))
        assert found is not None and isinstance(found.loader, InspectLoader)
        return found.loader.get_code(found.name)

    def exec_module(self, module: ModuleType) -> None:
        """Gives back what the import system has just overwritten."""
        alias = module.__spec__
        if alias is not None and alias.loader is self:
            module.__spec__ = alias.loader_state


sys.meta_path.insert(0, _Alias())
sys.modules[__name__] = _package()
