#!/usr/bin/env python3
"""Loads exported bottlenecks with AdapterHub's `adapters` library and compares its logits with ours.

    check_bottlenecks.py [--base MODEL] [--tolerance 1e-3] FOLDER...

Each FOLDER holds adapter_config.json, adapter.safetensors, and logits.json as check_adapters.py wants it. The library
knows the blocks of Llama and Mistral; for other families it is told where to hook in. An adapter with missing or
unexpected keys fails, as does one whose logits differ by more than the tolerance. `--resave` also has the library
write each adapter again, to FOLDER/resaved: what an import is tested with.
"""

import argparse
import os
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import adapters
from adapters import AdapterModelInterface

from backbone import folder_of, load
from comparison import Failure, record_of, run, verdict

KNOWN = {"llama", "mistral"}
HOOKS = AdapterModelInterface(
    adapter_methods=["bottleneck"],
    model_embeddings="embed_tokens",
    model_layers="layers",
    layer_self_attn="self_attn",
    layer_cross_attn=None,
    attn_k_proj="k_proj",
    attn_q_proj="q_proj",
    attn_v_proj="v_proj",
    attn_o_proj="o_proj",
    layer_intermediate_proj="mlp.up_proj",
    layer_output_proj="mlp.down_proj",
)


def with_library(model, folder):
    """The model with the adapter, loaded by the library; every key must be known and present."""
    known = model.config.model_type in KNOWN
    adapters.init(model, interface=None if known else HOOKS)
    info = {}
    name = model.load_adapter(str(folder), use_safetensors=True, set_active=True, loading_info=info)
    missing, unexpected = info.get("missing_keys", []), info.get("unexpected_keys", [])
    if missing or unexpected:
        raise Failure(f"{len(missing)} missing {missing[:3]}, {len(unexpected)} unexpected {unexpected[:3]}")
    if not any(f".adapters.{name}." in key for key in model.state_dict()):
        raise Failure("the library has no tensor of it")
    return name


def check(folder, args):
    wanted, base = record_of(folder, args.base)
    model = load(folder_of(base))
    name = with_library(model, folder)
    line = verdict(f"{model.config.model_type}, {name}", model, wanted, args.tolerance)
    if args.resave:
        shutil.rmtree(folder / "resaved", ignore_errors=True)
        model.save_adapter(str(folder / "resaved"), name, use_safetensors=True)
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--resave", action="store_true")
    run(parser, check)


if __name__ == "__main__":
    main()
