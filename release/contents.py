"""Check that the wheel contains the modules of `src/` and nothing else: no tests, studies or data.

python release/contents.py dist
"""

import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

#: Files of the wheel that are not modules.
NEEDED = (
    "tailored/py.typed",
    "tailored/show/page.css",
    "tailored/datasets/pupils.csv",
    "tailored/datasets/schools.csv",
)
#: Endings of files that must not be in the wheel.
FOREIGN = (".pyc", ".nbi", ".nbc", ".npz", ".parquet", ".dat", ".zip", ".xls", ".tailored")


def main(folder: Path) -> int:
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        metadata = Parser().parsestr(
            file.read(next(name for name in names if name.endswith("METADATA"))).decode()
        )
    with tarfile.open(source) as archive:
        given = [name.partition("/")[2] for name in archive.getnames()]
    here = Path(__file__).parents[1] / "src"
    modules = {str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()}
    modules = {name for name in modules if "__pycache__" not in name and not name.endswith(FOREIGN)}
    own = {name for name in names if ".dist-info/" not in name}
    wrong = [f"the wheel lacks {name}" for name in sorted(modules | set(NEEDED)) if name not in own]
    wrong += [f"the wheel holds {name}" for name in sorted(own - modules)]
    wrong += [f"the wheel holds {name}" for name in sorted(names) if name.endswith(FOREIGN)]
    wrong += [f"the source lacks {name}" for name in sorted(modules) if f"src/{name}" not in given]
    wrong += [
        f"the source lacks {name}"
        for name in ("README.md", "LICENSE", "tests/conftest.py")
        if name not in given
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.2f} MB" for path in (wheel, source))
    print(f"{metadata['Name']} {metadata['Version']}: {len(own)} files; {sizes}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
