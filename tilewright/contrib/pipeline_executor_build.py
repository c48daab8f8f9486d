"""The stages of a pipeline: what feeds what, and how each is built.

config = PipelineConfig()
config["input"]["data"].connect(config[mod0]["input"]["x"])
config[mod0]["output"][0].connect(config[mod1]["input"]["y"])
config[mod1]["output"][0].connect(config["output"][0])
pipeline = PipelineModule(build(config))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import TVMError
from ..ir.module import IRModule
from ..relay.build_module import build as build_model
from ..relay.transform.infer_type import infer_module
from ..relay.ty import TupleType
from ..runtime.devices import cpu
from .pipeline_executor import PipelineExecutorFactoryModule, pipeline_executor_enabled

__all__ = ["PipelineConfig", "build", "export_library", "pipeline_executor_build_enabled"]


def pipeline_executor_build_enabled() -> bool:
    """Whether pipelines can be built: always."""
    return pipeline_executor_enabled()


def build(pipe_configs: PipelineConfig) -> PipelineExecutorFactoryModule:
    """Build all stages, each for its target."""
    config = pipe_configs.get_config()
    rows: list[Any] = []
    libs: dict[int, Any] = {}
    for mod, each in config["module_connection"].items():
        pipeline = dict(each["pipeline"])
        work = each["build"] or build_model
        lib = work(
            mod,
            each["target"],
            params=each["params"],
            target_host=each["target_host"],
            mod_name=each["mod_name"],
        )
        device = each["dev"]
        pipeline["dev"] = f"{device.device_type},{device.device_id}"
        rows.append(pipeline)
        libs[pipeline["mod_idx"]] = {
            "lib": lib,
            "dev": device,
            "fcompile": each["fcompile"],
            "export_cc": each.get("export_cc"),
        }
    made = {name: config[name] for name in ("param_connection", "input_connection")}
    return PipelineExecutorFactoryModule(libs, {**made, "module_connection": rows})


def export_library(factory: PipelineExecutorFactoryModule, directory_path: str) -> str:
    """Write a pipeline into a folder: see `PipelineExecutorFactoryModule.export_library`."""
    return factory.export_library(directory_path)


class Binding:
    """An input, an output or the parameters of a stage or of the pipeline."""

    def __init__(self, owner: Any, io_type: str, name: Any, data_type: Any = None) -> None:
        self.io_owner, self.io_type, self.name, self.data_type = owner, io_type, str(name), data_type
        self.bindings: list[Binding] = []  # those that it feeds
        self.parents: list[Binding] = []  # those that feed it

    @property
    def of_stage(self) -> bool:
        return isinstance(self.io_owner, ModuleWrapper)

    def __repr__(self) -> str:
        fed = " ".join(f"{b.io_owner.name}:{b.name}" for b in self.bindings)
        return f"  |{self.name}: {fed}"

    def connect(self, binding: Binding) -> None:
        """Feed another: an input of the pipeline to a stage, an output of a stage to a stage or the pipeline, or a
        group of parameters to those of a stage."""
        reason = self._why_not(binding)
        if reason:
            raise TVMError(f"{self._text()} cannot be connected to {binding._text()}: {reason}")
        self.bindings.append(binding)
        binding.parents.append(self)

    def _text(self) -> str:
        return f"{self.io_type} {self.name} of {'a stage' if self.of_stage else 'the pipeline'}"

    def _why_not(self, to: Binding) -> str:
        if self.io_owner is to.io_owner:
            return "both belong to the same stage"
        wanted = {
            (False, "input"): [(True, "input")],
            (False, "param"): [(True, "param")],
            (True, "output"): [(True, "input"), (False, "output")],
        }.get((self.of_stage, self.io_type), [])
        if (to.of_stage, to.io_type) not in wanted:
            return "inputs of the pipeline feed those of stages, and outputs of stages feed others or the pipeline"
        if to.of_stage and to.parents:
            return "something feeds it already"
        if self.of_stage and to.of_stage:
            if self.data_type != to.data_type:
                return f"their types are {self.data_type} and {to.data_type}"
            if to.io_owner.reaches(self.io_owner):
                return "that would make a cycle of stages"
        return ""


class BindingList:
    """The inputs, outputs or groups of parameters of a stage or of the pipeline, by name."""

    def __init__(self, owner: Any, io_type: str) -> None:
        self.io_owner, self.binding_type = owner, io_type
        self.bindings: dict[Any, Binding] = {}

    def __getitem__(self, key: Any) -> Binding:
        if key not in self.bindings:
            kind = None
            if isinstance(self.io_owner, ModuleWrapper):
                kind = self.io_owner.get_data_type(key, self.binding_type)
            self.bindings[key] = Binding(self.io_owner, self.binding_type, key, kind)
        return self.bindings[key]


class ModuleWrapper:
    """A stage: a module with its target, device, parameters and connections."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.target_host: Any = None
        self.build_func: Callable[..., Any] | None = None
        self.params: Any = None
        self.target: Any = "llvm"
        self.fcompile: Any = None
        self.dev: Any = cpu(0)
        self.export_cc: str | None = None
        self.cpu_affinity = ""
        self.idx, self.name = -1, ""
        main = infer_module(mod)["main"]
        self.inputs = {p.name_hint: p.checked_type for p in main.params}
        result = main.checked_type.ret_type
        self.outputs = list(result.fields) if isinstance(result, TupleType) else [result]
        self.input_bindings = BindingList(self, "input")
        self.output_bindings = BindingList(self, "output")
        self.param_binding = Binding(self, "param", "param")

    def __getitem__(self, key: str) -> Any:
        found = {"input": self.input_bindings, "output": self.output_bindings, "param": self.param_binding}
        if key not in found:
            raise TVMError(f"a stage of a pipeline has input, output and param, and no {key!r}")
        return found[key]

    def get_data_type(self, key: Any, interface_type: str) -> Any:
        """The type of an input by name, or of an output by number."""
        if interface_type == "input":
            if key not in self.inputs:
                raise TVMError(f"the stage has no input {key!r}; it has: {', '.join(self.inputs) or 'none'}")
            return self.inputs[key]
        if not str(key).isdigit() or int(key) >= len(self.outputs):
            raise TVMError(f"the stage has no output {key!r}; it has {len(self.outputs)}, from number 0")
        return self.outputs[int(key)]

    def fed(self) -> list[ModuleWrapper]:
        """The stages that its outputs feed."""
        found = [
            b.io_owner for out in self.output_bindings.bindings.values() for b in out.bindings if b.of_stage
        ]
        return list(dict.fromkeys(found))

    def reaches(self, other: ModuleWrapper) -> bool:
        return self is other or any(stage.reaches(other) for stage in self.fed())


