"""The base model for the peer scripts: a Hugging Face folder, a GGUF file, or the name of a fetched model.

transformers refuses to save a model that it read from GGUF, so its state dict is written once as f32 safetensors; then
all processes map the same file and share its pages, as separate jobs on one machine would. The folder is read by
transformers 4 as well as 5, whichever wrote it: the adapters library wants the older one.
"""

import hashlib
import json
import os
import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

# Counts up when what is written here changes: a folder of an older form is not read.
LAYOUT = 2


def cache_home():
    """The cache folder that spotmux uses."""
    named = os.environ.get("SPOTMUX_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return pathlib.Path(named) if named else pathlib.Path.home() / ".cache"


def resolve(model):
    """The path that is meant: as given, or the GGUF file of a fetched model of that name."""
    path = pathlib.Path(model)
    if path.is_dir() and not (path / "config.json").is_file():
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return files[0]
    if path.exists():
        return path
    files = sorted((cache_home() / "spotmux" / "models" / model.lower()).glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    raise SystemExit(f"no model at {model}, and none fetched by that name: spotmux model pull {model}")


def folder_of(model):
    """A folder with config.json and f32 safetensors; a GGUF file is turned into one, once."""
    path = resolve(model)
    if path.is_dir():
        return path
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns} {LAYOUT}".encode()).hexdigest()[:16]
    folder = pathlib.Path(tempfile.gettempdir()) / "spotmux-peer" / key
    if (folder / "model.safetensors").is_file():
        return folder
    loaded = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    tied = loaded.config.tie_word_embeddings
    state = {
        name: tensor.float().contiguous().clone()
        for name, tensor in loaded.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    config = loaded.config.to_dict()
    config.pop("quantization_config", None)
    config.update(dtype="float32", architectures=[type(loaded).__name__])
    config.update(rotation_in_old_words(config))
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
    save_file(state, str(beside / "model.safetensors"), metadata={"format": "pt"})
    (beside / "config.json").write_text(json.dumps(config, default=str))
    try:
        beside.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(beside)
    return folder


def rotation_in_old_words(config):
    """What `rope_parameters` of transformers 5 is called in transformers 4, which takes no notice of that key."""
    rotation = dict(config.get("rope_parameters") or {})
    if "rope_theta" not in rotation:
        return {}
    old = {"rope_theta": rotation.pop("rope_theta")}
    if rotation.get("rope_type", "default") != "default":
        old["rope_scaling"] = rotation
    return old


def check_rotation(model, folder):
    """Refuses a model that rotates at other frequencies than its config.json says, in whatever words it says so."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    rotation = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rotation.get("rope_type", "default") != "default":
        return
    theta = rotation.get("rope_theta", config.get("rope_theta", 10000.0))
    found = model.model.rotary_emb.inv_freq.double().cpu()
    wanted = theta ** -(torch.arange(len(found), dtype=torch.float64) / len(found))
    if not torch.allclose(found, wanted, rtol=1e-5, atol=0.0):
        raise SystemExit(f"{folder}: read with another rope_theta than {theta}, which config.json says")


def load(folder):
    """The model in f32, ready to train an adapter."""
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, attn_implementation="sdpa")
    check_rotation(model, folder)
    model.config.use_cache = False
    return model
