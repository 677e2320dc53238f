"""What runs inside ranks and in foreign environments needs the standard library alone."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import harness.forms

PLAIN = "Standard library only"


def test_modules_that_say_so_need_the_standard_library_alone() -> None:
    """In an interpreter without any package each of them is imported.

    All others say that they need more.
    """
    modules = [f"harness.forms.{one.name}" for one in iter_modules(harness.forms.__path__)]
    plain = [name for name in modules if PLAIN in (import_module(name).__doc__ or "")]
    assert {"harness.forms.git", "harness.forms.strict_json", "harness.forms.text"} <= set(plain)
    code = (
        "import sys, importlib; sys.path.insert(0,"
        f" {str(Path(harness.forms.__file__).parents[2])!r})\n"
    )
    code += "for name in sys.argv[1:]: importlib.import_module(name)\n"
    code += (
        "print(*sorted({n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names -"
        " {'__main__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *plain],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("harness\n", "")
