"""Runs built programs: one class a runtime, each at its best setting for one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from peers.case import Arrays, Program


class Iree:
    """A compiled module: an artifact of ours, or any module of IREE's."""

    def __init__(self, path: Path, options: Mapping[str, Any], threads: int):
        from jq.iree.runtime import Executable

        if path.is_dir():
            from jq.artifact.load import load_artifact

            found = load_artifact(path)
            self.executable = Executable.load(found.vmfb, found.parameters, threads=threads)
        else:
            self.executable = Executable.load(path, threads=threads)

    def __call__(self, inputs: Arrays) -> Arrays:
        return self.executable(*inputs)

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        return self.executable.bind(*inputs)


class OnnxRuntime:
    """`options` are entries of the session's configuration."""

    def __init__(self, path: Path, options: Mapping[str, Any], threads: int):
        import onnxruntime as ort

        self.ort = ort
        session = ort.SessionOptions()
        session.intra_op_num_threads = threads
        session.inter_op_num_threads = 1
        session.log_severity_level = 3
        session.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        session.add_session_config_entry("session.set_denormal_as_zero", "1")
        for key, value in options.items():
            session.add_session_config_entry(key, value)
        self.session = ort.InferenceSession(str(path), session, providers=["CPUExecutionProvider"])
        self.names = [i.name for i in self.session.get_inputs()]

    def __call__(self, inputs: Arrays) -> Arrays:
        results: Arrays = self.session.run(None, dict(zip(self.names, inputs, strict=True)))
        return results

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        binding = self.session.io_binding()
        for name, array in zip(self.names, inputs, strict=True):
            binding.bind_ortvalue_input(name, self.ort.OrtValue.ortvalue_from_numpy(array))
        for output in self.session.get_outputs():
            binding.bind_output(output.name, "cpu")
        options = self.ort.RunOptions()
        return lambda: self.session.run_with_iobinding(binding, options)


class OpenVino:
    """`options` are OpenVINO's properties."""

    def __init__(self, path: Path, options: Mapping[str, Any], threads: int):
        import openvino as ov

        self.ov = ov
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "ENABLE_CPU_PINNING": "NO",  # the process is bound to its processors already
            **options,
        }
        compiled = ov.Core().compile_model(str(path), "CPU", properties)
        self.request = compiled.create_infer_request()

    def __call__(self, inputs: Arrays) -> Arrays:
        results = self.request.infer(dict(enumerate(inputs)))
        return [np.array(y) for y in results.values()]

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        kept = [self.ov.Tensor(x, shared_memory=True) for x in inputs]
        self.request.set_input_tensors(dict(enumerate(kept)))

        def call() -> Any:
            self.request.start_async()
            self.request.wait()
            return kept

        return call


class Xla:
    """`jax.jit` of an exported function."""

    def __init__(self, path: Path, options: Mapping[str, Any], threads: int):
        import jax

        self.jax = jax
        self.function = jax.jit(jax.export.deserialize(bytearray(path.read_bytes())).call)

    def __call__(self, inputs: Arrays) -> Arrays:
        return [np.asarray(y) for y in self.jax.tree.leaves(self.function(*inputs))]

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        kept = self.jax.device_put(inputs)
        return lambda: self.jax.block_until_ready(self.function(*kept))


RUNTIMES: dict[str, Callable[[Path, Mapping[str, Any], int], Program]] = {
    "iree": Iree,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "xla": Xla,
}
