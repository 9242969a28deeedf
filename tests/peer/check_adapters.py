#!/usr/bin/env python3
"""Loads exported adapters with the PEFT library and compares its logits with ours.

    check_adapters.py [--base MODEL] [--tolerance 1e-3] FOLDER...

Each FOLDER holds adapter_config.json, adapter_model.safetensors, and logits.json, written by the engine:

    {"base": PATH, "sequences": [{"ids": [...], "logits": [[...], ...]}]}

with the logits of the last rows, or of every row. `base` is relative to the folder; --base overrides it. Without
that file (give --base) only the keys are checked. Bottleneck adapters, trained biases and sparse deltas are no PEFT
methods: the same tensors are applied here with plain torch (check_bottlenecks.py loads serial bottlenecks with the
library that has them). An adapter with missing or unexpected keys fails, as does
one whose logits differ by more than the tolerance (of the largest logit when that is above 1).
"""

import argparse
import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
import torch.nn.functional as F
from peft import PeftConfig, get_peft_model
from safetensors.torch import load_file

from backbone import folder_of, load
from comparison import Failure, record_of, run, verdict

NAME = "checked"
PLACES = [("attention_adapters", "self_attn"), ("output_adapters", "mlp")]
BY_HAND = {"BOTTLENECK", "BITFIT", "DIFF_PRUNING"}


def with_peft(model, folder):
    """The model with the adapter, loaded by the library; every key must be known and present."""
    config = PeftConfig.from_pretrained(str(folder))
    wrapped = get_peft_model(model, config)
    result = wrapped.load_adapter(str(folder), adapter_name=NAME)
    wrapped.set_adapter(NAME)
    missing = [key for key in result.missing_keys if NAME in key.split(".")]
    unexpected = set(result.unexpected_keys)
    if config.is_prompt_learning:
        # The library loads this tensor apart, by its own strict rule, and calls it unexpected all the same.
        unexpected.discard("prompt_embeddings")
        held = wrapped.prompt_encoder[NAME].embedding.weight
        if not torch.equal(held, load_file(str(folder / "adapter_model.safetensors"))["prompt_embeddings"]):
            raise Failure("prompt_embeddings were not loaded")
    if missing or unexpected:
        raise Failure(f"{len(missing)} missing {missing[:3]}, {len(unexpected)} unexpected {sorted(unexpected)[:3]}")
    return wrapped


def with_hands(model, folder, config):
    """The model with the adapter, applied by plain torch; every tensor must be used."""
    library = "peft_type" not in config
    tensors = load_file(str(folder / ("adapter.safetensors" if library else "adapter_model.safetensors")))
    left = set(tensors)

    def take(key):
        if key not in tensors:
            raise Failure(f"{key} is missing")
        left.discard(key)
        return tensors[key].float()

    modules = dict(model.named_modules())
    for key in sorted(tensors):
        module, _, leaf = key.removeprefix("base_model.model.").rpartition(".")
        if leaf == "bias_delta":
            add_bias(modules[module], take(key))
        elif leaf == "diff_values":
            add_delta(modules[module], take(key), take(key.removesuffix("diff_values") + "diff_columns"))
        elif key.endswith(".adapter.down_proj.weight"):
            prefix = key.removesuffix("down_proj.weight")
            leaves = ["down_proj.weight", "down_proj.bias", "up_proj.weight", "up_proj.bias"]
            part = modules[module.removesuffix(".adapter.down_proj")]
            add_bottleneck(part, [take(prefix + leaf) for leaf in leaves], config)
        elif key.endswith(".adapter_down.0.weight"):
            prefix = key.removesuffix("adapter_down.0.weight")
            leaves = ["adapter_down.0.weight", "adapter_down.0.bias", "adapter_up.weight", "adapter_up.bias"]
            place, beside = next(pair for pair in PLACES if pair[0] in key)
            part = modules[key.split(f".{place}.")[0] + f".{beside}"]
            add_bottleneck(part, [take(prefix + leaf) for leaf in leaves], {**config["config"], "placement": "serial"})
    if left:
        raise Failure(f"{len(left)} tensors are of no use: {sorted(left)[:3]}")
    return model


def add_bias(module, delta):
    module.register_forward_hook(lambda _module, _inputs, output: output + delta)


def add_delta(module, values, columns):
    rows = module.weight.shape[0]
    places = (torch.arange(rows).repeat_interleave(len(values) // rows), columns.long())
    with torch.no_grad():
        module.weight[places] += values


def add_bottleneck(part, tensors, config):
    """Adds to the output of attention or of the feed-forward layer, before the residual sum."""
    down, down_bias, up, up_bias = tensors
    function = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[config["non_linearity"]]
    parallel = config["placement"] == "parallel"

    def added(x):
        return F.linear(function(F.linear(x, down, down_bias)), up, up_bias)

    def hook(_module, positional, named, output):
        first = output[0] if isinstance(output, tuple) else output
        given = named.get("hidden_states") if "hidden_states" in named else positional[0]
        first = first + added(given if parallel else first)
        return (first, *output[1:]) if isinstance(output, tuple) else first

    part.register_forward_hook(hook, with_kwargs=True)


def check(folder, args):
    config = json.loads((folder / "adapter_config.json").read_text())
    wanted, base = record_of(folder, args.base)
    model = load(folder_of(base))
    method = config.get("peft_type", "adapters library")
    by_hand = "peft_type" not in config or method in BY_HAND
    model = with_hands(model, folder, config) if by_hand else with_peft(model, folder)
    return verdict(f"{method}{' (by hand)' if by_hand else ''}", model, wanted, args.tolerance)


def main():
    run(argparse.ArgumentParser(description=__doc__.split("\n\n")[0]), check)


if __name__ == "__main__":
    main()
