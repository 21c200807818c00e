"""Algorithm 1: projected SGD, one task per step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .._utils.threads import single_threaded_blas
from .._utils.validation import check_choice, check_nonnegative, check_positive
from ..tasks import Rows, TaskSet
from ..theory import estimate_quantities, theory_step
from .base import DivergenceError, Problem, Solution, Solver
from .steps import STEP_SIZES, StepSizes, candidate_steps
from .trajectory import Callback, Trajectory, run

#: Multiples of τ that calibration tries; 1 first, so that a tie leaves τ as it was learned.
CALIBRATION_SCALES = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0, 32.0)


class ProjectedSGD(Solver):
    """The paper's Algorithm 1: a projected step with each task, and the mean of the iterates.

    Parameters
    ----------
    step : "search", "theory", float or pair of floats, default="search"
        A pair is (step of C, step of H).  "search" chooses on held-out tasks, all candidates sharing one pass.
        "theory" is the step of Thm. bound_estimated_feature.
    step_sizes : sequence of floats, optional
        Candidates of the search for C; by default 9 values from 1e-4 to 1e4 (the paper's 14 are
        `PAPER_STEP_SIZES`).
    step_ratios : sequence of floats, default=(0, 1, 10)
        Candidates of the search for (step of H) / (step of C).  With 0, "H does not move", among them, a
        conditional learner can never do worse than its unconditional twin on the held-out tasks.
    theory_constants : dict, optional
        Stated constants for "theory": any of distance, K, L, R, n, T; the rest is estimated.
    """

    in_given_order: ClassVar[bool] = True

    def __init__(
        self,
        step: Any = "search",
        *,
        step_sizes: Any = None,
        step_ratios: Any = (0.0, 1.0, 10.0),
        theory_constants: dict[str, float] | None = None,
    ) -> None:
        self.step = step
        self.step_sizes = step_sizes
        self.step_ratios = step_ratios
        self.theory_constants = theory_constants

    @property
    def needs_held_out(self) -> bool:
        return isinstance(self.step, str) and self.step == "search"

    def n_ticks(self, n_tasks: int) -> int:
        return n_tasks

    def check(self, *, inner: str, rank: int | None, conditional: bool) -> None:
        if isinstance(self.step, str):
            check_choice("step", self.step, ["search", "theory"])
        elif np.ndim(self.step) == 0:
            check_nonnegative("step", self.step)
        else:
            if len(self.step) != 2:
                raise ValueError(f"step: a pair is (step of C, step of H), got {self.step!r}")
            for value in self.step:
                check_nonnegative("step", value)
        for name in ("step_sizes", "step_ratios"):
            values = getattr(self, name)
            if values is not None:
                if len(values) == 0:
                    raise ValueError(f"{name}: give at least one value")
                for value in values:
                    check_nonnegative(name, value)

    def solve(self, problem: Problem, state: Any = None, callback: Callback | None = None) -> Solution:
        """Advance every candidate through the tasks and choose between them."""
        details: dict[str, Any] = {}
        if state is None:
            steps = self._candidates(problem, details)
            C0, bias = problem.start.conditioning.C, problem.start.bias
            n_side = problem.start.conditioning.n_side
            runs = [Trajectory.start(step, C0, bias, n_side, problem.rank) for step in steps]
        else:
            runs = [run.copy() for run in state]
        runs = run(
            runs,
            problem.batch,
            problem.objective,
            n_jobs=problem.n_jobs,
            tick=problem.tick,
            callback=callback,
        )
        if all(run.failure for run in runs):
            steps_tried = ", ".join(str(run.steps) for run in runs)
            raise DivergenceError(
                f"step: the iterates overflow with step {steps_tried} ({runs[0].failure}); "
                "give a smaller step, or rescale X and y"
            )
        return _choose(problem, runs, details)

    def _candidates(self, problem: Problem, details: dict[str, Any]) -> list[StepSizes]:
        conditional = problem.start.conditioning.n_side > 0
        if self.needs_held_out:
            sizes = STEP_SIZES if self.step_sizes is None else self.step_sizes
            return candidate_steps(sizes, self.step_ratios, conditional=conditional)
        if isinstance(self.step, str):
            constants = self._theory_constants(problem)
            details["theory_constants_"] = constants
            return [StepSizes(*[theory_step(**constants)] * 3)]
        if np.ndim(self.step) == 0:
            return [StepSizes(*[float(self.step)] * 3)]
        step_C, step_H = map(float, self.step)
        return [StepSizes(step_C, step_H, step_C)]

    def _theory_constants(self, problem: Problem) -> dict[str, Any]:
        """Constants of Thm. bound_estimated_feature: those stated, the others estimated."""
        names = ("distance", "K", "L", "R", "n", "T")
        stated = dict(self.theory_constants or {})
        unknown = set(stated) - set(names)
        if unknown:
            raise ValueError(
                f"theory_constants: unknown {sorted(unknown)}; valid names are {', '.join(names)}"
            )
        for name, value in stated.items():
            check_positive(f"theory_constants[{name!r}]", value)
        if len(stated) == len(names):
            return {name: stated[name] for name in names}
        start, batch = problem.start, problem.batch
        rows = Rows.of(problem.tasks, start.fit_intercept)
        tasks = TaskSet.from_arrays(rows.X, rows.y, rows.offsets, problem.tasks.labels)
        norms = np.einsum("ij,ij->i", batch.phis, batch.phis)
        squared = float(batch.squared_scale[-1]) if problem.scale_features else 1.0
        lipschitz = stated.get("L", getattr(problem.objective, "lipschitz", np.inf))
        quantities = estimate_quantities(
            tasks,
            loss=start.loss,
            L=lipschitz if np.isfinite(lipschitz) else None,
            R=stated.get("R"),
            K=float(np.sqrt(norms.max(initial=0.0) / (squared if squared > 0 else 1.0))),
            initial=start.conditioning.C,
        )
        return {name: stated.get(name) or getattr(quantities, name) for name in names}


def _choose(problem: Problem, runs: list[Trajectory], details: dict[str, Any]) -> Solution:
    """The run that does best on the held-out tasks, with the multiple of τ that does; the only one without."""
    if problem.judge is None:
        best, scale, history, error = runs[0], 1.0, [], None
        prior = problem.solved(best.average(), best.bias_mean.copy())
    else:
        scales = CALIBRATION_SCALES if problem.calibrate else (1.0,)
        table = np.full((len(runs), len(scales)), np.inf)
        averages = [None if run.failure else run.average() for run in runs]
        with single_threaded_blas():
            for c, (candidate, average) in enumerate(zip(runs, averages, strict=True)):
                for j, scale in enumerate(scales):
                    if average is not None:
                        table[c, j] = problem.judge(average.scale(scale), candidate.bias_mean.copy())
        history = [
            {"step_C": r.steps.C, "step_H": r.steps.H, "scale": scale, "error": float(error)}
            for r, row in zip(runs, table, strict=True)
            for scale, error in zip(scales, row, strict=True)
        ]
        c, j = divmod(int(np.argmin(table)), len(scales))
        if averages[c] is None:
            # No candidate predicts the held-out tasks; one that did not overflow can at least predict.
            c = next(i for i, average in enumerate(averages) if average is not None)
        best, scale, error = runs[c], scales[j], float(table[c, j])
        average = averages[c]
        assert average is not None
        prior = problem.solved(average.scale(scale), best.bias_mean.copy())
    details = {**details, "step_size_": best.steps}
    return Solution(prior, tuple(runs), history, error, scale, max(best.n_steps, 1), details)
