"""Draw the figure of howto/paper-method.md by running the code of the page."""

import contextlib
import re
import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
PAGE = Path(__file__).resolve().parents[1] / "howto" / "paper-method.md"
CODE = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
)

with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    exec("\n".join(CODE), {"__name__": "page"})
    shutil.copy("paper-method.png", FOLDER)