class PipelineConfig:
    """What feeds what in a pipeline, and how its stages are built."""

    def __init__(self) -> None:
        self.mod_wrapper: dict[IRModule, ModuleWrapper] = {}
        self.name = "pipeline"
        self.input_bindings = BindingList(self, "input")
        self.output_bindings = BindingList(self, "output")
        self.param_group_bindings = BindingList(self, "param")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, IRModule):
            if key not in self.mod_wrapper:
                self.mod_wrapper[key] = ModuleWrapper(key)
            return self.mod_wrapper[key]
        found = {
            "input": self.input_bindings,
            "output": self.output_bindings,
            "param_group": self.param_group_bindings,
        }
        if key not in found:
            raise TVMError(f"a pipeline has modules, input, output and param_group, and no {key!r}")
        return found[key]

    def __repr__(self) -> str:
        self.dag_topology_sort()
        rows = ["Params", *map(repr, self.param_group_bindings.bindings.values())]
        rows += ["", "Inputs", *map(repr, self.input_bindings.bindings.values())]
        links, outs = [], {}
        for stage in self._stages():
            for out in stage.output_bindings.bindings.values():
                for to in out.bindings:
                    source = f"{stage.name}.output({out.name})"
                    if to.of_stage:
                        links.append(f"  |{source}-> {to.io_owner.name}.{to.name}")
                    else:
                        outs[int(to.name)] = f"  |output({to.name}) : {source}"
        rows += ["", "output", *(outs[k] for k in sorted(outs)), "", "connections", *links]
        return "\n".join(rows)

    def _stages(self) -> list[ModuleWrapper]:
        return sorted(self.mod_wrapper.values(), key=lambda stage: stage.idx)

    def dag_topology_sort(self) -> None:
        """Number the stages so that each comes after those that feed it."""
        left = list(self.mod_wrapper.values())
        number = 0
        while left:
            first = next(s for s in left if not any(s in other.fed() for other in left))
            first.idx, first.name = number, f"mod{number}"
            left.remove(first)
            number += 1

    def get_config(self) -> dict[str, Any]:
        """The connections as data."""
        self.dag_topology_sort()
        inputs = []
        for name, each in self.input_bindings.bindings.items():
            to = self._single(name, each)
            inputs.append(
                {
                    "global_interface_name": name,
                    "mod_idx": to.io_owner.idx,
                    "module_interface_name": to.name,
                }
            )
        params = [
            {"global_param_name": name, "mod_idx": self._single(name, each).io_owner.idx}
            for name, each in self.param_group_bindings.bindings.items()
        ]
        return {
            "module_connection": {s.mod: _stage_config(s) for s in self._stages()},
            "input_connection": inputs,
            "param_connection": params,
        }

    def _single(self, name: str, binding: Binding) -> Binding:
        if len(binding.bindings) != 1:
            raise TVMError(
                f"{binding.io_type} {name} of the pipeline must go to one stage, not to {len(binding.bindings)}"
            )
        return binding.bindings[0]


def _stage_config(stage: ModuleWrapper) -> dict[str, Any]:
    outputs = []
    for out in stage.output_bindings.bindings.values():
        dependencies: list[dict[str, Any]] = [
            {"mod_idx": to.io_owner.idx, "input_name": to.name}
            if to.of_stage
            else {"global_output_index": int(to.name)}
            for to in out.bindings
        ]
        outputs.append({"output_idx": int(out.name), "dependencies": dependencies})
    made = {
        "pipeline": {"mod_idx": stage.idx, "cpu_affinity": stage.cpu_affinity, "output": outputs},
        "target_host": stage.target_host,
        "mod_name": "default",
        "build": stage.build_func,
        "params": stage.params,
        "target": stage.target,
        "fcompile": stage.fcompile,
        "dev": stage.dev,
    }
    return made if stage.export_cc is None else {**made, "export_cc": stage.export_cc}
