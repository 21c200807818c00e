"""Draw the decision chart of index.md: questions from top to bottom, with the recommendation for
each answer.
"""

import sys
from pathlib import Path

STEPS = [
    (
        ["Do rows belong to groups", "(schools, users, patients)?"],
        "no",
        ["One table: scikit-learn,", "ridge or boosting"],
    ),
    (["Do slopes vary over several", "groupings of the rows?"], "yes", ["lme4, GPBoost, Bambi"]),
    (
        ["Is the target ordinal, or", "a time to an event?"],
        "yes",
        ["brms, Bambi,", "survival models"],
    ),
    (
        ["Are there at least", "some ten groups?"],
        "no",
        ["One model with indicators", "of the groups"],
    ),
    (
        ["Has every group hundreds of rows", "for each column?"],
        "yes",
        ["One model for each group:", "ridge, boosting"],
    ),
    (
        ["Do you need p-values of", "fixed effects?"],
        "yes",
        ["lme4 with lmerTest,", "statsmodels"],
    ),
]
WIDTH, ROW, BOX, LEFT, RIGHT = 640, 84, 52, 20, 390
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#222}.q{fill:#eef4fa;stroke:#0072B2}.a{fill:#f3f3f3;stroke:#777}"
    ".y{fill:#0072B2;stroke:#0072B2}.y+text,.y+text+text{fill:#fff}line{stroke:#555;stroke-width:1.5}"
    ".s{font-size:13px;fill:#555}"
)


def box(x, y, width, lines, kind):
    height = BOX
    parts = [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>']
    for k, line in enumerate(lines):
        middle = y + height / 2 + 5 + 18 * (k - (len(lines) - 1) / 2)
        parts.append(f'<text x="{x + width / 2}" y="{middle:g}" text-anchor="middle">{line}</text>')
    return parts


def chart():
    parts = []
    for i, (question, away, answer) in enumerate(STEPS):
        y = 12 + i * ROW
        on = "no" if away == "yes" else "yes"
        parts += box(LEFT, y, 290, question, "q")
        parts += box(RIGHT, y, 230, answer, "a")
        middle = y + BOX / 2
        parts.append(
            f'<line x1="{LEFT + 290}" y1="{middle:g}" x2="{RIGHT - 2}" y2="{middle:g}" marker-end="url(#m)"/>'
        )
        parts.append(f'<text class="s" x="{LEFT + 300}" y="{middle - 6:g}">{away}</text>')
        down = LEFT + 145
        parts.append(
            f'<line x1="{down}" y1="{y + BOX}" x2="{down}" y2="{y + ROW - 2}" marker-end="url(#m)"/>'
        )
        parts.append(f'<text class="s" x="{down + 8}" y="{y + BOX + 20}">{on}</text>')
    y = 12 + len(STEPS) * ROW
    parts += box(LEFT, y, 290, ["tailored"], "y")
    height = y + BOX + 12
    alt = (
        "; ".join(f"{' '.join(q)} {a}: {' '.join(w)}" for q, a, w in STEPS)
        + "; otherwise: tailored"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">'
        f"<title>{alt}</title><style>{STYLE}</style>"
        '<defs><marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (folder / "decision.svg").write_text(chart(), encoding="utf-8")
