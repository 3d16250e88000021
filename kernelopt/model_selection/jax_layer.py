"""A problem as a function of its parameters that JAX differentiates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.driver.values import kept, of_parameters, with_values
from kernelopt.errors import DataError, KernelOptError, ParameterError
from kernelopt.model_selection.gradients import _parameters
from kernelopt.model_selection.tuning import FINER, TOL
from kernelopt.problem import Problem, require_problem
from kernelopt.sensitivity.gradient_of import Refined
from kernelopt.support.checks import require_kind
from kernelopt.support.optional import optional
from kernelopt.support.threads import one_pool
from kernelopt.support.types import Array


class JaxLayer:
    """Outputs of a problem's optimum as a function of parameters, which JAX differentiates: (p₁, p₂, …) ↦ (v₁, v₂, …).

    As in cvxpylayers (Agrawal et al., NeurIPS 2019), with predictions of θ as outputs and parameters of kernels among
    the parameters. A call solves the problem, and returns the outputs at the optimum refined to rounding; backward, one
    adjoint system gives the derivative of Σ cᵢvᵢ by all parameters, with the cotangents c (see `ko.gradient`). It works
    within `jax.grad`, `jax.value_and_grad`, `jax.vjp`, `jax.jacrev`, `jax.jit` and `jax.vmap`, which solves one problem
    after the other.

    Parameters
    ----------
    problem : Problem
    parameters : sequence of cp.Parameter
        Those of the problem that a call gives values to, in this order. Others keep the values that they have at the
        time of the call.
    outputs : sequence of expressions
        Real cvxpy expressions of predictions at any points and of the problem's variables and parameters, of any
        curvature; or `problem.objective` for the optimal value.
    **solve_options : passed on to `Problem.solve`

    Raises
    ------
    MissingPackageError
        Where JAX is not installed; it is an ImportError.
    ParameterError
        For parameters of another problem; in a call for another number of values, other shapes, and values that do not
        fit the declared sign.
    DataError
        For outputs of other functions, variables or parameters than the problem's.
    KernelOptError
        In a call for which the problem has no answer, as where it is infeasible; where its optimum has no gradient, as
        `ko.gradient` explains.

    Notes
    -----
    **Errors.** Under `jax.jit` and `jax.vmap` a call runs in JAX's own runtime, which raises a
    `jax.errors.JaxRuntimeError` with our error in its text. JAX calls this behaviour undefined; tested is JAX 0.10.

    **Precision.** All is computed in float64. Values, outputs and gradients have JAX's default type: in float32 each of
    them is rounded, by 6e-8 of its size, and so are the values that the problem is solved for. With
    `jax.config.update("jax_enable_x64", True)` nothing is rounded.

    **Side effects.** None: the problem, its parameters, θ and variables keep what they have. After training, set the
    parameters and call `problem.solve()`. While a compiled call runs, in the background, parameters have its values:
    wait with `jax.block_until_ready` before you use them or the problem.

    **Cost.** The last optimum is kept, O(N²) numbers, so that its gradient takes no second solve. Backward in another
    order, as under `jax.vmap`, a problem is solved once more.

    **Derivatives.** First ones in reverse mode: `jax.jvp`, `jax.jacfwd` and gradients of gradients raise JAX's errors.
    At a kink the gradient is one-sided; `ko.gradient` names the rows that are there.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> import jax, jax.numpy as jnp
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).standard_t(2, size=60)
    >>> lam = cp.Parameter(pos=True, name="lam")
    >>> sigma = cp.Parameter(pos=True, name="sigma")
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    >>> train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    >>> errors = ko.losses.absolute_error(y[train], theta(X[train]) + b)
    >>> problem = ko.Problem(cp.Minimize(cp.sum(errors) + lam * ko.sum_squares(theta)))
    >>> layer = ko.JaxLayer(problem, [lam, sigma], [theta(X[test]) + b])
    >>> layer
    JaxLayer((lam, sigma) ↦ ((30,),))
    >>> def loss(lam, sigma):
    ...     (predictions,) = layer(lam, sigma)
    ...     return jnp.mean(jnp.abs(predictions - y[test]))
    >>> slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))(1.0, 1.0)
    >>> round(float(slopes[0]), 2), round(float(slopes[1]), 2)
    (0.01, 0.04)
    """

    def __init__(
        self, problem: Problem, parameters: Sequence[cp.Parameter], outputs: Sequence[Any], **solve_options: Any
    ) -> None:
        self._jax = optional("jax", "ko.JaxLayer")
        require_problem(problem)
        problem._require_no_boxes("ko.JaxLayer")
        if not isinstance(outputs, (list, tuple)) or not outputs:
            raise DataError(f"Expected a list of outputs; got {outputs!r}. Write [expression] for one.")
        for output in outputs:
            _require_output(problem, output)
        require_kind(parameters, (list, tuple), "parameters", "a list of parameters")
        self.problem, self.outputs = problem, tuple(outputs)
        self.parameters = tuple(_parameters(problem, parameters, None))
        if len(self.parameters) < len(parameters):
            raise ParameterError("Expected each parameter once; got one of them twice.")
        # It has a factor and an answer of its own, and θ and variables in common with the user's.
        self._twin = Problem(problem.objective, problem.constraints)
        self._options = {"tol": TOL, "certify": False, **solve_options}
        self._refined: Refined | None = None
        self._differentiable = self._with_gradient()

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """The outputs, arrays in their shapes, for values of the parameters in the parameters' order and shapes."""
        if len(values) != len(self.parameters):
            names = ", ".join(p.name() for p in self.parameters)
            raise ParameterError(f"Expected a value for each of the parameters {names}; got {len(values)} values.")
        return self._differentiable(*map(self._array, self.parameters, values))

    def _array(self, parameter: cp.Parameter, value: Any) -> Any:
        """A value as an array of JAX's default real type."""
        jnp = self._jax.numpy
        array = jnp.asarray(value)
        if array.shape != parameter.shape or jnp.iscomplexobj(array):
            raise ParameterError(
                f"Expected real numbers of shape {parameter.shape} for {parameter.name()}; got shape {array.shape} of "
                f"{array.dtype}. For several values at once write jax.vmap(layer)."
            )
        return array.astype(jnp.result_type(float))

    def __repr__(self) -> str:
        shapes = [_shape(output) for output in self.outputs]
        return f"JaxLayer(({', '.join(p.name() for p in self.parameters)}) ↦ {tuple(shapes)})"

    # ---------------------------------------------------------------- for JAX

    def _with_gradient(self) -> Callable[..., tuple[Any, ...]]:
        """The function on arrays of one type, with its rule for gradients."""
        jax = self._jax
        of_outputs, of_parameters = [_shape(o) for o in self.outputs], [p.shape for p in self.parameters]

        def outputs(*values: Any) -> tuple[Any, ...]:
            return _on_host(jax, self._forward, of_outputs, values)

        def forward(*values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            return outputs(*values), values

        def backward(values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
            return _on_host(jax, self._backward, of_parameters, (*values, *cotangents))

        differentiable = jax.custom_vjp(outputs)
        differentiable.defvjp(forward, backward)
        return differentiable

    def _forward(self, *values: Array) -> list[Array]:
        with self._at(values):
            refined = self._solved()
            return [refined.value(output) for output in self.outputs]

    def _backward(self, *arrays: Array) -> list[Array]:
        count = len(self.parameters)
        values, cotangents = arrays[:count], arrays[count:]
        total = [np.zeros(p.shape) for p in self.parameters]
        with self._at(values):
            for weight, criterion in self._criteria(cotangents):
                found = self._solved().gradient(criterion)
                total = [g + weight * found[p] for g, p in zip(total, self.parameters, strict=True)]
        return total

    def _criteria(self, cotangents: Sequence[Array]) -> Iterator[tuple[float, Any]]:
        """Criteria with weights, whose sum has the derivatives Σ cᵢ∂vᵢ: the objective, and one for all expressions."""
        terms = []
        for output, c in zip(self.outputs, cotangents, strict=True):
            if c.any() and isinstance(output, cp.Expression):
                terms.append(cp.sum(cp.multiply(c, output)))
            elif c.any():
                yield float(c), output
        if terms:
            yield 1.0, sum(terms[1:], terms[0])

    # ---------------------------------------------------------------- the problem

    @contextmanager
    def _at(self, values: Sequence[Array]) -> Iterator[None]:
        """A context in which the parameters have these values. Afterwards all is as it was."""
        problem = self.problem
        with problem._lock, one_pool():
            restore = kept(with_values(problem.variables(), problem.constraints, None), problem.thetas())
            try:
                with of_parameters(dict(zip(self.parameters, values, strict=True)), self.parameters):
                    yield
            finally:
                restore()

    def _solved(self) -> Refined:
        """The optimum for the parameters' present values: that of the last solve, if it was for the same."""
        if self._refined is None or self._twin._changed_since():
            self._refined = None  # so that an error leaves none
            self._twin.solve(**self._options)
            try:
                self._refined = self._at_optimum()
            except KernelOptError:
                # A certificate tells infeasible problems from those that a solver gave up.
                self._twin.solve(**{**self._options, "tol": FINER, "certify": True})
                self._refined = self._at_optimum()
        return self._refined

    def _at_optimum(self) -> Refined:
        refined = Refined(self._twin._answer(), list(self.parameters))
        refined.optimum()
        return refined


def _on_host(jax: Any, function: Callable[..., list[Array]], shapes: list[Any], arrays: tuple[Any, ...]) -> Any:
    """A function of numpy's float64 arrays called for JAX's: at once where these have values, else by a callback."""
    dtype = arrays[0].dtype

    def called(*given: Any) -> tuple[Array, ...]:
        return tuple(np.asarray(a, dtype) for a in function(*(np.asarray(g, dtype=float) for g in given)))

    if not any(isinstance(a, jax.core.Tracer) for a in arrays):
        return tuple(map(jax.numpy.asarray, called(*arrays)))
    kinds = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    return jax.pure_callback(called, kinds, *arrays, vmap_method="sequential")


def _shape(output: Any) -> tuple[int, ...]:
    return output.shape if isinstance(output, cp.Expression) else ()


def _require_output(problem: Problem, output: Any) -> None:
    """Raise DataError for anything but expressions of the problem, and its objective."""
    if output is problem.objective:
        return
    if not isinstance(output, cp.Expression) or not output.is_real():
        raise DataError(f"Expected outputs as real expressions, or problem.objective; got {output!r}.")
    known = [*problem._stated.variables(), *problem.parameters()]
    for leaf in [*output.variables(), *output.parameters()]:
        if not any(leaf is one for one in known):
            raise DataError(
                f"Expected outputs of the problem's own functions, variables and parameters; {leaf!r} is none of them. "
                "Compute with other numbers in JAX, from the outputs."
            )
