"""The chosen form of a prior in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..tasks.episodes import Arrival

#: What tasks differ in, by the structure of W.
_DIFFER = {
    "none": "one linear model for all tasks, which do not differ but by noise",
    "intercept": "a linear mixed model in which tasks differ in their intercept alone",
    "diagonal": "a linear mixed model in which tasks differ in every effect, without correlations",
    "full": "a linear mixed model in which tasks differ in every effect",
}

#: Shares of a variance, and how one would call them.
_STRENGTHS = ((0.01, "hardly"), (0.05, "a little"), (0.2, "clearly"), (0.5, "strongly"))


def strength(share: float) -> str:
    """How much a share of the differences between tasks is, in a word."""
    # columns that work against each other may have more than all each
    return next((word for least, word in _STRENGTHS if share < least), "mostly")


def form_in_words(form: Mapping[str, Any], names: Sequence[str]) -> str:
    """One sentence about ``form_`` of `EmpiricalBayesLearner`; ``names`` are those of the weights."""
    kind = form["kind"]
    if kind == "independent":
        return "Every task alone, by ridge regression: what tasks have in common did not predict held-out tasks better."
    if kind == "factors plus diagonal":
        return (
            f"Tasks differ in {form['rank']} common factors of their weights and in each weight by itself (the form for "
            "many columns)."
        )
    if kind == "mixture":
        text = f"A mixture of {form['n_components']} linear mixed models: each task comes from one of the components"
        if form.get("gate_penalty"):
            text += ", and its side information says from which it is likely to come"
    else:
        text = _DIFFER[form.get("structure", "full")].capitalize()
        if form.get("varying") is not None and form.get("structure", "full") in ("diagonal", "full"):
            alone = ", ".join(names[j] for j in form["varying"])
            text = text.replace("every effect", f"these effects alone: {alone}")
    if form.get("truncation"):
        text += (
            f"; directions that vary less than {100.0 * form['truncation']:g} % of the widest are left out"
        )
    if form.get("pseudo_tasks"):
        towards = f"{form['n_factors']} common factors" if form["n_factors"] else "none"
        text += f"; correlations are shrunk towards {towards}, as by {form['pseudo_tasks']:g} more task{'s' * (form['pseudo_tasks'] != 1)}"
    if not form.get("learn_mean"):
        text += "; a common effect of the columns did not help, and is zero"
    return text + "."


def side_in_words(side_form: Mapping[str, Any] | None, form: Mapping[str, Any], n_side: int) -> str:
    """What a description does, if there is one."""
    if not n_side:
        return ""
    if side_form is None:
        if form.get("gate_penalty"):
            return "Side information speaks through the components alone."
        return "Side information was given and moves nothing: held-out tasks were not explained better by it."
    effect = "the intercept" if side_form.get("effect on") == "intercept" else "every effect"
    shape = "along curves" if side_form.get("curved") else "linearly"
    return f"Side information moves {effect} of the prior mean, {shape} (penalty {side_form['penalty']:g})."


def scale_in_words(scale: float) -> str:
    if scale == 1.0:
        return ""
    return f"Held-out tasks were predicted best with {scale:g} times the (co)variances below, which adapting uses."


def arrival_in_words(arrival: Arrival) -> str:
    """Which rows of a task are given and which asked for."""
    which = "first" if arrival.in_order else "random"
    if arrival.support is None:
        given = "a quarter to three quarters" if arrival.in_order else "three quarters"
        return f"{given} of its rows ({which} ones)"
    low, high = (share_in_words(end) for end in arrival.support)
    return f"{low if low == high else f'{low} to {high}'} of its rows ({which} ones)"


def share_in_words(share: float | int) -> str:
    """A number or fraction of rows."""
    return f"{share:,}" if isinstance(share, int) else f"{100.0 * share:g} %"
