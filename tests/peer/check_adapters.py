#!/usr/bin/env python3
"""Loads exported adapters with the PEFT library and compares its logits with ours.

    check_adapters.py [--base MODEL] [--tolerance 1e-3] FOLDER...

Each FOLDER holds adapter_config.json, adapter_model.safetensors, and logits.json, written by the engine:

    {"base": PATH, "sequences": [{"ids": [...], "logits": [[...], ...]}]}

with the logits of the last rows, or of every row. `base` is relative to the folder; --base overrides it. Without
that file (give --base) only the keys are checked. Bottleneck adapters, trained biases and sparse deltas are no PEFT
methods: the same tensors are applied here with plain torch. An adapter with missing or unexpected keys fails, as does
one whose logits differ by more than the tolerance (of the largest logit when that is above 1).
"""

import argparse
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
import torch.nn.functional as F
import transformers
from peft import PeftConfig, get_peft_model
from safetensors.torch import load_file

from backbone import folder_of, load

NAME = "checked"
BY_HAND = {"BOTTLENECK", "BITFIT", "DIFF_PRUNING"}


class Failure(Exception):
    """An adapter that is not as it should be."""


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
    tensors = load_file(str(folder / "adapter_model.safetensors"))
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


def compare(model, sequences):
    """The largest difference, over the largest logit when that is above 1."""
    worst = 0.0
    model.eval()
    for sequence in sequences:
        wanted = torch.tensor(sequence["logits"], dtype=torch.float32)
        with torch.no_grad():
            found = model(input_ids=torch.tensor([sequence["ids"]])).logits[0]
        found = found[len(found) - len(wanted) :]
        scale = max(1.0, wanted.abs().max().item())
        worst = max(worst, (found - wanted).abs().max().item() / scale)
    return worst


def check(folder, args):
    config = json.loads((folder / "adapter_config.json").read_text())
    record = folder / "logits.json"
    wanted = json.loads(record.read_text()) if record.is_file() else None
    if not wanted and not args.base:
        raise Failure("there is no logits.json, and no --base either")
    base = args.base or str((folder / wanted["base"]).resolve())
    model = load(folder_of(base))
    by_hand = config["peft_type"] in BY_HAND
    model = with_hands(model, folder, config) if by_hand else with_peft(model, folder)
    kind = f"{config['peft_type']}{' (by hand)' if by_hand else ''}"
    if not wanted:
        return f"{kind}: every key has its place; no logits.json to compare with"
    worst = compare(model, wanted["sequences"])
    if not worst <= args.tolerance:
        raise Failure(f"logits differ by {worst:.1e}, {args.tolerance:.0e} allowed")
    return f"{kind}: logits within {worst:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--base")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for folder in args.folders:
        try:
            print(f"{folder}: {check(folder, args)}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"{folder}: FAILED: {failure}", flush=True)
    print(f"{len(args.folders) - failed} of {len(args.folders)} adapters agree")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
