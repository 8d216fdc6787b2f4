"""The model a user hands in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jq.base.errors import UserError
from jq.base.tables import plain_table, size, to_html

Batch = tuple[Any, ...]  # one tuple of inputs, in the order of the function's arguments
Batches = Iterable[Batch] | Callable[[], Iterable[Batch]] | None


@dataclass(frozen=True)
class Model:
    """A JAX function with its parameters, example inputs, and data to calibrate and measure it.

    Attributes:
        fn: `fn(params, *inputs)`; inputs and result may be any pytrees of arrays.
        params: pytree of arrays; its leaves become named weights of the program.
        example_inputs: one tuple of inputs that fixes shapes and types (leaves may be
            `jax.ShapeDtypeStruct`).
        calibration: batches for calibrated ranges and recovery, or a function that returns them.
        evaluation: batches to compare on, or a function that returns them.
        labels: one integer label per sample of `evaluation`, when there are any (array, or a
            function that returns it).
        metric: `metric(outputs, labels) -> {name: value}`, outputs stacked over the batches.
        name: for reports.
        input_names: names of the inputs in files; `arg0`, `arg1`, ... by default.
        x64: trace with JAX's 64-bit types, so that i64 and f64 stay what they are.

    Example:
        ```python
        def fn(params, x):
            return jnp.tanh(x @ params["head"]["kernel"])

        params = {"head": {"kernel": np.ones((16, 8), np.float32)}}
        samples = [(np.ones((4, 16), np.float32),)]
        model = jq.Model(fn, params, samples[0], calibration=samples, evaluation=samples)
        ```"""

    fn: Callable[..., Any]
    params: Any = field(repr=False)
    example_inputs: Batch = field(repr=False)
    calibration: Batches = field(default=None, repr=False)
    evaluation: Batches = field(default=None, repr=False)
    labels: Any = field(default=None, repr=False)
    metric: Callable[[Any, Any], Mapping[str, float]] | None = None
    name: str = "model"
    input_names: Sequence[str] | None = field(default=None)
    x64: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.example_inputs, tuple | list):
            raise UserError(
                f"example_inputs is of type {type(self.example_inputs).__name__}, not a tuple",
                hint="one input is (x,), none are ()",
            )
        if (hint := how_to_take(self.fn)) or not callable(self.fn):
            raise UserError(f"fn is of type {type(self.fn).__name__}, not a function", hint=hint)

    def __repr__(self) -> str:
        inputs = ", ".join(_described(leaf) for leaf in _leaves(tuple(self.example_inputs)))
        return f"<Model {self.name}: ({inputs}), {self._parameters()}>"

    def _repr_html_(self) -> str:
        """The view in a notebook: what goes in, and what there is to judge it by."""
        table = plain_table("input", "shape and type", title=f"{self.name}, {self._parameters()}")
        names = self.input_names or [f"arg{i}" for i in range(len(self.example_inputs))]
        for name, example in zip(names, self.example_inputs, strict=False):
            table.add_row(name, ", ".join(_described(leaf) for leaf in _leaves(example)))
        sets = [kind for kind in ("calibration", "evaluation") if getattr(self, kind) is not None]
        return to_html(table, f"sets: {', '.join(sets) or 'none'}")

    def _parameters(self) -> str:
        leaves = _leaves(self.params)
        stored = sum(getattr(leaf, "nbytes", 0) for leaf in leaves)
        return f"{len(leaves)} arrays of parameters, {size(stored)}"


def _leaves(value: Any) -> list[Any]:
    """The leaves of a tree; JAX is imported only when this is called."""
    from jq.base.tree import leaves_of

    return leaves_of(value)


def _described(leaf: Any) -> str:
    """`float32[8,64]`; the type's name for what is no array."""
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return type(leaf).__name__
    return f"{dtype}[{','.join(map(str, shape))}]"


# Packages whose modules are no functions of their parameters, and what takes them.
_TAKERS = {
    "flax.nnx": "jq.from_nnx(module, example_inputs)",
    "flax.linen": "jq.from_linen(module, variables, example_inputs)",
    "equinox._module": "jq.from_equinox(module, example_inputs)",
    "keras.src.layers": "jq.from_keras(module, example_inputs)",
    "haiku._src.transform": "jq.from_haiku(transformed, params, example_inputs)",
}
_WRAPPED = ("equinox._jit", "equinox._vmap_pmap", "equinox._ad", "equinox._eval_shape")


def how_to_take(value: Any) -> str | None:
    """Names the function that makes a model of a framework's module; None for anything else."""
    if type(value).__module__.startswith(_WRAPPED):
        return None  # a function, which is a module besides
    for cls in type(value).__mro__:
        for package, taker in _TAKERS.items():
            if f"{cls.__module__}.".startswith(f"{package}."):
                return f"a module of {package.partition('.')[0]} is taken by {taker}"
    return None


def batches(source: Batches) -> list[Batch] | None:
    """The batches of a source given either way; None stays None."""
    return None if source is None else list(source() if callable(source) else source)
