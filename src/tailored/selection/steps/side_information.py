"""Effects of side information on the prior mean, ``b(s) = b + Γ v(s)``, see `gaussian.side`.

They are proposed by their evidence in all tasks.  Tasks that are held out in a fold thus contribute
to the proposal, but not to the fit in this fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...gaussian.em import fit_roughly
from ...gaussian.rows import Tasks
from ...gaussian.side import (
    LARGEST_EFFECT,
    ROUNDS,
    STEPS,
    Effect,
    Group,
    SideStructure,
    Term,
    fit_terms,
    gains_of,
    terms_of,
)
from ..loop import State, Table
from ..rule import is_as_good, least_gain
from .covariance import select_covariance


def accept_side_information(state: State, table: Table) -> State:
    """Accept the proposed effects, with the covariance that is selected with them, unless this
    covariance is better without them.
    """
    data = state.data
    if data.side is None or len(data) == 1:
        return state
    has_intercept, varying = data.settings.fit_intercept, data.settings.varying
    side = select_side(data.statistics, data.groups, has_intercept=has_intercept, varying=varying)
    if side is None:
        return state
    trained = data.in_parallel(lambda fold: fold.training.with_side(side), state.folds)
    pairs = zip(state.folds, trained, strict=True)
    folds = [replace(fold, training=training) for fold, training in pairs]
    proposed = select_covariance(replace(state, side=side, folds=folds), table)
    assert proposed.best is not None
    plain = table.compete(proposed.best.structure, state.folds)
    return proposed if is_as_good(proposed.best, plain) else state


def select_side(
    tasks: Tasks,
    groups: Sequence[Group],
    *,
    has_intercept: bool,
    varying: tuple[int, ...] | None = None,
) -> SideStructure | None:
    """Select the effects that raise the log evidence of the tasks by more than `least_gain`; return
    None if there are none.

    The simplest effects, linear ones on the intercept, have those of the other columns as
    alternatives, and richer effects have all candidates.
    """
    plain = fit_roughly(tasks, varying)
    tasks, model = tasks.gaussian(plain)
    W = model.covariances[0]
    kinds = [True] * has_intercept
    if not has_intercept or W[:-1].any():
        kinds.append(False)  # otherwise only the intercept differs between tasks
    small = [group for group in groups if group.root.shape[1] <= LARGEST_EFFECT]
    effects = [Effect(group.column, group.curved, only) for group in small for only in kinds]
    candidates = [term for term in terms_of(tasks, groups, effects, W) if term.L.any()]
    kept, n_columns = list[Term](), len({group.column for group in small})

    def least(term: Term) -> float:
        is_simple = term.effect.intercept_only and not term.effect.curved
        return least_gain(n_columns if is_simple else len(candidates))

    for _ in range(ROUNDS):
        known = {term.effect for term in kept}
        others = [term for term in candidates if term.effect not in known]
        found = [pair for pair in gains_of(tasks, model, kept, others) if pair[0] > least(pair[1])]
        # In one round, a group affects the intercept or all coefficients.  If slopes hardly vary,
        # the two effects are nearly the same.  The effect on all coefficients is therefore
        # preferred only if its gain is larger by log 2.
        found.sort(key=lambda pair: -pair[0] - least_gain(2) * pair[1].effect.intercept_only)
        new = dict[tuple[int, bool], Term]()
        for _, term in found:
            new.setdefault((term.effect.column, term.effect.curved), term)
        if not new:
            break
        fit = fit_terms(tasks, model, [*kept, *new.values()], max_iter=STEPS, learn=True)
        model, kept = fit.rest, fit.terms
    for term in kept[::-1]:
        rest = [other for other in kept if other is not term]
        if gains_of(tasks, model, rest, [term])[0][0] < least(term):
            kept = rest
    if not kept:
        return None
    kept = fit_terms(tasks, model, kept, max_iter=STEPS, learn=True).terms
    return SideStructure(tuple(term.effect for term in kept), varying)
