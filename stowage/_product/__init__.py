"""The product's folders under a name of their own: ``stowage._product.scheduling`` and so on.

The service is written with the top-level names ``api``, ``scheduling`` and ``clusterstate``; its
own processes have the folder of these packages first on their path. A program that uses Stowage as
a library may have packages of the same names. There ``module("scheduling.library")`` loads the same
files as ``stowage._product.scheduling.library``, and every import statement in them finds
``stowage._product.clusterstate`` where it says ``clusterstate``. No top-level name is taken. In the
wheel the folders lie beside this file, in a checkout two folders above.

How: the loader gives each module ``__builtins__`` of its own with another ``__import__``, which the
interpreter looks up there for every import statement. Source, byte code and the kept code of the
compiled loops are those of the service (docs/development/decisions/9-package.md).

Plugins of other packages say ``from scheduling.framework.v1 import ...`` (docs/plugins.md). Where
nothing else in the program is called ``scheduling``, the finder that is asked last leads here.
"""

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

FOLDERS: Final = ("api", "clusterstate", "scheduling")
_FOR_PLUGINS: Final = "scheduling"
_HERE: Final = Path(__file__).resolve().parent
IS_WHEEL: Final = (_HERE / "clusterstate").is_dir()
ROOT: Final = _HERE if IS_WHEEL else _HERE.parents[1]
"""The folder in which the product's packages, ``migrations`` and ``manage.py`` lie."""
_PREFIX: Final = f"{__name__}."

__path__ = [str(ROOT)]


def _is_service() -> bool:
    """Return whether this process has the product under its top-level names already."""
    found = getattr(sys.modules.get("clusterstate"), "__file__", None)
    return found is not None and Path(found).resolve().parent.parent == ROOT


_SERVICE: Final = _is_service()


def module(name: str) -> ModuleType:
    """Return a module of the product, such as ``scheduling.library``; loads it where necessary."""
    if _SERVICE:
        return importlib.import_module(name)
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        sys.meta_path.append(_ForPlugins())
    return importlib.import_module(_PREFIX + name)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Import as the statement does, with the product's packages under their own name."""
    top = name.partition(".")[0]
    if level or top not in FOLDERS:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    found = builtins.__import__(_PREFIX + name, globals, locals, fromlist or ())
    return found if fromlist else sys.modules[_PREFIX + top]


_BUILTINS: Final = {**vars(builtins), "__import__": _import}


class _SourceLoader(SourceFileLoader):
    """Runs a module with the product's import."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the product's modules in this package; modules with two names are loaded once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith(_PREFIX):
            found = PathFinder.find_spec(fullname, path, target)
            if found is not None and isinstance(found.loader, SourceFileLoader):
                found.loader = _SourceLoader(fullname, found.loader.path)
            return found
        top, dot, _ = fullname.partition(".")
        if top not in FOLDERS:
            return None
        if dot:  # below a package that leads here
            return _alias(fullname) if sys.modules.get(top) is _loaded_module(top) else None
        # In a checkout the folders may be on the path as well: still one copy of each module.
        found = PathFinder.find_spec(top)
        same = found is not None and found.origin == str(ROOT / top / "__init__.py")
        return _alias(top) if same else None


class _ForPlugins(MetaPathFinder):
    """Lets plugins import ``scheduling``, unless another package has that name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return _alias(fullname) if fullname == _FOR_PLUGINS else None


class _Alias(Loader):
    """Loads a name as an alias: puts the product's module under it into ``sys.modules``."""

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns what stands there after this.
        sys.modules[module.__name__] = sys.modules[_PREFIX + module.__name__]


def _loaded_module(name: str) -> ModuleType | None:
    return sys.modules.get(_PREFIX + name)


def _alias(name: str) -> ModuleSpec | None:
    try:
        here = importlib.import_module(_PREFIX + name)
    except ModuleNotFoundError as error:
        if error.name == _PREFIX + name:
            return None
        raise
    return ModuleSpec(name, _Alias(), is_package=hasattr(here, "__path__"))
